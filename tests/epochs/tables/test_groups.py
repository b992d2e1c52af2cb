"""Groups through real Delta tables and the driver: load, epochs, chains, a killed run."""

from collections import Counter

import pytest
from pyspark.sql import DataFrame

from lakehouse import limits
from lakehouse.errors.errors import GateFailed, PipelineFileError, RowFailed
from pipelines.epochs.sources import reading
from pipelines.joins.groups import changed_groups
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.epochs.tables.test_queries import commit, create_customers
from tests.epochs.tables.test_semi_joins import Shops
from tests.killing import killed
from tests.recorded import Recorded

TOTALS = (
    "SELECT cust, count(*) AS n, sum(amount) AS total, max(oid) AS last, avg(CAST(amount AS DECIMAL(9, 2))) AS mean"
    " FROM orders WHERE cust IS NOT NULL GROUP BY cust"
)
JOINS = {
    "totals": TOTALS,
    "served": "WITH many AS (SELECT cust, count(*) AS n FROM orders WHERE cust IS NOT NULL AND amount > 1 GROUP BY cust"
    " HAVING count(*) > 0) SELECT c.cid, coalesce(m.n, 0) AS n FROM customers c LEFT JOIN many m ON m.cust = c.cid",
    "placed": "SELECT c.cid, c.city, t.total FROM customers c JOIN totals t ON t.cust = c.cid",
    "cities": "SELECT city, sum(total) AS total, count(DISTINCT cid) AS n FROM placed"
    " WHERE city IS NOT NULL GROUP BY city",
    "names": "SELECT DISTINCT city, active FROM customers WHERE city IS NOT NULL AND active IS NOT NULL",
}
KEYS = {**dict.fromkeys(JOINS, 1), "names": 2}
COMMITS = (
    "UPDATE {orders} SET amount = 6 WHERE oid = 10",
    "INSERT INTO {orders} VALUES (15, 4, 5), (16, 2, 2), (17, 9, 1)",
    "DELETE FROM {orders} WHERE oid = 12",  # the last of its group
    "UPDATE {customers} SET city = 'y' WHERE cid = 1",
    "UPDATE {orders} SET cust = 1 WHERE oid IN (11, 16)",  # from one group to another
    "UPDATE {orders} SET cust = NULL WHERE oid = 15",
    "UPDATE {customers} SET active = FALSE WHERE cid = 3",
    "INSERT INTO {customers} VALUES (9, 'Io', 'z', TRUE, 'n')",
    "UPDATE {customers} SET note = 'm'",
)


def load_them(lake: Shops) -> None:
    lake.joins(JOINS).run(lake.spark)


@pytest.fixture
def loaded(recorded: Recorded) -> Shops:
    return recorded(create_customers, load_them, like=Shops)


@pytest.mark.slow
@cases("few", pytest.param(True, id="through the driver"), pytest.param(False, id="through the stage"))
def test_a_history_of_groups(loaded: Shops, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
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
    assert {name: Counter(loaded.rows(name)) for name in JOINS} == loaded.meanings(JOINS)
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


def load_names(lake: Shops) -> None:
    lake.joins({"names": JOINS["names"]}).run(lake.spark)


def test_feeds_have_the_groups_that_differ(recorded: Recorded) -> None:
    """A row that enters a group which is there changes nothing; nor does a column that nobody uses."""
    lake, joins = recorded(create_customers, load_names, like=Shops), {"names": JOINS["names"]}
    pipeline, before, version = lake.joins(joins), lake.meanings(joins), lake.version("names")
    commit(lake, "UPDATE {customers} SET note = 'm'", "INSERT INTO {customers} VALUES (5, 'Ed', 'y', TRUE, 'n')")
    (report,) = pipeline.run(lake.spark)
    assert (report.changed, report.counts["touched"], lake.version("names")) == (0, 0, version)
    commit(lake, COMMITS[3], "UPDATE {customers} SET active = FALSE, city = NULL WHERE cid IN (3, 5)")
    lake.follow(pipeline, joins, before, "groups come and go", KEYS)


@pytest.mark.slow
def test_a_part_of_the_groups_is_repaired(loaded: Shops) -> None:
    pipeline = loaded.joins(JOINS)
    loaded.sql("UPDATE {totals} SET total = total + 1 WHERE cust = 2", "totals")
    commit(loaded, "INSERT INTO {orders} VALUES (20, 2, 2)")
    report, *_ = pipeline.backfill(loaded.spark, select=["totals"], where="cust = 2")
    assert report.changed == 1  # at the versions of the result, which do not have the new order
    pipeline.run(loaded.spark, select=["totals"])
    assert Counter(loaded.rows("totals")) == loaded.meanings(JOINS)["totals"]


def one_more(*given: object) -> DataFrame:
    """Count groups as a mistake would: by one too many."""
    found = changed_groups(*given)  # type: ignore[arg-type]
    return found.withColumn("new", found["new"].withField("total", found["new"]["total"] + 1))


@pytest.mark.deep
def test_the_gate_finds_a_sum_that_is_off_by_one(loaded: Shops, monkeypatch: pytest.MonkeyPatch) -> None:
    """It groups the rows of the source by itself."""
    commit(loaded, "UPDATE {orders} SET amount = 100 WHERE oid = 10")
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    with monkeypatch.context() as patched:
        patched.setattr(reading, "changed_groups", one_more)
        with pytest.raises(GateFailed):
            loaded.joins(JOINS).run(loaded.spark, select=["totals"])
    loaded.joins(JOINS).run(loaded.spark)
    assert Counter(loaded.rows("totals")) == loaded.meanings(JOINS)["totals"]


@pytest.mark.deep
def test_sums_that_depend_on_order_are_refused_and_those_that_overflow_are_named(loaded: Shops) -> None:
    for inexact in ("sum(amount / 2.0D)", "avg(CAST(amount AS BIGINT))", "sum('1')", "sum(0.1D)"):
        with pytest.raises(PipelineFileError, match="depends on the order of the rows"):
            loaded.joins({"new": TOTALS.replace("sum(amount)", inexact)}).run(loaded.spark)
    commit(loaded, "UPDATE {orders} SET amount = 2147483647 WHERE oid = 10")
    tight = {"tight": "SELECT cust, CAST(sum(amount) AS INT) + 1 AS s FROM orders WHERE cust IS NOT NULL GROUP BY cust"}
    with pytest.raises(RowFailed, match=r"CAST\(SUM\(`orders`.`amount`\) AS INT\)"):
        loaded.joins(tight).run(loaded.spark)
