"""Look-ups of a stream: equal to an event-by-event oracle however they are cut, and no task gets all null keys."""

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lakehouse.session import settings
from pipelines.joins.lookup import as_rows, look_up, whole
from pipelines.joins.versions import timed, versions
from pipelines.spec.statement.added_columns import POSITION
from pipelines.spec.statement.semantics import ALWAYS
from tests.joins.claims import literal
from tests.joins.epochs import bound, key_types
from tests.joins.streams import stream_rows

SCOPE = [StructField("_case", IntegerType()), StructField("_cut", IntegerType()), StructField("_epoch", IntegerType())]
NAMES = [field.name for field in SCOPE]
EVENT = StructType([StructField("n", IntegerType()), StructField("a", IntegerType()), StructField("b", StringType())])
ITEM = StructType([StructField("id", IntegerType()), StructField("ref", StringType()), StructField("v", IntegerType())])
NAMED = StructType([StructField("name", StringType()), StructField("w", IntegerType())])
PLACE = StructField(POSITION, LongType())
CHANGED_AT = StructField("position", LongType())
SCHEMAS = {"events": EVENT, "items": ITEM, "names": NAMED}
KEYS = {"events": ("n",), "items": ("id",), "names": ("name",)}
CASES = 120


def changes_schema(row: StructType) -> StructType:
    key = StructField("key", StructType([StructField("k0", row[0].dataType)]))
    version = StructField("version", LongType())
    return StructType([*SCOPE, CHANGED_AT, version, key, StructField("old", row), StructField("new", row)])


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
def test_each_row_meets_what_there_was_at_its_position(spark: SparkSession, which: str) -> None:
    """Random histories, whole, cut at random, and one event an epoch: the rows of an oracle in plain Python."""
    chosen = random.Random(which)
    events: list[tuple] = []
    changed: dict[str, list[tuple]] = {"items": [], "names": []}
    held: dict[str, list[tuple]] = {"items": [], "names": []}
    expected: dict[tuple[int, int], list[tuple]] = {}
    for case in range(CASES):
        history = [_step(chosen, number) for number in range(1, 25)]
        numbers = list(range(1, 25))
        some = sorted(chosen.sample(numbers, chosen.randint(1, 8)))
        for cut, ends in enumerate(([24], sorted({*some, 24}), numbers)):
            tables: dict[str, dict[Any, tuple]] = {"items": {}, "names": {}}
            epoch = 0
            for number, (side, row) in enumerate(history, start=1):
                scope = (case, cut, epoch)
                if side == "events":
                    events.append((*scope, number, *row))
                    made = oracle(which, row, tables["items"], tables["names"])
                    if made is not None:
                        expected.setdefault((case, cut), []).append(made)
                else:
                    key, new = row
                    old = tables[side].pop(key, None)
                    if new is not None:
                        tables[side][key] = new
                    if old != new:
                        changed[side].append((*scope, number, number, (key,), old, new))
                if number in ends:
                    for name, table in tables.items():
                        held[name] += [(*scope, *values) for values in table.values()]
                    epoch += 1
    join = bound(STATEMENTS[which], KEYS, SCHEMAS, {"events": "stream"})
    types = key_types(join, SCHEMAS)
    tables_of = {
        place: versions(
            literal(spark, changed[item.source], changes_schema(SCHEMAS[item.source])),
            literal(spark, held[item.source], StructType([*SCOPE, *SCHEMAS[item.source]])),
            item,
            types[place],
            NAMES,
            beginning=ALWAYS,
            ties=["version"],
        )
        for place, item in enumerate(join.inputs)
        if place
    }
    stream = literal(spark, events, StructType([*SCOPE, PLACE, *EVENT]))
    rows = stream_rows(stream, join, types, tables_of, NAMES)
    found: dict[tuple[int, int], list[tuple]] = {}
    for row in rows.where("row IS NOT NULL").orderBy("position").collect():
        found.setdefault((row["_case"], row["_cut"]), []).append(tuple(row["row"]))
    assert found == expected
    assert sum(map(len, expected.values())) > CASES


def _step(chosen: random.Random, number: int) -> tuple[str, tuple]:
    side = chosen.choice(["events", "events", "items", "names"])
    if side == "events":
        return side, (number, chosen.choice([1, 2, 3, None]), chosen.choice(["X", "Y", "z", None]))
    if side == "items":
        key = chosen.choice([1, 2, 3])
        new = (key, chosen.choice(["X", "Y", None]), chosen.choice([1, 4, 5, None]))
        return side, (key, chosen.choice([new, new, None]))
    name = chosen.choice(["X", "Y", "Z"])
    return side, (name, chosen.choice([(name, chosen.choice([4, 5, None])), (name, 6), None]))


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
        met = look_up(rows, join.links[0], join, types, whole(items, join.inputs[1], types[1]))
        sizes = [row["count"] for row in met.groupBy(F.spark_partition_id()).count().collect()]
        matched = met.where("i IS NOT NULL").count()
    assert sum(sizes) == 20_000
    assert matched == 10_000
    assert len(sizes) == 8
    assert max(sizes) < 2 * sorted(sizes)[4]
