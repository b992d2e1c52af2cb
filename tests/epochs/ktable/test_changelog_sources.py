"""Changelog sources through real Delta tables: the KTable that is kept of one, and the joins that read it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakehouse.errors.errors import (
    CannotContinue,
    DefinitionChanged,
    FeedUnavailable,
    ForeignWriter,
    LakejoinError,
    NotLoaded,
    PipelineFileError,
    SchemaBroken,
    SourceRecreated,
)
from lakehouse.values.driver_rows import TooLarge
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.cli import main
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.run.driver import run_join
from pipelines.epochs.sources import scratch
from pipelines.report import JoinReport
from tests.cases import cases
from tests.killing import killed, recorded_writes
from tests.lake import Lake
from tests.pipeline_files import write
from tests.recorded import Recorded

COLUMNS = "order_id INT, customer INT, amount INT, op STRING, seq INT"
ORDERS = {"key": "order_id", "kind": "changelog", "order_by": "seq", "tombstone": "op = 'd'"}
ENRICHED = "SELECT o.order_id, o.amount, c.name FROM orders_raw o LEFT JOIN customers c ON o.customer = c.id"
STATE = "orders_raw__state"


def pipeline(lake: Lake, joins: Mapping[str, str] | None = None, **orders: Any) -> Pipeline:
    """Write a pipeline file with the changelog source `orders_raw` and the table `customers`, and load it."""
    sources = {"customers": "id", "orders_raw": {**ORDERS, **orders}}
    return Pipeline.load(write(lake.file, sources, joins or {"result": ENRICHED}))


def land(lake: Lake, *rows: str) -> None:
    lake.sql(f"INSERT INTO {{orders_raw}} VALUES {', '.join(rows)}", "orders_raw")


def run(lake: Lake) -> tuple[JoinReport, JoinReport]:
    source, join = Pipeline.load(lake.file).run(lake.spark)
    assert (source.join, join.join) == ("orders_raw", "result")
    return source, join


def counts(report: JoinReport, *names: str) -> tuple[int, ...]:
    return tuple(report.counts[name] for name in names)


def land_twice(lake: Lake) -> None:
    lake.create("customers", "id INT, name STRING", "(1, 'Ann'), (2, 'Bob')")
    lake.create("orders_raw", COLUMNS, "(10, 1, 5, 'u', 1), (11, 2, 6, 'u', 2), (12, 9, 7, 'u', 3)")
    land(lake, "(11, 1, 8, 'u', 4)", "(12, NULL, NULL, 'd', 5)")
    pipeline(lake)


@pytest.fixture
def landed(recorded: Recorded) -> Lake:
    """A source of two commits, and no result yet: 10 is Ann's, 11 too since the second commit, 12 is deleted in it."""
    return recorded(land_twice)


@pytest.fixture
def followed(recorded: Recorded) -> Lake:
    return recorded(land_twice, run)


@pytest.mark.slow
def test_the_join_is_that_of_the_live_rows_epoch_after_epoch(landed: Lake) -> None:
    lake = landed
    source, join = run(lake)
    assert (source.strategy, source.epoch, join.strategy) == ("load", 1, "load")
    assert counts(source, "read", "inserted", "tombstones", "null_keys", "late", "ties") == (5, 3, 1, 0, 0, 0)
    assert lake.rows() == [(10, 5, "Ann"), (11, 8, "Ann")]
    assert lake.rows(STATE) == [
        (10, 1, 5, "u", 1, False, 1),
        (11, 1, 8, "u", 4, False, 4),
        (12, None, None, None, None, True, 5),
    ]

    start = lake.version()
    land(lake, "(10, NULL, NULL, 'd', 6)", "(12, 2, 1, 'u', 7)", "(NULL, 1, 1, 'u', 8)")
    land(lake, "(11, 2, 9, 'u', 8)", "(13, 1, 2, 'u', 8)")
    lake.sql("UPDATE {customers} SET name = 'Bea' WHERE id = 2", "customers")
    source, join = run(lake)
    assert (source.strategy, join.strategy) == ("incremental", "incremental")
    assert counts(source, "read", "null_keys", "touched", "inserted", "updated", "tombstones") == (5, 1, 4, 1, 3, 1)
    assert lake.feed(start) == [
        ("delete", (10, 5, "Ann")),
        ("insert", (12, 1, "Bea")),
        ("insert", (13, 2, "Ann")),
        ("update_postimage", (11, 9, "Bea")),
        ("update_preimage", (11, 8, "Ann")),
    ]
    land(lake, "(13, NULL, NULL, 'd', 9)")
    land(lake, "(13, 2, 3, 'u', 10)", "(14, 1, 1, 'u', 1)")
    run(lake)
    assert lake.rows() == [(11, 9, "Bea"), (12, 1, "Bea"), (13, 3, "Bea"), (14, 1, "Ann")]
    (verified,) = Pipeline.load(lake.file).verify(lake.spark)
    assert verified.counts == {"missing": 0, "surplus": 0, "expected": 4}
    assert [report.outcome for report in run(lake)] == ["nothing", "nothing"]
    assert not list((lake.folder / "lake" / "lakejoin_stage").rglob("*.parquet")), "the stages are gone"


