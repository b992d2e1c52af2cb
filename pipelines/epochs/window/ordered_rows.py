"""
The new rows of two streams in an epoch, each at its position in the total order, with its watermarks and limits.

    rows of both streams ─┬─ by commits: their positions are few, and are walked on the driver
                          ├─ a first load in the order of one time for each side: no row is late or expired
                          └─ else row by row, in parts of their times
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from lakehouse import limits
from lakehouse.ledger.entries import StreamPosition
from lakehouse.session.session import is_over_connect, persisted, unpersist
from lakehouse.values.driver_rows import literal
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.new_rows import NewRows
from pipelines.joins.pairs import LATE, NULL_KEY, judged, timed
from pipelines.joins.row_id import both_sides, hashed, identified, identified_by_hash, together
from pipelines.joins.watermark_walk import Position, combined_steps, limit_rises, steps_at, walk
from pipelines.joins.watermarks import (
    NOTHING_YET,
    PLACE,
    RANK,
    TIME,
    limit,
    limit_sql,
    limit_value,
    value,
    watermark_after,
    watermark_before,
    watermark_step,
    window_of,
    with_steps,
    with_watermarks,
)
from pipelines.spec.statement.added_columns import POSITION, SIDE, VERSION

WHOLE_RANGE = 2**62


class OrderedRows:
    """
    The new rows of an epoch, in order.

    Args:
        must_keep: Whether the counts and watermarks of the rows must be known before the rows are used.
    """

    def __init__(
        self,
        workspace: Workspace,
        epoch: Epoch[BoundJoin],
        scratch: Scratch,
        *,
        must_keep: bool,
    ) -> None:
        self._workspace, self._epoch, self._scratch = workspace, epoch, scratch
        self._bound, self._plan = epoch.bound, epoch.plan
        self._must_keep = scratch.via_driver or must_keep
        self._window = window_of(self._bound.join)
        self._numbers = range(len(self._window.watermarks))
        self._seen = Observation()
        self._counted: Mapping[str, Any] | None = None
        self._cached: DataFrame | None = None

    @cached_property
    def rows(self) -> DataFrame:
        """The rows, as `judged` returns them."""
        unused = [*map(watermark_step, self._numbers), *map(watermark_before, self._numbers)]
        if self._is_by_commit:
            ordered, keep = self._marked.join(F.broadcast(self.steps), on=list(PLACE), how="inner"), self._must_keep
        elif self._is_in_order:
            nothing = {name(n): F.lit(NOTHING_YET) for n in self._numbers for name in (watermark_before, limit)}
            after = {watermark_after(n): F.coalesce(watermark_step(n), F.lit(NOTHING_YET)) for n in self._numbers}
            ordered, keep = self._marked.withColumns(nothing | after), False
        else:
            events = self._marked.unionByName(self._floor, allowMissingColumns=True)
            ordered, keep = with_watermarks(events, self._window, self._order_width), True
        rows = judged(ordered, self._bound.join, self._bound.semantics)
        if keep or is_over_connect(self._workspace.spark):
            rows = self._scratch.keep("new_rows", rows.observe(self._seen, *self._aggregates).drop(*unused))
            self._counted = self._seen.get
        elif not self._is_by_commit:
            self._counted = rows.agg(*self._aggregates).collect()[0].asDict()
        else:
            rows = self._cached = persisted(rows)
        for new_rows in self.new_rows:
            new_rows.facts()
        return rows

    def release(self) -> None:
        """Release the cached rows; all readers have read them."""
        if self._cached is not None:
            unpersist(self._cached)

    @property
    def rows_counted(self) -> DataFrame:
        """The rows, for a reader that reads all of them: it counts them if they are not counted yet."""
        rows = self.rows
        return rows if self._counted is not None else rows.observe(self._seen, *self._aggregates)

    @cached_property
    def new_rows(self) -> tuple[NewRows, ...]:
        """The new rows of each stream; one entry for a stream that is read once for both sides."""
        places = (0,) if self._bound.is_read_once else (0, 1)
        return tuple(NewRows(self._workspace, self._epoch, place) for place in places)

    @cached_property
    def steps(self) -> DataFrame:
        """The input of `limit_steps`: the positions if they are few, else the rows."""
        if self._is_by_commit:
            return self._as_steps(self._positions)
        if not self._is_from_upstream:
            return self.rows
        # In a first load the upstream watermarks apply after the last row.
        last = self._marked.agg(F.max(TIME)).collect()[0][0]
        nothing = tuple(NOTHING_YET for _ in self._numbers)
        names = [*PLACE, *(name(n) for name in (watermark_after, limit) for n in self._numbers)]
        end = self._as_steps([Position(0 if last is None else last, 2, 0, nothing, tuple(self.ends.values()))])
        return self.rows.select(*names).unionByName(end.select(*names))

    def _as_steps(self, positions: Sequence[Position]) -> DataFrame:
        kinds = [StructField(name, IntegerType() if name == RANK else LongType()) for name in PLACE]
        kinds += [
            StructField(name(n), LongType()) for name in (watermark_before, watermark_after) for n in self._numbers
        ]
        known = [(one.time, one.rank, one.version, *one.before, *one.after) for one in positions]
        steps = literal(self._workspace.spark, known, StructType(kinds))
        return steps.withColumns(
            {limit(n): F.expr(limit_sql(self._window, n, watermark_before)) for n in self._numbers}
        )

    @property
    def rises(self) -> Mapping[int, Sequence[tuple[int, int]]] | None:
        """The times at which the limit of each watermarked column rose; None if the positions are too many."""
        if not self._is_by_commit or len(self._positions) > limits.CONSTANT_POSITIONS:
            return None
        return {n: limit_rises(self._positions, self._window, n) for n in self._numbers}

    @cached_property
    def floors(self) -> dict[int, int]:
        """The watermarks before the epoch, by their places."""
        known = [self._plan.stream.clocks.get(self._clock(n)) for n in self._numbers]
        if self._bound.semantics != "strict":
            known = [max((clock for clock in known if clock is not None), default=None)] * len(known)
        pairs = enumerate(zip(known, self._window.watermarks, strict=True))
        return {n: NOTHING_YET if clock is None else clock - watermark.lateness for n, (clock, watermark) in pairs}

    @cached_property
    def ends(self) -> dict[int, int]:
        """The watermarks after all rows, by their places; if rows are ordered one by one, they have been read."""
        if self._is_by_commit:
            return dict(enumerate(self._positions[-1].after)) if self._positions else self.floors
        found = {n: self._observed[f"mark{n}"] for n in self._numbers} | self._upstream_at_the_end
        return {n: floor if found[n] is None else max(floor, found[n]) for n, floor in self.floors.items()}

    @property
    def positions(self) -> tuple[StreamPosition, ...]:
        """The positions that the epoch passed, with the watermarks of the result; a load passes one, the end, at 0."""
        if self._bound.times:
            return ()  # no other join reads a result that `order_by` orders
        if not self._is_by_commit:
            return (StreamPosition(0, self._carried(self.ends)),)
        known: dict[str, int] = {}  # the first position records all watermarks
        found = []
        for position in self._positions:
            after = self._carried(dict(enumerate(position.after)))
            found.append(
                StreamPosition(position.time, {name: far for name, far in after.items() if far != known.get(name)})
            )
            known = after
        return tuple(found)

    def _carried(self, watermarks: Mapping[int, int]) -> dict[str, int]:
        """Return the watermarks of the result: no row that arrives or expires later lies before them."""
        carried = self._bound.join.carried
        far = {name: min(watermarks[n], limit_value(self._window, n, watermarks)) for name, n in carried}
        return {name: watermark for name, watermark in far.items() if watermark != NOTHING_YET}

    @property
    def task_widths(self) -> tuple[int, int]:
        """The widths of time that one task reads: in the order, and in the rows."""
        return self._order_width, self.task_width

    @property
    def task_width(self) -> int:
        """The width of the rows' times that one task reads; the rows have been read."""
        # Buffered rows may be as old as bounds and lateness allow, regardless of the times of the new rows.
        width = sum(abs(bound.allowance) for bound in self._window.bounds) + 1
        width += max(watermark.lateness for watermark in self._window.watermarks)
        ends = [(self._observed[f"from{n}"], self._observed[f"to{n}"]) for n in self._numbers]
        return int(max(width, *(last - first for first, last in ends if first is not None), 0)) // limits.TIME_PARTS + 1

    def counts(self) -> dict[str, int]:
        """Return the counts of new rows, and of those that took no part or could not match; the rows have been read."""
        facts = [new_rows.facts() for new_rows in self.new_rows]
        counts = {name: sum(each[name] for each in facts) for name in facts[0]}
        return {**counts, "late": self._observed["late"], "null_keys": self._observed["null_keys"]}

    def clocks(self) -> dict[str, int]:
        """Return the clocks of streams and watermarked columns after the epoch; the rows have been read."""
        clocks = dict(self._plan.stream.clocks)
        for new_rows in self.new_rows:
            for source in self._bound.join.sources if self._bound.is_read_once else (new_rows.source,):
                if new_rows.newest_time is not None:
                    clocks[source] = max(new_rows.newest_time, clocks.get(source, new_rows.newest_time))
        for n, end in self.ends.items():
            if end != NOTHING_YET:
                clocks[self._clock(n)] = end + self._window.watermarks[n].lateness
        return clocks

    @cached_property
    def _marked(self) -> DataFrame:
        """The rows of both streams, with the watermark steps of each."""
        join = self._bound.join
        wrapped = [self._identified(new_rows.frame, place) for place, new_rows in enumerate(self.new_rows)]
        new_rows = both_sides(wrapped[0], join) if self._bound.is_read_once else together(*wrapped)
        rows = with_steps(timed(new_rows, join), self._window, self._bound.semantics)
        return self._scratch.keep("marked", rows) if self._scratch.via_driver and self._is_by_commit else rows

    def _identified(self, rows: DataFrame, place: int) -> DataFrame:
        new_rows = hashed(rows.withColumnRenamed(POSITION, TIME), self._bound.join, place)
        # Numbering sorts the rows at each of several reads; one check whether they need numbers costs less.
        by_hash = identified_by_hash(new_rows) if self._is_in_order else None
        return identified(new_rows, self._bound.join, place) if by_hash is None else by_hash

    @property
    def _is_by_commit(self) -> bool:
        """Whether all rows of a commit share one position."""
        return self._plan.strategy == "incremental" and not self._bound.times

    @cached_property
    def _is_in_order(self) -> bool:
        """
        Whether the rows of a first load are in the order of the only times that bounds and watermarks use.

        No row is then late, and none is expired at its own position.
        """
        watermarks, streams = self._window.watermarks, self._bound.streams
        return (
            self._plan.strategy in ("load", "reset")
            and not (self._bound.times or self._window.by_date or self._must_keep)
            and self._bound.semantics == "strict"
            and not self._is_from_upstream
            and [(watermark.time.input, watermark.time.column) for watermark in watermarks]
            == [(place, stream.event_time) for place, stream in enumerate(streams)]
            and all(bound.allowance + watermarks[bound.lesser].lateness >= 0 for bound in self._window.bounds)
        )

    @cached_property
    def _positions(self) -> list[Position]:
        steps = [tuple(row) for row in steps_at(self._marked, self._window).collect()]
        return walk(combined_steps([*steps, *self._upstream_steps]), [*self.floors.values()])

    @property
    def _is_from_upstream(self) -> bool:
        """Whether another join makes one of the streams."""
        return any(watermark.is_from_upstream for watermark in self._window.watermarks)

    @property
    def _upstream_steps(self) -> Iterator[tuple[int | None, ...]]:
        """The watermark steps that upstream joins recorded, as `steps_at` returns them for rows."""
        for place, new_rows in enumerate(self.new_rows):
            for position in () if new_rows.upstream is None else new_rows.upstream.positions:
                watermarks = self._by_place(place, position.watermarks)
                rank = 0 if self._window.is_self_join else place
                yield (position.time, rank, position.version, *(watermarks.get(n) for n in self._numbers))

    @property
    def _upstream_at_the_end(self) -> dict[int, int]:
        """The watermarks, by their places, that upstream joins recorded after all of their epochs."""
        found: dict[int, int] = {}
        for place, new_rows in enumerate(self.new_rows):
            found |= {} if new_rows.upstream is None else self._by_place(place, new_rows.upstream.watermarks)
        return found

    def _by_place(self, place: int, watermarks: Mapping[str, int]) -> dict[int, int]:
        """Return the watermarks of a stream by their places; of a stream that is read once, those of both sides."""
        inputs = (0, 1) if self._bound.is_read_once else (place,)
        columns = {n: self._window.watermarks[n].time.column.lower() for side in inputs for n in self._window.of(side)}
        return {n: watermarks[column] for n, column in columns.items() if column in watermarks}

    @property
    def _aggregates(self) -> list[Column]:
        """The aggregates over the judged rows."""
        return [
            F.count(F.expr(f"IF({LATE}, 1, NULL)")).alias("late"),
            F.count(F.expr(f"IF({NULL_KEY} AND NOT {LATE}, 1, NULL)")).alias("null_keys"),
            *(F.max(watermark_step(n)).alias(f"mark{n}") for n in self._numbers),
            *(F.min(value(n)).alias(f"from{n}") for n in self._numbers),
            *(F.max(value(n)).alias(f"to{n}") for n in self._numbers),
        ]

    @property
    def _observed(self) -> Mapping[str, Any]:
        """The values of the aggregates; the rows have been read."""
        return self._seen.get if self._counted is None else self._counted

    @cached_property
    def _order_width(self) -> int:
        """The width of time in the order that one task reads."""
        if self._scratch.via_driver or self._is_by_commit:
            return WHOLE_RANGE
        first, last = self._marked.agg(F.min(TIME), F.max(TIME)).collect()[0]
        return 1 if first is None else int(last - first) // limits.TIME_PARTS + 1

    @property
    def _floor(self) -> DataFrame:
        """The watermarks before the epoch, as a row that comes before all others."""
        watermarks = [F.lit(floor).cast("bigint").alias(watermark_step(n)) for n, floor in self.floors.items()]
        place = (F.lit(NOTHING_YET).alias(TIME), F.lit(2).alias(RANK), F.lit(-1).cast("bigint").alias(VERSION))
        return self._workspace.spark.range(1).select(F.lit(2).alias(SIDE), *place, *watermarks)

    def _clock(self, number: int) -> str:
        """Return the name of the clock of a watermarked column."""
        time = self._window.watermarks[number].time
        return f"{self._bound.join.inputs[time.input].source}.{time.column}"
