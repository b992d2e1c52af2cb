"""
The pairs of a join of two streams that the gate expects: computes watermarks, expiry and matches in a plain way.

A row is late if its time is less than the watermark before its position. A row is expired at a position if no row that
is not late there can match it. Two rows match if neither is late, ON holds, and the earlier row is not expired at the
position of the later one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from expectations.gate.by_key import in_sample
from expectations.gate.sources import PlainStatement
from lakehouse import limits
from lakehouse.values.compare import identical
from lakehouse.values.sqltext import quote

IDS, FACTS = ("_lakejoin_left_id", "_lakejoin_right_id"), ("_lakejoin_left_facts", "_lakejoin_right_facts")
"""
Columns of the left and of the right row. IDS identify them: struct of `version`, `hash`, `number`. FACTS are a struct
of `position` (struct of time, rank and version), `is_new` (false: buffered before), `has_value`, `matched` (before).
"""
BUCKETS = ("_lakejoin_left_bucket", "_lakejoin_right_bucket")
POSITION, WATERMARK = "_lakejoin_position", "_lakejoin_watermark"

EARLIEST = -(2**63)
"""The time before all others."""


class TimeBound(NamedTuple):
    """A bound of ON on two watermarked columns, by index: `greater` is at least `lesser` minus `allowance`."""

    greater: int
    lesser: int
    allowance: int


class TimeAxis(NamedTuple):
    """Two watermarked columns, by index: the right time lies at most `before` before, `after` after the left time."""

    left: int
    right: int
    before: int
    after: int


@dataclass(frozen=True)
class WatermarkedColumn:
    """
    A watermarked column; its times, lateness and watermark are in one unit, microseconds for timestamps.

    Args:
        side: 0 for a column of the left stream, 1 for one of the right stream.
        time: Its value as a number, as Spark SQL over `alias`.`column`.
        watermark: The watermark before the epoch; None without one.
    """

    side: int
    time: str
    lateness: int
    watermark: int | None


@dataclass(frozen=True)
class WindowedJoin:
    """
    A join of two streams.

    Args:
        equalities: The equalities of ON, each as Spark SQL of the left and of the right row.
        one_sided: The conditions of ON on the left row alone and on the right row alone.
        share: The gate checks one in this number of rows, chosen by the salt.
        is_ordered: Whether the positions of rows are known, and with them which rows are late and which are expired.
    """

    statement: PlainStatement
    watermarked: tuple[WatermarkedColumn, ...]
    bounds: tuple[TimeBound, ...]
    equalities: tuple[tuple[str, str], ...]
    one_sided: tuple[str, str]
    semantics: str
    share: int = 1
    is_ordered: bool = True
    salt: str = ""

    @property
    def outer_sides(self) -> tuple[int, ...]:
        """The streams (0, 1) on an outer side."""
        return {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[self.statement.steps[0][0]]

    @property
    def axis(self) -> TimeAxis | None:
        """The narrowest time axis; None if no two columns are bounded in both directions."""
        axes = [
            TimeAxis(least.greater, least.lesser, most.allowance, least.allowance)
            for least in self.bounds
            for most in self.bounds
            if (least.greater, least.lesser) == (most.lesser, most.greater)
            and self.watermarked[least.greater].side == 0
        ]
        return min(axes, key=lambda axis: axis.before + axis.after, default=None)

    @property
    def has_candidates(self) -> bool:
        """Whether ON limits the candidates of a row; otherwise each row must be compared with each other row."""
        return bool(self.equalities or self.axis)

    def samples(self, row: str) -> str:
        """Return the SQL condition that a row, given its id, is checked."""
        return in_sample(f"{row}.hash", self.salt, self.share)


def expected_pairs(
    rows: Sequence[DataFrame], streams: Sequence[DataFrame], join: WindowedJoin
) -> tuple[list[DataFrame], DataFrame | None]:
    """
    Find the matches of rows to check, which have their number, among all rows of both streams.

    Returns:
        The rows to check, `is_late` added to their FACTS; and the pairs, as IDS and `is_selected`, whether WHERE holds.
        No pairs if the order of the rows is unknown, or if ON does not limit the candidates.
    """
    watermarks = _watermarks(streams, join) if join.is_ordered else None
    candidates = _with_expiry(_candidates(rows, streams, join), 1, watermarks, join)
    rows = [_with_expiry(rows[side], side, watermarks, join) for side in (0, 1)]
    return rows, _pairs(rows[0], candidates, join) if join.is_ordered and join.has_candidates else None


def number_new_rows(rows: DataFrame, side: int, join: WindowedJoin) -> DataFrame:
    """Number the new rows of a commit with the same hash; leave out the rows that take no part in the join."""
    row, facts, alias = IDS[side], FACTS[side], join.statement.aliases[side]
    values = F.expr(identical(quote(alias), rows.schema[alias].dataType))
    order = (f"{facts}.position", F.desc(f"{facts}.has_value"), values)
    number = F.row_number().over(Window.partitionBy(f"{row}.version", f"{row}.hash").orderBy(*order))
    new, buffered = rows.where(f"{facts}.is_new"), rows.where(f"NOT {facts}.is_new")
    numbered = new.withColumn(row, F.col(row).withField("number", number)).unionAll(buffered)
    return numbered if join.semantics == "kafka-0.10.0" else numbered.where(f"{facts}.has_value")


def _watermarks(streams: Sequence[DataFrame], join: WindowedJoin) -> DataFrame:
    """Return POSITION of the new rows, and for each watermarked column the WATERMARK before it."""
    names = [f"{WATERMARK}{n}" for n in range(len(join.watermarked))]
    steps = [_watermark_steps(streams[side], side, join) for side in (0, 1)]
    positions = steps[0].unionAll(steps[1]).groupBy(POSITION).agg(*(F.max(name).alias(name) for name in names))
    before = Window.orderBy(POSITION).rowsBetween(Window.unboundedPreceding, -1)
    at_start = [F.lit(EARLIEST if column.watermark is None else column.watermark) for column in join.watermarked]
    watermarks = [
        F.greatest(F.coalesce(F.max(name).over(before), F.lit(EARLIEST)), start).alias(name)
        for name, start in zip(names, at_start, strict=True)
    ]
    return F.broadcast(positions.select(POSITION, *watermarks))


def _watermark_steps(rows: DataFrame, side: int, join: WindowedJoin) -> DataFrame:
    """
    Return POSITION of each new row of a stream, and for each watermarked column the WATERMARK that the row allows.

    Under strict semantics a row moves the watermarks of its own columns, in Kafka Streams the one stream time of both.
    """
    is_strict, own = join.semantics == "strict", [column.time for column in join.watermarked if column.side == side]
    watermarks = []
    for n, column in enumerate(join.watermarked):
        is_moved = column.side == side if is_strict else bool(own)
        time = column.time if is_strict else f"coalesce({', '.join([*own, 'NULL'])})"
        watermark = _minus(time, column.lateness) if is_moved else "NULL"
        watermarks.append(F.expr(f"CAST({watermark} AS BIGINT)").alias(f"{WATERMARK}{n}"))
    new_rows = rows.where(f"{FACTS[side]}.is_new")
    return new_rows.select(F.col(f"{FACTS[side]}.position").alias(POSITION), *watermarks)


def _with_expiry(rows: DataFrame, side: int, watermarks: DataFrame | None, join: WindowedJoin) -> DataFrame:
    """
    Add to FACTS what the watermarks before a row's position say: `is_late`, null for new rows without watermarks, and
    `unexpired_from`, for each watermarked column the least time at which an earlier row is not expired.
    """
    facts, is_late, unexpired_from = FACTS[side], "CAST(NULL AS BOOLEAN)", "NULL"
    if watermarks is not None:
        columns = enumerate(join.watermarked)
        late = [f"coalesce({column.time} < {WATERMARK}{n}, FALSE)" for n, column in columns if column.side == side]
        is_late = (" OR ".join(late) or "FALSE") if join.semantics == "strict" else "FALSE"
        unexpired_from = f"array({', '.join(_unexpired_from(n, join) for n in range(len(join.watermarked)))})"
        rows = rows.join(watermarks, on=F.expr(f"{facts}.position = {POSITION}"), how="left")
    more = F.col(facts).withField("is_late", F.expr(f"IF({facts}.is_new, {is_late}, FALSE)"))
    more = more.withField("unexpired_from", F.expr(unexpired_from))
    return rows.select(IDS[side], more.alias(facts), quote(join.statement.aliases[side]))


def _unexpired_from(column: int, join: WindowedJoin) -> str:
    """Return the SQL of the least time of a watermarked column that the watermarks do not expire."""
    times = [_minus(f"{WATERMARK}{b.lesser}", b.allowance) for b in join.bounds if b.greater == column]
    return f"greatest({', '.join([*times, f'{EARLIEST}L', f'{EARLIEST}L'])})"


def _candidates(rows: Sequence[DataFrame], streams: Sequence[DataFrame], join: WindowedJoin) -> DataFrame:
    """Return the rows of the right stream that may match the checked rows of the left stream."""
    if join.share == 1 or not join.has_candidates:
        return rows[1]
    left = rows[0].where(join.samples(IDS[0]))
    candidates = _in_buckets(streams[1], 1, join).join(
        F.broadcast(_in_buckets(left, 0, join)), on=F.expr(_candidate_condition(join)), how="left_semi"
    )
    return number_new_rows(candidates.drop(BUCKETS[1]), 1, join)


def _pairs(left: DataFrame, right: DataFrame, join: WindowedJoin) -> DataFrame:
    """Return the pairs of matching rows, as IDS and `is_selected`."""
    (how, on), where = join.statement.steps[0], join.statement.where
    is_left_earlier = f"{FACTS[0]}.position <= {FACTS[1]}.position"  # at the same time the left row has a lesser rank
    may_match = [
        *(f"NOT {facts}.is_late" for facts in FACTS),
        f"({FACTS[0]}.is_new OR {FACTS[1]}.is_new)",
        *join.one_sided,
        *(_within(bound, join) for bound in join.bounds),
        f"IF({is_left_earlier}, {_is_unexpired(0, join)}, {_is_unexpired(1, join)})",
    ]
    matches = f"({on}) AND ({where})" if where is not None and how == "inner" else on
    # ON is evaluated only for rows that match in time: for other rows it may raise an error.
    condition = f"{_candidate_condition(join)} AND CASE WHEN {' AND '.join(may_match)} THEN {matches} ELSE FALSE END"
    checked = _in_buckets(left.where(join.samples(IDS[0])), 0, join)
    if join.share > 1:
        checked = F.broadcast(checked)
    pairs = checked.join(_in_buckets(right, 1, join), on=F.expr(condition), how="inner")
    return pairs.select(*IDS, F.expr(f"coalesce({where or 'TRUE'}, FALSE)").alias("is_selected"))


def _candidate_condition(join: WindowedJoin) -> str:
    """Return the equalities that select candidate pairs: of time buckets, and of ON."""
    same_bucket = [] if join.axis is None else [f"{BUCKETS[0]} = {BUCKETS[1]}"]
    return " AND ".join([*same_bucket, *(f"{left} = {right}" for left, right in join.equalities)])


def _in_buckets(rows: DataFrame, side: int, join: WindowedJoin) -> DataFrame:
    """Assign rows to time buckets: a right row to one bucket, a left row to each bucket that may hold a match."""
    if join.axis is None:
        return rows
    axis = join.axis
    width = max(1, (axis.before + axis.after) * (limits.BUCKET_WIDTHS if join.equalities else 1))
    if side == 1:
        return rows.withColumn(BUCKETS[1], F.expr(f"{join.watermarked[axis.right].time} div {width}L"))
    time = join.watermarked[axis.left].time
    least, most = _minus(time, axis.before), f"coalesce(try_add({time}, {axis.after}L), {2**63 - 1}L)"
    buckets = f"IF({least} <= {most}, sequence({least} div {width}L, {most} div {width}L), array())"
    return rows.where(f"{time} IS NOT NULL").withColumn(BUCKETS[0], F.explode(F.expr(buckets)))


def _within(bound: TimeBound, join: WindowedJoin) -> str:
    greater, lesser = join.watermarked[bound.greater].time, join.watermarked[bound.lesser].time
    return f"{greater} >= {_minus(lesser, bound.allowance)}"


def _is_unexpired(side: int, join: WindowedJoin) -> str:
    """Return the SQL condition that the row of a side, the earlier one, is not expired at the later row's position."""
    columns = sorted({bound.greater for bound in join.bounds if join.watermarked[bound.greater].side == side})
    unexpired_from = f"{FACTS[1 - side]}.unexpired_from"
    return " AND ".join(f"{join.watermarked[n].time} >= {unexpired_from}[{n}]" for n in columns) or "TRUE"


def _minus(time: str, length: int) -> str:
    """Return the SQL of a time minus a length; an underflow gives the earliest time."""
    return f"IF({time} IS NULL, NULL, coalesce(try_subtract({time}, {length}L), {EARLIEST}L))"