@pytest.mark.fast
def test_pitfall_43_a_late_older_row_resurrects_nothing(followed: Lake) -> None:
    """Neither in the epoch of the tombstone nor in a later one; of equal order the later commit wins."""
    lake = followed
    start = lake.version()
    land(lake, "(12, 1, 4, 'u', 4)", "(10, NULL, NULL, 'd', 9)", "(10, 1, 1, 'u', 8)", "(11, 1, 1, 'u', NULL)")
    source, _ = run(lake)
    assert counts(source, "late", "ties", "updated") == (2, 0, 1)
    assert "2 source rows arrived late" in source.text()
    assert lake.rows() == [(11, 8, "Ann")]
    land(lake, "(10, 1, 1, 'u', 8)")
    source, join = run(lake)
    assert (source.counts["late"], source.changed, join.outcome) == (1, 0, "nothing")
    assert lake.feed(start) == [("delete", (10, 5, "Ann"))]
    land(lake, "(10, 2, 3, 'u', 9)")
    run(lake)
    assert lake.rows() == [(10, 3, "Bob"), (11, 8, "Ann")]


def test_a_tombstone_of_an_absent_key_is_kept_and_changes_nothing(followed: Lake) -> None:
    lake = followed
    version = lake.version()
    land(lake, "(20, NULL, NULL, 'd', 7)")
    source, join = run(lake)
    assert (counts(source, "inserted", "tombstones"), join.changed) == ((1, 1), 0)
    land(lake, "(20, 1, 1, 'u', 6)")
    source, join = run(lake)
    assert (source.counts["late"], source.changed, join.outcome) == (1, 0, "nothing")
    assert lake.version() == version
    assert (20, None, None, None, None, True, 7) in lake.rows(STATE)


@pytest.mark.slow
def test_one_of_two_rows_of_equal_order_in_one_commit_is_taken_and_the_other_counted(followed: Lake) -> None:
    lake = followed
    land(lake, "(10, 1, 1, 'u', 7)", "(10, 2, 3, 'u', 7)", "(10, 2, 2, 'u', 7)")
    source, _ = run(lake)
    assert source.counts["ties"] == 2
    assert "2 source rows have the same `order_by` value" in source.text()
    assert (10, 3, "Bob") in lake.rows()


@pytest.mark.slow
def test_the_columns_that_lakejoin_adds_are_invisible_to_statements(landed: Lake) -> None:
    lake = landed
    pipeline(lake, {"result": "SELECT o.*, c.name FROM orders_raw o JOIN customers c ON o.customer = c.id"})
    run(lake)
    described = lake.sql("DESCRIBE {result}")
    assert [row[0] for row in described][:6] == ["order_id", "customer", "amount", "op", "seq", "name"]
    with pytest.raises(PipelineFileError, match="`_deleted`"):
        pipeline(lake, {"other": ENRICHED.replace("o.amount", "o._deleted")}).run(lake.spark)


