"""Joins that do not read each other: one after the other, and side by side."""

from typing import Any

from tests.benchmarks.compare import medians
from tests.benchmarks.cost import Meter
from tests.lake import Lake

JOINS = 8
THREADS = (1, 2, 4)


def threads(meter: Meter, lake: Lake, rows: int, repeat: int) -> dict[str, Any]:
    """Take runs of eight joins of two tables each, with one changed row in each, by the number of threads."""
    names = [f"j{number}" for number in range(JOINS)]
    for number in range(JOINS):
        for side in ("left", "right"):
            lake.create(f"{side}{number}", "k BIGINT, v BIGINT")
            lake.sql(f"INSERT INTO {{{side}{number}}} SELECT id, id % 1000 FROM range({rows})", f"{side}{number}")
    statements = {
        name: f"SELECT l.k, l.v, r.v AS w FROM left{number} l LEFT JOIN right{number} r ON l.k = r.k"
        for number, name in enumerate(names)
    }
    sources = {f"{side}{number}": "k" for number in range(JOINS) for side in ("left", "right")}
    first = names[0]
    further = {name: statements[name] for name in names[1:]}
    pipeline = lake.pipeline(statements[first], sources, first, further=further)
    pipeline.run(lake.spark, threads=THREADS[-1])
    seconds: dict[str, list[float]] = {str(number): [] for number in THREADS}
    for turn in range(repeat + 1):
        for number in THREADS:
            for join in range(JOINS):
                lake.sql(f"UPDATE {{left{join}}} SET v = v + 1 WHERE k = {turn * 7 + number}", f"left{join}")
            cost, reports = meter.measure(lake.spark, lambda: pipeline.run(lake.spark, threads=number))  # noqa: B023
            assert [report.changed for report in reports] == [1] * JOINS
            if turn:
                seconds[str(number)].append(cost.seconds)
    return {"joins": JOINS, "seconds_by_threads": medians(seconds)}
