"""What Spark did for something: its seconds and jobs, and the files and bytes that it read and wrote."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """
    Seconds and Spark's own counts; files and bytes are those of tables, their logs and stages together. Bytes read are
    the sizes of the files that scans opened, whatever part of them they needed.
    """

    seconds: float
    spark_jobs: int
    files_read: int
    files_written: int
    bytes_read: int
    bytes_written: int
    scanned: frozenset[str]
    """Folders whose Parquet files were read; a log's checkpoint is one below `_delta_log`."""
    shuffled: tuple[int, ...] = ()
    """Bytes that each task of the stage with most of them read from a shuffle."""

    def counts(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name not in ("seconds", "scanned", "shuffled")}


class Meter:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[int, str] = {}

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._folder.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def measure(self, spark: SparkSession, action: Callable[[], T]) -> tuple[Cost, T]:
        list(self._events(spark, 0))
        start_at = self._log(spark).stat().st_size
        start = time.monotonic()
        result = action()
        seconds = time.monotonic() - start
        return self._cost(seconds, list(self._events(spark, start_at))), result

    def _log(self, spark: SparkSession) -> Path:
        return next(self._folder.glob(f"{spark.sparkContext.applicationId}*"))

    def _events(self, spark: SparkSession, offset: int) -> Iterator[dict[str, Any]]:
        log, size = self._log(spark), -1
        while size != (size := log.stat().st_size):
            time.sleep(0.3)
        with log.open("rb") as lines:
            lines.seek(offset)
            for line in lines:
                event = json.loads(line)
                self._learn(event)
                yield event

    def _learn(self, event: dict[str, Any]) -> None:
        for node in _nodes(event):
            for metric in node["metrics"]:
                self._names[metric["accumulatorId"]] = metric["name"]

    def _cost(self, seconds: float, events: list[dict[str, Any]]) -> Cost:
        counted: dict[str, int] = {}
        for event in events:
            for number, value in event.get("accumUpdates", []):
                name = self._names.get(number, "")
                counted[name] = counted.get(name, 0) + value
        tasks = [event["Task Metrics"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
        tasks = [task for task in tasks if task]
        return Cost(
            seconds=round(seconds, 2),
            spark_jobs=sum(event["Event"] == "SparkListenerJobStart" for event in events),
            files_read=counted.get("number of files read", 0),
            files_written=counted.get("number of written files", 0),
            bytes_read=counted.get("size of files read", 0),
            bytes_written=sum(task["Output Metrics"]["Bytes Written"] for task in tasks),
            scanned=self._scanned(events),
            shuffled=_shuffled(events),
        )

    def _scanned(self, events: list[dict[str, Any]]) -> frozenset[str]:
        found = set()
        for event in events:
            for node in _nodes(event):
                where = node.get("metadata", {}).get("Location", "")
                if node["nodeName"].lower().startswith("scan parquet"):
                    found.add(where[where.find("[") + 1 :].rstrip("]"))
        return frozenset(found)


def _shuffled(events: list[dict[str, Any]]) -> tuple[int, ...]:
    stages: dict[int, list[int]] = {}
    for event in events:
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Metrics"]:
            read = event["Task Metrics"]["Shuffle Read Metrics"]
            size = read["Remote Bytes Read"] + read["Local Bytes Read"]
            stages.setdefault(event["Stage ID"], []).append(size)
    return tuple(max(stages.values(), key=sum, default=[]))


def _nodes(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    nodes = [event["sparkPlanInfo"]] if "sparkPlanInfo" in event else []
    while nodes:
        node = nodes.pop()
        nodes += node["children"]
        yield node
