"""What gives a table other columns: ALTER TABLE where Delta does it without rewriting a file, else an overwrite."""

import json
from typing import Any

import pytest
from pyspark.sql import types as T

from lakehouse.tables.columns import evolution, lacks_mapping, why_not_overwritten
from lakehouse.tables.table import Table
from lakehouse.values.sqltext import Address
from tests.cases import cases

TYPES: dict[str, T.DataType] = {
    "TINYINT": T.ByteType(),
    "INT": T.IntegerType(),
    "BIGINT": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "DECIMAL(10)": T.DecimalType(10, 0),
    "STRING": T.StringType(),
    "DATE": T.DateType(),
    "TIMESTAMP_NTZ": T.TimestampNTZType(),
    "X": T.StructType([T.StructField("x", T.IntegerType())]),
    "XY": T.StructType([T.StructField("x", T.IntegerType()), T.StructField("y", T.IntegerType())]),
}
WIDENS, MAPPED = {"delta.enableTypeWidening": "true"}, {"delta.columnMapping.mode": "name"}


def schema(columns: str) -> T.StructType:
    pairs = (column.rsplit(" ", 1) for column in columns.split(", "))
    return T.StructType([T.StructField(name, TYPES[of]) for name, of in pairs])


def table(columns: str, key: str = "k", **properties: str) -> Table:
    given = {"lakejoin.key": json.dumps([key]), **properties}
    return Table(Address("t", path="/t"), "id", 0, schema(columns), given)


@cases(
    "found, expected, properties, does",
    ("k INT, a INT", "k INT, b STRING, a INT, c INT", {}, "adds `b` and `c`"),
    ("k INT, a INT", "k INT, a BIGINT", WIDENS, "widens `a`"),
    ("k INT, a INT", "k INT, a BIGINT", {}, None),
    ("k INT, a INT", "k INT", MAPPED, "drops `a`"),
    ("k INT, a INT", "k INT", {}, None),
    ("k INT, a INT", "k INT, a STRING", WIDENS | MAPPED, None),
    ("k INT, a INT, b DATE", "k INT, b TIMESTAMP_NTZ, c INT", WIDENS | MAPPED, "adds `c`, widens `b`, drops `a`"),
    ("k INT, a X", "k INT, a XY", WIDENS, None),
    ("K INT, A INT", "k INT, a INT", {}, ""),
)
def test_alter_table_does_what_needs_no_new_files(found: str, expected: str, properties: Any, does: str | None) -> None:
    change = evolution(schema(expected), table(found, **properties))
    assert (None if change is None else str(change)) == does


def test_a_new_column_stands_after_the_one_before_it() -> None:
    change = evolution(schema("b INT, k INT, c INT, d INT"), table("k INT"))
    assert change is not None
    assert [(field.name, after) for field, after in change.added] == [("b", None), ("c", "k"), ("d", "c")]


@pytest.mark.parametrize(("narrow", "wide"), [("TINYINT", "INT"), ("TINYINT", "DECIMAL(10)"), ("INT", "DOUBLE")])
@pytest.mark.parametrize("is_wider", [True, False])
def test_only_wider_types_are_widened(narrow: str, wide: str, is_wider: bool) -> None:
    found, expected = (narrow, wide) if is_wider else (wide, narrow)
    change = evolution(schema(f"a {expected}"), table(f"a {found}", **WIDENS))
    assert (change is not None) == is_wider


@cases(
    "expected, key, properties, why",
    ("k INT, b INT", "k", {}, ""),
    ("k INT, b INT", "b", {}, "the key changes"),
    ("k STRING", "k", {}, "`k` is of the key or the layout of the table"),
    ("k INT", "k", {"lakejoin.clusterBy": '["a"]'}, "`a` is of the key or the layout of the table"),
)
def test_an_overwrite_keeps_key_and_layout(expected: str, key: str, properties: Any, why: str) -> None:
    found = table("k INT, a INT", **properties)
    assert why_not_overwritten(schema(expected), found, [key]) == why


def test_a_name_that_parquet_does_not_take_needs_column_mapping() -> None:
    columns = schema("k INT, a b INT")
    assert lacks_mapping(columns, table("k INT"))
    assert not lacks_mapping(columns, table("k INT", **MAPPED))
    assert not lacks_mapping(schema("k INT, b INT"), table("k INT"))
