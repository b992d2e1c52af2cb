"""Semi and anti joins, EXISTS and IN through real Delta tables and the driver: load, epochs, chains, a killed run."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakehouse import limits
from lakehouse.errors.errors import DuplicateKey, GateFailed
from pipelines.epochs.sources import reading
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.epochs.tables.test_queries import Customers, commit, create_customers
from tests.killing import killed
from tests.recorded import Recorded

JOINS = {
    "buyers": "SELECT * FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.cust = c.cid AND o.amount > 1)",
    "idle": "SELECT c.cid, c.name FROM customers c LEFT ANTI JOIN orders o ON o.cust = c.cid",
    "near": "SELECT c.cid, c.city FROM customers c WHERE c.city IN (SELECT d.city FROM customers d WHERE d.active) AND"
    " NOT EXISTS (SELECT 1 FROM orders o WHERE o.amount = c.cid AND o.oid > c.cid + 10 AND c.active)",
    "flagged": "SELECT o.oid, c.name, EXISTS (SELECT 1 FROM buyers b WHERE b.city = c.city) AS sells"
    " FROM orders o LEFT JOIN customers c ON o.cust = c.cid",
    "paired": "SELECT a.cid, b.cid AS other, a.name FROM customers a JOIN customers b ON a.city = b.city"
    " LEFT SEMI JOIN orders p ON p.cust = a.cid AND p.amount > b.cid",
}
KEYS = {**dict.fromkeys(JOINS, 1), "paired": 2}
COMMITS = (
    "UPDATE {orders} SET amount = 1 WHERE oid = 10",  # the only order of a customer no longer counts
    "INSERT INTO {orders} VALUES (15, 4, 5), (16, 2, 2), (17, 2, 0)",
    "DELETE FROM {orders} WHERE oid = 11",  # another order of that customer counts
    "UPDATE {customers} SET city = 'y' WHERE cid = 1",
    "UPDATE {customers} SET active = FALSE, city = NULL WHERE cid = 3",  # the last active one of a city
    "UPDATE {orders} SET cust = NULL WHERE oid = 16",
    "INSERT INTO {customers} VALUES (5, 'Ed', 'x', TRUE, 'n'), (9, 'Io', 'z', NULL, 'n')",
    "UPDATE {orders} SET amount = 9, cust = 9 WHERE oid = 12",
    "UPDATE {customers} SET note = 'm'",
)


class Shops(Customers):
    options: Mapping[str, Any] = MappingProxyType({})


def load_them(lake: Shops) -> None:
    lake.joins(JOINS).run(lake.spark)


@pytest.fixture
def loaded(recorded: Recorded) -> Shops:
    return recorded(create_customers, load_them, like=Shops)


@pytest.mark.slow
@cases("few", pytest.param(True, id="through the driver"), pytest.param(False, id="through the stage"))
def test_a_history_of_semi_joins(loaded: Shops, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """Each result is its statement over the tables, its feed the difference; so it is after a killed run."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    pipeline, before = loaded.joins(JOINS), loaded.meanings(JOINS)
    assert {name: Counter(loaded.rows(name)) for name in JOINS} == before
    seen = {name: loaded.version(name) for name in JOINS}
    commit(loaded, *COMMITS[:4])
    with killed("ledger: publishing", "after"):
        pipeline.run(loaded.spark)
    pipeline.run(loaded.spark)
    middle = loaded.meanings(JOINS)
    assert {name: Counter(loaded.rows(name)) for name in JOINS} == middle
    commit(loaded, *COMMITS[4:])
    pipeline.run(loaded.spark)
    expected = loaded.meanings(JOINS)
    for name in JOINS:
        assert Counter(loaded.rows(name)) == expected[name], name
        assert loaded.feed(seen[name], name), name
        assert expected[name] != before[name], name
    verified, checked = pipeline.verify(loaded.spark), pipeline.verify(loaded.spark, quick=True)
    assert [report.outcome for report in (*verified, *checked)] == ["done"] * 2 * len(JOINS)
    assert [report.changed for report in pipeline.backfill(loaded.spark)] == [0] * len(JOINS)


def load_idle(lake: Shops) -> None:
    lake.joins({"idle": JOINS["idle"]}).run(lake.spark)


def test_feeds_have_the_rows_that_differ(recorded: Recorded) -> None:
    """A further order of a customer who has some changes nothing, and no customer is looked up."""
    lake, joins = recorded(create_customers, load_idle, like=Shops), {"idle": JOINS["idle"]}
    pipeline, before, version = lake.joins(joins), lake.meanings(joins), lake.version("idle")
    commit(lake, "INSERT INTO {orders} VALUES (18, 1, 0)", "UPDATE {customers} SET note = 'm'")
    (report,) = pipeline.run(lake.spark)
    assert (report.changed, report.counts["touched"], lake.version("idle")) == (0, 0, version)
    commit(lake, *COMMITS[1:3], "DELETE FROM {customers} WHERE cid = 3")
    lake.follow(pipeline, joins, before, "orders come and go", KEYS)


def nothing_new(changes: DataFrame, *_: object) -> DataFrame:
    """Say of each value that the rows which left it were the last, as a mistake would."""
    return changes.selectExpr("named_struct('k0', old.`_lakejoin_value_0`) AS key", "old", "new").where("FALSE")


@pytest.mark.deep
def test_the_gate_finds_values_that_were_forgotten(loaded: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """It groups the rows of the source by itself."""
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    commit(loaded, "DELETE FROM {orders} WHERE cust = 1")
    with monkeypatch.context() as patched:
        patched.setattr(reading, "changed_groups", nothing_new)
        for name in ("buyers", "idle"):
            with pytest.raises(GateFailed):
                loaded.joins(JOINS).run(loaded.spark, select=[name])
    loaded.joins(JOINS).run(loaded.spark)
    assert {name: Counter(loaded.rows(name)) for name in JOINS} == loaded.meanings(JOINS)


@pytest.mark.deep
def test_rows_of_a_semi_join_need_keys_of_their_own(loaded: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the source holds twice is found at a load, and where a change adds it."""
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    commit(loaded, "INSERT INTO {orders} VALUES (13, 2, 8)")
    with pytest.raises(DuplicateKey, match="oid=13"):
        loaded.joins(JOINS).run(loaded.spark, select=["idle"])
    with pytest.raises(DuplicateKey, match="oid=13"):
        loaded.joins({"new": JOINS["idle"]}).run(loaded.spark)
