"""
Watermarks by position: how far the times of two streams had advanced when a row arrived.

    rows of both streams in total order ──► greatest time so far minus the lateness = watermark W of each column
                                            W of the other input minus what ON allows = limit of a column

The order is split into parts by time. A window function runs over the rows of each part and starts from the greatest
values of all earlier parts, so no task has to sort all rows. The positions of commits are few, and are walked on the
driver by the same rules.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from lakehouse.values.sqltext import quote
from pipelines.language import ResolvedQuery, Semantics
from pipelines.language import Window as Bounded
from pipelines.language.names import PREFIX, VERSION
from pipelines.language.sql.syntax import DAY

NOTHING_YET = -(2**63)
"""A watermark for which no value has arrived, and a time before all others."""

TIME, RANK = f"{PREFIX}time", f"{PREFIX}rank"
PLACE = (TIME, RANK, VERSION)
"""
The columns with the position of a row in the total order: its time (bigint), its rank (int: its side, the left first;
0 if a stream is joined with itself) and its commit.
"""

TASK, BEGIN = f"{PREFIX}task", f"{PREFIX}begin"


def window_of(join: ResolvedQuery) -> Bounded:
    """Return the watermarked columns and time bounds of a join of two streams."""
    assert join.window is not None
    return join.window


def value(number: int) -> str:
    """Name the column with a row's value of a watermarked column (bigint, null for a column of the other input)."""
    return f"{PREFIX}value{number}"


def watermark_step(number: int) -> str:
    """Name the column with the watermark that a row sets: value minus lateness (bigint; null or NOTHING_YET: none)."""
    return f"{PREFIX}watermark_step{number}"


def watermark_before(number: int) -> str:
    """Name the column with a watermark before a row's position (bigint)."""
    return f"{PREFIX}watermark_before{number}"


def watermark_after(number: int) -> str:
    """Name the column with a watermark after a row's position (bigint)."""
    return f"{PREFIX}watermark_after{number}"


def limit(number: int) -> str:
    """Name the column with the limit of a watermarked column before a row's position (bigint)."""
    return f"{PREFIX}limit{number}"


def as_number(column: str, data_type: DataType, *, by_date: bool = False) -> str:
    """
    Return the SQL of a time as a number: microseconds since 1970, or the integer itself.

    Args:
        by_date: Whether only dates are compared: then each day has 24 hours in every time zone.
    """
    if isinstance(data_type, TimestampType):
        return f"unix_micros({column})"
    if isinstance(data_type, DateType):
        return f"unix_date({column}) * {DAY}L" if by_date else f"unix_micros(CAST({column} AS TIMESTAMP))"
    if isinstance(data_type, TimestampNTZType):  # local time, without a time zone
        day, minutes = f"unix_date(CAST({column} AS DATE)) * {DAY}L", f"hour({column}) * 60 + minute({column})"
        return f"{day} + ({minutes}) * 60000000L + CAST(extract(SECOND FROM {column}) * 1000000 AS BIGINT)"
    return f"CAST({column} AS BIGINT)"


def less(one: str, other: int) -> str:
    """Return the SQL of a difference that is NOTHING_YET if it underflows, or if `one` is null or NOTHING_YET."""
    return f"IF({one} = {NOTHING_YET}, {one}, coalesce(try_subtract({one}, {other}L), {NOTHING_YET}))"


def with_steps(rows: DataFrame, window: Bounded, semantics: Semantics) -> DataFrame:
    """
    Add to each row the watermarks that it sets, as `watermark_step` names them; null for one from upstream progress.

    Args:
        rows: Rows of both inputs with the columns that `value` names.
        semantics: Under `strict`, each column has its own watermark; under other semantics, all columns share one
            stream time (KIP-77).
    """
    both = f"coalesce({', '.join(value(number) for number in range(len(window.watermarks)))})"
    steps = {
        watermark_step(number): F.expr(
            "CAST(NULL AS BIGINT)"
            if watermark.is_from_upstream
            else less(value(number) if semantics == "strict" else both, watermark.lateness)
        )
        for number, watermark in enumerate(window.watermarks)
    }
    return rows.withColumns(steps)