@pytest.mark.slow
def test_two_joins_share_one_ktable(landed: Lake) -> None:
    """It runs once, before them, and both read the same version of it."""
    lake = landed
    by_customer = "SELECT o.order_id, o.customer FROM orders_raw o JOIN orders_raw p ON p.order_id = o.customer"
    reports = pipeline(lake, {"one": ENRICHED, "two": by_customer}).run(lake.spark)
    assert [report.join for report in reports] == ["orders_raw", "one", "two"]
    land(lake, "(1, 1, 1, 'u', 1)", "(11, NULL, NULL, 'd', 5)")
    reports = Pipeline.load(lake.file).run(lake.spark)
    assert [(report.join, report.changed) for report in reports] == [("orders_raw", 2), ("one", 2), ("two", 2)]
    assert (lake.rows("one"), lake.rows("two")) == ([(1, 1, "Ann"), (10, 5, "Ann")], [(1, 1), (10, 1)])
    sources = {
        row["join_name"]: {source["name"]: source["to_version"] for source in row["sources"]}
        for row in lake.ledger()
        if (row["epoch"], row["step"]) == (2, "committed")
    }
    assert sources["one"]["orders_raw"] == sources["two"]["orders_raw"] == lake.version(STATE)
    assert sources["orders_raw"] == {"orders_raw": lake.version("orders_raw")}
    assert len(Pipeline.load(lake.file).verify(lake.spark)) == 2
    only = Pipeline.load(lake.file).run(lake.spark, ["two"])
    assert [report.join for report in only] == ["orders_raw", "two"]


@cases(
    "statement, operation",
    ("UPDATE {orders_raw} SET amount = 1 WHERE order_id = 10", "UPDATE"),
    ("DELETE FROM {orders_raw} WHERE order_id = 10", "DELETE"),
    ("INSERT OVERWRITE {orders_raw} SELECT * FROM {orders_raw} WHERE order_id = 11", "WRITE"),
    ("MERGE INTO {orders_raw} t USING (SELECT 10 AS k) s ON t.order_id = s.k WHEN MATCHED THEN DELETE", "MERGE"),
    ("RESTORE TABLE {orders_raw} TO VERSION AS OF 1", "RESTORE"),
    ("TRUNCATE TABLE {orders_raw}", "TRUNCATE"),
)
def test_a_source_whose_rows_change_is_refused(followed: Lake, statement: str, operation: str) -> None:
    """Its version and operation are named, the joins that read it are skipped, and nothing is published."""
    lake = followed
    land(lake, "(30, 1, 1, 'u', 30)")
    lake.sql(statement, "orders_raw")
    version = lake.version("orders_raw")
    with pytest.raises(CannotContinue, match=f"{operation} in version {version}") as refused:
        run(lake)
    assert (refused.value.exit_code, refused.value.where) == (4, "orders_raw")
    assert "run `lakejoin backfill`, which reconciles the KTable of this source" in refused.value.hint
    assert refused.value.hint in str(refused.value)
    assert [row["epoch"] for row in lake.ledger()] == [1, 1, 1, 1]


def test_what_a_failed_source_does_to_the_joins_that_read_it(followed, capsys):
    """They are skipped and say so, others run, and the exit code is that of the source."""
    lake = followed
    side = "SELECT c.id, c.name, d.name AS same FROM customers c JOIN customers_too d ON c.id = d.id"
    sources = {"customers": "id", "orders_raw": ORDERS, "customers_too": "id"}
    write(lake.file, sources, {"result": ENRICHED, "side": side})
    lake.create("customers_too", "id INT, name STRING", "(1, 'Ann')")
    lake.sql("DELETE FROM {orders_raw} WHERE order_id = 10", "orders_raw")
    assert main(["run", "-f", str(lake.file), "--output", "json"]) == 4
    reported = json.loads(capsys.readouterr().out)["joins"]
    assert [(part["join"], part["outcome"]) for part in reported] == [
        ("orders_raw", "failed"),
        ("result", "skipped"),
        ("side", "done"),
    ]
    assert main(["run", "-f", str(lake.file), "--select", "result"]) == 4
    assert "result: skipped (upstream-failed: orders_raw failed" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_too_much_for_the_driver_goes_through_the_stage(followed, monkeypatch):

    def refused(frame: DataFrame) -> None:
        raise TooLarge

    lake = followed
    monkeypatch.setattr(scratch, "to_driver", refused)
    land(lake, "(10, NULL, NULL, 'd', 9)", "(10, 1, 1, 'u', 8)", "(12, 1, 1, 'u', 1)", "(NULL, 1, 1, 'u', 1)")
    source, _ = run(lake)
    assert counts(source, "read", "null_keys", "late", "updated", "unchanged") == (4, 1, 1, 1, 1)
    assert lake.rows() == [(11, 8, "Ann")]


