"""The number of Spark jobs of a warm epoch of a few changes. Each costs a small machine some fifty milliseconds."""

from collections.abc import Callable

import pytest

from lakehouse import limits
from lakehouse.tables.table import DELTA_RS
from pipelines import Pipeline
from tests.lake import Lake, only, planned
from tests.log_readers import without_delta_rs

MOST_JOBS = {"delta-rs": 30, "spark": 60}
"""What an epoch of a join of two tables may take, by the reader of logs and ledger."""
MOST_JOBS_OF_STAR = 110
"""What an epoch of a star of six tables may take, all of which change."""
DIMENSIONS = ("a", "b", "c", "d", "e")


def jobs_of(lake: Lake, action: Callable[[], object]) -> int:
    """Count the jobs of an action: Spark numbers them one after the other."""
    first = number_of_a_job(lake)
    action()
    return number_of_a_job(lake) - first - 1


def number_of_a_job(lake: Lake) -> int:
    context = lake.spark.sparkContext
    context.setJobGroup("counted", "a job that is only counted")
    lake.spark.range(0, 1, 1, 1).collect()
    context.setLocalProperty("spark.jobGroup.id", "")
    return int(max(context.statusTracker().getJobIdsForGroup("counted")))


def warm_epoch(lake: Lake, pipeline: Pipeline, change: Callable[[int], object]) -> int:
    """Give the jobs of the third of three epochs."""
    for number in range(3):
        change(number)
        jobs = jobs_of(lake, lambda: only(pipeline.run(lake.spark)))
    return jobs


def test_an_epoch_of_one_change_takes_few_jobs(loaded: Lake, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # the tables stand for larger ones, of which few rows are read
    jobs = warm_epoch(
        loaded, loaded.pipeline(), lambda number: loaded.sql(f"UPDATE {{left}} SET v = 'n{number}' WHERE k = 2")
    )
    assert jobs <= MOST_JOBS[reader]
    assert jobs_of(loaded, lambda: loaded.pipeline().run(loaded.spark)) <= (0 if reader == "delta-rs" else 20)


@pytest.mark.slow
def test_an_epoch_of_a_star_takes_few_jobs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMALL_BYTES", "LITERAL_BYTES"):
        monkeypatch.setattr(limits, name, 0)  # the tables stand for larger ones
    references = ", ".join(DIMENSIONS)
    lake.create(
        "facts",
        f"k INT, v STRING, {', '.join(f'{name} INT' for name in DIMENSIONS)}",
        "(1, 'x', 1, 1, 1, 1, 1), (2, 'y', 2, 2, 2, 2, 2), (3, 'z', 3, 3, 3, 3, 3)",
    )
    for name in DIMENSIONS:
        lake.create(name, f"k INT, w_{name} STRING", "(1, 'p'), (2, 'q'), (3, 'r')")
    joins = " ".join(f"LEFT JOIN {name} ON facts.{name} = {name}.k" for name in DIMENSIONS)
    shown = ", ".join(f"w_{name}" for name in DIMENSIONS)
    keys = dict.fromkeys(("facts", *DIMENSIONS), "k")
    pipeline = lake.pipeline(f"SELECT facts.k, v, {references}, {shown} FROM facts {joins}", keys)
    pipeline.run(lake.spark)

    def change(number: int) -> None:
        lake.sql(f"UPDATE {{facts}} SET v = 'n{number}' WHERE k = 1", "facts")
        for name in DIMENSIONS:
            lake.sql(f"UPDATE {{{name}}} SET w_{name} = 'n{number}' WHERE k = 2", name)

    assert warm_epoch(lake, pipeline, change) <= MOST_JOBS_OF_STAR
    assert len(lake.rows()) == 3


def test_the_plan_names_a_reader_that_costs_a_query(loaded: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    pipeline = loaded.pipeline()
    plan = planned(loaded, pipeline)
    assert plan.readers == {"left": DELTA_RS, "right": DELTA_RS}
    assert "reader" not in plan.text()
    without_delta_rs(monkeypatch, loaded.folder)
    assert "changes of versions 2 to 2; reader: spark (deltalake 1.6.3 is not " in planned(loaded, pipeline).text()
