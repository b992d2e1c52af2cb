"""Results that get other columns: by ALTER TABLE and a change set, or in one overwrite; killed, chained, refused."""

import shutil
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from lakehouse.errors.errors import DefinitionChanged, GateFailed, LakejoinError, SchemaBroken
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from tests.cases import cases
from tests.epochs.pairs.test_pairing import Pairs
from tests.killing import is_killed, killed, recorded_writes
from tests.lake import only, planned
from tests.planted import planted
from tests.recorded import Recorded

PARENT = "SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.cust = c.cid"
BELOW = "SELECT p.oid, p.cust, p.name, c.city FROM parents p LEFT JOIN customers c ON p.cust = c.cid"
EVOLVING = {"columnMapping.mode": "name", "enableTypeWidening": "true"}


class Orders(Pairs):
    sources: Mapping[str, Any] = {"orders": "oid", "customers": "cid", "goods": "gid"}

    def then(self, *statements: str) -> None:
        for statement in statements:
            self.sql(statement, *self.sources)

    def detail(self, name: str) -> Row:
        return self.spark.sql(f"DESCRIBE DETAIL {self.at(name)}").collect()[0]

    def columns(self, name: str) -> list[str]:
        return self.spark.sql(f"SELECT * FROM {self.at(name)}").columns

    def found(self, name: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.rows(name))


def create_orders(lake: Orders) -> None:
    lake.create(
        "orders", "oid INT, cust INT, gid INT, n INT", "(10, 1, 1, 5), (11, 1, 2, 7), (12, 9, 1, 1)", **EVOLVING
    )
    lake.create("customers", "cid INT, name STRING, city STRING", "(1, 'Ann', 'x'), (2, 'Bo', 'y')", **EVOLVING)
    lake.create("goods", "gid INT, title STRING", "(1, 'pen'), (2, 'ink')", **EVOLVING)


@pytest.fixture
def orders(recorded: Recorded) -> Orders:
    return recorded(create_orders, like=Orders)


def chained(lake: Orders, sql: str = PARENT, **options: Any) -> Pipeline:
    return lake.pipeline(sql, lake.sources, "parents", {"below": BELOW}, **options)


def test_a_new_column_is_added_and_filled(orders: Orders) -> None:
    """Killed between the two commits it goes on; the feed shows the rows that differ, on both sides of the change."""
    pipeline = orders.joins({"j": PARENT})
    pipeline.run(orders.spark)
    before, start = orders.detail("j"), orders.version("j")
    orders.then("ALTER TABLE {orders} ADD COLUMNS (note STRING AFTER cust)")
    orders.then("UPDATE {orders} SET note = 'm' WHERE n = 5")
    with pytest.raises(LakejoinError, match="`--slices` with columns of the result that change"):
        pipeline.backfill(orders.spark, slices=2)
    with killed("alter j", "after"):
        pipeline.backfill(orders.spark)
    assert {row[2] for row in orders.rows("j")} == {None}
    assert only(pipeline.run(orders.spark)).reason == "backfill: requested by the user; adds `note`"
    assert orders.columns("j") == ["oid", "cust", "note", "gid", "n", "name"]
    was, now = (10, 1, None, 1, 5, "Ann"), (10, 1, "m", 1, 5, "Ann")
    assert orders.feed(start, "j") == [("update_postimage", now), ("update_preimage", was)]
    after = orders.detail("j")
    for kept in ("id", "properties", "clusteringColumns"):
        assert after[kept] == before[kept]


@pytest.mark.slow
def test_a_changelog_gets_the_column_and_readers_follow(orders: Orders) -> None:
    pipeline = chained(orders, changelog=True)
    pipeline.run(orders.spark)
    orders.then("ALTER TABLE {orders} ADD COLUMNS (note STRING AFTER cust)")
    orders.then("UPDATE {orders} SET note = 'm' WHERE n = 5")
    (told,) = planned(orders, pipeline, "parents").details
    assert "run `lakejoin backfill --select parents`, which gives the result" in told
    versions = orders.versions()
    assert only(pipeline.backfill(orders.spark, select=["parents"], dry_run=True)).counts["updated"] == 1
    assert orders.versions() == versions
    pipeline.backfill(orders.spark, select=["parents"])
    assert orders.columns("parents__changelog")[:6] == orders.columns("parents")
    assert orders.found("parents") == orders.meanings({"parents": PARENT})["parents"]
    orders.then("UPDATE {orders} SET note = 'q', cust = 2 WHERE oid = 11")
    pipeline.run(orders.spark)
    assert [report.outcome for report in pipeline.verify(orders.spark)] == ["done", "done"]
    assert (11, 2, "Bo", "y") in orders.rows("below")