@pytest.mark.slow
def test_upkeep_of_the_source_and_appends_of_nothing_are_no_change(followed: Lake) -> None:
    lake = followed
    lake.sql("OPTIMIZE {orders_raw}", "orders_raw")
    lake.sql("ALTER TABLE {orders_raw} SET TBLPROPERTIES ('note' = 'x')", "orders_raw")
    lake.sql(f"OPTIMIZE {{{STATE}}}", STATE)
    assert [report.outcome for report in run(lake)] == ["nothing", "nothing"]
    land(lake, "(10, 2, 5, 'u', 9)")
    lake.sql("OPTIMIZE {orders_raw}", "orders_raw")
    run(lake)
    assert lake.rows() == [(10, 5, "Bob"), (11, 8, "Ann")]


@pytest.mark.slow
def test_a_merge_that_only_inserts_is_an_append(followed: Lake) -> None:
    lake = followed
    lake.sql(
        "MERGE INTO {orders_raw} t USING (SELECT 40 AS k) s ON t.order_id = s.k "
        "WHEN NOT MATCHED THEN INSERT (order_id, customer, amount, op, seq) VALUES (s.k, 1, 1, 'u', 1)",
        "orders_raw",
    )
    assert run(lake)[0].counts["inserted"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [False, True])
def test_a_recreated_source_waits_for_a_person(followed: Lake, dropped: bool) -> None:
    """Then `backfill` reconciles the KTable, or loads it anew, and the join, without writing what did not differ."""
    lake = followed
    shutil.rmtree(lake.path("orders_raw"))
    lake.create("orders_raw", COLUMNS, "(10, 1, 5, 'u', 1), (11, 2, 8, 'u', 1)")
    with pytest.raises(SourceRecreated, match="run `lakejoin backfill`"):
        run(lake)
    if dropped:
        shutil.rmtree(lake.path(STATE))
        with pytest.raises(ForeignWriter, match="dropped"):
            run(lake)
    start = lake.version()
    source, join = Pipeline.load(lake.file).backfill(lake.spark)
    strategy = "load" if dropped else "reconcile"
    assert (source.strategy, source.epoch, join.strategy, join.changed) == (strategy, 2, "reconcile", 1)
    assert len(lake.feed(start)) == 2
    land(lake, "(12, 1, 1, 'u', 1)")
    assert [report.strategy for report in run(lake)] == ["incremental", "incremental"]
    assert len(Pipeline.load(lake.file).verify(lake.spark)) == 1


@pytest.mark.slow
def test_a_backfill_lets_the_ktable_go_on(followed: Lake) -> None:
    """What is held stays, and what came is added; the join is reconciled with it."""
    lake = followed
    land(lake, "(15, 2, 1, 'u', 1)")
    source, join = Pipeline.load(lake.file).backfill(lake.spark)
    assert (source.strategy, source.changed, join.strategy, join.changed) == ("incremental", 1, "reconcile", 1)
    source, join = Pipeline.load(lake.file).backfill(lake.spark)
    assert (source.outcome, join.changed) == ("nothing", 0)


@pytest.mark.slow
def test_the_feed_of_the_source_must_be_on(lake: Lake) -> None:
    """As for tables; switched on after the first run it has a gap, for which the way on is named."""
    lake.create("customers", "id INT, name STRING", "(1, 'Ann')")
    lake.create("orders_raw", COLUMNS, "(10, 1, 5, 'u', 1)", enableChangeDataFeed="false")
    pipeline(lake)
    with pytest.raises(FeedUnavailable, match="ALTER TABLE") as refused:
        run(lake)
    assert refused.value.exit_code == 4
    lake.sql("ALTER TABLE {orders_raw} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", "orders_raw")
    run(lake)
    lake.sql("ALTER TABLE {orders_raw} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)", "orders_raw")
    land(lake, "(11, 1, 5, 'u', 1)")
    with pytest.raises(FeedUnavailable, match=r"ALTER TABLE.*then run `lakejoin backfill`"):
        run(lake)
    lake.sql("ALTER TABLE {orders_raw} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", "orders_raw")
    with pytest.raises(FeedUnavailable, match="run `lakejoin backfill`"):
        run(lake)
    Pipeline.load(lake.file).backfill(lake.spark)
    assert lake.rows() == [(10, 5, "Ann"), (11, 5, "Ann")]


@pytest.mark.slow
def test_columns_that_change_and_another_definition_wait_for_a_person(followed: Lake) -> None:
    lake = followed
    pipeline(lake, tombstone="op IN ('d', 't')")
    with pytest.raises(DefinitionChanged, match="`lakejoin backfill`") as changed:
        run(lake)
    assert changed.value.where == "orders_raw"
    pipeline(lake)
    lake.sql("ALTER TABLE {orders_raw} ADD COLUMNS (note STRING)", "orders_raw")
    with pytest.raises(SchemaBroken, match="missing column `note` string") as broken:
        run(lake)
    assert broken.value.exit_code == 4


