"""The driver through real Delta tables: what a run does, and what it leaves alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from lakehouse.errors.errors import (
    AnotherRun,
    DefinitionChanged,
    Drifted,
    DuplicateKey,
    ForeignWriter,
    GateFailed,
    NotLoaded,
    PipelineFileError,
)
from lakehouse.session.session import settings
from pipelines.binding.workspace import Workspace
from pipelines.commands.history import history_of
from pipelines.commands.published import BadRange
from pipelines.commands.status import status_of
from pipelines.epochs.tables.kind import TablesKind
from pipelines.plan.request import WrongOptions
from tests.lake import JOIN, Lake, only

LOADED = [(1, "a", None), (2, "b", "x"), (3, "c", "y")]


@pytest.mark.fast
def test_the_first_run_loads_and_later_runs_move_what_changed(standard: Lake) -> None:
    lake, pipeline = standard, standard.pipeline()
    loaded = only(pipeline.run(lake.spark))
    assert (loaded.strategy, loaded.counts["inserted"]) == ("load", 3)
    assert lake.rows() == LOADED
    before = lake.version()

    lake.sql(
        "MERGE INTO {left} t USING (SELECT * FROM VALUES (2, 'B'), (5, 'e') AS s(k, v)) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
    )
    lake.sql("DELETE FROM {left} WHERE k = 3")
    lake.sql("INSERT INTO {right} VALUES (1, 'one'), (9, 'nine'), (NULL, 'none')")
    report = only(pipeline.run(lake.spark))
    assert report.strategy == "incremental"
    assert {name: report.counts[name] for name in ("inserted", "updated", "deleted", "null_keys")} == {
        "inserted": 1, "updated": 2, "deleted": 1, "null_keys": 1,
    }  # fmt: skip
    assert lake.rows() == [(1, "a", "one"), (2, "B", "x"), (5, "e", None)]
    assert lake.feed(before) == [
        ("delete", (3, "c", "y")),
        ("insert", (5, "e", None)),
        ("update_postimage", (1, "a", "one")),
        ("update_postimage", (2, "B", "x")),
        ("update_preimage", (1, "a", None)),
        ("update_preimage", (2, "b", "x")),
    ]
    assert lake.version() == before + 1, "an epoch is one commit"
    verified = only(pipeline.verify(lake.spark))
    assert verified.counts == {"missing": 0, "surplus": 0, "expected": 3}
    assert not list((lake.folder / "lake" / "lakejoin_stage").rglob("*.parquet")), "the stage is gone"


def test_a_second_run_has_nothing_to_do_and_adds_no_version_to_any_table(loaded: Lake) -> None:
    lake, pipeline = loaded, loaded.pipeline()
    versions = lake.versions()
    assert set(versions) == {"left", "right", "result", "lakejoin_ledger"}
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
    lake.sql("ALTER TABLE {left} SET TBLPROPERTIES ('note' = 'x')")
    assert only(pipeline.run(lake.spark)).outcome == "nothing", "a commit without data is no change"
    versions["left"] += 1
    assert lake.versions() == versions


@pytest.mark.slow
def test_overwrites_and_restores_that_change_no_row_leave_no_row_in_the_results_feed(loaded: Lake) -> None:
    """Identical rows written again, and an earlier version restored and taken back: read, counted, and no change."""
    lake, pipeline = loaded, loaded.pipeline()
    lake.sql("UPDATE {right} SET w = 'new' WHERE k = 2")
    assert only(pipeline.run(lake.spark)).changed == 1
    start, now = lake.version(), lake.version("right")
    lake.sql("INSERT OVERWRITE {left} SELECT * FROM {left}")
    lake.sql("RESTORE TABLE {right} TO VERSION AS OF 1")
    lake.sql(f"RESTORE TABLE {{right}} TO VERSION AS OF {now}")
    report = only(pipeline.run(lake.spark))
    assert report.changed == 0
    assert report.counts["read"] > 6
    assert lake.version() == start
    assert [row["step"] for row in lake.ledger()] == ["publishing", "committed"] * 3, "the ledger moves on all the same"
    lake.sql("RESTORE TABLE {right} TO VERSION AS OF 1")
    pipeline.run(lake.spark)
    assert lake.feed(start) == [("update_postimage", (2, "b", "x")), ("update_preimage", (2, "b", "new"))]


@pytest.mark.slow
def test_a_changed_column_that_the_join_does_not_use_is_no_change(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING, unused STRING", "(1, 'a', 'u')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    pipeline = lake.pipeline()
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET unused = 'other'")
    report = only(pipeline.run(lake.spark))
    assert (report.counts["read"], report.counts["touched"], report.changed) == (2, 0, 0)


def test_a_row_that_leaves_the_filter_is_deleted_and_one_that_enters_is_inserted(standard: Lake) -> None:
    lake = standard
    pipeline = lake.pipeline(JOIN + " WHERE coalesce(r.w, l.v) <> 'x'")
    pipeline.run(lake.spark)
    start = lake.version()
    lake.sql("UPDATE {right} SET w = CASE k WHEN 2 THEN 'q' WHEN 3 THEN 'x' ELSE w END")
    pipeline.run(lake.spark)
    assert lake.feed(start) == [("delete", (3, "c", "y")), ("insert", (2, "b", "q"))]


def test_verify_names_the_rows_that_drifted_and_backfill_mends_them(standard: Lake) -> None:
    lake, pipeline = standard, standard.pipeline()
    lake.create("result", "k INT, v STRING, w STRING", "(1, 'a', NULL), (2, 'b', 'old'), (7, 'g', 'g')")
    with pytest.raises(NotLoaded, match="verify") as refused:
        pipeline.run(lake.spark)
    assert refused.value.exit_code == 4
    with pytest.raises(Drifted, match="2 rows are missing, 2 do not belong") as drift:
        pipeline.verify(lake.spark)
    assert "k=7" in drift.value.found
    start = lake.version()
    report = only(pipeline.backfill(lake.spark))
    assert (report.counts["inserted"], report.counts["updated"], report.counts["deleted"]) == (1, 1, 1)
    assert lake.rows() == LOADED
    assert len(lake.feed(start)) == 4, "only what differed was written"
    version = lake.version()
    assert only(pipeline.backfill(lake.spark)).changed == 0
    assert lake.version() == version, "a backfill of a correct result changes nothing"
    assert only(pipeline.run(lake.spark)).outcome == "nothing"


def test_a_foreign_writer_stops_the_join_until_a_backfill(loaded: Lake) -> None:
    lake, pipeline = loaded, loaded.pipeline()
    lake.sql("OPTIMIZE {result}")
    assert only(pipeline.run(lake.spark)).outcome == "nothing", "upkeep is nobody's write"
    lake.sql("DELETE FROM {result} WHERE k = 1")
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    changed = lake.version()
    for _ in range(2):
        with pytest.raises(ForeignWriter, match="DELETE in version"):
            pipeline.run(lake.spark)
    workspace = Workspace.open(lake.spark, pipeline.file, lake.folder)
    refused, load = history_of(workspace, "result", 10).epochs
    assert (refused.epoch, refused.step, load.step) == (2, "refused", "committed"), "one row for the same refusal"
    assert "DELETE in version" in refused.message
    assert "lakejoin backfill" in refused.message
    assert "FOREIGN_WRITER" in status_of(workspace, "result").refused
    assert only(pipeline.verify(lake.spark, version=changed - 1)).counts["expected"] == len(LOADED)
    with pytest.raises(Drifted, match="1 rows are missing"):
        pipeline.verify(lake.spark, version=changed)
    for wrong in (0, changed + 1):
        with pytest.raises(BadRange, match="no epoch in version"):
            pipeline.verify(lake.spark, version=wrong)
    with pytest.raises(WrongOptions):
        pipeline.verify(lake.spark, version=changed, quick=True)
    pipeline.backfill(lake.spark)
    only(pipeline.verify(lake.spark))
    lake.sql("UPDATE {left} SET v = 'm' WHERE k = 2")
    assert only(pipeline.run(lake.spark)).strategy == "incremental"


def test_a_changed_definition_waits_for_a_person(loaded: Lake) -> None:
    lake = loaded
    lake.pipeline("/* the same */ select l.k, l.v, r.w from left l left join right r on l.k = r.k").run(lake.spark)
    changed = lake.pipeline(JOIN.replace("r.w", "upper(r.w) AS w"))
    for command in (changed.run, changed.verify):
        with pytest.raises(DefinitionChanged):
            command(lake.spark)
    assert only(changed.backfill(lake.spark)).counts["updated"] == 2


def test_a_duplicate_key_stops_the_epoch_with_examples_and_nothing_is_published(loaded: Lake) -> None:
    lake, pipeline = loaded, loaded.pipeline()
    versions = lake.versions()
    lake.sql("INSERT INTO {right} VALUES (2, 'again')")
    with pytest.raises(DuplicateKey, match=r"found: k=2 \(2 rows\)") as refused:
        pipeline.run(lake.spark)
    assert (refused.value.exit_code, refused.value.where) == (1, "right")
    versions["right"] += 1
    assert lake.versions() == versions
    lake.sql("DELETE FROM {right} WHERE w = 'again'")
    assert only(pipeline.run(lake.spark)).changed == 0


def test_a_load_refuses_duplicates_and_leaves_nothing_behind(standard: Lake) -> None:
    lake, pipeline = standard, standard.pipeline()
    lake.sql("INSERT INTO {left} VALUES (1, 'twice')")
    with pytest.raises(DuplicateKey):
        pipeline.run(lake.spark)
    assert set(lake.versions()) == {"left", "right"}


def test_an_unknown_column_is_a_fault_of_the_file(standard: Lake) -> None:
    lake = standard
    with pytest.raises(PipelineFileError, match="w") as refused:
        lake.pipeline(JOIN.replace("r.w", "r.ww")).run(lake.spark)
    assert refused.value.exit_code == 2


def test_refresh_incremental_never_computes_in_full(standard: Lake) -> None:
    lake = standard
    pipeline = lake.pipeline(refresh="incremental")
    with pytest.raises(NotLoaded, match="backfill"):
        pipeline.run(lake.spark)
    assert only(pipeline.backfill(lake.spark)).strategy == "load"


@pytest.mark.deep
def test_refresh_full_writes_only_what_differs(standard: Lake) -> None:
    lake = standard
    pipeline = lake.pipeline(refresh="full")
    pipeline.run(lake.spark)
    start = lake.version()
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    assert only(pipeline.run(lake.spark)).strategy == "reconcile"
    assert lake.feed(start) == [("update_postimage", (2, "n", "x")), ("update_preimage", (2, "b", "x"))]


def test_a_failed_gate_publishes_nothing_and_uses_up_no_number(loaded: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, pipeline = loaded, loaded.pipeline()
    version = lake.version()
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    honest = TablesKind.compute

    def spoilt(kind, epoch, stage):  # type: ignore[no-untyped-def]
        computed = honest(kind, epoch, stage)
        spark = kind.workspace.spark
        rows = stage.get(spark, "result").collect()
        schema = stage.get(spark, "result").schema
        stage.delete()
        extra = ("delete", (99,), (99, "never", "there"), None)
        stage.put("result", spark.createDataFrame([*map(tuple, rows), extra], schema))
        return replace(computed, writes=(replace(computed.writes[-1], deleted=1),))

    monkeypatch.setattr(TablesKind, "compute", spoilt)
    with pytest.raises(GateFailed, match="no unnecessary tombstone"):
        pipeline.run(lake.spark)
    assert lake.version() == version
    assert [row["step"] for row in lake.ledger()][-1] == "rejected"
    monkeypatch.undo()
    assert only(pipeline.run(lake.spark)).epoch == 2
    only(pipeline.verify(lake.spark))


@pytest.mark.deep
def test_the_callers_session_is_not_touched(standard: Lake) -> None:
    lake, pipeline = standard, standard.pipeline()
    with settings(lake.spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        before = dict(lake.spark.conf.getAll)
        pipeline.run(lake.spark)
        assert dict(lake.spark.conf.getAll) == before
    assert lake.spark.catalog.listTables() == []


def test_two_runs_at_once_publish_one_epoch(loaded: Lake) -> None:
    """Both compute; the publishing row decides, the loser says so or finds nothing left to do, and no row is twice."""
    lake, pipeline = loaded, loaded.pipeline()
    start = lake.version()
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")

    def attempt(_: int) -> str:
        try:
            return only(pipeline.run(lake.spark)).outcome
        except AnotherRun as error:
            return error.code

    with ThreadPoolExecutor(2) as both:
        outcomes = list(both.map(attempt, range(2)))
    assert set(outcomes) <= {"done", "nothing", "ANOTHER_RUN"}, outcomes
    assert "done" in outcomes, outcomes
    assert lake.feed(start) == [("update_postimage", (2, "n", "x")), ("update_preimage", (2, "b", "x"))]
    assert [(row["epoch"], row["step"]) for row in lake.ledger()][2:] == [(2, "publishing"), (2, "committed")]
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
