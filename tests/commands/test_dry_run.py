"""Dry runs of a backfill: the counts that it has afterwards, and nothing written."""

from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.report import JoinReport
from tests.lake import JOIN, Lake, only

CHANGED = ("inserted", "updated", "deleted", "appended")


def counts(report: JoinReport) -> dict[str, int]:
    return {name: report.counts[name] for name in CHANGED if name in report.counts}


def files(lake: Lake) -> set[Path]:
    return {path for path in lake.folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("changelog", [False, True])
@pytest.mark.deep
def test_of_a_result_that_drifted_it_tells_what_a_backfill_then_does(loaded: Lake, changelog: bool) -> None:
    """Also where the changelog is yet to be begun."""
    lake, join = loaded, loaded.pipeline(JOIN, changelog=changelog)
    for statement in ("DELETE FROM {result} WHERE k = 1", "UPDATE {result} SET v = 'x' WHERE k = 2"):
        lake.sql(statement)
    lake.sql("INSERT INTO {result} VALUES (99, 'x', 'y')")
    before = files(lake)
    told = only(join.backfill(lake.spark, dry_run=True))
    assert files(lake) == before
    assert counts(told) == {"inserted": 1, "updated": 1, "deleted": 1}
    assert "would be epoch 2 (reconcile): 1 inserted, 1 updated, 1 deleted; " in told.text()
    assert told.text().endswith("nothing was written")
    assert counts(only(join.backfill(lake.spark))) == counts(told)


def test_before_the_first_load_it_tells_how_many_rows_there_will_be(standard: Lake) -> None:
    before = files(standard)
    told = only(standard.pipeline().backfill(standard.spark, dry_run=True))
    assert (told.strategy, counts(told)) == ("load", {"inserted": 3, "updated": 0, "deleted": 0})
    assert files(standard) == before


@pytest.mark.slow
def test_of_a_stream_it_tells_what_would_be_appended(lake: Lake) -> None:
    """Before its load the rows of its snapshot, later those that recorded epochs lack."""
    lake.create("clicks", "id INT, k INT", "(1, 1), (2, 2), (3, 3)")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    sources = {"clicks": {"key": "id", "kind": "stream"}, "right": {"key": "k"}}
    join = lake.pipeline("SELECT c.id, r.w FROM clicks c LEFT JOIN right r ON c.k = r.k", sources)
    before = files(lake)
    assert counts(only(join.backfill(lake.spark, dry_run=True))) == {"appended": 3}
    assert files(lake) == before
    join.run(lake.spark)
    lake.sql("DELETE FROM {result} WHERE id <> 2")
    before = files(lake)
    assert counts(only(join.backfill(lake.spark, dry_run=True))) == {"appended": 2}
    assert files(lake) == before
    assert counts(only(join.backfill(lake.spark))) == {"appended": 2}


def test_a_decision_is_no_dry_run(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backfill", "--dry-run", "--reset", "-f", str(loaded.file)]) == 2
    assert "it cannot be combined with --reset" in capsys.readouterr().err