def steps(sql: str, key: str) -> tuple[str, ...]:
    """Give statements that one after the other add, widen, retype and drop columns, and change WHERE and a constant."""
    head, _, tail = sql.partition(" FROM ")
    return (
        f"{head}, 1 AS more FROM {tail}",
        f"{head}, 2 AS more, upper(o.cust) AS of FROM {tail} WHERE {key} <> 12",
        f"{head}, '2' AS more FROM {tail}",
        f"{head.replace('o.*', 'o.oid, o.n, o.cust')}, 'x' AS more FROM {tail}",
    )


KINDS = {
    "table": ("SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.oid = c.cid", "o.oid"),
    "parent": (PARENT, "o.oid"),
    "star": (f"{PARENT} LEFT JOIN goods g ON o.gid = g.gid".replace("c.name", "c.name, g.title"), "o.oid"),
    "many": ("SELECT o.oid, c.cid, o.n, c.name FROM orders o FULL JOIN customers c ON o.cust = c.cid", "o.oid"),
}


@pytest.mark.slow
@cases("name", *KINDS)
def test_each_kind_of_join_gets_other_columns(orders: Orders, name: str) -> None:
    """One definition after the other, with changes in between: the result is the statement, and epochs follow it."""
    sql, key = KINDS[name]
    orders.joins({"j": sql}).run(orders.spark)
    table = orders.detail("j")["id"]
    for place, statement in enumerate(steps(sql, key)):
        orders.then(f"UPDATE {{customers}} SET name = 'v{place}' WHERE cid = 1")
        pipeline = orders.joins({"j": statement})
        only(pipeline.backfill(orders.spark))
        assert orders.found("j") == orders.meanings({"j": statement})["j"], statement
        assert only(pipeline.verify(orders.spark, quick=True)).outcome == "done"
        orders.then(f"UPDATE {{orders}} SET n = n + 1 WHERE oid = {10 + place % 2}")
        only(pipeline.run(orders.spark))
        assert orders.found("j") == orders.meanings({"j": statement})["j"], statement
    detail = orders.detail("j")
    assert (detail["id"], bool(detail["clusteringColumns"])) == (table, True)


@pytest.mark.deep
def test_columns_go_in_one_commit_and_readers_follow(orders: Orders) -> None:
    """What changed in the same epoch reaches a join that reads the result and names no column that went."""
    pipeline = chained(orders)
    pipeline.run(orders.spark)
    orders.then("UPDATE {customers} SET name = 'Anna' WHERE cid = 1")
    pipeline, start = (
        chained(orders, PARENT.replace("o.*", "o.oid, CAST(o.n AS STRING) AS n, o.cust")),
        orders.version("parents"),
    )
    with pytest.raises(DefinitionChanged, match="unexpected column `gid` int; column `n` int should be string"):
        planned(orders, pipeline, "parents")
    counted = only(pipeline.backfill(orders.spark, select=["parents"], dry_run=True)).changed
    report = only(pipeline.backfill(orders.spark, select=["parents"]))
    assert (report.changed, counted) == (6, 6)
    assert (report.strategy, orders.version("parents")) == ("overwrite", start + 2)
    assert "its feed shows all rows, and no reader reads across it" in report.text()
    assert orders.detail("parents")["clusteringColumns"] == ["oid"]
    below = pipeline.run(orders.spark)[-1]
    assert (below.join, below.strategy, below.changed) == ("below", "incremental", 2)
    assert orders.found("below") == Counter({(10, 1, "Anna", "x"): 1, (11, 1, "Anna", "x"): 1, (12, 9, None, None): 1})
    assert [report.outcome for report in pipeline.verify(orders.spark)] == ["done", "done"]


