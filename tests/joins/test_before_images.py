"""Changes of a result with the previous row of their key."""

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from pipelines.joins.changelog import Before, changelog_schema, logged_between
from tests.joins.schemas import INT, STRING, columns

COLUMNS = columns(k=INT, held=STRING)
BEFORE = Before({"held": "held_before"}, "was_present")


def test_a_result_may_call_a_column_as_a_working_column_is_called(spark):
    """The previous row is the one that the changelog has before the range, whatever its columns are called."""
    schema = changelog_schema(COLUMNS)
    assert [type(field.dataType) for field in schema][:3] == [IntegerType, StringType, StringType], schema
    order = {field.name: field.dataType for field in schema}
    assert isinstance(order["_epoch"], LongType)
    assert isinstance(order["_at"], TimestampType)
    logged = [
        {"k": 1, "held": "a", "_op": "upsert", "_cause": "left", "_position": 0, "_epoch": 1},
        {"k": 1, "held": "b", "_op": "upsert", "_cause": "left", "_position": 0, "_epoch": 2},
        {"k": 2, "held": "c", "_op": "upsert", "_cause": "left", "_position": 1, "_epoch": 2},
    ]
    rows = [tuple(row.get(name) for name in schema.fieldNames()) for row in logged]
    nullable = StructType([StructField(field.name, field.dataType) for field in schema])
    found = logged_between(spark.createDataFrame(rows, nullable), (2, 2), ["k"], COLUMNS, BEFORE)
    shown = found.select("k", "held", "held_before", "was_present").orderBy("k").collect()
    assert [tuple(row) for row in shown] == [(1, "b", "a", True), (2, "c", None, False)]
