"""Inputs with a filter and expressions through real Delta tables and the driver: load, epochs, chains, a killed run."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakehouse import limits
from lakehouse.errors.errors import CannotContinue, DuplicateKey, GateFailed, RowFailed
from pipelines.epochs.sources import feeds
from pipelines.language import Input
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.epochs.pairs.test_pairing import Pairs
from tests.killing import killed
from tests.lake import planned
from tests.planted import planted
from tests.recorded import Recorded

ACTIVE = "SELECT cid AS id, upper(name) AS name, city FROM customers WHERE active"
NAMED = (
    "SELECT o.oid, o.cust, o.twice, c.name FROM (SELECT oid, cust, amount * 2 AS twice FROM orders WHERE amount > 1) o"
    " LEFT JOIN (SELECT id, name FROM active WHERE city = 'x') c ON o.cust = c.id"
)
JOINS = {
    "active": ACTIVE,
    "named": NAMED,
    "split": "SELECT coalesce(a.cid, b.cid) AS cid, a.name, b.city FROM (SELECT * FROM customers WHERE active) a"
    " FULL JOIN (SELECT cid, city FROM customers WHERE city <> 'y') b ON a.cid = b.cid",
    "twice": "WITH c AS (SELECT cid, name FROM customers WHERE active) SELECT o.oid, a.name, b.name AS other"
    " FROM orders o LEFT JOIN c a ON o.cust = a.cid LEFT JOIN c b ON o.amount = b.cid",
    "many": "SELECT a.cid, o.oid, a.name, o.amount FROM (SELECT cid, name FROM customers WHERE active) a"
    " FULL JOIN (SELECT * FROM orders WHERE amount > 1) o ON o.cust = a.cid",
}
KEYS = {**dict.fromkeys(JOINS, 1), "many": 2}
COMMITS = (
    "UPDATE {customers} SET active = TRUE WHERE cid IN (2, 4)",  # rows enter a filter
    "UPDATE {customers} SET active = NULL WHERE cid = 1",  # a row leaves it
    "UPDATE {orders} SET amount = amount - 5 WHERE oid IN (10, 11)",
    "UPDATE {customers} SET city = 'y', name = 'Bob' WHERE cid = 2",
    "INSERT INTO {orders} VALUES (15, 5, 5), (16, 2, 2), (17, 3, 0)",
    "INSERT INTO {customers} VALUES (5, 'Ed', 'x', FALSE, 'n')",  # outside of the filter
    "MERGE INTO {customers} t USING (SELECT 5 AS cid UNION ALL SELECT 6) s ON t.cid = s.cid WHEN MATCHED THEN UPDATE"
    " SET active = TRUE WHEN NOT MATCHED THEN INSERT (cid, name, city, active, note) VALUES (6, 'Flo', 'x', TRUE, 'n')",
    "DELETE FROM {customers} WHERE cid = 3",
    "UPDATE {customers} SET active = FALSE WHERE cid = 6",  # in and out within the epoch
)


class Customers(Pairs):
    sources: Mapping[str, Any] = {"customers": "cid", "orders": "oid"}
    options: Mapping[str, Any] = MappingProxyType({"changelog": True})


def create_customers(lake: Customers) -> None:
    lake.create(
        "customers",
        "cid INT, name STRING, city STRING, active BOOLEAN, note STRING",
        "(1, 'Ann', 'x', TRUE, 'n'), (2, 'Bo', 'x', NULL, 'n'), (3, 'Cy', 'y', TRUE, 'n'), (4, 'Di', 'x', FALSE, 'n')",
    )
    lake.create(
        "orders", "oid INT, cust INT, amount INT", "(10, 1, 5), (11, 2, 7), (12, 3, 1), (13, 4, 3), (14, NULL, 9)"
    )


def load_them(lake: Customers) -> None:
    lake.joins(JOINS).run(lake.spark)


@pytest.fixture
def loaded(recorded: Recorded) -> Customers:
    return recorded(create_customers, load_them, like=Customers)


def commit(lake: Customers, *statements: str) -> None:
    for statement in statements:
        lake.sql(statement, "customers", "orders")


@pytest.mark.slow
@cases("few", pytest.param(True, id="through the driver"), pytest.param(False, id="through the stage"))
def test_a_history_of_filtered_tables(loaded: Customers, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """Each result is its statement over the tables, its feed the difference; so it is after a killed run."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    pipeline, before = loaded.joins(JOINS), loaded.meanings(JOINS)
    assert {name: Counter(loaded.rows(name)) for name in JOINS} == before
    seen = {name: loaded.version(name) for name in JOINS}
    commit(loaded, *COMMITS[:5])
    with killed("ledger: publishing", "after"):
        pipeline.run(loaded.spark)
    pipeline.run(loaded.spark)
    commit(loaded, *COMMITS[5:])
    middle = loaded.meanings(JOINS)
    pipeline.run(loaded.spark)
    expected = loaded.meanings(JOINS)
    for name in JOINS:
        assert Counter(loaded.rows(name)) == expected[name], name
        assert loaded.feed(seen[name], name), name
    assert expected != middle or expected != before
    verified, checked = pipeline.verify(loaded.spark), pipeline.verify(loaded.spark, quick=True)
    assert [report.outcome for report in (*verified, *checked)] == ["done"] * 2 * len(JOINS)
    assert all("the changelog agrees" in report.text() for report in verified)
    assert [report.changed for report in pipeline.backfill(loaded.spark)] == [0] * len(JOINS)


