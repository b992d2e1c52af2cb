"""
The new rows of two streams in an epoch, each at its position in the total order, with its watermarks and limits.

    rows of both streams ─┬─ by commits: their positions are few, and are walked on the driver
                          ├─ a first load in the order of one time for each side: no row is late or expired
                          └─ else row by row, in parts of their times
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from lakehouse import limits
from lakehouse.ledger.entries import StreamPosition
from lakehouse.session.session import is_over_connect, persisted, unpersist
from lakehouse.values.driver_rows import literal_frame
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.new_rows import NewRows
from pipelines.joins.pairs import (
    LATE,
    NULL_KEY,
    both_sides,
    hashed,
    identified,
    identified_by_hash,
    judged,
    timed,
    together,
)
from pipelines.joins.watermarks import (
    NOTHING_YET,
    PLACE,
    RANK,
    TIME,
    Position,
    combined_steps,
    limit,
    limit_rises,
    limit_sql,
    limit_value,
    steps_at,
    value,
    walk,
    watermark_after,
    watermark_before,
    watermark_step,
    window_of,
    with_steps,
    with_watermarks,
)
from pipelines.language import Window
from pipelines.language.names import POSITION, SIDE, VERSION

WHOLE_RANGE = 2**62

_TIME_PARTS = 64
"""The times of a large epoch are split into this many parts, one task each."""


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """
    The new rows of an epoch, in order: `rows` as `judged` returns them.

    Args:
        all_rows: The same rows, for a query that reads all of them: it counts them if they are not counted yet.
        counted: Returns the values of `_aggregates`; waits for the query over `all_rows` if that counts them.
        steps: The input of `limit_steps`: the positions if they are few, else the rows.
        rises: The times at which the limit of each watermarked column rose; None if the positions are too many.
        order_width: The range of time in the order that one task reads.
        ends: The watermarks after all rows, by number.
        positions: Those that the epoch passed, with the watermarks of the result; a load passes one, the end, at 0.
        clocks: Those of streams and watermarked columns after the epoch.
        read: The counts of the feeds or snapshots that were read.
    """

    rows: DataFrame
    all_rows: DataFrame
    counted: Callable[[], Mapping[str, Any]]
    steps: DataFrame
    rises: Mapping[int, Sequence[tuple[int, int]]] | None
    order_width: int
    ends: Mapping[int, int]
    positions: tuple[StreamPosition, ...]
    clocks: Mapping[str, int]
    read: Mapping[str, int]


@contextmanager
def ordered_rows(
    workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch, *, must_keep: bool
) -> Iterator[Ordered]:
    """
    Put the new rows of an epoch in order; rows that are cached for this are released afterwards.

    Args:
        must_keep: Whether the counts and watermarks of the rows must be known before the rows are used.

    Raises:
        CannotContinue: As `NewRows.facts` raises it.
    """
    bound, indexes = epoch.bound, (0,) if epoch.bound.is_read_once else (0, 1)
    new_rows = tuple(NewRows(workspace, epoch, index) for index in indexes)
    streams = _Streams(workspace, epoch, window_of(bound.join), new_rows)
    must_keep = must_keep or scratch.via_driver
    # All rows of a commit share one position, unless a column orders them.
    in_order, by_commit = not must_keep and is_in_order(epoch), epoch.plan.strategy == "incremental" and not bound.times
    stepped = streams.with_steps(is_in_order=in_order)
    if by_commit:
        placed = _placed_by_commit(streams, scratch.keep("stepped", stepped) if scratch.via_driver else stepped)
    elif in_order:
        placed = _placed_as_loaded(streams, stepped)
    else:
        placed = _placed_row_by_row(streams, stepped, is_whole=scratch.via_driver)
    rows, aggregates = judged(placed.rows, bound.join, bound.semantics), _aggregates(streams.numbers)
    observation = Observation()
    if (must_keep if by_commit else not in_order) or is_over_connect(workspace.spark):
        unused = [*map(watermark_step, streams.numbers), *map(watermark_before, streams.numbers)]
        rows = scratch.keep("new_rows", rows.observe(observation, *aggregates).drop(*unused))
        yield _ordered(streams, placed, rows, rows, lambda: observation.get)
    elif by_commit:
        rows = persisted(rows)
        try:
            yield _ordered(streams, placed, rows, rows.observe(observation, *aggregates), lambda: observation.get)
        finally:
            unpersist(rows)
    else:
        counted = rows.agg(*aggregates).collect()[0].asDict()
        yield _ordered(streams, placed, rows, rows, lambda: counted)


def floors_of(epoch: Epoch[BoundJoin]) -> dict[int, int]:
    """Return the watermarks before an epoch, by number."""
    watermarks = window_of(epoch.bound.join).watermarks
    known = [epoch.plan.stream.clocks.get(_clock(epoch.bound, n)) for n in range(len(watermarks))]
    if epoch.bound.semantics != "strict":
        known = [max((clock for clock in known if clock is not None), default=None)] * len(known)
    latenesses = [watermark.lateness for watermark in watermarks]
    return {n: NOTHING_YET if clock is None else clock - latenesses[n] for n, clock in enumerate(known)}


def is_in_order(epoch: Epoch[BoundJoin]) -> bool:
    """
    Return whether the rows of a first load are in the order of the only times that bounds and watermarks use.

    No row is then late, and none is expired at its own position.
    """
    bound, window = epoch.bound, window_of(epoch.bound.join)
    return (
        epoch.plan.strategy in ("load", "reset")
        and not (bound.times or window.by_date)
        and bound.semantics == "strict"
        and not any(watermark.is_from_upstream for watermark in window.watermarks)
        and [(watermark.time.input, watermark.time.column) for watermark in window.watermarks]
        == [(index, stream.event_time) for index, stream in enumerate(bound.streams)]
        and all(each.allowance + window.watermarks[each.lesser].lateness >= 0 for each in window.bounds)
    )


def task_width(window: Window, counted: Mapping[str, Any]) -> int:
    """Return the width of the rows' times that one task reads, from what `Ordered.counted` returns."""
    # Buffered rows may be as old as bounds and lateness allow, regardless of the times of the new rows.
    width = sum(abs(bound.allowance) for bound in window.bounds) + 1
    width += max(watermark.lateness for watermark in window.watermarks)
    ends = [(counted[f"from{n}"], counted[f"to{n}"]) for n in range(len(window.watermarks))]
    return int(max(width, *(last - first for first, last in ends if first is not None), 0)) // _TIME_PARTS + 1


