"""What a change feed nets to; each case is a scope of its own, so that all of them are one Spark job."""

import math
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from lakehouse.values.net_changes import net
from tests.joins.schemas import DOUBLE, INT, STRING, columns

INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
PLAIN = columns(k=INT, j=STRING, v=STRING)
CASES = {
    "an insert": ([(INSERT, 1, "x", "a")], [(None, "a", 1)]),
    "a delete": ([(DELETE, 1, "x", "a")], [("a", None, 1)]),
    "an update": ([(BEFORE, 1, "x", "a"), (AFTER, 1, "x", "b")], [("a", "b", 1)]),
    "an update to null": ([(BEFORE, 1, "x", "a"), (AFTER, 1, "x", None)], [("a", None, 1)]),
    "an update to the same": ([(BEFORE, 1, "x", "a"), (AFTER, 1, "x", "a")], []),
    "an update of null to null": ([(BEFORE, 1, "x", None), (AFTER, 1, "x", None)], []),
    "postimage listed first": ([(AFTER, 1, "x", "b"), (BEFORE, 1, "x", "a")], [("a", "b", 1)]),
    "inserted and deleted": ([(INSERT, 1, "x", "a"), (DELETE, 1, "x", "a")], []),
    "deleted and inserted again": ([(INSERT, 1, "x", "a"), (DELETE, 1, "x", "a")], []),
    "deleted and inserted otherwise": ([(INSERT, 1, "x", "b"), (DELETE, 1, "x", "a")], [("a", "b", 1)]),
    "several updates in any order": (
        [(AFTER, 1, "x", "c"), (BEFORE, 1, "x", "b"), (BEFORE, 1, "x", "a"), (AFTER, 1, "x", "b")],
        [("a", "c", 1)],
    ),
    "there and back": ([(BEFORE, 1, "x", "a"), (AFTER, 1, "x", "b"), (BEFORE, 1, "x", "b"), (AFTER, 1, "x", "a")], []),
    "an overwrite with itself": ([(kind, n, "x", "a") for n in (1, 2, 3) for kind in (INSERT, DELETE)], []),
    "an overwrite of rows that are there twice": ([(kind, 1, "x", "a") for kind in (INSERT, DELETE) * 2], []),
    "inserted twice, alike": ([(INSERT, 1, "x", "a")] * 2, [(None, "a", 2)]),
    "inserted twice, differently": ([(INSERT, 1, "x", "a"), (INSERT, 1, "x", "b")], [(None, {"a", "b"}, 2)]),
    "updated where it was twice": (
        [(BEFORE, 1, "x", "a")] * 2 + [(AFTER, 1, "x", "b"), (AFTER, 1, "x", "b")],
        [("a", "b", 2)],
    ),
    "one of two deleted": ([(DELETE, 1, "x", "a")], [("a", None, 1)]),
    "a new key": ([(BEFORE, 1, "x", "a"), (AFTER, 2, "x", "a")], [("a", None, 1), (None, "a", 1)]),
    "a row without a key": ([(INSERT, None, "x", "a"), (INSERT, 1, None, "a"), (DELETE, None, None, "a")], []),
    "nothing": ([], []),
}


