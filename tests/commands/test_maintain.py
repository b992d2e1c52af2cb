"""Upkeep: fewer files and the same rows, nothing removed that somebody has yet to read."""

import json
import os
import time
from pathlib import Path

import pytest

from lakehouse.errors.errors import AnotherRun, Unexpected
from pipelines import Pipeline
from pipelines.cli import main
from pipelines.commands import maintain
from tests.lake import JOIN, KEYED, Lake, only

FURTHER = {"further": "SELECT r.k, r.v, l.v AS seen FROM result r JOIN left l ON r.k = l.k"}


def chain(lake: Lake) -> Pipeline:
    """Join the result of the standard join once more."""
    return lake.pipeline(JOIN, KEYED, "result", FURTHER)


def files(lake: Lake, name: str) -> int:
    return int(lake.spark.sql(f"DESCRIBE DETAIL {lake.at(name)}").collect()[0]["numFiles"])


@pytest.mark.slow
def test_files_become_few_rows_stay_and_joins_go_on(loaded: Lake) -> None:
    """A join that reads the result sees no change in it; neither does its own next run."""
    lake, joins = loaded, chain(loaded)
    joins.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (11, 'n')")
    joins.run(lake.spark)
    rows, before = lake.rows(), files(lake, "result")
    reports = {report.join: report for report in joins.maintain(lake.spark)}
    assert list(reports) == ["result", "further", "lakejoin_ledger"]
    assert before > 1 == files(lake, "result") == files(lake, "lakejoin_ledger")
    assert reports["result"].counts["files_removed"] == before
    assert lake.rows() == rows
    assert [report.outcome for report in joins.run(lake.spark)] == ["nothing", "nothing"]
    lake.sql("UPDATE {left} SET v = 'z' WHERE k = 11")
    assert [report.counts["updated"] for report in joins.run(lake.spark)] == [1, 1]
    assert [report.outcome for report in joins.verify(lake.spark)] == ["done", "done"]


@pytest.mark.slow
def test_old_files_stay_while_a_join_has_yet_to_read_their_changes(loaded, monkeypatch):
    """Where their retention is over, `maintain` says which join has to run first."""
    lake, joins = loaded, chain(loaded)
    joins.run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'z' WHERE k = 2")
    joins.run(lake.spark, ["result"])
    monkeypatch.setattr(maintain, "retention_seconds", lambda _: 0.0)
    (left_undone,) = joins.maintain(lake.spark, ["result"])[0].details
    assert left_undone.startswith("result: old files are kept, because further has yet to read changes since ")
    joins.run(lake.spark)
    monkeypatch.undo()
    lake.sql("ALTER TABLE {result} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    report = joins.maintain(lake.spark, ["result"])[0]
    assert (report.details, report.counts["files_deleted"] > 0) == ((), True)
    assert [report.outcome for report in joins.run(lake.spark)] == ["nothing", "nothing"]


def test_stages_that_no_epoch_needs_are_deleted(loaded: Lake) -> None:
    """Those of closed epochs, and after a day those of attempts that came to nothing; not what a gate rejected."""
    lake = loaded
    ledger = lake.sql(f"DESCRIBE DETAIL {lake.at('lakejoin_ledger')}")[0]["id"]
    stages = lake.folder / "lake" / "lakejoin_stage" / ledger / "result"
    for name in ("1-closed", "2-young", "2-old"):
        (stages / name).mkdir(parents=True)
    day = time.time() - 2 * 86_400
    os.utime(stages / "2-old", (day, day))
    report = lake.pipeline().maintain(lake.spark)[0]
    assert report.counts["stages_deleted"] == 2
    assert [one.name for one in stages.iterdir()] == ["2-young"]
    assert "2 stages deleted" in report.text()


@pytest.mark.deep
def test_a_lake_that_was_copied_is_maintained_and_not_the_one_it_was_copied_from(loaded: Lake, tmp_path: Path) -> None:
    """The ledger names tables as they lie in its own storage."""
    assert loaded.ledger()[-1]["targets"][-1]["path"] == "result"
    copied, before = loaded.copy(tmp_path / "copied"), loaded.versions()
    copied.pipeline().maintain(copied.spark)
    assert copied.version() > before["result"]
    assert loaded.versions() == before


@pytest.mark.slow
def test_an_open_epoch_is_left_alone(loaded: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run may be at work: nothing is done, and the exit code is that of another run."""
    lake = loaded
    lake.sql("UPDATE {left} SET v = 'z' WHERE k = 2")
    monkeypatch.setattr("pipelines.epochs.run.driver.publish", lambda *_: 1 / 0)
    with pytest.raises(Unexpected, match="division by zero"):
        lake.pipeline().run(lake.spark)
    monkeypatch.undo()
    version = lake.version()
    with pytest.raises(AnotherRun, match="epoch 2 is being published, or was left open"):
        lake.pipeline().maintain(lake.spark)
    assert lake.version() == version
    assert only(lake.pipeline().run(lake.spark)).outcome == "done"


def test_before_the_first_run_there_is_nothing_to_do(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", "-f", str(standard.file), "--output", "json"]) == 0
    parts = json.loads(capsys.readouterr().out)["joins"]
    assert [(part["join"], part["outcome"]) for part in parts] == [
        ("result", "nothing"),
        ("lakejoin_ledger", "nothing"),
    ]
