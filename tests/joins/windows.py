"""
Joins of two streams over histories in memory: each epoch of each history at once, as scopes of one Spark job. What
waits before an epoch, and the watermarks by then, are given: by the oracle, which says as well what must wait after it.
So an epoch that is right makes the next one right, however the history is cut.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from lakehouse.values.driver_rows import to_driver
from pipelines.joins.expiry import OP, buffer_changes, peak_buffered, unmatched
from pipelines.joins.pairs import (
    AT,
    as_buffered,
    as_new_rows,
    hashed,
    identified,
    judged,
    matched_rows,
    pairs,
    timed,
    together,
)
from pipelines.joins.watermarks import (
    NOTHING_YET,
    RANK,
    TIME,
    limit,
    limit_sql,
    watermark_after,
    watermark_before,
    watermark_step,
    with_steps,
    with_watermarks,
)
from pipelines.language import How, Input, Output, ResolvedQuery, Semantics, Step, Window
from pipelines.language import Window as Bounded
from pipelines.language.names import HAS_VALUE, HASH, MATCHED, NUMBER, SIDE, VERSION
from tests.joins.claims import literal

SCOPE = "_scope"
RESULT = "_result"
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Definition:
    """A join of two streams `l` and `r`."""

    how: How
    on: str
    columns: tuple[StructType, StructType]
    window: Window
    semantics: Semantics = "strict"

    @property
    def join(self) -> ResolvedQuery:
        """The definition as the product has it; the result has both rows whole."""
        inputs = tuple(
            Input(name, name, (), tuple(columns.names)) for name, columns in zip("lr", self.columns, strict=True)
        )
        outputs = tuple(Output(name, f"`{name}`.`{self.columns[0].names[0]}`") for name in "lr")
        return ResolvedQuery(
            name="joined",
            inputs=inputs,
            steps=(Step(self.how, self.on),),
            members=(),
            links=(),
            where=None,
            outputs=outputs,
            key=(),
            window=self.window,
        )


@dataclass
class Epoch:
    """
    An epoch of a history.

    Args:
        rows: What came: the position, the side, the values, and whether it has a value.
        buffered: What waits: the side, the values, and whether it has met a row.
        watermarks: The watermarks by then, by their places.
        given: Watermarks that come in the epoch: the position, the place and the value; None where the rows make them.
    """

    rows: list[tuple[int, int, Values, bool]] = field(default_factory=list)
    held: list[tuple[int, Values, bool]] = field(default_factory=list)
    watermarks: dict[int, int] = field(default_factory=dict)
    given: list[tuple[int, int, int]] | None = None


@dataclass
class Made:
    """
    What came of an epoch.

    Args:
        emitted: Rows by position.
        buffered: What waits: the side, the values, and whether it has met a row.
        watermarks: The last watermarks, by their places; those of which nothing came are NOTHING_YET.
        limits: The last limits in the same way, of the times that have one.
        results: The watermarks of the result after each position, as many as are known.
        most: How many rows waited at most; None if that was not asked for.
    """

    emitted: Counter[tuple[int, Values | None, Values | None]] = field(default_factory=Counter)
    held: Counter[tuple[int, Values, bool]] = field(default_factory=Counter)
    watermarks: dict[int, int] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    results: dict[int, dict[int, int]] = field(default_factory=dict)
    most: int | None = 0


def evaluate(
    spark: SparkSession, definition: Definition, epochs: Sequence[Epoch], width: int = 7, *, is_counted: bool = True
) -> list[Made]:
    join, window, semantics = definition.join, definition.window, definition.semantics
    scope = [SCOPE]
    limited = [n for n in range(len(window.watermarks)) if window.limiting(n)]
    at_positions, at_beginnings = map(to_driver, _inputs(spark, definition, epochs, width))
    placed, buffered = at_positions.frame, at_beginnings.frame
    limits = {limit(n): F.expr(limit_sql(window, n, watermark_before)) for n in limited}
    at_ends = to_driver(ends_of(placed, window, scope).withColumns(limits))
    ends = at_ends.frame
    new_rows = as_new_rows(judged(placed, join, semantics), semantics)
    found = to_driver(pairs(new_rows, buffered, join, semantics, scope)).frame
    met = matched_rows(found, join, semantics, scope)
    becoming = buffer_changes(new_rows, buffered, met, ends, join, semantics, scope)
    lone = unmatched(becoming, placed, join, width, scope) if met is not None else None
    state = becoming.where(f"{OP} <> 'delete'")
    emitted = found.select(SCOPE, AT, "l", "r")
    if lone is not None:
        emitted = emitted.unionAll(lone.select(SCOPE, AT, "l", "r"))
    nothing = F.lit(None)
    all_rows = emitted.select(
        SCOPE, AT, nothing.cast("int").alias("side"), nothing.cast("boolean").alias("met"), "l", "r"
    )
    all_rows = all_rows.unionAll(state.select(SCOPE, nothing.cast("bigint"), SIDE, MATCHED, "l", "r"))
    made = [Made(most=0 if is_counted else None) for _ in epochs]
    for row in all_rows.collect():
        number, at, side, is_met, left, right = row
        values = tuple(None if one is None else tuple(one) for one in (left, right))
        if side is None:
            made[number].emitted[(at, *values)] += 1
        else:
            made[number].held[(side, values[side], is_met)] += 1
    if is_counted:
        for row in peak_buffered(new_rows, buffered, placed, join, semantics, (width, width), scope).collect():
            made[row[SCOPE]].most = row["most"]
    for row in at_ends.rows.to_pylist():
        made[row[SCOPE]].watermarks = {n: row[watermark_before(n)] for n in range(len(window.watermarks))}
        made[row[SCOPE]].limits = {n: row[limit(n)] for n in limited}
    for row in at_positions.rows.select([SCOPE, TIME, *(f"{RESULT}{n}" for n in limited)]).to_pylist():
        known = {n: row[f"{RESULT}{n}"] for n in limited if row[f"{RESULT}{n}"] != NOTHING_YET}
        if row[TIME] != NOTHING_YET:
            made[row[SCOPE]].results[row[TIME]] = known
    return made


def unlike(definition: Definition, wanted: Made, found: Made) -> list[str]:
    buffered: Counter[tuple[int, Values, bool]] = Counter()
    for (side, row, is_met), number in found.held.items():
        buffered[side, row, is_met and remembers(definition, side)] += number
    watermarks = {n: mark for n, mark in found.watermarks.items() if mark != NOTHING_YET}
    results = {position: marks for position, marks in found.results.items() if marks}
    compared = [
        ("emit", wanted.emitted, found.emitted),
        ("hold", wanted.held, buffered),
        ("come to watermarks", wanted.watermarks, watermarks),
        ("give its result watermarks", {at: marks for at, marks in wanted.results.items() if marks}, results),
        *([("hold at most", wanted.most, found.most)] if found.most is not None else []),
    ]
    return [f"should {what} {one}, not {other}" for what, one, other in compared if one != other]


def remembers(definition: Definition, side: int) -> bool:
    """Tell whether it counts that a row has met another: where it would be emitted alone for that it has not."""
    kept = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[definition.how]
    return side in kept and definition.semantics in ("strict", "kafka")


def _inputs(
    spark: SparkSession, definition: Definition, epochs: Sequence[Epoch], width: int
) -> tuple[DataFrame, DataFrame]:
    join, window = definition.join, definition.window
    came_by, waits = [], []
    for place in (0, 1):
        columns = definition.columns[place]
        scoped = StructField(SCOPE, IntegerType())
        schema = StructType(
            [
                scoped,
                StructField(TIME, LongType()),
                StructField(VERSION, LongType()),
                StructField(HAS_VALUE, BooleanType()),
                *columns,
            ]
        )
        rows = [
            (number, position, position, has_value, *values)
            for number, epoch in enumerate(epochs)
            for position, side, values, has_value in epoch.rows
            if side == place
        ]
        came_by.append(identified(hashed(literal(spark, rows, schema), join, place, [SCOPE]), join, place, [SCOPE]))
        identity = [(SIDE, IntegerType()), (VERSION, LongType()), (HASH, LongType()), (NUMBER, IntegerType())]
        schema = StructType(
            [
                scoped,
                *(StructField(*one) for one in identity),
                StructField(MATCHED, BooleanType()),
                StructField("lr"[place], columns),
            ]
        )
        buffered = [
            (number, place, -1, nth, 1, is_met, values)
            for number, epoch in enumerate(epochs)
            for nth, (side, values, is_met) in enumerate(epoch.held)
            if side == place
        ]
        waits.append(literal(spark, buffered, schema))
    rows = timed(together(*came_by), join)
    numbers = range(len(window.watermarks))
    if any(epoch.given is not None for epoch in epochs):
        rows = rows.withColumns({watermark_step(n): F.lit(None).cast("bigint") for n in numbers})
    else:
        rows = with_steps(rows, window, definition.semantics)
    schema = StructType(
        [
            StructField(SCOPE, IntegerType()),
            StructField(SIDE, IntegerType()),
            StructField(RANK, IntegerType()),
            StructField(TIME, LongType()),
            StructField(VERSION, LongType()),
            *(StructField(watermark_step(n), LongType()) for n in numbers),
        ]
    )
    given = [
        (scope, 2, 2, position, position, *(value if n == number else None for n in numbers))
        for scope, epoch in enumerate(epochs)
        for position, number, value in epoch.given or ()
    ]
    floor = [
        (scope, 2, 2, -(2**63), 0, *(epoch.watermarks.get(n) for n in numbers)) for scope, epoch in enumerate(epochs)
    ]
    marks = literal(spark, given + floor, schema)
    placed = with_watermarks(rows.unionByName(marks, allowMissingColumns=True), window, width, [SCOPE])
    results = {
        f"{RESULT}{n}": F.expr(f"least({watermark_after(n)}, {limit_sql(window, n, watermark_after)})")
        for n in numbers
        if window.limiting(n)
    }
    return placed.withColumns(results), as_buffered(together(*waits), join)


def ends_of(rows: DataFrame, window: Bounded, scope: Sequence[str] = ()) -> DataFrame:
    most = [
        F.coalesce(F.max(watermark_step(n)), F.lit(NOTHING_YET)).alias(watermark_before(n))
        for n in range(len(window.watermarks))
    ]
    return rows.groupBy(*scope).agg(*most)