@pytest.fixture(scope="module")
def netted(spark) -> dict[str, list[tuple[Any, ...]]]:
    rows = [(name, *row) for name, (feed, _) in CASES.items() for row in feed]
    schema = StructType([*columns(_case=STRING, _change_type=STRING), *PLAIN])
    feed = spark.createDataFrame(rows, schema)
    kinds = {field.name: field.dataType for field in PLAIN}
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in CASES}
    for row in net(feed, ["k", "j"], [LongType(), StringType()], kinds, ["_case"]).collect():
        found[row["_case"]].append((tuple(row["key"]), row["old"], row["new"], row["copies"]))
    return {name: sorted(changes) for name, changes in found.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.every_case
def test_a_feed_nets_as_a_bag(netted, case):
    """Whatever occurs on both sides cancels out, in any order; what is left over is the old and the new row."""
    expected = CASES[case][1]
    assert len(netted[case]) == len(expected)
    for (_, old, new, copies), (wanted_old, wanted_new, wanted_copies) in zip(netted[case], expected, strict=True):
        assert copies == wanted_copies
        for image, wanted in ((old, wanted_old), (new, wanted_new)):
            if isinstance(wanted, set):
                assert image["v"] in wanted
            else:
                assert (image and image["v"]) == wanted


def test_an_update_to_null_is_no_tombstone(netted):
    """A row of nulls is there; only an absent row is null as a whole."""
    ((_, old, new, _),) = netted["an update to null"]
    assert (tuple(old), tuple(new)) == ((1, "x", "a"), (1, "x", None))


def test_the_plan_for_many_columns_does_not_grow_with_their_mixtures(spark) -> None:
    """With a struct of all columns beside a copy of each, Spark would never be done with forty."""
    columns = StructType([StructField(f"c{n}", IntegerType()) for n in range(40)])
    feed = spark.createDataFrame([], StructType([StructField("_change_type", StringType()), *columns]))
    kinds = {field.name: field.dataType for field in columns}
    assert net(feed, ["c0"], [IntegerType()], kinds).collect() == []


RICH = columns(
    k=DOUBLE,
    m=MapType(STRING, INT),
    d=DOUBLE,
    b=BinaryType(),
    s=columns(x=INT, t=ArrayType(STRING)),
    a=ArrayType(StructType([StructField("f", DOUBLE)])),
    n=ArrayType(MapType(STRING, MapType(INT, STRING))),
)
RICH_ROW = {"k": 1.0, "m": {"a": 1, "b": None}, "d": 1.5, "b": b"\x00\xff", "s": (1, ["p", None]), "a": [(0.5,), None]}
RICH_ROW |= {"n": [{"x": {1: "p", 2: "q"}, "y": None}, None]}
TURNED = {
    "m": "map_from_entries(reverse(map_entries(m)))",
    "n": "transform(n, x -> map_from_entries(reverse(map_entries(transform_values(x, (_, y) ->"
    " map_from_entries(reverse(map_entries(y))))))))",
}
"""The maps of one old row in another order, for a Python dict loses its order on the way into Spark."""
TURNED_CASE = "maps in another order"
EQUAL = {
    "NaN": ({"d": math.nan}, {"d": -math.nan}),
    "NaN inside": ({"a": [(math.nan,)]}, {"a": [(-math.nan,)]}),
    "NaN in the key": ({"k": math.nan}, {"k": -math.nan}),
    "null everywhere": (dict.fromkeys("mdbsan"), dict.fromkeys("mdbsan")),
    "binary": ({"b": b""}, {"b": b""}),
    "array of null": ({"a": [None]}, {"a": [None]}),
    "struct of nulls": ({"s": (None, None)}, {"s": (None, None)}),
}
DIFFERENT = {
    TURNED_CASE: ({}, {}),
    "negative zero": ({"d": 0.0}, {"d": -0.0}),
    "negative zero inside": ({"a": [(-0.0,)]}, {"a": [(0.0,)]}),
    "negative zero in the key": ({"k": 0.0}, {"k": -0.0}),
    "map value": ({}, {"m": {"a": 1, "b": 2}}),
    "map key": ({}, {"m": {"a": 1, "c": None}}),
    "empty map and null": ({"m": {}}, {"m": None}),
    "value of a map inside a map": ({}, {"n": [{"x": {1: "p", 2: "r"}, "y": None}, None]}),
    "NaN and null": ({"d": math.nan}, {"d": None}),
    "NaN and infinity": ({"d": math.nan}, {"d": math.inf}),
    "binary of other length": ({"b": b"\x00"}, {"b": b"\x00\x00"}),
    "empty binary and null": ({"b": b""}, {"b": None}),
    "array of null and empty array": ({"a": [None]}, {"a": []}),
    "array of null and of a struct of null": ({"a": [None]}, {"a": [(None,)]}),
    "empty array and null": ({"a": []}, {"a": None}),
    "struct of nulls and null": ({"s": (None, None)}, {"s": None}),
    "array in another order": ({"s": (1, ["p", "q"])}, {"s": (1, ["q", "p"])}),
}


@pytest.fixture(scope="module")
def changed(spark) -> set[str]:
    rows = [
        (name, kind, *{**RICH_ROW, **cells}.values())
        for name, (old, new) in {**EQUAL, **DIFFERENT}.items()
        for kind, cells in ((BEFORE, old), (AFTER, new))
    ]
    schema = StructType([*columns(_case=STRING, _change_type=STRING), *RICH])
    kinds = {field.name: field.dataType for field in RICH}
    feed = spark.createDataFrame(rows, schema)
    of_turned_case = f"_case = '{TURNED_CASE}' AND _change_type = '{BEFORE}'"
    for name, turned in TURNED.items():
        feed = feed.withColumn(name, F.expr(f"IF({of_turned_case}, {turned}, {name})"))
    netted = net(feed, ["k"], [DoubleType()], kinds, ["_case"])
    return {row["_case"] for row in netted.select("_case").collect()}


@pytest.mark.parametrize("case", EQUAL)
@pytest.mark.every_case
def test_equal_values_are_no_change(changed, case):
    """Values that no expression can tell apart are the same."""
    assert case not in changed


@pytest.mark.parametrize("case", DIFFERENT)
@pytest.mark.every_case
def test_different_values_are_a_change(changed, case):
    """No two values that differ pass for the same, nor those that are equal but not identical."""
    assert case in changed


def test_other_columns_do_not_count(spark):
    rows = [(BEFORE, 1, "x", "a"), (AFTER, 1, "x", "b")]
    feed = spark.createDataFrame(rows, StructType([StructField("_change_type", StringType()), *PLAIN]))
    kinds = {"k": IntegerType(), "j": StringType()}
    assert net(feed, ["k"], [IntegerType()], kinds).collect() == []
