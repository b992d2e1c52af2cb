"""A key space in slices: each key, whether it is there or not, meets the condition of one."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.values.pruning import slices_of
from lakehouse.values.recorded import Slice

KEYS: dict[str, list[Any]] = {
    "INT": [-(2**31), -1, 0, 1, 2, 3, 500, 2**31 - 1],
    "BIGINT": [-(2**63), 7, 8, 2**63 - 1],
    "STRING": ["", "a", "a'b", "\\", "b", "é", "\U0001f600", "\uffff"],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(2026, 3, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC)],
    "DECIMAL(38, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("99999999999999999999.99")],
}


@pytest.mark.parametrize("kind", KEYS)
def test_each_key_is_in_one_slice(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([(key,) for key in KEYS[kind]], f"key {kind}")
    slices = slices_of(rows.where("hash(key) % 3 <> 0"), ["key"], 3)  # cut by some of the keys
    counted = [sum(row) for row in rows.selectExpr(*(f"int({part.condition})" for part in slices)).collect()]
    assert counted == [1] * len(KEYS[kind])
    assert len(slices) > 1
    for part in slices:
        assert rows.where("hash(key) % 3 <> 0").where(part.condition).count() == part.rows


def test_a_value_that_is_there_often_is_in_one_slice_and_an_empty_table_is_one(spark: SparkSession) -> None:
    same = spark.sql("SELECT 1 AS a, id AS b FROM range(20)")
    assert slices_of(same, ["a", "b"], 4) == (Slice("true", 20),)
    assert slices_of(same.where("false"), ["a", "b"], 4) == (Slice("true", 0),)


def test_a_column_without_literals_in_order_is_passed_over(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id % 2 = 0 AS even, id FROM range(20)")
    assert all("`id`" in part.condition for part in slices_of(rows, ["even", "id"], 4))
    assert slices_of(rows, ["even"], 4) == (Slice("true", 20),)