def with_watermarks(rows: DataFrame, window: Bounded, width: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Add to each row the watermarks and limits at its position, which result from all rows at earlier positions.

    Args:
        rows: PLACE and the columns that `watermark_step` names. Rows at one position get the same watermarks.
        width: The range of time that one task processes.

    Returns:
        The rows with the columns that `watermark_before`, `watermark_after` and `limit` name; NOTHING_YET without
        earlier rows.
    """
    numbers = range(len(window.watermarks))
    parts = rows.withColumn(TASK, F.expr(f"{TIME} div {max(width, 1)}"))
    beginnings = _beginnings(parts, [watermark_step(number) for number in numbers], scope)
    own = [*scope, TASK]
    in_order = Window.partitionBy(*own).orderBy(*PLACE)
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    up_to = in_order.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    together = Window.partitionBy(*own, *PLACE)
    least = F.lit(NOTHING_YET)
    placed = parts
    for name, so_far in ((watermark_before, before), (watermark_after, up_to)):
        greatest = {n: F.max(watermark_step(n)).over(so_far) for n in numbers}
        placed = placed.withColumns({name(n): F.coalesce(greatest[n], least) for n in numbers})
    # At one position the first row has the least watermark: no other row of the position precedes it.
    placed = placed.withColumns({watermark_before(n): F.min(watermark_before(n)).over(together) for n in numbers})
    started = placed.join(F.broadcast(beginnings), on=own, how="inner")
    begins = {n: F.coalesce(F.col(f"{BEGIN}{n}"), least) for n in numbers}
    total = {name(n): F.greatest(name(n), begins[n]) for n in numbers for name in (watermark_before, watermark_after)}
    whole = started.withColumns(total).drop(TASK, *(f"{BEGIN}{n}" for n in numbers))
    return whole.withColumns({limit(n): F.expr(limit_sql(window, n, watermark_before)) for n in numbers})


def _beginnings(parts: DataFrame, columns: Sequence[str], scope: Sequence[str]) -> DataFrame:
    """Return for each part the greatest values of all earlier parts."""
    each = parts.groupBy(*scope, TASK).agg(*(F.max(column).alias(column) for column in columns))
    before = Window.partitionBy(*scope).orderBy(TASK).rowsBetween(Window.unboundedPreceding, -1)
    begun = [F.max(column).over(before).alias(f"{BEGIN}{n}") for n, column in enumerate(columns)]
    return each.select(*map(quote, scope), TASK, *begun)


def limit_sql(window: Bounded, number: int, of: Callable[[int], str]) -> str:
    """Return the SQL of the limit of a watermarked column, from watermarks that `of` names."""
    limits = [less(of(bound.lesser), bound.allowance) for bound in window.limiting(number)]
    return f"greatest({', '.join([*limits, f'{NOTHING_YET}L', f'{NOTHING_YET}L'])})"


def limit_value(window: Bounded, number: int, watermarks: Mapping[int, int]) -> int:
    """Return the limit of a watermarked column, from watermarks by number."""
    known = [(watermarks[bound.lesser], bound.allowance) for bound in window.limiting(number)]
    return max([NOTHING_YET, *(at - allowance for at, allowance in known if at != NOTHING_YET)])


def limit_steps(placed: DataFrame, window: Bounded, number: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Return the positions at which the limit of a watermarked column rose, from the result of `with_watermarks`.

    The columns are `value` (bigint, the limit) and `at` (struct of PLACE: a position after which it applied).
    """
    after = placed.withColumn("value", F.expr(limit_sql(window, number, watermark_after)))
    risen = after.where(f"value > {NOTHING_YET} AND value > {limit(number)}")
    return risen.select(*map(quote, scope), "value", F.struct(*PLACE).alias("at"))


def first_beyond(
    rows: DataFrame, number: str, steps: DataFrame, at: str, width: int, scope: Sequence[str] = ()
) -> DataFrame:
    """
    Add `at` to rows: the first position (struct of PLACE) after which a limit exceeds their time; null if none does.

    Args:
        number: The column with the time (bigint, maybe null).
        steps: The result of `limit_steps`.
        width: The range of time that one task processes.
    """
    width, scopes, names = max(width, 1), [*map(quote, scope)], [*map(quote, rows.columns)]
    mine = rows.where(f"{quote(number)} IS NOT NULL").select(
        *scopes,
        F.expr(f"{quote(number)} div {width}").alias(TASK),
        F.col(quote(number)).alias("value"),
        F.struct(*names).alias("row"),
        F.lit(None).cast(steps.schema["at"].dataType).alias("at"),
    )
    theirs = steps.select(
        *scopes,
        F.expr(f"value div {width}").alias(TASK),
        "value",
        F.lit(None).cast(mine.schema["row"].dataType).alias("row"),
        "at",
    )
    own = [*scope, TASK]
    # In descending order of values; a row follows the limits that exceed its time and precedes those equal to it.
    down = Window.partitionBy(*own).orderBy(F.desc("value"), F.col("row").isNull())
    so_far = down.rowsBetween(Window.unboundedPreceding, -1)
    within = mine.unionAll(theirs).withColumn("next", F.min("at").over(so_far)).where("row IS NOT NULL")
    all_parts = mine.select(*own, "at").distinct().unionAll(theirs.select(*own, "at"))
    later = Window.partitionBy(*scope).orderBy(F.desc(TASK)).rowsBetween(Window.unboundedPreceding, -1)
    parts = all_parts.groupBy(*own).agg(F.min("at").alias("at"))
    behind = parts.select(*map(quote, own), F.min("at").over(later).alias(BEGIN))
    known = within.join(F.broadcast(behind), on=own, how="inner")
    timed = known.select("row.*", F.coalesce("next", BEGIN).alias(at))
    untimed = rows.where(f"{quote(number)} IS NULL")
    return timed.unionAll(untimed.withColumn(at, F.lit(None).cast(steps.schema["at"].dataType)))


def running_sum(rows: DataFrame, at: str, more: str, width: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Compute the running sum of numbers in the order of positions, up to each, in the same columns.

    Args:
        at: The column with the position (struct of PLACE).
        more: The column with the number.
        width: The range of time that one task processes.
    """
    own = [*scope, TASK]
    each = rows.groupBy(*scope, at).agg(F.sum(more).alias(more))
    each = each.withColumn(TASK, F.expr(f"{at}.{TIME} div {max(width, 1)}"))
    parts = each.groupBy(*own).agg(F.sum(more).alias(more))
    before = Window.partitionBy(*scope).orderBy(TASK).rowsBetween(Window.unboundedPreceding, -1)
    starts = parts.select(*map(quote, own), F.coalesce(F.sum(more).over(before), F.lit(0)).alias(BEGIN))
    so_far = Window.partitionBy(*own).orderBy(at).rowsBetween(Window.unboundedPreceding, 0)
    summed = each.withColumn(more, F.sum(more).over(so_far)).join(F.broadcast(starts), on=own, how="inner")
    return summed.select(*map(quote, scope), at, (F.col(more) + F.col(BEGIN)).alias(more))


class Position(NamedTuple):
    """
    A position of one history.

    Args:
        rank: The side; 0 if a stream is joined with itself.
        before: The watermarks before the position, by number; NOTHING_YET without earlier rows.
    """

    time: int
    rank: int
    version: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def steps_at(rows: DataFrame, window: Bounded) -> DataFrame:
    """
    Return the greatest step of each watermark at each position of one history.

    The columns are PLACE and those that `watermark_step` names.
    """
    steps = map(watermark_step, range(len(window.watermarks)))
    return rows.groupBy(*PLACE).agg(*(F.max(step).alias(step) for step in steps))


def combined_steps(steps: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Combine rows of `steps_at`, from several sources, into one for each position."""
    greatest: dict[tuple[Any, ...], list[Any]] = {}
    for row in steps:
        position, values = tuple(row[: len(PLACE)]), row[len(PLACE) :]
        pairs = zip(greatest.get(position, values), values, strict=True)
        greatest[position] = [max((step for step in pair if step is not None), default=None) for pair in pairs]
    return [(*position, *values) for position, values in greatest.items()]


def walk(steps: Iterable[Sequence[Any]], floors: Sequence[int]) -> list[Position]:
    """
    Compute the watermarks at the positions of one history, in order, from rows of `steps_at`.

    `floors` are the watermarks before the first position, NOTHING_YET without earlier rows.
    """
    before, positions = tuple(floors), []
    for place, values in sorted((tuple(row[: len(PLACE)]), row[len(PLACE) :]) for row in steps):
        after = tuple(old if new is None else max(old, new) for old, new in zip(before, values, strict=True))
        time, rank, version = place
        positions.append(Position(time, rank, version, before, after))
        before = after
    return positions


def limit_rises(positions: Sequence[Position], window: Bounded, number: int) -> list[tuple[int, int]]:
    """
    Return each value to which the limit of a watermarked column rose, with the time of the position that raised it.

    Both ascend.
    """
    steps: list[tuple[int, int]] = []
    for position in positions:
        height = limit_value(window, number, dict(enumerate(position.after)))
        if height > (steps[-1][0] if steps else NOTHING_YET):
            steps.append((height, position.time))
    return steps