@pytest.mark.deep
def test_types_are_widened_and_columns_dropped_where_the_table_has_what_that_needs(orders: Orders) -> None:
    pipeline = orders.joins({"j": PARENT})
    pipeline.run(orders.spark)
    needed = "'delta.enableTypeWidening' = 'true', 'delta.columnMapping.mode' = 'name'"
    orders.sql(f"ALTER TABLE {{j}} SET TBLPROPERTIES ({needed})", "j")
    orders.then("ALTER TABLE {orders} ALTER COLUMN n TYPE BIGINT", "ALTER TABLE {orders} DROP COLUMN gid")
    with recorded_writes() as writes:
        assert only(pipeline.backfill(orders.spark)).strategy == "reconcile"
    assert writes.count("alter j") == 2
    assert "merge into j" not in writes
    assert only(pipeline.verify(orders.spark, quick=True)).outcome == "done"
    assert orders.found("j") == orders.meanings({"j": PARENT})["j"]
    orders.then("ALTER TABLE {customers} DROP COLUMN name", "ALTER TABLE {customers} ADD COLUMNS (name STRING)")
    assert only(pipeline.run(orders.spark)).reason.startswith("columns-changed: customers: `name` is not the same")


@pytest.mark.slow
def test_new_columns_are_taken_in_by_runs_that_are_told_to(orders: Orders) -> None:
    """The join and the one that reads its result, in one run; another one stops."""
    star = "SELECT p.*, c.city FROM parents p LEFT JOIN customers c ON p.cust = c.cid"
    append = {"on_schema_change": "append"}
    further = {"below": {"sql": star, **append}, "strict": {"sql": PARENT, "on_schema_change": "fail"}}
    pipeline = orders.pipeline(PARENT, orders.sources, "parents", further, **append)
    pipeline.run(orders.spark)
    orders.then("ALTER TABLE {orders} ADD COLUMNS (note STRING)")
    with pytest.raises(SchemaBroken, match="on_schema_change: fail") as failed:
        planned(orders, pipeline, "strict")
    assert failed.value.found == "orders.`note`"
    assert planned(orders, pipeline, "parents").reason == "new-columns: orders.`note`; adds `note`"
    workspace = Workspace.open(orders.spark, pipeline.file, pipeline.folder)
    found = [status_of(workspace, name) for name in ("parents", "strict")]
    assert [status.state for status in found] == ["behind", "unreadable"]
    assert found[1].sources[0].warning == "it gained `note`, and `on_schema_change: fail` stops the join"
    reports = pipeline.run(orders.spark, select=["parents", "below"])
    assert [(report.strategy, report.changed) for report in reports] == [("reconcile", 0)] * 2
    orders.then("UPDATE {orders} SET note = 'm' WHERE oid = 10")
    reports = pipeline.run(orders.spark, select=["parents", "below"])
    assert [(report.strategy, report.changed) for report in reports] == [("incremental", 1)] * 2
    assert (10, 1, 1, 5, "m", "Ann", "x") in orders.rows("below")


@pytest.mark.deep
def test_a_rejected_change_set_leaves_the_columns_as_they_were(orders: Orders) -> None:
    orders.joins({"j": PARENT}).run(orders.spark)
    versions, pipeline = orders.versions(), orders.joins({"j": steps(PARENT, "o.oid")[0]})
    wrong = F.col("after").withField("more", F.lit(9))
    with planted(lambda rows: rows.withColumn("after", wrong)), pytest.raises(GateFailed):
        pipeline.backfill(orders.spark)
    assert orders.versions()["j"] == versions["j"]
    assert only(pipeline.backfill(orders.spark)).changed == 3


@pytest.mark.slow
@cases("changelog", pytest.param(True, id="added"), pytest.param(False, id="overwritten"))
def test_a_backfill_that_is_killed_goes_on(orders: Orders, tmp_path: Path, changelog: bool) -> None:
    """Before and after each write; a reader sees the old rows, or the new, or the old ones with an empty column."""
    orders.pipeline(PARENT, orders.sources, "j", changelog=changelog).run(orders.spark)
    sql = steps(PARENT, "o.oid")[0 if changelog else 3]
    old, new, number, moment = orders.rows("j"), orders.meanings({"j": sql})["j"], 0, "after"
    between = [(*row, None) for row in old]
    while True:
        number, moment = (number, "after") if moment == "before" else (number + 1, "before")
        lake = orders.copy(tmp_path / f"{number} {moment}")
        pipeline = lake.pipeline(sql, lake.sources, "j", changelog=changelog)
        if not is_killed(partial(pipeline.backfill, lake.spark), moment=moment, number=number):
            break
        assert lake.rows("j") in (old, between, sorted(new, key=repr))
        pipeline.backfill(lake.spark)
        assert lake.found("j") == new
        assert only(pipeline.verify(lake.spark)).outcome == "done"
        shutil.rmtree(lake.folder)
    assert number > 3


