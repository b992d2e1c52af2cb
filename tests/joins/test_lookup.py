"""Look-ups of a stream: equal to an event-by-event oracle however they are cut, and no task gets all null keys."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lakehouse.session.session import settings
from pipelines.joins.lookup import as_rows, look_up
from pipelines.joins.timeline import NEVER, timed, versions
from pipelines.language.names import ALWAYS, POSITION
from tests.cases import cases
from tests.joins.claims import literal
from tests.joins.epochs import bound
from tests.joins.lookup_histories import compared
from tests.joins.schemas import INT, STRING, columns

EVENT = columns(n=INT, a=INT, b=STRING)
ITEM = columns(id=INT, ref=STRING, v=INT)
NAMED = columns(name=STRING, w=INT)
SCHEMAS = {"events": EVENT, "items": ITEM, "names": NAMED}
KEYS = {"events": ("n",), "items": ("id",), "names": ("name",)}
CASES = 120


STATEMENTS = {
    "left": "SELECT e.n, i.v, x.w FROM events e LEFT JOIN items i ON e.a = i.id LEFT JOIN names x ON i.ref = x.name",
    "inner": "SELECT e.n, i.v, x.w FROM events e JOIN items i ON e.a = i.id JOIN names x ON upper(e.b) = x.name",
    "mixed, with conditions": (
        "SELECT e.n, i.v, x.w FROM events e LEFT JOIN items i ON e.a + 0 = i.id AND i.v > 3 "
        "JOIN names x ON e.b = x.name AND (x.w <> i.v OR i.v IS NULL) WHERE e.n % 5 <> 0"
    ),
}


def oracle(which: str, event: tuple, items: dict, names: dict) -> tuple | None:
    """Say what an event makes of the tables as they are, from the statement and nothing else."""
    n, a, b = event
    item = items.get(a)
    if which == "left":
        name = names.get(item[1]) if item else None
        return (n, item and item[2], name and name[1])
    if which == "inner":
        name = names.get(b.upper()) if b is not None else None
        return (n, item[2], name[1]) if item and name else None
    item = item if item and item[2] is not None and item[2] > 3 else None
    name = names.get(b)
    if name is None or not (item is None or (name[1] is not None and name[1] != item[2])) or n % 5 == 0:
        return None
    return (n, item and item[2], name[1])


@pytest.mark.parametrize("which", STATEMENTS)
@pytest.mark.every_case
def test_each_row_meets_what_there_was_at_its_position(spark: SparkSession, which: str) -> None:
    """Random histories, whole, cut at random, and one event an epoch: the rows of an oracle in plain Python."""
    join = bound(STATEMENTS[which], KEYS, SCHEMAS, {"events": "stream"})

    def meant(event: tuple, tables: Mapping[str, dict[Any, tuple]]) -> tuple | None:
        items, names = ({key: row for (key,), row in tables[name].items()} for name in ("items", "names"))
        return oracle(which, event, items, names)

    found, expected = compared(spark, join, SCHEMAS, _step, meant, random.Random(which), CASES)
    assert found == expected
    assert sum(map(len, expected.values())) > CASES


def _step(chosen: random.Random, number: int) -> tuple[str, tuple]:
    side = chosen.choice(["events", "events", "items", "names"])
    if side == "events":
        return side, (number, chosen.choice([1, 2, 3, None]), chosen.choice(["X", "Y", "z", None]))
    if side == "items":
        key = chosen.choice([1, 2, 3])
        new = (key, chosen.choice(["X", "Y", None]), chosen.choice([1, 4, 5, None]))
        return side, ((key,), chosen.choice([new, new, None]))
    name = chosen.choice(["X", "Y", "Z"])
    return side, ((name,), chosen.choice([(name, chosen.choice([4, 5, None])), (name, 6), None]))


def test_of_two_changes_at_one_position_the_later_version_counts(spark: SparkSession) -> None:
    """Times go up with the versions, from a floor on; what has one time is told apart by version."""
    row = StructType([StructField("v", StringType())])
    key = StructType([StructField("k0", IntegerType())])
    columns = {"version": LongType(), "t": LongType(), "key": key, "old": row, "new": row}
    commits = [(2, 30, (1,), ("a",), ("b",)), (3, 10, (1,), ("b",), ("c",)), (4, 50, (1,), ("c",), None)]
    changes = literal(spark, commits, StructType([StructField(*column) for column in columns.items()]))
    placed = timed(changes, "t", 40)
    assert sorted((row["version"], row["position"]) for row in placed.collect()) == [(2, 40), (3, 40), (4, 50)]
    unfloored = timed(changes, "t", ALWAYS)
    assert sorted((row["version"], row["position"]) for row in unfloored.collect()) == [(2, 30), (3, 30), (4, 50)]


def test_a_row_at_the_very_position_of_a_change_meets_the_new_row(spark: SparkSession) -> None:
    join = bound("SELECT e.n, i.v FROM events e LEFT JOIN items i ON e.a = i.id", KEYS, SCHEMAS, {"events": "stream"})
    events = spark.sql(
        f"SELECT n, 1 AS a, 'x' AS b, at AS {POSITION} FROM VALUES (0, -7L), (1, 19L), (2, 20L), (3, 21L) AS t (n, at)"
    )
    cuts = spark.sql(
        "SELECT named_struct('k0', 1) AS key, first AS start, last AS end, "
        "named_struct('id', 1, 'ref', 'x', 'v', v) AS row "
        f"FROM VALUES ({ALWAYS}L, 20L, 4), (20L, {NEVER}L, 5) AS t (first, last, v)"
    )
    found = look_up(as_rows(events, join.inputs[0]), join.links[0], join, [(), (IntegerType(),)], cuts)
    assert sorted((row["e"]["n"], row["i"]["v"]) for row in found.collect()) == [(0, 4), (1, 4), (2, 5), (3, 5)]


def test_half_of_the_keys_null_leave_no_task_with_all_of_them(spark: SparkSession) -> None:
    """Both sides are shuffled; the rows of the largest task stay below twice the median."""
    join = bound("SELECT e.n, i.v FROM events e LEFT JOIN items i ON e.a = i.id", KEYS, SCHEMAS, {"events": "stream"})
    types = [(), (IntegerType(),)]
    events = spark.range(20_000).selectExpr(
        "CAST(id AS INT) AS n", "IF(id % 2 = 0, NULL, CAST(id % 3000 AS INT)) AS a", "'x' AS b", f"id AS {POSITION}"
    )
    items = spark.range(3_000).selectExpr("CAST(id AS INT) AS id", "'r' AS ref", "CAST(id AS INT) AS v")
    many = {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
    }
    with settings(spark, many):
        rows = as_rows(events, join.inputs[0])
        met = look_up(
            rows, join.links[0], join, types, versions(None, items, join.inputs[1], types[1], beginning=ALWAYS)
        )
        sizes = [row["count"] for row in met.groupBy(F.spark_partition_id()).count().collect()]
        matched = met.where("i IS NOT NULL").count()
    assert sum(sizes) == 20_000
    assert matched == 10_000
    assert len(sizes) == 8
    assert max(sizes) < 2 * sorted(sizes)[4]


@cases(
    "kind, held, sought, by_number",
    ("BIGINT", ["1", "2"], ["1", "2", "3"], True),
    ("STRING", ["'a'", "'b'"], ["'a'", "'b'", "'A'"], True),
    ("DECIMAL(9, 2)", ["1.10", "2"], ["1.1", "2.00", "3"], True),
    ("STRING COLLATE UTF8_LCASE", ["'a'", "'b'"], ["'A'", "'b'", "'c'"], False),
    ("DOUBLE", ["0.0", "'NaN'"], ["-0.0", "'NaN'", "1.0"], False),
)
def test_rows_meet_by_a_key_of_any_type_and_are_sorted_by_one_number_where_equal_keys_are_identical(
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    held: list[str],
    sought: list[str],
    by_number: bool,
) -> None:
    """Both sides are shuffled; two of three rows meet a row of the table, under a key of two parts."""
    to_kind = f"CAST({{}} AS {kind})" if "COLLATE" not in kind else "{} COLLATE UTF8_LCASE"
    rows = " UNION ALL ".join(f"SELECT {to_kind.format(key)} AS k, 1 AS part, {v} AS v" for v, key in enumerate(held))
    items = spark.sql(rows)
    events = spark.sql(
        " UNION ALL ".join(
            f"SELECT {n} AS n, {to_kind.format(key)} AS a, 1 AS b, {n}L AS {POSITION}" for n, key in enumerate(sought)
        )
    )
    schemas = {"events": events.drop(POSITION).schema, "items": items.schema}
    sql = "SELECT e.n, i.v FROM events e LEFT JOIN items i ON e.a = i.k AND e.b = i.part"
    join = bound(sql, {"events": ("n",), "items": ("k", "part")}, schemas, {"events": "stream"})
    types = [(), (items.schema["k"].dataType, IntegerType())]
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        met = look_up(
            as_rows(events, join.inputs[0]),
            join.links[0],
            join,
            types,
            versions(None, items, join.inputs[1], types[1], beginning=ALWAYS),
        )
        assert sorted((row["e"]["n"], row["i"] and row["i"]["v"]) for row in met.collect()) == [
            (0, 0),
            (1, 1),
            (2, None),
        ]
        met.explain()
    sorted_by = capsys.readouterr().out.partition("SortMergeJoin [")[2].partition("]")[0]
    assert len(sorted_by.split(", ")) == (1 if by_number else 3), sorted_by
