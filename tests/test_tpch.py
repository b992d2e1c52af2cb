"""
Joins of any cardinality over tables of TPC-H, kept up to date over refreshes. The tables have the ratios, keys and gaps
of the specification at scale 0.1: a third of the customers have no order, of 32 order keys 8 are used, each part has
four suppliers. A refresh inserts orders and deletes as many, each a thousandth of all; further changes come to the
tables that the refresh functions of the specification leave alone.
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.lake import Lake

pytestmark = pytest.mark.slow

SCALE = 0.1
CUSTOMERS, ORDERS, PARTS, SUPPLIERS = (int(SCALE * rows) for rows in (150_000, 1_500_000, 200_000, 10_000))
REFRESHED = ORDERS // 1_000
ROUNDS = 3

KEYS = {
    "customer": "c_custkey",
    "orders": "o_orderkey",
    "part": "p_partkey",
    "partsupp": {"key": ["ps_partkey", "ps_suppkey"]},
    "supplier": "s_suppkey",
}

JOINS = {
    "customer_orders": "SELECT c.c_custkey, o.o_orderkey, c.c_name, c.c_nationkey, o.o_totalprice, o.o_orderdate "
    "FROM customer c LEFT JOIN orders o ON o.o_custkey = c.c_custkey AND o.o_orderstatus <> 'P'",
    "part_suppliers": "SELECT p.p_partkey, s.ps_partkey, s.ps_suppkey, p.p_name, s.ps_supplycost, "
    "p.p_retailprice - s.ps_supplycost AS margin FROM part p FULL JOIN partsupp s ON p.p_partkey = s.ps_partkey",
    "neighbours": "SELECT s.s_suppkey, c.c_custkey, s.s_nationkey, s.s_acctbal, c.c_acctbal FROM supplier s "
    "JOIN customer c ON s.s_nationkey = c.c_nationkey AND c.c_mktsegment = 'BUILDING' AND s.s_acctbal > c.c_acctbal",
}


def _random(most: int, salt: str, key: str = "id") -> str:
    return f"pmod(xxhash64({key}, '{salt}'), {most})"


def _orders(rows: str, key: str, salt: str) -> str:
    """Give a query of orders: none is of a customer whose key is a multiple of three."""
    customer = f"3 * {_random(CUSTOMERS // 3, f'customer {salt}')} + 1 + {_random(2, f'which {salt}')}"
    return (
        f"SELECT {key} AS o_orderkey, {customer} AS o_custkey, "
        f"element_at(array('O', 'F', 'P'), CAST(1 + {_random(3, f'status {salt}')} AS INT)) AS o_orderstatus, "
        f"CAST({_random(50_000_000, f'price {salt}')} / 100 AS DECIMAL(15, 2)) AS o_totalprice, "
        f"date_add(DATE'1992-01-01', CAST({_random(2_406, f'date {salt}')} AS INT)) AS o_orderdate FROM {rows}"
    )


def _orderkey(number: str) -> str:
    """Give an order key of the specification: of 32 keys the first 8 are used."""
    return f"32 * ({number} DIV 8) + {number} % 8"


def _money(salt: str, key: str = "id") -> str:
    return f"CAST({_random(1_099_999, salt, key)} / 100 - 999.99 AS DECIMAL(15, 2))"


TABLES = {
    "customer": f"SELECT id + 1 AS c_custkey, concat('Customer#', id) AS c_name, {_random(25, 'c')} AS c_nationkey, "
    f"{_money('c')} AS c_acctbal, element_at(array('BUILDING', 'AUTOMOBILE', 'MACHINERY', 'HOUSEHOLD', 'FURNITURE'), "
    f"CAST(1 + {_random(5, 'segment')} AS INT)) AS c_mktsegment FROM range({CUSTOMERS})",
    "orders": _orders(f"range({ORDERS})", _orderkey("id"), "0"),
    "part": "SELECT id + 1 AS p_partkey, concat('part ', id) AS p_name, "
    f"CAST(900 + id % 1000 AS DECIMAL(15, 2)) AS p_retailprice FROM range({PARTS})",
    "partsupp": f"SELECT id DIV 4 + 1 AS ps_partkey, pmod(id DIV 4 + (id % 4) * {SUPPLIERS // 4}, {SUPPLIERS}) + 1 AS "
    f"ps_suppkey, CAST({_random(100_000, 'cost')} / 100 AS DECIMAL(15, 2)) AS ps_supplycost FROM range({4 * PARTS})",
    "supplier": f"SELECT id + 1 AS s_suppkey, {_random(25, 's')} AS s_nationkey, {_money('s')} AS s_acctbal "
    f"FROM range({SUPPLIERS})",
}


def _refresh(turn: int) -> Iterator[tuple[str, str]]:
    """Give the statements of a refresh, each with the table that it changes."""
    new = f"range({turn * REFRESHED}, {(turn + 1) * REFRESHED})"
    yield "orders", "INSERT INTO {orders} " + _orders(new, f"{_orderkey('id')} + 8", f"{turn + 1}")
    first, last = (_orderkey(f"{number}") for number in (turn * REFRESHED, (turn + 1) * REFRESHED - 1))
    yield "orders", f"DELETE FROM {{orders}} WHERE o_orderkey BETWEEN {first} AND {last} AND o_orderkey % 32 < 8"
    yield "orders", f"UPDATE {{orders}} SET o_orderstatus = 'F' WHERE o_orderstatus = 'P' AND o_orderkey % 97 = {turn}"
    yield (
        "customer",
        (
            f"UPDATE {{customer}} SET c_acctbal = c_acctbal - 100, c_nationkey = (c_nationkey + 1) % 25 "
            f"WHERE c_custkey % 500 = {turn}"
        ),
    )
    yield "customer", f"DELETE FROM {{customer}} WHERE c_custkey % 1000 = {turn + 500}"
    yield "part", f"DELETE FROM {{part}} WHERE p_partkey % 400 = {turn}"
    yield "partsupp", f"DELETE FROM {{partsupp}} WHERE ps_partkey % 300 = {turn}"
    yield "partsupp", f"UPDATE {{partsupp}} SET ps_supplycost = ps_supplycost + 1 WHERE ps_suppkey % 200 = {turn}"
    yield "part", f"INSERT INTO {{part}} SELECT {PARTS} + {turn} * 20 + id, 'new', 1000 FROM range(1, 21)"
    yield "supplier", f"UPDATE {{supplier}} SET s_nationkey = (s_nationkey + 7) % 25 WHERE s_suppkey % 250 = {turn}"
    yield "supplier", f"UPDATE {{supplier}} SET s_acctbal = s_acctbal + 500 WHERE s_suppkey % 200 = {turn}"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    found = Lake(spark, tmp_path_factory.mktemp("tpch"))
    with_feed = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    for name, query in TABLES.items():
        found.spark.sql(f"CREATE TABLE {found.at(name)} {with_feed} AS {query}")
    return found


def test_verify_is_clean_after_each_refresh(lake: Lake) -> None:
    (first, sql), *others = JOINS.items()
    pipeline = lake.pipeline(sql, KEYS, first, dict(others))
    loaded = {report.join: report for report in pipeline.run(lake.spark)}
    assert {name: report.strategy for name, report in loaded.items()} == dict.fromkeys(JOINS, "load")
    assert loaded["neighbours"].counts["inserted"] > CUSTOMERS
    for turn in range(ROUNDS):
        for table, statement in _refresh(turn):
            lake.sql(statement, table)
        reports = pipeline.run(lake.spark)
        assert {report.strategy for report in reports} == {"incremental"}
        assert all(report.counts["inserted"] and report.counts["deleted"] for report in reports), reports
        assert {report.outcome for report in pipeline.verify(lake.spark)} == {"done"}
    assert {report.outcome for report in pipeline.verify(lake.spark, quick=True)} == {"done"}
