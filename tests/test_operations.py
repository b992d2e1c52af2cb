"""
What people who administer a lake do to tables: right epochs stay right, and every error names a command that works.
Each test goes on, by the command that the message names, to a result that is what plain Spark SQL makes of the sources.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakehouse.errors.errors import (
    BrokenEpoch,
    CannotContinue,
    FeedUnavailable,
    ForeignWriter,
    LedgerForgot,
    NotLoaded,
    SourceRecreated,
    WriteRefused,
)
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.session import session as sessions
from pipelines import Pipeline
from tests.exact import application, held, plain
from tests.killing import killed
from tests.lake import JOIN, KEYED, Lake, only
from tests.recorded import Recorded, create_standard, first_run


def left_open(lake: Lake, at: str = "merge into result", when: str = "before") -> None:
    with killed(at, when):
        lake.pipeline().run(lake.spark)


def change(lake: Lake) -> None:
    lake.sql("UPDATE {left} SET v = 'A' WHERE k = 1")
    lake.sql("INSERT INTO {left} VALUES (9, 'n')")
    lake.sql("DELETE FROM {left} WHERE k = 3")


@pytest.fixture
def changed(recorded: Recorded) -> Lake:
    """Give a loaded lake whose `left` has changed since."""
    return recorded(create_standard, first_run, change)


@pytest.fixture
def opened(recorded: Recorded) -> Lake:
    """Give the same lake with an epoch that was killed before its MERGE."""
    return recorded(create_standard, first_run, change, left_open)


def is_right(lake: Lake) -> None:
    """See that the result is what plain Spark SQL makes of the sources, and that `verify` says so."""
    assert held(lake) == plain(lake, JOIN)
    only(lake.pipeline().verify(lake.spark))


def alter(lake: Lake, name: str, **properties: str) -> None:
    for key, value in properties.items():
        lake.sql(f"ALTER TABLE {{{name}}} SET TBLPROPERTIES ('delta.{key}' = '{value}')", name)


# Sources that were put back


@pytest.mark.parametrize("beyond", [False, True])
def test_a_source_that_was_put_back_from_a_copy_is_another_one(loaded: Lake, tmp_path: Path, beyond: bool) -> None:
    """It has the recorded id, and reaches or passes the recorded version by other commits."""
    copy = tmp_path / "copy"
    shutil.copytree(loaded.path("left"), copy)
    change(loaded)
    assert only(loaded.pipeline().run(loaded.spark)).strategy == "incremental"
    shutil.rmtree(loaded.path("left"))
    shutil.move(copy, loaded.path("left"))
    for number in range(4 if beyond else 3):
        loaded.sql(f"INSERT INTO {{left}} VALUES ({20 + number}, 'o')")
    with pytest.raises(SourceRecreated, match="restored from a copy") as refused:
        loaded.pipeline().run(loaded.spark)
    assert "backfill --select result" in refused.value.hint
    loaded.pipeline().backfill(loaded.spark)
    is_right(loaded)
    change(loaded)
    assert only(loaded.pipeline().run(loaded.spark)).strategy == "incremental"
    is_right(loaded)


@pytest.mark.slow
def test_a_copied_lake_goes_on_though_the_times_of_its_files_are_others(loaded: Lake, tmp_path: Path) -> None:
    shutil.copytree(loaded.folder, tmp_path / "copied", copy_function=shutil.copyfile)
    copied = Lake(loaded.spark, tmp_path / "copied")
    change(copied)
    assert only(copied.pipeline().run(copied.spark)).strategy == "incremental"
    is_right(copied)


@pytest.mark.slow
def test_where_no_transaction_is_known_the_time_of_a_commit_tells_it_from_another_one(loaded, tmp_path, monkeypatch):
    """As where this process cannot read the files of a log."""
    monkeypatch.setattr("lakehouse.tables.identity.commit_line", lambda *_: "")
    copy = tmp_path / "copy"
    shutil.copytree(loaded.path("left"), copy)
    change(loaded)
    loaded.pipeline().run(loaded.spark)
    shutil.rmtree(loaded.path("left"))
    shutil.move(copy, loaded.path("left"))
    change(loaded)
    with pytest.raises(SourceRecreated, match="restored from a copy"):
        loaded.pipeline().run(loaded.spark)


# The feed of the result


def test_an_epoch_is_not_published_without_its_change_feed(opened: Lake) -> None:
    alter(opened, "result", enableChangeDataFeed="false")
    before = opened.version()
    with pytest.raises(FeedUnavailable, match="turned off while an epoch was open") as refused:
        opened.pipeline().run(opened.spark)
    assert opened.version() == before
    assert "run --select result" in refused.value.hint
    alter(opened, "result", enableChangeDataFeed="true")
    opened.pipeline().run(opened.spark)
    is_right(opened)
    assert {row[0] for row in opened.feed(before + 1)} == {"insert", "delete", "update_preimage", "update_postimage"}


# Copied lakes


@pytest.mark.slow
def test_a_copied_lake_finishes_its_open_epoch_in_its_own_tables(opened: Lake, tmp_path: Path) -> None:
    copied = opened.copy(tmp_path / "copied")
    before = opened.versions()
    assert only(copied.pipeline().run(copied.spark)).strategy == "resume"
    is_right(copied)
    assert opened.versions() == before
    assert only(opened.pipeline().run(opened.spark)).strategy == "resume"
    is_right(opened)


@pytest.mark.slow
def test_an_open_epoch_whose_tables_lie_elsewhere_is_let_go_by_a_backfill(opened: Lake, tmp_path: Path) -> None:
    """As if its tables had been in another storage when the epoch began."""
    copied = opened.copy(tmp_path / "copied")
    path = f"transform(targets, t -> named_struct('name', t.name, 'path', '{opened.path('result')}', 'table_name', "
    path += "t.table_name, 'id', t.id, 'base_version', t.base_version, 'version', t.version, 'commit', t.commit))"
    stage = f"concat('{opened.folder}/lake/', stage)"
    copied.sql(f"UPDATE {{{LEDGER}}} SET targets = {path}, stage = {stage} WHERE step = 'publishing'", LEDGER)
    before = opened.versions()
    with pytest.raises(CannotContinue, match="copied or moved") as refused:
        copied.pipeline().run(copied.spark)
    assert "backfill --select result" in refused.value.hint
    copied.pipeline().backfill(copied.spark)
    is_right(copied)
    assert opened.versions() == before
    assert only(opened.pipeline().run(opened.spark)).strategy == "resume"  # its stage is still there
    is_right(opened)


@pytest.mark.slow
def test_a_stage_that_is_gone_before_anything_was_written_is_planned_anew(opened: Lake) -> None:
    shutil.rmtree(opened.folder / "lake" / "lakejoin_stage")
    assert only(opened.pipeline().run(opened.spark)).strategy == "incremental"
    is_right(opened)


def test_a_stage_that_is_gone_half_way_is_let_go_by_a_backfill(changed: Lake) -> None:
    left_open(changed, when="after")
    shutil.rmtree(changed.folder / "lake" / "lakejoin_stage")
    with pytest.raises(CannotContinue, match="part of the epoch is written") as refused:
        changed.pipeline().run(changed.spark)
    assert "backfill --select result" in refused.value.hint
    changed.pipeline().backfill(changed.spark)
    is_right(changed)


@pytest.mark.slow
def test_lakes_that_share_a_folder_of_stages_leave_each_other_s_alone(loaded: Lake, standard: Lake) -> None:
    """`maintain` removed an open epoch's stage of another pipeline with a join of the same name."""
    stages = str(loaded.folder / "stages")
    pipelines = {}
    for name, lake in (("one", loaded), ("other", standard)):
        lake.spark.sql(f"CREATE SCHEMA operations_{name}")
        sources = {side: {"key": "k", "path": f"./lake/{side}"} for side in KEYED}
        storage = {"storage": {"schema": f"operations_{name}", "stage": stages}}
        pipelines[name] = lake.pipeline(sources=sources, beside=storage)
        pipelines[name].run(lake.spark)
    change(loaded)
    with killed("merge into result"):
        pipelines["one"].run(loaded.spark)
    for _ in range(2):
        standard.sql("UPDATE {left} SET v = concat(v, '+')")
        pipelines["other"].run(standard.spark)
    pipelines["other"].maintain(standard.spark)
    assert only(pipelines["one"].run(loaded.spark)).strategy == "resume"
    rows = loaded.spark.table("operations_one.result").collect()
    assert sorted(map(tuple, rows)) == [(1, "A", None), (2, "b", "x"), (9, "n", None)]
    for name in pipelines:
        loaded.spark.sql(f"DROP SCHEMA operations_{name} CASCADE")


