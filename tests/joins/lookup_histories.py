"""Random histories of a stream and the tables that it looks up, whole, cut at random, and one event an epoch."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from pipelines.joins.timeline import versions
from pipelines.language import ResolvedQuery
from pipelines.language.names import ALWAYS, POSITION
from tests.joins.claims import literal
from tests.joins.epochs import key_types
from tests.joins.schemas import columns
from tests.joins.scoped import scoped, scoped_changes, scoped_types
from tests.joins.streams import stream_rows

SCOPE = [StructField("_case", IntegerType()), StructField("_cut", IntegerType()), StructField("_epoch", IntegerType())]
NAMES = [field.name for field in SCOPE]
PLACE = StructField(POSITION, LongType())
CHANGED_AT = StructField("position", LongType())
EVENTS = 24

Step = tuple[str, tuple]
"""An event: the name of its source, and the row of the stream, or the key of a table and its new row or None."""

Made = dict[tuple[int, int], list[tuple]]
"""The rows of a result, by the number of the case and that of the cut."""


def compared(
    spark: SparkSession,
    join: ResolvedQuery,
    schemas: Mapping[str, StructType],
    step: Callable[[random.Random, int], Step],
    oracle: Callable[[tuple, Mapping[str, dict[Any, tuple]]], tuple | None],
    chosen: random.Random,
    cases: int,
) -> tuple[Made, Made]:
    stream = join.inputs[0].source
    events: list[tuple] = []
    changed: dict[str, list[tuple]] = {name: [] for name in schemas if name != stream}
    held: dict[str, list[tuple]] = {name: [] for name in changed}
    expected: Made = {}
    for case in range(cases):
        history = [step(chosen, number) for number in range(1, EVENTS + 1)]
        for cut, ends in enumerate(_cuts(chosen)):
            tables: dict[str, dict[Any, tuple]] = {name: {} for name in changed}
            epoch = 0
            for number, (side, row) in enumerate(history, start=1):
                scope = (case, cut, epoch)
                if side == stream:
                    events.append((*scope, number, *row))
                    made = oracle(row, tables)
                    if made is not None:
                        expected.setdefault((case, cut), []).append(made)
                else:
                    key, new = row
                    old = tables[side].pop(key, None)
                    if new is not None:
                        tables[side][key] = new
                    if old != new:
                        changed[side].append((*scope, number, number, key, old, new))
                if number in ends:
                    for name, table in tables.items():
                        held[name] += [(*scope, *values) for values in table.values()]
                    epoch += 1
    whole, types = scoped(join, NAMES), scoped_types(join, key_types(join, schemas), NAMES)
    versions_of = {
        place: versions(
            scoped_changes(literal(spark, changed[item.source], _changes(schemas[item.source], len(item.key))), NAMES),
            literal(spark, held[item.source], StructType([*SCOPE, *schemas[item.source]])),
            whole.inputs[place],
            types[place],
            beginning=ALWAYS,
            ties=["version"],
        )
        for place, item in enumerate(join.inputs)
        if place
    }
    rows = literal(spark, events, StructType([*SCOPE, PLACE, *schemas[stream]]))
    found: Made = {}
    emitted = stream_rows(rows, whole, types, versions_of).where("row IS NOT NULL").orderBy("position")
    for (row,) in emitted.select("row").collect():
        case, cut, _, *values = row
        found.setdefault((case, cut), []).append(tuple(values))
    return found, expected


def _cuts(chosen: random.Random) -> Sequence[Sequence[int]]:
    numbers = list(range(1, EVENTS + 1))
    return [EVENTS], sorted({*chosen.sample(numbers, chosen.randint(1, 8)), EVENTS}), numbers


def _changes(row: StructType, parts: int) -> StructType:
    key = StructField("key", StructType([StructField(f"k{part}", row[part].dataType) for part in range(parts)]))
    version = StructField("version", LongType())
    return StructType([*SCOPE, CHANGED_AT, version, key, *columns(old=row, new=row)])