@pytest.mark.slow
def test_somebody_elses_write_to_the_ktable_is_noticed(followed: Lake) -> None:
    lake = followed
    lake.sql(f"DELETE FROM {{{STATE}}} WHERE order_id = 12", STATE)
    with pytest.raises(ForeignWriter, match="DELETE in version") as refused:
        run(lake)
    assert (refused.value.where, "run `lakejoin backfill`" in refused.value.hint) == (STATE, True)
    Pipeline.load(lake.file).backfill(lake.spark)
    assert [report.outcome for report in run(lake)] == ["nothing", "nothing"]


def test_before_the_first_run_plan_and_status_say_what_is_not_loaded_yet(landed, capsys):
    lake = landed
    file = ["-f", str(lake.file)]
    assert main(["plan", *file]) == 0
    told = capsys.readouterr().out
    assert "orders_raw: load, epoch 1" in told
    assert "all of version 2" in told
    assert "upstream-not-run: orders_raw has no committed epoch yet; `lakejoin run` runs it first" in told
    assert main(["status", *file]) == 0
    told = capsys.readouterr().out
    assert "orders_raw: not loaded" in told
    assert "orders_raw: does not exist" in told
    with pytest.raises(NotLoaded):
        Pipeline.load(lake.file).verify(lake.spark)
    assert set(lake.versions()) == {"customers", "orders_raw"}, "nothing was written"


@pytest.mark.deep
def test_plan_status_and_history_show_the_ktable_before_its_joins(followed, capsys):
    lake = followed
    land(lake, "(10, 2, 5, 'u', 9)")
    found = {}
    for command in ("plan", "status", "history"):
        assert main([command, "-f", str(lake.file), "--output", "json"]) == 0
        found[command] = json.loads(capsys.readouterr().out)["joins"]
        assert [part["join"] for part in found[command]] == ["orders_raw", "result"]
    assert [part["strategy"] for part in found["plan"]] == ["incremental", "nothing"]
    assert [part["state"] for part in found["status"]] == ["behind", "behind"], "whoever reads it is behind as well"
    assert found["history"][0]["epochs"][0]["counts"]["tombstones"] == 1


@cases(
    "columns, options, fault",
    (COLUMNS.replace("amount", "_Order"), {}, "has a column `_Order`"),
    (COLUMNS, {"order_by": "seqq"}, "did you mean `seq`"),
    (COLUMNS, {"tombstone": "op"}, "it is string, not boolean"),
    (COLUMNS, {"tombstone": "amount.x = 1"}, "Spark rejects the condition"),
    (COLUMNS + ", v VARIANT", {}, "v is variant, which cannot be compared"),
    (COLUMNS + ", m MAP<INT, INT>", {"order_by": "m"}, "m is map<int,int>, which cannot be ordered"),
    (COLUMNS + ", m MAP<INT, INT>", {"key": "m"}, "m is map<int,int>, which cannot be a key"),
)
def test_what_a_source_cannot_be_is_a_fault_of_the_file(lake, columns, options, fault):
    lake.create("customers", "id INT, name STRING")
    lake.create("orders_raw", columns)
    pipeline(lake, {"result": ENRICHED.replace("o.order_id", f"o.{options.get('key', 'order_id')}")}, **options)
    with pytest.raises(PipelineFileError, match=fault) as refused:
        run(lake)
    assert refused.value.exit_code == 2


@pytest.mark.deep
def test_joins_read_the_last_committed_epoch_and_never_what_is_half_published(followed, capsys):
    """The merged rows of an open epoch are there already; plan and verify of the join do not see them."""
    lake = followed
    version = lake.version(STATE)
    land(lake, "(10, 2, 5, 'u', 9)")
    with killed("ledger: committed epoch 2 of orders_raw"):
        run(lake)
    assert lake.version(STATE) == version + 1
    assert len(Pipeline.load(lake.file).verify(lake.spark)) == 1
    assert main(["plan", "-f", str(lake.file), "--output", "json"]) == 0
    parts = json.loads(capsys.readouterr().out)["joins"]
    assert [part["strategy"] for part in parts] == ["resume", "nothing"]
    source, join = run(lake)
    assert (source.strategy, join.changed) == ("resume", 1)
    assert lake.version(STATE) == version + 1, "no row is written twice"


