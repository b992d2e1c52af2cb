"""What two states differ by; the case is a part of each key, so that all of them are one Spark job."""

import math
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from pipelines.joins.difference import IMAGE, NEW, OLD, as_image, bag_difference, difference
from tests.joins.schemas import DOUBLE, INT, STRING, columns

ROW = columns(v=STRING, d=DOUBLE, m=MapType(STRING, INT), **{"the key": INT})
CASE = StructField("_case", StringType())
A = ("a", 1.5, {"p": 1, "q": 2}, 1)
OTHER = ("b", 1.5, {"p": 1, "q": 2}, 1)
NULLS = (None, None, None, 1)
CASES: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "insert": ([], [A], [("insert", None, A, 1)]),
    "delete": ([A], [], [("delete", A, None, 1)]),
    "update": ([A], [OTHER], [("update", A, OTHER, 1)]),
    "same": ([A], [A], []),
    "to nulls": ([A], [NULLS], [("update", A, NULLS, 1)]),
    "from nulls": ([NULLS], [A], [("update", NULLS, A, 1)]),
    "nulls": ([NULLS], [NULLS], []),
    "a row of nulls arrives": ([], [NULLS], [("insert", None, NULLS, 1)]),
    "a row of nulls leaves": ([NULLS], [], [("delete", NULLS, None, 1)]),
    "NaN": ([("a", math.nan, None, 1)], [("a", -math.nan, None, 1)], []),
    "negative zero": ([("a", 0.0, None, 1)], [("a", -0.0, None, 1)], []),
    "map": ([A], [("a", 1.5, {"p": 2, "q": 2}, 1)], [("update", A, ("a", 1.5, {"p": 2, "q": 2}, 1), 1)]),
    "twice in the old image": ([A, A], [A], [("update", A, A, 2)]),
    "twice in the new image": ([], [A, A], [("insert", None, A, 2)]),
    "twice in both": ([A, A], [A, A], [("update", A, A, 2)]),
    "nothing": ([], [], []),
}


def turned(frame: DataFrame) -> DataFrame:
    """Bring the maps into another order, for a Python dict loses its order on the way into Spark."""
    return frame.withColumn("m", F.expr("map_from_entries(reverse(map_entries(m)))"))


@pytest.fixture(scope="module")
def found(spark) -> dict[str, list[Any]]:
    def state(image):
        rows = [(name, *row) for name, case in CASES.items() for row in case[image]]
        return spark.createDataFrame(rows, StructType([CASE, *ROW]))

    images = as_image(turned(state(0)), OLD).unionAll(as_image(state(1), NEW))
    assert IMAGE in images.columns
    changes: dict[str, list[Any]] = {name: [] for name in CASES}
    for row in difference(images, ["_case", "the key"]).collect():
        before, after = (image and tuple(image)[1:] for image in (row["before"], row["after"]))
        assert row["key"].asDict() == {"_case": row["key"]["_case"], "the key": 1}
        changes[row["key"]["_case"]].append((row["op"], before, after, row["copies"]))
    return changes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.every_case
def test_difference_by_key(found, case):
    """A key is there if and only if its rows differ, null-safely, or it is there twice; with both rows."""
    assert found[case] == CASES[case][2]


def test_bag_difference_counts_both_ways(spark):
    """For 200 random pairs of bags the surplus of each row is what plain counting gives, and never 0."""
    chance = random.Random(7)
    domain = [(v, d, m) for v in ("a", None) for d in (0.0, math.nan, None) for m in ({"p": 1}, None)]
    bags = [[chance.choices(domain, k=chance.randrange(6)) for _ in (0, 1)] for _ in range(200)]
    schema = StructType([StructField("_case", IntegerType()), *ROW.fields[:3]])

    def frame(side):
        return spark.createDataFrame([(n, *row) for n, pair in enumerate(bags) for row in pair[side]], schema)

    extra = frame(1).selectExpr("m", "1 AS not_asked_for", "d", "v", "_case")
    seen: dict[int, dict[str, int]] = {}
    for row in bag_difference(frame(0), extra).collect():
        number, *cells = row["row"]
        seen.setdefault(number, {})[repr(tuple(cells))] = row["surplus"]
    for number, (expected, actual) in enumerate(bags):
        surplus = Counter(map(repr, actual))
        surplus.subtract(map(repr, expected))
        assert seen.get(number, {}) == {row: count for row, count in surplus.items() if count}, f"seed 7, bag {number}"


def test_bag_difference_compares_as_spark_does(spark):
    """NaN is NaN, 0.0 is -0.0, and maps are equal if their entries are."""
    one, other = (
        spark.createDataFrame([("a", d, m, 1) for d, m in cells], ROW)
        for cells in (
            [(math.nan, None), (0.0, None), (None, {"p": 1, "q": 2})],
            [(-math.nan, None), (-0.0, None), (None, {"p": 1, "q": 2})],
        )
    )
    assert bag_difference(one, turned(other)).collect() == []