# Right epochs that were called broken


@pytest.mark.slow
def test_auto_compaction_of_the_result_is_upkeep(loaded: Lake) -> None:
    """Its OPTIMIZE carries the mark of the MERGE before it."""
    loaded.sql("ALTER TABLE {result} SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true')")
    loaded.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    try:
        for number in range(3):
            loaded.sql(f"INSERT INTO {{left}} VALUES ({20 + number}, 'n')")
            assert only(loaded.pipeline().run(loaded.spark)).outcome == "done"
    finally:
        loaded.spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
    operations = [row.operation for row in loaded.sql("DESCRIBE HISTORY {result}")]
    assert "OPTIMIZE" in operations
    is_right(loaded)


@pytest.mark.slow
def test_without_metrics_the_feed_tells_what_a_commit_changed(changed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a platform that keeps `delta.history.metricsEnabled` off."""
    monkeypatch.delitem(sessions.FIXED, "spark.databricks.delta.history.metricsEnabled")
    with application({"spark.databricks.delta.history.metricsEnabled": "false"}):
        report = only(changed.pipeline().run(changed.spark))
    assert report.outcome == "done"
    assert not changed.sql("DESCRIBE HISTORY {result} LIMIT 1")[0].operationMetrics
    is_right(changed)


# A ledger that lost rows


def restored(lake: Lake) -> None:
    """Bring the ledger back to before the last epoch."""
    lake.sql(f"RESTORE TABLE {{{LEDGER}}} TO VERSION AS OF 2", LEDGER)


def rows_deleted(lake: Lake) -> None:
    lake.sql(f"DELETE FROM {{{LEDGER}}} WHERE join_name = 'result'", LEDGER)


@pytest.mark.parametrize(("forget", "error"), [(restored, ForeignWriter), (rows_deleted, NotLoaded)])
@pytest.mark.slow
def test_a_ledger_that_lost_rows_goes_on_above_the_numbers_that_delta_knows(changed, forget, error):
    changed.pipeline().run(changed.spark)
    forget(changed)
    with pytest.raises(error, match="backfill --select result"):
        changed.pipeline().run(changed.spark)
    report = only(changed.pipeline().backfill(changed.spark))
    assert (report.outcome, report.changed) == ("done", 0)
    is_right(changed)
    changed.sql("UPDATE {right} SET w = 'again'")
    assert only(changed.pipeline().run(changed.spark)).strategy == "incremental"
    is_right(changed)


@pytest.mark.slow
def test_a_result_is_begun_anew_where_its_rows_in_the_ledger_were_deleted(loaded: Lake) -> None:
    rows_deleted(loaded)
    shutil.rmtree(loaded.path("result"))
    with pytest.raises(LedgerForgot, match="backfill --select result"):
        loaded.pipeline().run(loaded.spark)
    loaded.pipeline().backfill(loaded.spark)
    is_right(loaded)


@pytest.mark.slow
def test_a_ledger_that_lost_a_closing_row_goes_on(changed: Lake) -> None:
    changed.pipeline().run(changed.spark)
    changed.sql(f"DELETE FROM {{{LEDGER}}} WHERE epoch = 2 AND step = 'committed'", LEDGER)
    with pytest.raises(CannotContinue, match="backfill --select result"):
        changed.pipeline().run(changed.spark)
    changed.pipeline().backfill(changed.spark)
    is_right(changed)


@pytest.mark.slow
def test_a_ledger_restored_to_an_open_load_goes_on(loaded: Lake) -> None:
    """The run that finishes the load writes what Delta takes for written: its history shows the row that is gone."""
    loaded.sql(f"RESTORE TABLE {{{LEDGER}}} TO VERSION AS OF 1", LEDGER)
    with pytest.raises(LedgerForgot, match="backfill --select result"):
        loaded.pipeline().run(loaded.spark)
    loaded.pipeline().backfill(loaded.spark)
    is_right(loaded)
    change(loaded)
    assert only(loaded.pipeline().run(loaded.spark)).strategy == "incremental"


def test_a_ledger_that_would_forget_is_refused(loaded: Lake) -> None:
    alter(loaded, LEDGER, setTransactionRetentionDuration="interval 1 days")
    change(loaded)
    with pytest.raises(CannotContinue, match="UNSET TBLPROPERTIES"):
        loaded.pipeline().run(loaded.spark)
    loaded.sql(f"ALTER TABLE {{{LEDGER}}} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')", LEDGER)
    loaded.pipeline().run(loaded.spark)
    is_right(loaded)


# Constraints and properties of the result


@pytest.mark.deep
def test_a_constraint_that_a_row_violates_is_named_with_an_example(loaded: Lake) -> None:
    loaded.sql("ALTER TABLE {result} ADD CONSTRAINT short CHECK (length(v) < 2)")
    with pytest.raises(ForeignWriter):
        loaded.pipeline().run(loaded.spark)
    loaded.pipeline().backfill(loaded.spark)
    loaded.sql("UPDATE {left} SET v = 'long' WHERE k = 2")
    for command in (loaded.pipeline().run, loaded.pipeline().run, loaded.pipeline().backfill):
        with pytest.raises(WriteRefused, match="DROP CONSTRAINT short") as refused:
            command(loaded.spark)
        assert "long" in refused.value.found
        assert refused.value.exit_code == 4
    loaded.sql("ALTER TABLE {result} DROP CONSTRAINT short")
    loaded.pipeline().backfill(loaded.spark)
    is_right(loaded)


@pytest.mark.slow
def test_a_result_that_only_takes_appends_is_named(loaded: Lake) -> None:
    alter(loaded, "result", appendOnly="true")
    change(loaded)
    with pytest.raises(WriteRefused, match="appendOnly"):
        loaded.pipeline().run(loaded.spark)
    alter(loaded, "result", appendOnly="false")
    loaded.pipeline().run(loaded.spark)
    is_right(loaded)


# First loads and KTables


@pytest.mark.deep
def test_a_first_load_that_somebody_wrote_to_is_reconciled_by_a_backfill(standard: Lake) -> None:
    left_open(standard, at="load result", when="after")
    standard.sql("DELETE FROM {result} WHERE k = 1")
    with pytest.raises(ForeignWriter, match="backfill --select result"):
        standard.pipeline().run(standard.spark)
    standard.pipeline().backfill(standard.spark)
    is_right(standard)


STATE = "left__state"
OF_CHANGELOG = {"left": {"key": "k", "kind": "changelog", "order_by": "v"}, "right": KEYED["right"]}


LATEST = "(SELECT k, max(v) AS v FROM left GROUP BY k)"


def breaks(lake: Lake) -> None:
    """Let an epoch of the KTable be broken: somebody's commit follows while it is open."""
    lake.sql("INSERT INTO {left} VALUES (1, 'b')")
    with killed(f"merge into {STATE}", "after"):
        lake.pipeline(sources=OF_CHANGELOG).run(lake.spark)
    lake.sql(f"UPDATE {{{STATE}}} SET v = 'wrong' WHERE k = 2", STATE)


def changes_rows(lake: Lake) -> None:
    """Change a row of the source, which a changelog does not do."""
    lake.sql("UPDATE {left} SET v = 'bb' WHERE k = 2")


def is_recreated(lake: Lake) -> None:
    shutil.rmtree(lake.path("left"))
    lake.create("left", "k INT, v STRING", "(1, 'n'), (5, 'm')")


@pytest.mark.parametrize("happens", [breaks, changes_rows, is_recreated])
@pytest.mark.slow
def test_a_backfill_reconciles_a_ktable_that_cannot_go_on(standard: Lake, happens: Callable[[Lake], None]) -> None:
    standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
    happens(standard)
    with pytest.raises(CannotContinue, match="run `lakejoin backfill`"):
        standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
    standard.pipeline(sources=OF_CHANGELOG).backfill(standard.spark)
    latest = JOIN.replace("FROM left", f"FROM {LATEST}")
    assert held(standard) == plain(standard, latest)
    standard.sql("INSERT INTO {left} VALUES (2, 'z')")
    assert {report.strategy for report in standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)} == {
        "incremental"
    }
    assert held(standard) == plain(standard, latest)


