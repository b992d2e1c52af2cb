"""One test for each pitfall of Delta, Spark and Great Expectations that table-table joins meet; named by its number."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from expectations.gate import gate_change_set, gate_keys
from expectations.gate.rules import judged
from lakehouse.errors.errors import (
    AnotherRun,
    BrokenEpoch,
    CannotContinue,
    DuplicateKey,
    FeedUnavailable,
    GateErrored,
    LakejoinError,
    PipelineFileError,
    SchemaBroken,
    SourceRecreated,
)
from lakehouse.ledger.entries import Entry
from lakehouse.ledger.ledger import Ledger
from lakehouse.publish.merge import Fence, append, merge, merge_statement
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Append, TargetVersions
from lakehouse.session import writing
from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from lakehouse.session.session import own_session, settings
from lakehouse.tables.creation import create
from lakehouse.tables.table import get, read_feed
from lakehouse.values.pruning import pruning
from lakehouse.values.recorded import SourceVersions
from lakehouse.values.sqltext import Address
from pipelines.epochs.sources.feeds import Changes
from pipelines.epochs.views import compute
from pipelines.plan.values import EpochPlan
from tests.lake import Lake, only

MERGE_APP = "spark.databricks.delta.write.txnAppId"
CHANGES = "op STRING, key STRUCT<k: INT>, before STRUCT<k: INT, v: STRING>, after STRUCT<k: INT, v: STRING>"


def stage_of(lake: Lake, *changes: tuple[object, ...], name: str = "1-a") -> Stage:
    stage = Stage(str(lake.folder / "stage" / name), Files())
    stage.put("result", lake.spark.createDataFrame(list(changes), CHANGES))
    return stage


def publish(lake: Lake, stage: Stage, fence: Fence, base: int, *, still_open: bool = True) -> object:
    session = own_session(lake.spark, "UTC")
    ops = [row["op"] for row in stage.get(session, "result").select("op").distinct().collect()]
    engine = Engine.of(session)
    return merge(engine, get(engine, Address("t", lake.path("t"))), stage, ops, fence, base, lambda: still_open)


@pytest.fixture
def target(lake: Lake) -> Lake:
    lake.create("t", "k INT, v STRING", "(1, 'a'), (2, 'b')", enableDeletionVectors="true")
    return lake


def test_pitfall_01_transaction_settings_hold_for_one_statement_only(target: Lake) -> None:
    """After a MERGE nothing of it is set, not after a failed one either, so a later write is not dropped."""
    session = own_session(target.spark, "UTC")
    with pytest.raises(PySparkException), settings(session, {MERGE_APP: "x"}):
        session.sql("MERGE INTO nowhere USING nothing ON true WHEN MATCHED THEN DELETE")
    assert session.conf.get(MERGE_APP, None) is None
    publish(target, stage_of(target, ("update", (1,), (1, "a"), (1, "A"))), Fence("app", 1, "run"), 1)
    assert target.spark.conf.get(MERGE_APP, None) is None
    target.sql("INSERT INTO {t} VALUES (3, 'c')", "t")
    assert len(target.rows("t")) == 3


def test_pitfall_02_a_skipped_replay_is_known_as_applied_while_the_epoch_is_open(target: Lake) -> None:
    """The same epoch published twice is one commit; once the ledger closed it, the late runner is told so."""
    stage = stage_of(target, ("insert", (3,), None, (3, "c")))
    fence = Fence("app", 1, "run")
    first = publish(target, stage, fence, 1)
    assert publish(target, stage, fence, 1) == first
    assert target.version("t") == 2
    with pytest.raises(AnotherRun) as late:
        publish(target, stage, fence, 1, still_open=False)
    assert late.value.exit_code == 5


def test_pitfall_03_a_result_that_forgets_transactions_is_refused(loaded: Lake) -> None:
    loaded.sql("ALTER TABLE {result} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    with pytest.raises(CannotContinue, match="UNSET TBLPROPERTIES"):
        loaded.pipeline().run(loaded.spark)


@pytest.mark.deep
def test_pitfall_05_progress_survives_without_user_metadata(loaded: Lake) -> None:
    """The ledger alone says where to go on: its row names the versions."""
    (committed,) = [row for row in loaded.ledger() if row["step"] == "committed"]
    assert [(s["name"], s["to_version"]) for s in committed["sources"]] == [("left", 1), ("right", 1)]
    assert committed["targets"][0]["version"] == loaded.version()


def test_pitfall_06_a_missing_commit_is_a_gap_and_not_a_smaller_feed(loaded: Lake) -> None:
    loaded.sql("ALTER TABLE {left} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    loaded.sql("INSERT INTO {left} VALUES (7, 'lost')")
    loaded.sql("INSERT INTO {left} VALUES (8, 'loaded')")
    log = Path(loaded.path("left")) / "_delta_log"
    pipeline = loaded.pipeline(refresh="incremental")
    shutil.move(log / f"{3:020}.json", loaded.folder / "aside.json")
    (log / f".{3:020}.json.crc").unlink(missing_ok=True)
    with pytest.raises(FeedUnavailable, match="no version 3") as refused:
        pipeline.run(loaded.spark)
    assert refused.value.exit_code == 4
    assert len(loaded.rows()) == 3


def test_pitfall_07_a_recreated_source_does_not_resume(loaded: Lake) -> None:
    shutil.rmtree(loaded.path("left"))
    loaded.create("left", "k INT, v STRING", "(1, 'a')")
    for value in range(3):
        loaded.sql(f"INSERT INTO {{left}} VALUES ({value + 10}, 'v')")
    with pytest.raises(SourceRecreated, match="backfill") as refused:
        loaded.pipeline().run(loaded.spark)
    assert refused.value.exit_code == 4
    assert only(loaded.pipeline().backfill(loaded.spark)).changed > 0
    only(loaded.pipeline().verify(loaded.spark))


@pytest.mark.parametrize("few", [True, False], ids=["through the driver", "through the stage"])
def test_pitfall_08_both_ends_are_pinned(loaded: Lake, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """A commit that comes while an epoch runs, after the feeds and before the look-ups, belongs to the next one."""
    loaded.sql("UPDATE {left} SET v = 'one' WHERE k = 1")
    loaded.sql("UPDATE {right} SET w = 'one' WHERE k = 2")
    late = ["UPDATE {left} SET v = 'two' WHERE k IN (1, 2)"]
    read_changes = compute.read_changes

    def meanwhile(*given: object) -> dict[str, Changes]:
        read = read_changes(*given)
        while late:
            loaded.sql(late.pop())
        return read

    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(compute, "read_changes", meanwhile)
    only(loaded.pipeline().run(loaded.spark))
    assert loaded.rows()[:2] == [(1, "one", None), (2, "b", "one")]
    only(loaded.pipeline().run(loaded.spark))
    assert loaded.rows()[:2] == [(1, "two", None), (2, "two", "one")]


@pytest.mark.deep
def test_pitfall_48_the_merge_compares_only_columns_that_tell_updates(lake: Lake) -> None:
    """One where one differs in every update, else all that differ in some; run again it makes no commit."""
    schema = "op STRING, key STRUCT<k: INT>, before STRUCT<k: INT, v: STRING, w: INT, x: INT>, after " + (
        "STRUCT<k: INT, v: STRING, w: INT, x: INT>"
    )
    one = [("update", (1,), (1, "a", 1, 1), (1, "b", 2, 1)), ("update", (2,), (2, "a", 1, 1), (2, None, 1, 1))]
    both = [*one[:1], ("update", (2,), (2, "a", 1, 1), (2, "a", 9, 1)), ("delete", (3,), (3, "a", 1, 1), None)]
    several = [("update", (1,), (1, "a", 1, 1), (1, "b", 1, 1)), ("update", (2,), (2, "a", 1, 1), (2, "a", 9, 1))]
    for name, changes, compared in (("one", one, {"v"}), ("both", both, {"w"}), ("several", several, {"v", "w"})):
        stage = Stage(str(lake.folder / "stage" / name), Files())
        stage.put("result", lake.spark.createDataFrame(changes, schema))
        statement = merge_statement(Address("t", lake.path("t")), stage, stage.get(lake.spark, "result"), ["update"])
        assert {column for column in "kvwx" if f"t.`{column}` <=> s" in statement} == compared


def test_pitfall_09_a_key_that_is_there_twice_never_reaches_the_merge(loaded: Lake) -> None:
    loaded.sql("INSERT INTO {left} VALUES (9, 'x'), (9, 'y')")
    with pytest.raises(DuplicateKey, match="left"):
        loaded.pipeline().run(loaded.spark)
    changes = loaded.spark.createDataFrame(
        [("insert", (9,), None, (9, "x")), ("insert", (9,), None, (9, "y"))], CHANGES
    )
    loaded.create("t", "k INT, v STRING", "(1, 'a')")
    verdict = gate_change_set(loaded.spark, changes, 2, Address("t", loaded.path("t")), 1)
    assert any("one change per key" in finding for finding in verdict.findings)


def test_pitfall_10_null_keys_are_skipped_and_counted_and_never_inserted(loaded: Lake) -> None:
    loaded.sql("INSERT INTO {left} VALUES (NULL, 'n')")
    for _ in range(2):
        report = only(loaded.pipeline().run(loaded.spark))
        assert report.changed == 0
    assert [row["counts"].get("null_keys") for row in loaded.ledger()][-1] == 1
    assert "with a null key" in only(loaded.pipeline().backfill(loaded.spark)).text()


def test_pitfall_11_pruning_comes_from_the_staged_keys_themselves(target: Lake) -> None:
    """Keys far apart, at both ends and in the middle: every one of them is matched, none inserted again."""
    target.sql("INSERT INTO {t} SELECT CAST(id AS INT), 'v' FROM range(3, 5000)", "t")
    wanted = [1, 2, 3, 1234, 4998, 4999]
    stage = stage_of(target, *(("update", (k,), (k, "old"), (k, "new")) for k in wanted))
    publish(target, stage, Fence("app", 1, "run"), 2)
    assert target.sql("SELECT count(*), sum(IF(v = 'new', 1, 0)) FROM {t}", "t") == [(4999, 6)]
    predicate = pruning(target.spark.createDataFrame([((k,),) for k in wanted], "key STRUCT<k0: INT>")).predicate(["k"])
    assert predicate is not None
    assert [row[0] for row in target.sql(f"SELECT k FROM {{t}} WHERE {predicate} ORDER BY k", "t")] == wanted


@pytest.mark.deep
def test_pitfall_12_a_cached_source_does_not_unpin_a_read(loaded: Lake) -> None:
    loaded.spark.sql(f"CACHE TABLE held AS SELECT * FROM {loaded.at('left')}")
    try:
        loaded.sql("UPDATE {left} SET v = 'new' WHERE k = 1")
        only(loaded.pipeline().run(loaded.spark))
        only(loaded.pipeline().verify(loaded.spark))
        assert loaded.rows()[0] == (1, "new", None)
    finally:
        loaded.spark.sql("UNCACHE TABLE held")
        loaded.spark.catalog.dropTempView("held")


def test_pitfall_13_a_table_of_another_type_is_refused_not_cast(standard: Lake) -> None:
    lake = standard
    lake.create("result", "k STRING, v STRING, w STRING", "('1', 'a', NULL)")
    with pytest.raises(SchemaBroken, match="`k` int"):
        lake.pipeline().backfill(lake.spark)
    assert lake.version() == 1


@pytest.mark.parametrize("setting", ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"])
def test_pitfall_14_settings_that_lose_files_are_refused(standard: Lake, setting: str) -> None:
    lake, pipeline = standard, standard.pipeline()
    with settings(lake.spark, {setting: "true"}), pytest.raises(LakejoinError, match=setting):
        pipeline.run(lake.spark)


def test_pitfall_15_16_39_a_vacuumed_feed_is_named_and_nothing_is_half_applied(loaded: Lake) -> None:
    """Files that are gone: `incremental` stops with exit 4, `auto` computes in full and says why."""
    loaded.sql("UPDATE {left} SET v = 'one' WHERE k = 1")
    loaded.sql("UPDATE {left} SET v = 'two' WHERE k = 1")
    for file in Path(loaded.path("left")).glob("_change_data/*.parquet"):
        file.unlink()
    for file in Path(loaded.path("left")).glob("_change_data/.*.crc"):
        file.unlink()
    versions = loaded.versions()
    with pytest.raises(FeedUnavailable, match="no longer readable") as refused:
        loaded.pipeline(refresh="incremental").run(loaded.spark)
    assert refused.value.exit_code == 4
    assert loaded.versions() == versions
    report = only(loaded.pipeline(refresh="auto").run(loaded.spark))
    assert report.strategy == "reconcile"
    assert report.reason.startswith("feed-gap: left")
    assert loaded.rows()[0] == (1, "two", None)


def test_pitfall_17_a_feed_that_was_off_names_the_statement_that_turns_it_on(loaded: Lake) -> None:
    loaded.sql("ALTER TABLE {left} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    loaded.sql("UPDATE {left} SET v = 'unseen' WHERE k = 1")
    with pytest.raises(FeedUnavailable, match="ALTER TABLE"):
        loaded.pipeline().run(loaded.spark)
    loaded.sql("ALTER TABLE {left} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    with pytest.raises(FeedUnavailable, match="off from version"):
        loaded.pipeline(refresh="incremental").run(loaded.spark)
    assert only(loaded.pipeline().run(loaded.spark)).strategy == "reconcile"
    assert loaded.rows()[0] == (1, "unseen", None)


@pytest.mark.deep
def test_pitfall_18_an_added_column_reads_as_null_before_and_a_dropped_one_is_read_around(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING, extra STRING", "(1, 'a', 'e')", **{"columnMapping.mode": "name"})
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    pipeline = lake.pipeline()
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMN more STRING")
    lake.sql("INSERT INTO {left} VALUES (2, 'b', 'e', 'm')")
    assert only(pipeline.run(lake.spark)).counts["inserted"] == 1
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 'e', 'm')")
    lake.sql("ALTER TABLE {left} DROP COLUMN extra")
    lake.sql("INSERT INTO {left} VALUES (4, 'd', 'm')")
    assert only(lake.pipeline(refresh="incremental").run(lake.spark)).counts["inserted"] == 2
    only(pipeline.verify(lake.spark))


def test_pitfall_19_a_changed_primary_key_is_a_delete_and_an_insert(loaded: Lake) -> None:
    start = loaded.version()
    loaded.sql("UPDATE {left} SET k = 20 WHERE k = 2")
    only(loaded.pipeline().run(loaded.spark))
    assert loaded.feed(start) == [("delete", (2, "b", "x")), ("insert", (20, "b", None))]


def test_pitfall_22_an_empty_change_set_makes_no_commit(loaded: Lake) -> None:
    version = loaded.version()
    loaded.sql("UPDATE {left} SET v = v")
    report = only(loaded.pipeline().run(loaded.spark))
    assert (report.counts["read"], report.changed) == (6, 0)
    assert loaded.version() == version


@pytest.mark.deep
def test_pitfall_24_a_merge_beside_optimize_is_repeated(loaded: Lake) -> None:
    """A conflict with OPTIMIZE repeats the same staged set; the result has it once."""
    loaded.sql("UPDATE {left} SET v = 'one' WHERE k = 1")
    attempts = []

    def collide(when: str, what: str) -> None:
        if what.startswith("merge") and when == "before":
            attempts.append(what)
            if len(attempts) == 1:
                raise Conflict("[DELTA_CONCURRENT_DELETE_READ] a file was rewritten by OPTIMIZE")

    class Conflict(PySparkException):
        pass

    writing.observers.append(collide)
    only(loaded.pipeline().run(loaded.spark))
    assert len(attempts) == 2
    only(loaded.pipeline().verify(loaded.spark))


@pytest.mark.deep
def test_pitfall_26_a_long_range_is_read_in_chunks_and_is_the_same_feed(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING", "(0, 'a')")
    for value in range(12):
        lake.sql(f"INSERT INTO {{left}} VALUES ({value + 1}, 'v')")
    feed = read_feed(lake.spark, Address("left", lake.path("left")), 0, 13, ["k", "v"])
    assert sorted(row["k"] for row in feed.collect()) == list(range(13))
    assert feed.where("_commit_version > 13").count() == 0


@pytest.mark.slow
def test_pitfall_27_a_key_that_cannot_be_clustered_by_is_no_obstacle(lake: Lake) -> None:
    """Binary, boolean and struct: no CLUSTER BY, no pruning, and the same rows."""
    key = ["a", "b", "c"]
    for name in ("left", "right"):
        row = "(X'01', true, named_struct('x', 1), 'v')"
        lake.create(name, "a BINARY, b BOOLEAN, c STRUCT<x: INT>, v STRING", row)
    pipeline = lake.pipeline(
        "SELECT l.*, r.v AS w FROM left l JOIN right r USING (a, b, c)", {"left": key, "right": list(key)}
    )
    pipeline.run(lake.spark)
    lake.sql("UPDATE {right} SET v = 'y'")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    only(pipeline.verify(lake.spark))


def test_pitfall_28_names_that_delta_reserves_are_faults_of_the_file_and_path_is_none(standard: Lake) -> None:
    lake = standard
    with pytest.raises(PipelineFileError, match="_change_type"):
        lake.pipeline("SELECT l.k, l.v AS _change_type FROM left l JOIN right r ON l.k = r.k").run(lake.spark)
    pipeline = lake.pipeline("SELECT l.k, l.v AS path FROM left l JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'n'")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 2


@pytest.mark.deep
def test_pitfall_31_progress_never_depends_on_commit_times(loaded: Lake) -> None:
    """A log whose files were touched (copied, restored from a backup) is continued by its versions."""
    import os

    loaded.sql("INSERT INTO {left} VALUES (5, 'e')")
    past = time.time() - timedelta(days=3).total_seconds()
    for file in (Path(loaded.path("left")) / "_delta_log").glob("*.json"):
        os.utime(file, (past, past))
    assert only(loaded.pipeline().run(loaded.spark)).counts["inserted"] == 1


@pytest.mark.parametrize("in_process", [True, False])
def test_pitfall_33_a_gate_that_errs_is_not_a_gate_that_failed(target: Lake, in_process: bool) -> None:
    """An expectation on a column that is not there raises; it is no verdict. The session lives on."""
    batch = target.spark.range(1).select(F.col("id").alias("key_0"))
    with pytest.raises(GateErrored, match="could not be evaluated"):
        judged(batch, ["k", "missing"], {}, in_process=in_process)
    assert target.spark.range(3).count() == 3
    assert gate_keys(target.spark, Address("t", target.path("t")), 1, ["k"]).passed


@pytest.mark.deep
def test_pitfall_37_50_the_gate_leaves_nothing_cached(loaded: Lake) -> None:
    loaded.spark.catalog.clearCache()
    loaded.sql("UPDATE {left} SET v = 'one' WHERE k = 1")
    only(loaded.pipeline().run(loaded.spark))
    assert loaded.spark._jsparkSession.sharedState().cacheManager().isEmpty()


@pytest.mark.deep
def test_pitfall_40_an_append_of_one_epoch_lands_once(lake: Lake) -> None:
    create(lake.spark, Address("t", lake.path("t")), StructType.fromDDL("k INT"), ["k"])
    for _ in range(2):
        append(lake.spark.createDataFrame([(1,)], "k INT"), Address("t", lake.path("t")), Fence("app", 1, "run"))
    assert lake.rows("t") == [(1,)]


@pytest.mark.deep
def test_pitfall_41_maps_join_compare_and_change_by_their_entries(lake: Lake) -> None:
    """The same entries in another order are no change; a changed entry is one."""
    lake.create(
        "left", "k INT, m MAP<STRING, ARRAY<MAP<STRING, INT>>>", "(1, map('a', array(map('x', 1, 'y', 2)), 'b', NULL))"
    )
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    pipeline = lake.pipeline("SELECT l.k, l.m, r.w FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    start = lake.version()
    lake.sql("UPDATE {left} SET m = map('b', NULL, 'a', array(map('y', 2, 'x', 1)))")
    assert only(pipeline.run(lake.spark)).changed == 0
    lake.sql("UPDATE {left} SET m = map('b', NULL, 'a', array(map('y', 2, 'x', 3)))")
    assert only(pipeline.run(lake.spark)).changed == 1
    assert len(lake.feed(start)) == 2


def test_pitfall_42_functions_that_depend_on_the_day_are_refused_and_the_time_zone_is_the_files(lake: Lake) -> None:
    lake.create("left", "k INT, t TIMESTAMP", "(1, TIMESTAMP'2026-01-01 00:30:00Z')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    with pytest.raises(PipelineFileError, match=r"(?i)current_date"):
        lake.pipeline("SELECT l.k, current_date() AS d FROM left l JOIN right r ON l.k = r.k")
    pipeline = lake.pipeline("SELECT l.k, date_format(l.t, 'yyyy-MM-dd HH') AS d FROM left l JOIN right r ON l.k = r.k")
    with settings(lake.spark, {"spark.sql.session.timeZone": "America/New_York"}):
        pipeline.run(lake.spark)
    assert lake.rows() == [(1, "2026-01-01 00")]


def test_a_commit_that_is_not_what_was_staged_breaks_the_epoch_and_a_backfill_mends_it(loaded: Lake) -> None:
    """The counts of the commit must be those of the stage; nobody goes on from a broken epoch by himself."""
    loaded.sql("UPDATE {left} SET v = 'one' WHERE k = 1")

    def remove_row_from_stage(when: str, what: str) -> None:
        if what.startswith("ledger: publishing") and when == "after":
            (folder,) = (loaded.folder / "lake" / "lakejoin_stage").glob("*/result/*")
            schema = loaded.spark.read.parquet(str(folder / "result")).schema
            shutil.rmtree(folder / "result")
            loaded.spark.createDataFrame([], schema).write.parquet(str(folder / "result"))

    writing.observers.append(remove_row_from_stage)
    with pytest.raises(BrokenEpoch) as broken:
        loaded.pipeline().run(loaded.spark)
    assert broken.value.exit_code == 4
    writing.observers.clear()
    with pytest.raises(BrokenEpoch, match="backfill"):
        loaded.pipeline().run(loaded.spark)
    only(loaded.pipeline().backfill(loaded.spark))
    only(loaded.pipeline().verify(loaded.spark))
    assert [row["step"] for row in loaded.ledger()][2:] == [
        "publishing",
        "broken",
        "abandoned",
        "publishing",
        "committed",
    ]


def test_of_two_runs_with_different_plans_one_publishes(lake: Lake) -> None:
    """The publishing row decides: the second run finds another's id there and stops with exit 5."""
    ledger = Ledger(Engine.of(own_session(lake.spark, "UTC")), Address("lakejoin_ledger", lake.path("lakejoin_ledger")))
    target = TargetVersions(Address("result", lake.path("result")), "id", 1)
    source, write = SourceVersions("left", "id", 1, 2), Append(target, "result")
    first = Entry("result", 2, "publishing", "one", "incremental", "changes", "f", (source,), (write,))
    ledger.append(first)
    second = Entry("result", 2, "publishing", "two", "incremental", "changes", "f", (source,), (write,))
    with pytest.raises(AnotherRun, match="by run one") as late:
        ledger.append(second)
    assert late.value.exit_code == 5
    assert [entry.run_id for entry in ledger.of("result").entries] == ["one"]
    waiting = ledger.of("result").open
    assert waiting is not None
    assert (waiting.sources, waiting.targets) == ((source,), (target,))
