"""
Each way to compute an epoch of tables, in settings of kind, size, width and share of changes: which one is cheaper.

    python -m tests.benchmarks.choice

Prints one JSON line for each setting: the seconds of the ways and of INSERT OVERWRITE by hand, what the ways were
estimated to take, and the way that a run takes. Takes two hours. The constants of `pipelines/plan/cost.py` come from
it.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lakehouse.session.session import local_session
from pipelines.plan.cost import FULL, INCREMENTAL, OVERWRITE
from pipelines.report import JoinReport
from tests.benchmarks.cases import DIMENSIONS, JOINS
from tests.benchmarks.compare import pipeline_of
from tests.benchmarks.workload import Shape, Width, Workload
from tests.lake import Lake, only

Setting = tuple[Shape, int, int]
"""The shape of the changes, their number, and the number of commits that bring them to each source."""

SETTINGS: dict[tuple[str, int, Width], tuple[Setting, ...]] = {
    ("table_table", 200_000, "narrow"): (("uniform", 100, 1), ("uniform", 20_000, 1), ("uniform", 100_000, 1)),
    ("table_table", 1_000_000, "narrow"): (
        ("uniform", 1_000, 1),
        ("recent", 1_000, 1),
        ("uniform", 20_000, 1),
        ("uniform", 100_000, 1),
        ("uniform", 500_000, 1),
        ("recent", 200_000, 1),
        ("uniform", 10_000, 50),
    ),
    ("table_table", 2_000_000, "wide"): (
        ("recent", 4_000, 1),
        ("uniform", 4_000, 1),
        ("uniform", 100_000, 1),
        ("uniform", 1_000_000, 1),
    ),
    ("table_table", 4_000_000, "narrow"): (("recent", 1_000, 1), ("uniform", 40_000, 1), ("uniform", 1_000_000, 1)),
    ("foreign_key", 1_000_000, "narrow"): (
        ("uniform", 10, 1),
        ("uniform", 500, 1),
        ("uniform", 5_000, 1),
        ("uniform", 25_000, 1),
        ("recent", 5_000, 1),
    ),
    ("foreign_key", 2_000_000, "wide"): (("uniform", 100, 1), ("uniform", 5_000, 1), ("uniform", 50_000, 1)),
    ("star", 200_000, "wide"): (("uniform", 200, 1), ("uniform", 20_000, 1), ("uniform", 100_000, 1)),
    ("star", 1_000_000, "narrow"): (
        ("uniform", 1_000, 1),
        ("uniform", 50_000, 1),
        ("uniform", 400_000, 1),
        ("recent", 1_000, 1),
    ),
    ("many", 1_000_000, "narrow"): (("uniform", 1_000, 1), ("uniform", 50_000, 1), ("uniform", 400_000, 1)),
}


class Tried:
    """A lake with one join, whose sources change before each way to compute its epoch."""

    def __init__(self, lake: Lake, kind: str, rows: int, width: Width) -> None:
        self._lake, self._kind, self._rows, self._width = lake, kind, rows, width
        workload = self._workload("uniform", 100)
        workload.fill(lake)
        self._pipeline, self._turn = pipeline_of(lake, workload), 0
        only(self._pipeline.run(lake.spark))

    def way(self, run: Callable[[Any], list[JoinReport]], setting: Setting) -> tuple[float, JoinReport]:
        shape, changes, commits = setting
        for _ in range(commits):
            self._workload(shape, max(changes // commits, 1)).change(self._lake, self._turn)
            self._turn += 1
        start = time.monotonic()
        report = only(run(self._lake.spark))
        return round(time.monotonic() - start, 2), report

    def both(self, setting: Setting) -> dict[str, Any]:
        """
        Time each way after changes alike; a run that takes none of them says so by its reason.

        Each way reads versions of the sources that no way before it has read.
        """
        feeds, found = self.way(partial(self._run, refresh=INCREMENTAL), setting)
        full, _ = self.way(self._pipeline.backfill, setting)
        over, overwritten = self.way(partial(self._run, refresh="full", feed="any"), setting)
        _, chosen = self.way(self._pipeline.run, setting)
        seconds = {INCREMENTAL: feeds, FULL: full, OVERWRITE: over, "by hand": self._by_hand(setting)}
        estimated = {**overwritten.estimates, **found.estimates}
        return {"seconds": seconds, "estimated": estimated, "taken": chosen.strategy}

    def _run(self, spark: Any, **options: str) -> list[JoinReport]:
        statement = self._workload("uniform", 1)
        reports = self._lake.pipeline(statement.statement(), statement.keys, **options).run(spark)
        self._pipeline = pipeline_of(self._lake, statement)
        return reports

    def _by_hand(self, setting: Setting) -> float:
        """Time INSERT OVERWRITE of a table with a change feed by the statement, then go on from these versions."""
        shape, changes, _ = setting
        self._workload(shape, changes).change(self._lake, self._turn)
        statement, self._turn = self._workload("uniform", 1), self._turn + 1
        lake, query, feed = self._lake, statement.query(self._lake), "'delta.enableChangeDataFeed' = 'true'"
        by_hand = lake.at("by_hand")
        if not lake.is_there("by_hand"):
            empty = f"SELECT * FROM ({query}) WHERE FALSE"
            lake.spark.sql(f"CREATE TABLE {by_hand} USING delta TBLPROPERTIES ({feed}) AS {empty}")
        start = time.monotonic()
        lake.spark.sql(f"INSERT OVERWRITE {by_hand} {query}").collect()
        seconds = round(time.monotonic() - start, 2)
        self._pipeline.run(lake.spark)
        return seconds

    def _workload(self, shape: Shape, changes: int) -> Workload:
        workload = JOINS[self._kind](self._rows, changes, shape, self._width)
        if self._kind != "star" or shape != "recent":
            return workload
        large = [name for name, rows in DIMENSIONS.items() if rows >= 10_000]  # the others touch a part of all facts
        return replace(workload, changes={"facts": changes, **dict.fromkeys(large, 1)})


def choice() -> Iterator[dict[str, Any]]:
    for (kind, rows, width), settings in SETTINGS.items():
        with tempfile.TemporaryDirectory(prefix="choice-") as folder:
            spark = local_session({"spark.driver.memory": "4g"})
            tried = Tried(Lake(spark, Path(folder)), kind, rows, width)
            tried.both(("uniform", 100, 1))  # warms the session
            for setting in settings:
                yield {"name": kind, "rows": rows, "width": width, "setting": setting, **tried.both(setting)}
            spark.stop()


if __name__ == "__main__":
    for line in choice():
        print(json.dumps(line), flush=True)
