"""The tables that lakejoin creates: clustered by those columns for which Delta keeps statistics."""

from pyspark.sql.types import StructType

from lakehouse.tables.creation import create
from lakehouse.values.sqltext import Address
from tests.cases import cases
from tests.lake import Lake


@cases(
    "before, is_clustered",
    (["a INT"] * 31, True),
    (["a INT"] * 32, False),
    (["s STRUCT<a: INT, b: STRUCT<c: INT, d: INT>>"] * 10 + ["a INT"], True),
    (["s STRUCT<a: INT, b: STRUCT<c: INT, d: INT>>"] * 10 + ["a INT"] * 2, False),
    (["m MAP<STRING, INT>", "l ARRAY<STRUCT<a: INT, b: INT>>"] * 15 + ["a INT"], True),
    ids=["31 columns", "32 columns", "31 fields", "32 fields", "31 with maps and arrays"],
)
def test_a_table_is_clustered_by_a_key_with_statistics_only(lake: Lake, before: list[str], is_clustered: bool) -> None:
    """Delta counts the fields inside structs, and refuses a table that is clustered by a column without statistics."""
    columns = ", ".join(f"c{number}{column}" for number, column in enumerate(before))
    schema = StructType.fromDDL(f"{columns}, k INT")
    create(lake.spark, Address("t", lake.path("t")), schema, ["k"])
    detail = lake.sql("DESCRIBE DETAIL {t}", "t")[0]
    assert detail["clusteringColumns"] == (["k"] if is_clustered else [])
