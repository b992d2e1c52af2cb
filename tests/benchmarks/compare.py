"""One round after the other: the sources change, then each way of keeping the result up to date has its turn."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from pipelines import Pipeline
from pipelines.report import JoinReport
from tests.benchmarks import rivals
from tests.benchmarks.cost import Cost, Meter
from tests.benchmarks.workload import Workload
from tests.lake import Lake, only

WAYS = ("ctas", "full", "recipe", "lakejoin")


@dataclass(frozen=True)
class Run:
    """A run of lakejoin: what it cost, what it reported, and what its feed holds beside what it should."""

    cost: Cost
    report: JoinReport
    feed_rows: int
    needed_rows: int
    differing_rows: int


def compare(meter: Meter, lake: Lake, workload: Workload, ways: Sequence[str], repeat: int) -> dict[str, Any]:
    """Time the ways in the same rounds, after one round that only warms the session."""
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    only(pipeline.run(lake.spark))
    for way in set(ways) & {"full", "recipe"}:
        rivals.create(lake, workload, way)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    runs = []
    for turn in range(repeat + 1):
        since = lake.versions()
        workload.change(lake, turn)
        actions = _actions(lake, workload, pipeline, since)
        order = [*ways[turn % len(ways) :], *ways[: turn % len(ways)]]
        for way in order if turn else [way for way in order if way in ("recipe", "lakejoin")]:
            cost, report = meter.measure(lake.spark, actions[way])
            if turn:
                seconds[way].append(cost.seconds)
            if turn and way == "lakejoin":
                runs.append(_run(lake, cost, report, since["result"], counted=turn == repeat))
    for way in set(ways) & {"full", "recipe"}:
        must_be_equal(lake, "result", way)
    middle_of = medians(seconds)
    middle = sorted(runs, key=lambda run: run.cost.seconds)[len(runs) // 2]
    last = runs[-1]
    return {
        **middle_of,
        **{f"ratio_{way}": ratio(middle_of, way, "lakejoin") for way in ("full", "recipe") if way in ways},
        **account(middle.cost, middle.report),
        "looked_up": middle.report.counts.get("looked_up", 0),
        "feed_rows": last.feed_rows,
        "needed_feed_rows": last.needed_rows,
        "differing_rows": last.differing_rows,
    }


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Give the median of each way's seconds, as `<way>_s`."""
    return {f"{way}_s": round(statistics.median(taken), 2) for way, taken in seconds.items()}


def ratio(of: Mapping[str, float], one: str, other: str) -> float:
    return round(of[f"{one}_s"] / of[f"{other}_s"], 2)


def account(cost: Cost, report: JoinReport) -> dict[str, Any]:
    """Give the fields that say what a run of lakejoin did: seconds of its steps, and Spark's counts."""
    return {"steps": {name: round(value, 2) for name, value in report.seconds.items()}, **cost.counts()}


def pipeline_of(lake: Lake, workload: Workload) -> Pipeline:
    return lake.pipeline(workload.statement(), workload.keys)


def must_be_equal(lake: Lake, one: str, other: str) -> None:
    """See that two tables hold the same rows; a benchmark of a wrong result is worth nothing."""
    counted = lake.spark.sql(f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM {lake.at(one)}").collect()
    columns = ", ".join(lake.spark.sql(f"SELECT * FROM {lake.at(one)} LIMIT 0").columns)
    expected = lake.spark.sql(
        f"SELECT count(*), sum(CAST(xxhash64({columns}) AS DECIMAL(38, 0))) FROM {lake.at(other)}"
    ).collect()
    if counted != expected:
        raise SystemExit(f"{one} and {other} differ: {counted[0]} and {expected[0]}")


def differing(lake: Lake, name: str, before: int, after: int) -> tuple[int, int]:
    """Count the rows of a table that differ between two versions, and the rows that a feed needs to say so."""
    old, new = (
        lake.spark.sql(f"SELECT id, xxhash64(*) AS digest FROM {lake.at(name)} VERSION AS OF {version}")
        for version in (before, after)
    )
    both = old.alias("o").join(new.alias("n"), on=F.expr("o.id = n.id"), how="full")
    row = (
        both.where("NOT o.digest <=> n.digest")
        .select(F.count(F.lit(1)), F.coalesce(F.sum(F.expr("IF(o.id IS NULL OR n.id IS NULL, 1, 2)")), F.lit(0)))
        .collect()[0]
    )
    return row[0], row[1]


def _actions(
    lake: Lake, workload: Workload, pipeline: Pipeline, since: dict[str, int]
) -> dict[str, Callable[[], JoinReport | None]]:
    return {
        "ctas": lambda: rivals.create(lake, workload, "ctas"),
        "full": lambda: rivals.overwrite(lake, workload, "full"),
        "recipe": lambda: rivals.recipe(lake, workload, "recipe", since),
        "lakejoin": lambda: only(pipeline.run(lake.spark)),
    }


def _run(lake: Lake, cost: Cost, report: JoinReport | None, base: int, *, counted: bool) -> Run:
    assert report is not None
    if report.error is not None:
        raise SystemExit(report.error.message)
    if not counted:
        return Run(cost, report, 0, 0, 0)
    feed = sum(lake.feed_counts("result", lake.version()).values())
    rows, needed = differing(lake, "result", base, lake.version())
    return Run(cost, report, feed, needed, rows)