class _Placed(NamedTuple):
    """Rows with watermarks and limits; if all rows of a commit share a position, the positions, also as a frame."""

    rows: DataFrame
    order_width: int = WHOLE_RANGE
    positions: Sequence[Position] | None = None
    steps: DataFrame | None = None


def _placed_by_commit(streams: "_Streams", rows: DataFrame) -> _Placed:
    of_rows = [tuple(row) for row in steps_at(rows, streams.window).collect()]
    positions = walk(combined_steps([*of_rows, *streams.upstream_steps()]), [*floors_of(streams.epoch).values()])
    steps = streams.as_steps(positions)
    return _Placed(rows.join(F.broadcast(steps), on=list(PLACE), how="inner"), positions=positions, steps=steps)


def _placed_as_loaded(streams: "_Streams", rows: DataFrame) -> _Placed:
    nothing = {name(n): F.lit(NOTHING_YET) for n in streams.numbers for name in (watermark_before, limit)}
    after = {watermark_after(n): F.coalesce(watermark_step(n), F.lit(NOTHING_YET)) for n in streams.numbers}
    return _Placed(rows.withColumns(nothing | after))


def _placed_row_by_row(streams: "_Streams", rows: DataFrame, *, is_whole: bool) -> _Placed:
    """Order rows one by one; `is_whole` if one task reads all of them."""
    width = WHOLE_RANGE
    if not is_whole:
        first, last = rows.agg(F.min(TIME), F.max(TIME)).collect()[0]
        width = 1 if first is None else int(last - first) // _TIME_PARTS + 1
    events = rows.unionByName(streams.floor(), allowMissingColumns=True)
    return _Placed(with_watermarks(events, streams.window, width), width)


