"""
The KTable of a changelog source: folded over any cut of a history it is what a fold in plain Python says. The history
is a part of each key, so that an epoch of all of them is one Spark job.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from pipelines.joins.ktable import candidates, latest
from pipelines.language import Changelog
from pipelines.language.names import DELETED, ORDER, VERSION
from tests.joins.claims import literal
from tests.joins.schemas import BOOLEAN, DOUBLE, INT, STRING, columns

Row = tuple[Any, ...]
Held = dict[Row, Row]
"""A KTable by key: shop, id, seq, op, v, deleted, order."""

RAW = columns(id=INT, seq=INT, op=STRING, v=STRING, shop=STRING)
CHANGELOG = Changelog(
    source="orders", key=("shop", "id"), order="seq", tombstone="`op` = 'd'", columns=("shop", "id", "seq", "op", "v")
)
OF_CASES = replace(CHANGELOG, key=("_case", *CHANGELOG.key), columns=("_case", *CHANGELOG.columns))
CASE = StructField("_case", IntegerType())
OFFERED = StructType([CASE, *RAW, StructField(VERSION, LongType())])
KTABLE = StructType([CASE, *(RAW[name] for name in CHANGELOG.columns), *columns(**{DELETED: BOOLEAN, ORDER: INT})])
RAW_ROWS = st.tuples(
    st.sampled_from([1, 1, 2, None]),
    st.sampled_from([1, 2, 2, 3, None]),
    st.sampled_from(["u", "u", "d", None]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from(["x", "x", "x", None]),
)
COMMITS = st.lists(RAW_ROWS, min_size=1, max_size=4)
EPOCHS = st.lists(st.lists(COMMITS, max_size=3), min_size=3, max_size=3)
"""A history, cut into epochs of commits of rows."""


def rank(order: int | None) -> int:
    return -1 if order is None else order


def fold(held: Held, commits: Sequence[Sequence[Row]]) -> tuple[Held, dict[str, int]]:
    """Apply commits one after the other, row by row; what is counted is counted against what is held at the start."""
    counts = {"late": 0, "ties": 0}
    after = dict(held)
    for commit in commits:
        offered: dict[tuple[Row, int | None], list[Row]] = {}
        for identity, seq, op, v, shop in commit:
            if identity is None or shop is None:
                continue
            key = (shop, identity)
            counts["late"] += key in held and rank(seq) < rank(held[key][-1])
            offered.setdefault((key, seq), []).append((op == "d", op or "", v or "", (*key, seq, op, v)))
        for (key, seq), rows in offered.items():
            counts["ties"] += len(rows) - 1
            dead, _, _, row = max(rows, key=lambda found: found[:3])
            if key not in after or rank(seq) >= rank(after[key][-1]):
                values = (None, None, None) if dead else row[2:]
                after[key] = (*key, *values, dead, seq)
    return after, counts


def expected_changes(before: Held, after: Held) -> dict[Row, tuple[str, Row | None, Row]]:
    return {
        key: ("insert" if key not in before else "update", before.get(key), row)
        for key, row in after.items()
        if before.get(key) != row
    }


def numbered(epochs: Sequence[Sequence[Sequence[Row]]]) -> Iterator[list[tuple[int, Sequence[Row]]]]:
    versions = count(1)
    for epoch in epochs:
        yield [(next(versions), commit) for commit in epoch]


@settings(max_examples=12)
@given(st.lists(EPOCHS, min_size=1, max_size=40))
def test_oracle_latest_is_a_fold_at_any_cut(spark: SparkSession, histories: list[list[list[list[Row]]]]) -> None:
    """Late rows, tombstones, null keys, ties across commits and in one, null orders: rows, changes and counts."""
    cut = [list(numbered(history)) for history in histories]
    states: list[Held] = [{} for _ in histories]
    for epoch in range(3):
        rows = [
            (case, *row, version)
            for case, history in enumerate(cut)
            for version, commit in history[epoch]
            for row in commit
        ]
        held = [(case, *row) for case, state in enumerate(states) for row in state.values()]
        offered = candidates(literal(spark, rows, OFFERED), OF_CASES)
        found = latest(offered, literal(spark, held, KTABLE), OF_CASES.key).collect()
        for case, before in enumerate(states):
            after, counts = fold(before, [commit for _, commit in cut[case][epoch]])
            mine = [row for row in found if row["key"]["_case"] == case]
            changes = {
                tuple(row["key"])[1:]: (row["op"], row["before"] and tuple(row["before"])[1:], tuple(row["after"])[1:])
                for row in mine
                if row["op"] is not None
            }
            assert changes == expected_changes(before, after), (histories[case], epoch)
            assert {name: sum(row[name] for row in mine) for name in counts} == counts, (histories[case], epoch)
            states[case] = after
    for history, state in zip(histories, states, strict=True):
        assert fold({}, [commit for epoch in history for commit in epoch])[0] == state, "the cut changes nothing"


def one(spark: SparkSession, rows: list[Row], held: Sequence[Row] = ()) -> list[tuple[str, Row]]:
    """Offer rows of one commit and give what changes: the operation and the row."""
    schema = StructType([*RAW, StructField(VERSION, LongType())])
    offered = candidates(literal(spark, [(*row, 1) for row in rows], schema), CHANGELOG)
    found = latest(offered, literal(spark, held, StructType(list(KTABLE)[1:])), CHANGELOG.key)
    return [(row["op"], tuple(row["after"])) for row in found.where("op IS NOT NULL").collect()]


def test_a_tombstone_of_an_absent_key_is_held_and_keeps_older_rows_out(spark: SparkSession) -> None:
    """Without values, with its order."""
    ((op, tombstone),) = one(spark, [(1, 5, "d", "gone", "x")])
    assert (op, tombstone) == ("insert", ("x", 1, None, None, None, True, 5))
    assert one(spark, [(1, 4, "u", "old", "x"), (1, None, "u", "old", "x")], [tombstone]) == []
    assert one(spark, [(1, 5, "u", "new", "x")], [tombstone]) == [("update", ("x", 1, 5, "u", "new", False, 5))]


def test_a_row_that_is_held_already_changes_nothing(spark: SparkSession) -> None:
    """Of equal order it wins, and is the same."""
    held = ("x", 1, 5, "u", "a", False, 5)
    assert one(spark, [(1, 5, "u", "a", "x")], [held]) == []


def test_of_ties_the_same_row_is_taken_whatever_their_order(spark: SparkSession) -> None:
    """A tombstone first, then the greatest values, the first column that differs deciding."""
    rows = [(1, 1, "u", "z", "x"), (1, 1, "w", "a", "x"), (1, 1, "w", None, "x")]
    for turned in (rows, rows[::-1]):
        assert one(spark, turned) == [("insert", ("x", 1, 1, "w", "a", False, 1))]
        assert one(spark, [*turned, (1, 1, "d", None, "x")]) == [("insert", ("x", 1, None, None, None, True, 1))]


def test_values_of_every_shape_are_told_apart_and_carried(spark: SparkSession) -> None:
    """Maps have no order and floating point numbers several texts; ties of them are decided all the same."""
    schema = columns(k=DOUBLE, m=MapType(STRING, DOUBLE), s=StructType([StructField("a", ArrayType(DOUBLE))]), n=DOUBLE)
    rows = [(1.0, {"a": 1.0}, ([1.0],), None), (1.0, {"a": 2.0}, ([float("nan")],), None), (-0.0, None, None, 1.0)]
    raw = spark.createDataFrame(
        [(*row, 1) for row in [*rows, *rows]], StructType([*schema, StructField(VERSION, LongType())])
    )
    changelog = Changelog(source="rich", key=("k",), order="n", tombstone="false", columns=("k", "m", "s", "n"))
    own = [StructField(DELETED, BooleanType()), StructField(ORDER, DoubleType())]
    empty = spark.createDataFrame([], StructType([*schema, *own]))
    found = {row["key"]["k"]: row for row in latest(candidates(raw, changelog), empty, ["k"]).collect()}
    assert {key: row["ties"] for key, row in found.items()} == {1.0: 3, 0.0: 1}
    assert found[1.0]["after"]["m"] == {"a": 2.0}
    held = spark.createDataFrame([row["after"] for row in found.values()], empty.schema)
    assert latest(candidates(raw, changelog), held, ["k"]).where("op IS NOT NULL").count() == 0, "offered again"


def test_the_plan_for_many_columns_does_not_grow_with_their_mixtures(spark: SparkSession) -> None:
    """Forty columns, each of them in the row and in what decides ties."""
    names = tuple(f"c{n}" for n in range(40))
    columns = StructType([StructField(name, IntegerType()) for name in names])
    changelog = Changelog(source="wide", key=("c0",), order="c1", tombstone="`c2` = 1", columns=names)
    raw = spark.createDataFrame([], StructType([*columns, StructField(VERSION, LongType())]))
    own = [StructField(DELETED, BooleanType()), StructField(ORDER, IntegerType())]
    held = spark.createDataFrame([], StructType([*columns, *own]))
    assert latest(candidates(raw, changelog), held, ["c0"]).collect() == []
