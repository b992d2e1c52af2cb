"""Predicates for file pruning: implied by the keys, and narrow."""

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehouse import limits
from lakehouse.session.session import own_session
from lakehouse.values.pruning import Pruning, Wanted, _ranges, null_safe_pruning, pruning


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=80, unique=True), st.integers(1, 10))
def test_every_value_lies_in_a_range_and_ranges_ascend(values: list[int], budget: int) -> None:
    values.sort()
    ranges = _ranges([(value, value) for value in values], budget)
    assert len(ranges) <= budget
    assert all(any(low <= value <= high for low, high in ranges) for value in values)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


@given(st.lists(st.text(max_size=12), min_size=1, max_size=60, unique=True), st.integers(1, 10))
def test_strings_order_as_spark_orders_them(values: list[str], budget: int) -> None:
    values = sorted(value for value in values if value.encode(errors="ignore").decode() == value) or ["a"]
    ranges = _ranges([(value, value) for value in values], budget)
    assert all(any(low.encode() <= v.encode() <= high.encode() for low, high in ranges) for v in values)


def test_the_widest_gaps_are_cut() -> None:
    """One old key beside recent ones gets a range of its own: files between them are skipped."""
    assert _ranges([(value, value) for value in (5, 1000, 1001, 1005)], 2) == [(5, 5), (1000, 1005)]


KEYS: dict[str, list[Any]] = {
    "TINYINT": [-128, 0, 127],
    "SMALLINT": [-300, 5],
    "INT": [5, 2**31 - 1],
    "BIGINT": [-(2**63), 7, 2**63 - 1],
    "STRING": ["", "it's", "back\\slash", "é", "\u4e2d", "a b", "`"],
    "DATE": [date(1, 1, 1), date(2013, 1, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1582, 10, 1, tzinfo=UTC), datetime(2013, 3, 10, 7, 30, 0, 123456, tzinfo=UTC)],
    "TIMESTAMP_NTZ": [datetime(2013, 3, 10, 2, 30), datetime(2013, 3, 10, 2, 30, 0, 5)],
    "DECIMAL(15, 4)": [Decimal("-12.5000"), Decimal("99999999999.9999")],
}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_predicate_holds_for_exactly_its_keys(spark: SparkSession, zone: str) -> None:
    """Values of every prunable type, its edges included: each passes, and a neighbour that is no key does not."""
    session = own_session(spark, zone)
    columns = ", ".join(f"k{n}: {kind}" for n, kind in enumerate(KEYS))
    rows = [(tuple(values[i % len(values)] for values in KEYS.values()),) for i in range(7)]
    keys = session.createDataFrame(rows, f"key STRUCT<{columns}>").cache()
    known = pruning(keys)
    assert [KEYS_BY_PLACE[item.part] for item in known.wanted] == list(KEYS)
    assert known.keys == 7
    for item in known.wanted:
        names = [f"k{n}" for n in range(len(KEYS))]
        predicate = Pruning((item,), None).predicate(names, "key.")
        assert predicate is not None
        assert keys.where(predicate).count() == 7, predicate
        other = {"INT": "6", "STRING": "'aa'", "DATE": "DATE'2013-01-02'"}.get(KEYS_BY_PLACE[item.part])
        if other:
            assert session.sql(f"SELECT {other} AS k{item.part}").where(predicate.replace("key.", "")).count() == 0
    keys.unpersist()


KEYS_BY_PLACE = list(KEYS)