@pytest.mark.slow
def test_a_ktable_that_takes_no_changes_is_named_by_a_backfill_too(standard: Lake) -> None:
    standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
    alter(standard, STATE, appendOnly="true")
    standard.sql("INSERT INTO {left} VALUES (1, 'b')")
    for _ in range(2):
        with pytest.raises(WriteRefused, match="appendOnly"):
            standard.pipeline(sources=OF_CHANGELOG).backfill(standard.spark)
    alter(standard, STATE, appendOnly="false")
    standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
    assert held(standard) == plain(standard, JOIN.replace("FROM left", f"FROM {LATEST}"))


@pytest.mark.slow
def test_a_join_that_follows_every_row_goes_on_after_its_ktable_was_reconciled(standard: Lake) -> None:
    """What was deleted of the source is no row that came."""

    def pipeline() -> Pipeline:
        options = {"semantics": "kafka", "changelog": True, "further": {"other": JOIN}}
        return standard.pipeline(sources=OF_CHANGELOG, **options)

    standard.sql("INSERT INTO {left} VALUES (1, 'b')")
    pipeline().run(standard.spark)
    standard.sql("DELETE FROM {left} WHERE v = 'b'")
    pipeline().backfill(standard.spark, ["other"])
    pipeline().run(standard.spark)
    assert held(standard) == held(standard, "other") == plain(standard, JOIN.replace("FROM left", f"FROM {LATEST}"))
    pipeline().verify(standard.spark)


@pytest.mark.slow
def test_a_broken_epoch_of_a_ktable_is_not_left_to_a_manual_drop(standard: Lake) -> None:
    standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
    breaks(standard)
    for _ in range(2):
        with pytest.raises((BrokenEpoch, ForeignWriter)) as refused:
            standard.pipeline(sources=OF_CHANGELOG).run(standard.spark)
        assert "drop" not in refused.value.hint