@pytest.mark.deep
def test_feeds_have_the_rows_that_differ_and_unused_columns_cause_no_work(loaded: Customers) -> None:
    """A changed note, and a row outside of the filters, make no commit; WHERE of a statement alone looks at the row."""
    pipeline, before, versions = loaded.joins(JOINS), loaded.meanings(JOINS), loaded.versions()
    commit(loaded, "UPDATE {customers} SET note = 'm'", "INSERT INTO {customers} VALUES (7, 'Gus', 'y', NULL, 'n')")
    for report in pipeline.run(loaded.spark):
        assert (report.changed, report.counts.get("touched", 0)) == (0, report.join == "active"), report.join
    assert {name: loaded.versions()[name] for name in JOINS} == {name: versions[name] for name in JOINS}
    commit(loaded, *COMMITS)
    assert "customers" in planned(loaded, pipeline, "split").text()
    loaded.follow(pipeline, JOINS, before, "all commits", KEYS)


def without_filter(rows: DataFrame, side: Input, further: Any = ()) -> DataFrame:
    """Make rows of an input as a mistake would: the filter forgotten."""
    assert side.query is not None
    values = (f"{sql} AS `{name}`" for sql, name in zip(side.query.values, side.columns, strict=True))
    return rows.alias(side.alias).selectExpr(*values, *further)


@pytest.mark.deep
def test_the_gate_finds_a_filter_that_was_forgotten(loaded: Customers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the inputs by queries of its own; and it finds a change that was left out."""
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    commit(loaded, *COMMITS[:2], "UPDATE {orders} SET amount = 0 WHERE oid = 13")
    pipeline = loaded.joins({name: JOINS[name] for name in ("active", "named", "many")})
    with monkeypatch.context() as patched:
        patched.setattr(feeds, "as_input", without_filter)
        for name in ("named", "many"):
            with pytest.raises(GateFailed):
                pipeline.run(loaded.spark, select=[name])
    with planted(lambda rows: rows.where("op <> 'delete'")), pytest.raises(GateFailed):
        pipeline.run(loaded.spark, select=["active"])
    pipeline.run(loaded.spark)


def test_a_row_for_which_a_subquery_raises_is_named(loaded: Customers) -> None:
    sql = "SELECT c.cid, c.name, o.part FROM customers c LEFT JOIN (SELECT oid, 10 DIV amount AS part FROM orders"
    sql += " WHERE oid <> 19) o"  # the row of which does not raise, because it is not there
    pipeline = loaded.joins({"parts": f"{sql} ON o.oid = c.cid"})
    commit(loaded, "INSERT INTO {orders} VALUES (20, 1, 0), (19, 1, 0)")
    with pytest.raises(RowFailed, match=r"raises for a row: `10 DIV") as failed:
        pipeline.run(loaded.spark)
    assert "o.oid = 20" in failed.value.found
    assert "19" not in failed.value.found


def test_a_key_is_unique_among_the_rows_that_the_filter_takes(loaded: Customers) -> None:
    """Rows outside of it may share one, as those of past versions do; a changed filter waits for a backfill."""
    joins = {"present": "SELECT p.* FROM (SELECT cid AS id, name FROM customers WHERE active) p"}
    commit(loaded, "INSERT INTO {customers} VALUES (4, 'Dina', 'z', FALSE, 'n'), (1, 'Anna', 'z', NULL, 'n')")
    loaded.joins(joins).run(loaded.spark)
    wider = {"present": joins["present"].replace("WHERE active", "WHERE active OR city = 'x'")}
    with pytest.raises(CannotContinue, match="definition"):
        loaded.joins(wider).run(loaded.spark)
    loaded.joins(wider).backfill(loaded.spark)
    assert Counter(loaded.rows("present")) == loaded.meanings(wider)["present"]
    commit(loaded, "UPDATE {customers} SET active = TRUE WHERE cid = 4")
    with pytest.raises(DuplicateKey, match="cid=4"):
        loaded.joins(wider).run(loaded.spark)


def test_a_filter_that_is_never_true_leaves_an_empty_input(loaded: Customers) -> None:
    """Spark finds out while it plans, and drops what stands below the filter."""
    never = "(SELECT cid AS id, name FROM customers WHERE cid > 0 AND FALSE) c"
    joins = {"never": f"SELECT o.oid, o.cust, c.name FROM orders o LEFT JOIN {never} ON o.cust = c.id"}
    pipeline, before = loaded.joins(joins), loaded.meanings(joins)
    pipeline.run(loaded.spark)
    commit(loaded, *COMMITS[:3])
    loaded.follow(pipeline, joins, before, "a change on either side", {"never": 1})
