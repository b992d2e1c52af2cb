"""Sources that change their shape under a join: columns that come, go, are renamed or widened."""

import shutil

import pytest

from pipelines import Pipeline
from pipelines.preview import preview
from pipelines.report import PlanReport
from pipelines.workspace import Workspace
from tests.lake import Lake, only

STAR = "SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
ALL = "SELECT * FROM left l LEFT JOIN right r USING (k)"
EVOLVING = {"columnMapping.mode": "name", "enableTypeWidening": "true"}
BY_STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}


@pytest.fixture
def evolving(lake: Lake) -> Lake:
    """Give a lake with `left` and `right`, whose columns may be renamed, dropped and widened."""
    lake.create("left", "k INT, v STRING, n INT", "(1, 'a', 10), (2, 'b', 20)", **EVOLVING)
    lake.create("right", "k INT, w STRING", "(2, 'x')", **EVOLVING)
    return lake


def planned(lake: Lake, pipeline: Pipeline) -> PlanReport:
    """Plan the one join of a file."""
    report = preview(Workspace.open(lake.spark, pipeline.file, pipeline.folder), "result", ())
    assert isinstance(report, PlanReport)
    return report


@pytest.mark.parametrize("sql", [STAR, ALL], ids=["of one input", "of both"])
def test_a_star_stays_what_it_was_at_the_first_run(evolving: Lake, sql: str) -> None:
    """A new column is named by plan and run and changes nothing, until the result is dropped and loaded anew."""
    lake, pipeline = evolving, evolving.pipeline(sql)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    for report in (planned(lake, pipeline), only(pipeline.run(lake.spark))):
        assert report.strategy == "nothing"
        assert report.details[0].startswith("left has come to have `more`: `*` goes on without")
        assert f"drop {lake.path('result')} and run `lakejoin backfill --select result`" in report.text()
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'm')")
    lake.sql("UPDATE {left} SET more = 'm' WHERE k = 1")
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.changed, len(report.details)) == ("incremental", 1, 1)
    assert lake.rows() == [(1, "a", 10, None), (2, "b", 20, "x"), (3, "c", 30, None)]
    assert only(pipeline.verify(lake.spark)).counts == {"missing": 0, "surplus": 0, "expected": 3}
    assert only(pipeline.backfill(lake.spark)).changed == 0
    assert len({row["definition"] for row in lake.ledger()}) == 1

    shutil.rmtree(lake.path("result"))
    assert only(pipeline.backfill(lake.spark)).details == ()
    assert lake.rows() == [(1, "a", 10, "m", None), (2, "b", 20, None, "x"), (3, "c", 30, "m", None)]
    assert planned(lake, pipeline).details == ()


def test_a_new_column_called_as_another_output_is_not_taken_for_it(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline(STAR, changelog=True)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (w STRING)")
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'not this')")
    (line,) = only(pipeline.run(lake.spark)).details
    assert f"drop {lake.path('result')} and {lake.path('result__changelog')}" in line
    assert lake.rows()[-1] == (3, "c", 30, None)


def test_a_new_column_that_the_select_list_does_not_name_is_nothing_to_talk_about(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline("SELECT l.k, l.v FROM left l JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    assert planned(lake, pipeline).details == ()


def test_a_star_over_a_stream_stays_what_it_was_too(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline(STAR, BY_STREAM)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'm')")
    assert len(planned(lake, pipeline).details) == 1
    report = only(pipeline.run(lake.spark))
    assert (report.counts["appended"], len(report.details)) == (1, 1)
    assert [row[:4] for row in lake.rows()] == [(1, "a", 10, None), (2, "b", 20, "x"), (3, "c", 30, None)]
    only(pipeline.verify(lake.spark))
    assert only(pipeline.backfill(lake.spark)).changed == 0
    shutil.rmtree(lake.path("result"))
    assert only(pipeline.backfill(lake.spark)).strategy == "load"
    assert lake.rows()[-1][:5] == (3, "c", 30, "m", None)
