"""The hash of a value: differing values hash differently, equal ones alike."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.values.compare import hash_of

DIFFERENT = {
    "nulls of a struct": (
        "named_struct('a', 5, 'b', CAST(NULL AS INT))",
        "named_struct('a', CAST(NULL AS INT), 'b', 5)",
    ),
    "nulls of an array": ("array(NULL, 5)", "array(5, NULL)"),
    "a null and none": ("array(5)", "array(5, NULL)"),
    "an empty array and none": ("CAST(array() AS ARRAY<INT>)", "CAST(NULL AS ARRAY<INT>)"),
    "ends of arrays": ("array(array(1, 2), array(3))", "array(array(1), array(2, 3))"),
    "empty arrays in an array": ("array(array(1), array())", "array(array(), array(1))"),
    "structs in an array": (
        "array(named_struct('a', 5, 'b', CAST(NULL AS INT)))",
        "array(named_struct('a', CAST(NULL AS INT), 'b', 5))",
    ),
    "a null struct and nulls in a struct": (
        "named_struct('s', named_struct('a', CAST(NULL AS INT)), 'n', 1)",
        "named_struct('s', CAST(NULL AS STRUCT<a: INT>), 'n', 1)",
    ),
    "null values of a map": ("map('x', 5, 'y', NULL)", "map('x', NULL, 'y', 5)"),
    "maps in an array": ("array(map('x', 1), map())", "array(map(), map('x', 1))"),
    "arrays in a map": ("map('x', array(NULL, 1))", "map('x', array(1, NULL))"),
    "a null and a value that counts it": (
        "named_struct('a', 1, 'b', CAST(NULL AS INT))",
        "named_struct('a', 1, 'b', 1)",
    ),
}
EQUAL = {
    "zeros": ("0.0D", "-0.0D"),
    "entries of a map": ("map('x', 1, 'y', CAST(NULL AS INT))", "map('y', CAST(NULL AS INT), 'x', 1)"),
    "maps in an array": ("array(map('x', 0.0D, 'y', NULL))", "array(map('y', NULL, 'x', -0.0D))"),
}


def _hashes(spark: SparkSession, pair: tuple[str, str]) -> list[int]:
    rows = spark.sql(f"SELECT {pair[0]} AS v UNION ALL SELECT {pair[1]}")
    return [row[0] for row in rows.selectExpr(hash_of("v", rows.schema["v"].dataType)).collect()]


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_values_that_differ_only_by_where_a_null_or_an_end_lies_hash_apart(spark, pair):
    one, other = _hashes(spark, pair)
    assert one != other


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL)
def test_values_that_compare_as_equal_hash_alike(spark: SparkSession, pair: tuple[str, str]) -> None:
    one, other = _hashes(spark, pair)
    assert one == other