def _ordered(
    streams: "_Streams", placed: _Placed, rows: DataFrame, all_rows: DataFrame, counted: Callable[[], Mapping[str, Any]]
) -> Ordered:
    facts = [new_rows.facts() for new_rows in streams.streams]
    positions, steps, rises = placed.positions, placed.steps, None
    if positions is None:
        ends = streams.ends(counted())
        steps = streams.with_end(rows, counted()["last"], ends) if streams.is_from_upstream else rows
    else:
        ends = dict(enumerate(positions[-1].after)) if positions else floors_of(streams.epoch)
        if len(positions) <= limits.CONSTANT_POSITIONS:
            rises = {n: limit_rises(positions, streams.window, n) for n in streams.numbers}
    return Ordered(
        rows=rows,
        all_rows=all_rows,
        counted=counted,
        steps=rows if steps is None else steps,
        rises=rises,
        order_width=placed.order_width,
        ends=ends,
        positions=streams.passed(positions, ends),
        clocks=streams.clocks(ends),
        read={name: sum(each[name] for each in facts) for name in facts[0]},
    )


@dataclass(frozen=True)
class _Streams:
    """The new rows of each stream; one entry for a stream that is read once for both sides."""

    workspace: Workspace
    epoch: Epoch[BoundJoin]
    window: Window
    streams: tuple[NewRows, ...]

    @property
    def numbers(self) -> range:
        return range(len(self.window.watermarks))

    @property
    def is_from_upstream(self) -> bool:
        return any(watermark.is_from_upstream for watermark in self.window.watermarks)

    def with_steps(self, *, is_in_order: bool) -> DataFrame:
        bound = self.epoch.bound
        wrapped = []
        for index, new_rows in enumerate(self.streams):
            rows = hashed(new_rows.frame.withColumnRenamed(POSITION, TIME), bound.join, index)
            # Numbering sorts the rows at each of several reads; one check whether they need numbers costs less.
            by_hash = identified_by_hash(rows) if is_in_order else None
            wrapped.append(identified(rows, bound.join, index) if by_hash is None else by_hash)
        rows = both_sides(wrapped[0], bound.join) if bound.is_read_once else together(*wrapped)
        return with_steps(timed(rows, bound.join), self.window, bound.semantics)

    def as_steps(self, positions: Sequence[Position]) -> DataFrame:
        columns = [*PLACE, *(name(n) for name in (watermark_before, watermark_after) for n in self.numbers)]
        fields = [StructField(name, IntegerType() if name == RANK else LongType()) for name in columns]
        rows = [(each.time, each.rank, each.version, *each.before, *each.after) for each in positions]
        steps = literal_frame(self.workspace.spark, rows, StructType(fields))
        return steps.withColumns({limit(n): F.expr(limit_sql(self.window, n, watermark_before)) for n in self.numbers})

    def with_end(self, rows: DataFrame, last: int | None, ends: Mapping[int, int]) -> DataFrame:
        """Return the positions of rows, and their end: in a first load the upstream watermarks apply after the last."""
        nothing = tuple(NOTHING_YET for _ in self.numbers)
        names = [*PLACE, *(name(n) for name in (watermark_after, limit) for n in self.numbers)]
        end = self.as_steps([Position(0 if last is None else last, 2, 0, nothing, tuple(ends.values()))])
        return rows.select(*names).unionByName(end.select(*names))

    def floor(self) -> DataFrame:
        """Return the watermarks before the epoch, as a row that comes before all others."""
        floors = floors_of(self.epoch)
        watermarks = [F.lit(floor).cast("bigint").alias(watermark_step(n)) for n, floor in floors.items()]
        position = (F.lit(NOTHING_YET).alias(TIME), F.lit(2).alias(RANK), F.lit(-1).cast("bigint").alias(VERSION))
        return self.workspace.spark.range(1).select(F.lit(2).alias(SIDE), *position, *watermarks)

    def upstream_steps(self) -> Iterator[tuple[int | None, ...]]:
        """Return the watermark steps that upstream joins recorded, as `steps_at` returns them for rows."""
        for index, new_rows in enumerate(self.streams):
            for position in () if new_rows.upstream is None else new_rows.upstream.positions:
                watermarks = self._by_number(index, position.watermarks)
                rank = 0 if self.window.is_self_join else index
                yield (position.time, rank, position.version, *(watermarks.get(n) for n in self.numbers))

    def ends(self, counted: Mapping[str, Any]) -> dict[int, int]:
        """Return the watermarks after rows that are ordered one by one, and after all epochs of upstream joins."""
        ends = {n: counted[f"watermark{n}"] for n in self.numbers}
        for index, new_rows in enumerate(self.streams):
            ends |= {} if new_rows.upstream is None else self._by_number(index, new_rows.upstream.watermarks)
        return {n: floor if ends[n] is None else max(floor, ends[n]) for n, floor in floors_of(self.epoch).items()}

    def _by_number(self, index: int, watermarks: Mapping[str, int]) -> dict[int, int]:
        """Return the watermarks of a stream by their numbers; of a stream that is read once, those of both sides."""
        inputs = (0, 1) if self.epoch.bound.is_read_once else (index,)
        columns = {n: self.window.watermarks[n].time.column.lower() for side in inputs for n in self.window.of(side)}
        return {n: watermarks[column] for n, column in columns.items() if column in watermarks}

    def passed(self, positions: Sequence[Position] | None, ends: Mapping[int, int]) -> tuple[StreamPosition, ...]:
        """Return the positions of the epoch with the watermarks of the result; a load passes one, the end, at 0."""
        if self.epoch.bound.times:
            return ()  # no other join reads a result that `order_by` orders
        if positions is None:
            return (StreamPosition(0, self._carried(ends)),)
        before: dict[str, int] = {}  # the first position records all watermarks
        recorded = []
        for position in positions:
            after = self._carried(dict(enumerate(position.after)))
            moved = {name: watermark for name, watermark in after.items() if watermark != before.get(name)}
            recorded.append(StreamPosition(position.time, moved))
            before = after
        return tuple(recorded)

    def _carried(self, watermarks: Mapping[int, int]) -> dict[str, int]:
        """Return the watermarks of the result: no row that arrives or expires later lies before them."""
        carried = self.epoch.bound.join.carried
        least = {name: min(watermarks[n], limit_value(self.window, n, watermarks)) for name, n in carried}
        return {name: watermark for name, watermark in least.items() if watermark != NOTHING_YET}

    def clocks(self, ends: Mapping[int, int]) -> dict[str, int]:
        """Return the clocks of streams and watermarked columns after the epoch, from the watermarks at its end."""
        bound, clocks = self.epoch.bound, dict(self.epoch.plan.stream.clocks)
        for new_rows in self.streams:
            for source in bound.join.sources if bound.is_read_once else (new_rows.source,):
                if new_rows.newest_time is not None:
                    clocks[source] = max(new_rows.newest_time, clocks.get(source, new_rows.newest_time))
        moved = {n: end for n, end in ends.items() if end != NOTHING_YET}
        return clocks | {_clock(bound, n): end + self.window.watermarks[n].lateness for n, end in moved.items()}


def _clock(bound: BoundJoin, number: int) -> str:
    time = window_of(bound.join).watermarks[number].time
    return f"{bound.join.inputs[time.input].source}.{time.column}"


def _aggregates(numbers: range) -> list[Column]:
    return [
        F.count(F.expr(f"IF({LATE}, 1, NULL)")).alias("late"),
        F.count(F.expr(f"IF({NULL_KEY} AND NOT {LATE}, 1, NULL)")).alias("null_keys"),
        F.max(F.expr(f"IF({SIDE} < 2, {TIME}, NULL)")).alias("last"),  # without the floor
        *(F.max(watermark_step(n)).alias(f"watermark{n}") for n in numbers),
        *(F.min(value(n)).alias(f"from{n}") for n in numbers),
        *(F.max(value(n)).alias(f"to{n}") for n in numbers),
    ]
