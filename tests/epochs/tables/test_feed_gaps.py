"""A gap in a feed is reported for the source that has it, by `plan` as by `run`, with a command that helps."""

import re
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakehouse.errors.errors import CannotContinue, FeedUnavailable
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.views import gate
from tests.lake import Lake, only, planned
from tests.recorded import Recorded, create_standard, first_run

FEED = "ALTER TABLE {right} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '%s')"


@pytest.fixture
def gap(recorded: Recorded) -> Lake:
    """Give a lake where both sources have news, and the feed of the right one was off for some of it."""
    return recorded(create_standard, first_run, leave_gap)


def leave_gap(lake: Lake) -> None:
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    lake.sql(FEED % "false")
    lake.sql("UPDATE {right} SET w = 'unseen' WHERE k = 3")
    lake.sql(FEED % "true")


def test_a_gap_is_named_where_it_is_and_the_command_of_the_message_closes_it(gap: Lake) -> None:
    pipeline = gap.pipeline(refresh="incremental")
    for command in (lambda: planned(gap, pipeline), lambda: pipeline.run(gap.spark)):
        with pytest.raises(FeedUnavailable, match="cannot continue from right at version 1") as stopped:
            command()
        assert stopped.value.found == "its change feed was off from version 2 on, so it lacks UPDATE in version 3"
        assert "`lakejoin backfill --select result`" in stopped.value.hint
        assert "ALTER TABLE" not in stopped.value.hint, "the feed is on"
    assert only(pipeline.backfill(gap.spark)).counts["updated"] == 2
    only(pipeline.verify(gap.spark))
    assert only(pipeline.run(gap.spark)).outcome == "nothing"


@pytest.mark.deep
def test_status_reports_a_gap_that_the_next_run_stops_at(gap: Lake) -> None:
    pipeline = gap.pipeline(refresh="incremental")
    told = status_of(Workspace.open(gap.spark, pipeline.file, pipeline.folder), "result")
    assert (told.state, told.sources[0].warning) == ("unreadable", "")
    assert told.sources[1].warning.startswith("its change feed was off from version 2 on")
    assert "`lakejoin backfill --select result`" in told.note


@pytest.mark.deep
def test_a_gap_that_is_planned_around_is_blamed_on_its_source_in_plan_report_and_ledger(gap: Lake) -> None:
    pipeline = gap.pipeline()
    plan = planned(gap, pipeline)
    report = only(pipeline.run(gap.spark))
    for reason in (plan.reason, report.reason, gap.ledger()[-1]["reason"]):
        assert reason.startswith("feed-gap: right: its change feed was off from version 2 on")
    only(pipeline.verify(gap.spark))


@pytest.mark.deep
def test_a_feed_that_was_off_where_nothing_changed_is_read(loaded: Lake) -> None:
    loaded.sql("UPDATE {right} SET w = 'before' WHERE k = 2")
    loaded.sql(FEED % "false")
    loaded.sql("OPTIMIZE {right}")
    loaded.sql(FEED % "true")
    loaded.sql("UPDATE {right} SET w = 'after' WHERE k = 3")
    pipeline = loaded.pipeline(refresh="incremental")
    assert planned(loaded, pipeline).strategy == "incremental"
    assert only(pipeline.run(loaded.spark)).counts["updated"] == 2
    assert loaded.rows() == [(1, "a", None), (2, "b", "before"), (3, "c", "after")]


@pytest.mark.slow
def test_a_file_of_a_feed_that_is_gone_is_said_of_its_source(loaded: Lake) -> None:
    """Only reading shows it; what Spark says is told without the classes of Java that it went through."""
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    loaded.sql("UPDATE {right} SET w = 'n' WHERE k = 2")
    for file in Path(loaded.path("right"), "_change_data").glob("*.parquet"):
        file.unlink()
    pipeline = loaded.pipeline(refresh="incremental")
    for command in (lambda: planned(loaded, pipeline), lambda: pipeline.run(loaded.spark)):
        with pytest.raises(FeedUnavailable) as stopped:
            command()
        assert (stopped.value.where, stopped.value.exit_code) == ("right", 4)
        assert stopped.value.found.startswith("[FAILED_READ_FILE.FILE_NOT_EXIST] ")
        assert "_change_data" in stopped.value.found
        assert "`lakejoin backfill --select result`" in stopped.value.hint
    pipeline = loaded.pipeline()
    for reason in (planned(loaded, pipeline).reason, only(pipeline.run(loaded.spark)).reason):
        assert reason.startswith("feed-gap: right: [FAILED_READ_FILE.FILE_NOT_EXIST] ")
    only(pipeline.verify(loaded.spark))


