"""
The ways to compute an epoch of tables, in settings of kind, size, width and share of changes: does `refresh: auto` take
the cheaper one?

    python -m tests.benchmarks.choice [--overwrite]

Prints one JSON line for each setting: the seconds from the feeds and in full, what both were estimated to take, and the
way that a run takes. Takes an hour. The constants of `pipelines/plan/cost.py` come from it. With --overwrite: epochs
under `feed: any` beside INSERT OVERWRITE by hand.
"""

import argparse
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
from tests.benchmarks import rivals
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
        ("uniform", 10, 1),
        ("uniform", 10_000, 100),
    ),
    ("table_table", 2_000_000, "wide"): (
        ("recent", 4_000, 1),
        ("uniform", 4_000, 1),
        ("uniform", 100_000, 1),
        ("uniform", 1_000_000, 1),
    ),
    ("table_table", 4_000_000, "narrow"): (
        ("recent", 1_000, 1),
        ("uniform", 40, 1),
        ("uniform", 40_000, 1),
        ("uniform", 1_000_000, 1),
    ),
    ("foreign_key", 1_000_000, "narrow"): (
        ("uniform", 10, 1),
        ("uniform", 500, 1),
        ("uniform", 5_000, 1),
        ("uniform", 25_000, 1),
        ("recent", 5_000, 1),
        ("recent", 500, 20),
    ),
    ("foreign_key", 2_000_000, "wide"): (("uniform", 100, 1), ("uniform", 5_000, 1), ("uniform", 50_000, 1)),
    ("star", 200_000, "wide"): (
        ("uniform", 20, 1),
        ("uniform", 200, 1),
        ("uniform", 20_000, 1),
        ("uniform", 100_000, 1),
    ),
    ("star", 1_000_000, "narrow"): (
        ("uniform", 1_000, 1),
        ("uniform", 50_000, 1),
        ("uniform", 400_000, 1),
        ("recent", 1_000, 1),
    ),
    ("many", 1_000_000, "narrow"): (
        ("uniform", 100, 1),
        ("uniform", 1_000, 1),
        ("uniform", 50_000, 1),
        ("uniform", 400_000, 1),
    ),
}
OVERWRITTEN: dict[tuple[str, int, Width], tuple[Setting, ...]] = {
    ("star", 2_000_000, "narrow"): (("uniform", 2_000, 1), ("uniform", 200_000, 1)) * 2,
    ("foreign_key", 4_000_000, "narrow"): (("uniform", 2_000, 1), ("uniform", 100_000, 1)) * 2,
}


class Tried:
    """A lake with one join, whose sources change before each way to compute its epoch."""

    def __init__(self, lake: Lake, kind: str, rows: int, width: Width) -> None:
        self._lake, self._kind, self._rows, self._width = lake, kind, rows, width
        workload = self._workload("uniform", 100)
        workload.fill(lake)
        self._turn = 0
        only(pipeline_of(lake, workload).run(lake.spark))

    def both(self, setting: Setting) -> dict[str, Any]:
        """
        Time a run that chooses its way, then the other way after changes alike.

        Each way reads versions of the sources that no way before it has read.
        """
        self._change(setting)
        chosen, report = self._run()
        other = FULL if report.strategy == INCREMENTAL else INCREMENTAL
        self._change(setting)
        seconds = {report.strategy: chosen, other: self._run(refresh="full" if other == FULL else INCREMENTAL)[0]}
        return {"seconds": seconds, "estimated": report.estimates, "taken": report.strategy}

    def beside_overwrite(self, setting: Setting, *, first: bool) -> dict[str, Any]:
        """
        Time an epoch under `feed: any`, and INSERT OVERWRITE by hand at the same versions.

        Whoever reads new versions first also pays for their snapshots.
        """
        self._change(setting)
        ways: list[Callable[[], tuple[float, JoinReport | None]]] = [partial(self._run, feed="any"), self._by_hand]
        (one, report), (other, hand) = [way() for way in (ways if first else reversed(ways))]
        report = report or hand
        assert report is not None
        seconds = (one, other) if first else (other, one)
        return {
            "seconds": dict(zip((OVERWRITE, "by hand"), seconds, strict=True)),
            "first": OVERWRITE if first else "by hand",
            "taken": report.strategy,
            "reason": report.reason,
        }

    def _change(self, setting: Setting) -> None:
        shape, changes, commits = setting
        for _ in range(commits):
            self._workload(shape, max(changes // commits, 1)).change(self._lake, self._turn)
            self._turn += 1

    def _run(self, **options: Any) -> tuple[float, JoinReport]:
        statement = self._workload("uniform", 1)
        pipeline = self._lake.pipeline(statement.statement(), statement.keys, **options)
        start = time.monotonic()
        report = only(pipeline.run(self._lake.spark))
        return round(time.monotonic() - start, 2), report

    def _by_hand(self) -> tuple[float, None]:
        """Time INSERT OVERWRITE of a table with a change feed by the statement."""
        lake, workload = self._lake, self._workload("uniform", 1)
        if not lake.is_there("by_hand"):
            rivals.create(lake, workload, "by_hand")
        start = time.monotonic()
        rivals.overwrite(lake, workload, "by_hand")
        return round(time.monotonic() - start, 2), None

    def _workload(self, shape: Shape, changes: int) -> Workload:
        workload = JOINS[self._kind](self._rows, changes, shape, self._width)
        if self._kind != "star" or shape != "recent":
            return workload
        large = [name for name, rows in DIMENSIONS.items() if rows >= 10_000]  # the others touch a part of all facts
        return replace(workload, changes={"facts": changes, **dict.fromkeys(large, 1)})


def choice(*, overwrite: bool) -> Iterator[dict[str, Any]]:
    for (kind, rows, width), settings in (OVERWRITTEN if overwrite else SETTINGS).items():
        with tempfile.TemporaryDirectory(prefix="choice-") as folder:
            spark = local_session({"spark.driver.memory": "4g"})
            tried = Tried(Lake(spark, Path(folder)), kind, rows, width)
            warming: Setting = ("uniform", 100, 1)
            for place, setting in enumerate((warming, *settings)):
                found = tried.beside_overwrite(setting, first=place % 2 == 1) if overwrite else tried.both(setting)
                if place:
                    yield {"name": kind, "rows": rows, "width": width, "setting": setting, **found}
            spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.choice", description=__doc__)
    parser.add_argument("--overwrite", action="store_true", help="epochs under `feed: any` only")
    for line in choice(overwrite=parser.parse_args().overwrite):
        print(json.dumps(line, default=vars), flush=True)