@pytest.mark.slow
def test_an_open_epoch_whose_table_was_dropped_is_let_go_by_a_backfill(followed: Lake) -> None:
    lake = followed
    land(lake, "(10, 2, 5, 'u', 9)")
    with killed(f"merge into {STATE}"):
        run(lake)
    shutil.rmtree(lake.path(STATE))
    with pytest.raises(LakejoinError):
        run(lake)
    source, _ = Pipeline.load(lake.file).backfill(lake.spark)
    assert (source.strategy, source.epoch) == ("load", 3)
    assert lake.rows() == [(10, 5, "Bob"), (11, 8, "Ann")]
    assert [row["step"] for row in lake.ledger() if row["join_name"] == "orders_raw"] == [
        *("publishing", "committed"),
        *("publishing", "abandoned"),
        *("publishing", "committed"),
    ]


@pytest.mark.slow
def test_a_load_anew_that_was_killed_before_it_was_published_is_done_again(followed: Lake) -> None:
    """The table that it made is empty and nobody's."""
    lake = followed
    shutil.rmtree(lake.path(STATE))
    with killed("ledger: publishing epoch 2 of orders_raw"):
        Pipeline.load(lake.file).backfill(lake.spark)
    with pytest.raises(ForeignWriter, match="dropped"):
        run(lake)
    source, join = Pipeline.load(lake.file).backfill(lake.spark)
    assert (source.strategy, source.counts["inserted"], join.changed) == ("load", 3, 0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first epoch", "second epoch"])
def test_killed_at_every_write_of_the_ktable(landed: Lake, followed: Lake, tmp_path: Path, first: bool) -> None:
    """Ended before each of its writes, and run again: the same table, feed and ledger as without."""
    start = landed if first else followed
    land(start, "(10, 2, 5, 'u', 9)", "(11, NULL, NULL, 'd', 9)", "(16, 2, 5, 'u', 1)")
    straight = start.copy(tmp_path / "straight")
    with recorded_writes() as done:
        run_source(straight)
    expected = _outcome(straight)
    assert len(done) >= 5
    for written in done:
        lake = start.copy(tmp_path / written.replace(" ", "-"))
        with killed(written):
            run_source(lake)
        resumed = run_source(lake)
        assert _outcome(lake) == expected, f"killed before {written}, then {resumed.text()}"
        shutil.rmtree(lake.folder)


def run_source(lake: Lake) -> JoinReport:
    loaded = Pipeline.load(lake.file)
    return run_join(kind_of(Workspace.open(lake.spark, loaded.file, loaded.folder), "orders_raw"))


def _outcome(lake: Lake) -> dict[str, Any]:
    """Say what two equal lakes have in common: all but run ids, times, table ids of what was created, and stages."""
    return {
        "rows": lake.rows(STATE),
        "feed": lake.feed(0, STATE),
        "versions": lake.versions(),
        "ledger": [
            (row["join_name"], row["epoch"], row["step"], row["strategy"], sorted(row["counts"].items()))
            for row in lake.ledger()
        ],
    }


@pytest.mark.slow
def test_a_log_whose_old_rows_are_trimmed_keeps_its_keys_under_ignore_deletes(lake: Lake) -> None:
    """Without it the message says how many keys a backfill deletes; with it a backfill deletes none either."""
    lake.create("orders_raw", COLUMNS, "(1, 1, 10, 'i', 1), (2, 1, 20, 'i', 2), (3, 1, 30, 'd', 3)")
    lake.create("customers", "id INT, name STRING", "(1, 'Ann')")
    pipeline(lake)
    run(lake)
    lake.sql("DELETE FROM {orders_raw} WHERE seq < 3", "orders_raw")
    land(lake, "(4, 1, 40, 'i', 4)")
    with pytest.raises(CannotContinue, match="deletes the 2 keys") as error:
        run(lake)
    assert "ignore_deletes: true" in error.value.hint
    patient = pipeline(lake, ignore_deletes=True)
    source, join = run(lake)
    assert counts(source, "ignored_deletes", "inserted", "deleted") == (2, 1, 0)
    assert "2 rows of the changelog were deleted and were ignored" in source.text()
    assert join.counts["inserted"] == 1
    patient.backfill(lake.spark)
    assert [row[0] for row in lake.rows()] == [1, 2, 4]