@pytest.mark.slow
def test_a_shallow_clone_whose_origin_was_vacuumed_is_unreadable_for_a_backfill_too(lake: Lake) -> None:
    lake.create("origin", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    lake.sql("CREATE TABLE {left} SHALLOW CLONE {origin}", "origin")
    lake.sql("ALTER TABLE {left} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    pipeline = lake.pipeline(refresh="incremental")
    pipeline.backfill(lake.spark)
    away = [(file, file.with_suffix(".away")) for file in Path(lake.path("origin")).glob("*.parquet")]
    for file, kept in away:
        file.rename(kept)
    lake.sql("INSERT INTO {right} VALUES (2, 'y')")
    for command in (pipeline.run, pipeline.backfill):
        with pytest.raises(CannotContinue, match="left: the table itself cannot be read") as stopped:
            command(lake.spark)
        assert (stopped.value.exit_code, "shallow clone" in stopped.value.expected) == (4, True)
        assert stopped.value.hint.startswith("restore the files")
    for file, kept in away:
        kept.rename(file)
    only(pipeline.backfill(lake.spark))
    assert lake.rows() == [(1, "a", "x"), (2, "b", "y")]


@pytest.mark.deep
def test_a_feed_that_goes_before_the_gate_reads_it_leads_to_a_reconciliation(loaded, monkeypatch):
    """Files of a feed may be removed, or grow too old, after the epoch has read them."""
    loaded.sql("UPDATE {left} SET v = 'n'")

    def gone(_: object, epoch: Epoch[BoundJoin], __: int) -> None:
        if epoch.plan.strategy == "incremental":
            raise RuntimeError("[DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION] too old")

    monkeypatch.setattr(gate, "_changed", gone)
    report = only(loaded.pipeline().run(loaded.spark))
    assert (report.strategy, report.counts["updated"]) == ("reconcile", 3)
    assert [path for path in loaded.folder.rglob("*.parquet") if "stage" in str(path)] == []


def without_rows_before_updates(lake: Lake, name: str) -> None:
    """Take the rows before updates from the feed of the newest commit, as a tool that does not write them."""
    commit = sorted(Path(lake.path(name), "_delta_log").glob("*.json"))[-1]
    (file,) = re.findall(r'"cdc":{"path":"([^"]+)"', commit.read_text())
    path = Path(lake.path(name), file)
    rows = pq.read_table(path)
    size = path.stat().st_size
    pq.write_table(rows.filter(pc.not_equal(rows["_change_type"], "update_preimage")), path)
    commit.write_text(commit.read_text().replace(f'"size":{size}', f'"size":{path.stat().st_size}'))
    for checksum in (path.with_name(f".{path.name}.crc"), commit.with_name(f".{commit.name}.crc")):
        checksum.unlink(missing_ok=True)


@pytest.mark.deep
def test_a_feed_without_rows_before_updates_is_said_of_its_source(loaded: Lake) -> None:
    """`auto` computes in full and says why."""
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    without_rows_before_updates(loaded, "left")
    with pytest.raises(FeedUnavailable, match="as they were before or after an update") as stopped:
        loaded.pipeline(refresh="incremental").run(loaded.spark)
    assert (stopped.value.where, stopped.value.found) == (
        "left",
        "0 rows before updates and 1 after them in versions 2 to 2",
    )
    pipeline = loaded.pipeline()
    assert only(pipeline.run(loaded.spark)).strategy == "reconcile"
    only(pipeline.verify(loaded.spark))