def test_too_many_keys_to_list_become_ranges(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit nothing is collected but buckets; the predicate still holds for every key and skips the gap."""
    monkeypatch.setattr(limits, "LISTED_KEYS", 50)
    keys = spark.range(0, 100).unionAll(spark.range(10_000, 10_100)).selectExpr("named_struct('k0', id) AS key")
    known = pruning(keys)
    assert known.keys is None
    (item,) = known.wanted
    assert item.values is None
    predicate = known.predicate(["id"])
    assert predicate is not None
    assert spark.range(20_000).where(predicate).count() < 400
    assert keys.selectExpr("key.k0 AS id").where(predicate).count() == 200


CLOSE = {
    "DECIMAL(38, 0) beyond the precision of a double": "CAST('1' || lpad(id, 36, '0') AS DECIMAL(38, 0))",
    "DECIMAL(38, 38)": "CAST('0.1' || lpad(id, 37, '0') AS DECIMAL(38, 38))",
    "BIGINT near 2**62": "4611686018427387904 + id",
    "BIGINT at its end": "9223372036854775807 - id",
    "STRING with invalid UTF-8": "concat('a', CAST(unhex(hex(160 + id % 90)) AS STRING), CAST(id AS STRING))",
    "STRING that begins with invalid UTF-8": "concat(CAST(unhex(hex(160 + id % 90)) AS STRING), CAST(id AS STRING))",
    "STRING of odd characters": "concat(char(id % 64), '\\U0001F600\\uFFFE', CAST(id AS STRING))",
}
"""Keys that lie close together and far from zero, or whose text is damaged on its way to the driver."""


@pytest.mark.parametrize("limit", [50, limits.LISTED_KEYS], ids=["in buckets", "listed"])
def test_the_predicate_holds_for_every_key_that_it_was_made_from(spark, monkeypatch, limit):
    monkeypatch.setattr(limits, "LISTED_KEYS", limit)
    for name, value in CLOSE.items():
        keys = spark.range(0, 120, numPartitions=1).selectExpr(f"named_struct('k0', {value}) AS key")
        assert keys.distinct().count() == 120, name
        predicate = pruning(keys).predicate(["k0"], "key.")
        missed = [] if predicate is None else keys.where(f"NOT coalesce({predicate}, FALSE)").collect()
        assert missed == [], name


def test_a_part_with_invalid_text_prunes_nothing_and_the_others_do(spark: SparkSession) -> None:
    """The driver sees U+FFFD in place of the invalid bytes: a literal made from it finds other rows."""
    keys = spark.sql("SELECT named_struct('k0', 1, 'k1', CAST(X'61C3' AS STRING)) AS key")
    known = pruning(keys)
    assert [item.part for item in known.wanted] == [0]
    assert not known.exact


def test_types_without_statistics_prune_nothing(spark: SparkSession) -> None:
    keys = spark.sql("SELECT named_struct('k0', X'01', 'k1', true, 'k2', 1.5D) AS key")
    assert pruning(keys).predicate(["a", "b", "c"]) is None


def test_no_literal_on_a_number_that_a_double_may_round(spark: SparkSession) -> None:
    """delta-rs writes statistics of decimals as doubles, which keep 15 digits."""
    for digits, is_pruned in ((15, True), (16, False)):
        keys = spark.sql(f"SELECT struct(CAST(1 AS DECIMAL({digits}, 0)) AS k0) AS key")
        assert (pruning(keys).predicate(["k"]) is not None) == is_pruned


def test_ranges_stay_within_their_budget_for_composite_keys(spark: SparkSession) -> None:
    keys = spark.range(0, 5000, 7).selectExpr("named_struct('k0', id, 'k1', CAST(id * 3 AS STRING)) AS key")
    known = pruning(keys)
    assert sum(len(item.ranges) for item in known.wanted) <= 50
    assert isinstance(known.wanted[0], Wanted)


def test_a_predicate_has_a_branch_for_each_pattern_of_nulls(spark: SparkSession) -> None:
    keys = [(1, "a"), (9, "a"), (None, "b"), (4, None)]
    frame = spark.createDataFrame([(key,) for key in keys], "key STRUCT<k0: INT, k1: STRING>")
    known = null_safe_pruning(frame)
    assert (known.keys, known.exact, len(known.branches)) == (4, False, 3)
    rows = [*keys, (None, None), (None, "a"), (4, "b"), (1, None), (2, "a")]
    found = spark.createDataFrame(rows, "x INT, y STRING").where(known.predicate(["x", "y"]) or "")
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(keys, key=repr)
    assert null_safe_pruning(frame.where("key.k0 IS NOT NULL AND key.k1 IS NOT NULL")).wanted