FEWER = PARENT.replace("o.*", "o.oid, o.n")
EXPECTED = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "oid"}}]}


@pytest.mark.slow
@cases(
    "options, sql, reason",
    ({}, PARENT.replace("o.*", "o.oid AS id"), "the key changes"),
    ({"changelog": True}, FEWER, "the rows that the changelog has already"),
    (EXPECTED, FEWER, "the `expectations` of the join judge staged rows"),
    ({"cluster_by": "cust"}, FEWER, "`cust` is of the key or the layout"),
    ({}, PARENT.replace("c.name", "c.name AS `a b`"), "needs column mapping"),
)
def test_columns_that_no_backfill_gives_are_refused(orders: Orders, options: Any, sql: str, reason: str) -> None:
    """Before anything is written, with the reason and the tables to drop."""
    orders.pipeline(PARENT, orders.sources, "j", **options).run(orders.spark)
    versions = orders.versions()
    later = {name: value for name, value in options.items() if name != "cluster_by"}
    pipeline = orders.pipeline(sql, orders.sources, "j", **later)
    for is_dry in (True, False):
        with pytest.raises(SchemaBroken, match=reason) as refused:
            pipeline.backfill(orders.spark, dry_run=is_dry)
        assert f"drop {orders.path('j')}" in refused.value.hint
    assert orders.versions() == versions


@pytest.mark.slow
def test_a_consumer_of_the_feed_lives_through_a_new_column(orders: Orders, tmp_path: Path) -> None:
    """Structured Streaming stops where a column is added, as Delta has it; started again it goes on with the column."""
    pipeline = orders.joins({"j": PARENT})
    pipeline.run(orders.spark)

    def consuming() -> StreamingQuery:
        feed = orders.spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        writer = feed.load(orders.path("j")).writeStream.format("delta").option("mergeSchema", "true")
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(orders.path("copy"))

    query = consuming()
    query.processAllAvailable()
    only(orders.joins({"j": steps(PARENT, "o.oid")[0]}).backfill(orders.spark))
    with pytest.raises(StreamingQueryException, match="DELTA_SCHEMA_CHANGED"):
        query.processAllAvailable()
    query = consuming()
    query.processAllAvailable()
    query.stop()
    changes = orders.spark.sql(f"SELECT oid, more FROM {orders.at('copy')} WHERE _change_type = 'update_postimage'")
    assert sorted(map(tuple, changes.collect())) == [(10, 1), (11, 1), (12, 1)]


@pytest.mark.slow
def test_so_it_is_in_a_catalog(orders: Orders, tmp_path: Path) -> None:
    """The table of a schema keeps its id, its properties and its layout, when columns are added and when they go."""
    sources = {name: {"key": key, "path": orders.path(name)} for name, key in orders.sources.items()}
    orders.spark.sql("CREATE DATABASE evolving")
    orders.storage = {"storage": {"schema": "evolving", "stage": str(tmp_path / "stage")}}
    try:
        orders.pipeline(PARENT, sources, "j").run(orders.spark)
        before = orders.spark.sql("DESCRIBE DETAIL evolving.j").collect()[0]
        for place, strategy in ((0, "reconcile"), (3, "overwrite")):
            pipeline = orders.pipeline(steps(PARENT, "o.oid")[place], sources, "j")
            assert only(pipeline.backfill(orders.spark)).strategy == strategy
            assert only(pipeline.verify(orders.spark)).outcome == "done"
            after = orders.spark.sql("DESCRIBE DETAIL evolving.j").collect()[0]
            for kept in ("id", "properties", "clusteringColumns"):
                assert after[kept] == before[kept]
    finally:
        orders.spark.sql("DROP DATABASE evolving CASCADE")


@pytest.mark.slow
def test_a_changelog_that_missed_a_new_column_gets_it(orders: Orders) -> None:
    """It was left out of the file while the result got the column."""
    more = steps(PARENT, "o.oid")[0].replace("1 AS more", "array(TIMESTAMP_NTZ'2026-01-01 00:00:00') AS more")
    for sql, changelog in ((PARENT, True), (more, False), (more, True)):
        pipeline = orders.pipeline(sql, orders.sources, "j", changelog=changelog)
        only(pipeline.backfill(orders.spark))
    orders.then("UPDATE {customers} SET name = 'Anna' WHERE cid = 1")
    only(pipeline.run(orders.spark))
    assert "the changelog agrees" in only(pipeline.verify(orders.spark)).text()
