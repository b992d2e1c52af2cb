"""
Compute one epoch of a join of two streams.

    rows that came ─► watermarks, limits ─► pairs ─► stage: result
    rows that wait ─────────────────────────┘  └─► fates ─┬─► stage: result (rows that stand alone)
                                                          └─► stage: state (rows that wait from now on)
"""

from collections.abc import Mapping
from functools import cached_property, partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from lakehouse.errors import BufferFull
from lakehouse.session import NOT_ADAPTIVE, settings
from lakehouse.small import brought, literal
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from pipelines.arrived import Arrived
from pipelines.binding import BoundJoin
from pipelines.epoch import few_or_many
from pipelines.joins.fates import LONE, OP, alone, fates, most_waiting
from pipelines.joins.meaning import ROW
from pipelines.joins.stream_stream import (
    AT,
    BY_LEFT,
    FIRST,
    HASH,
    LATE,
    MATCHED,
    NULL_KEY,
    NUMBER,
    SECOND,
    both_sides,
    came,
    identified,
    is_eager,
    judged,
    marks_of,
    pairs,
    preserved,
    selected,
    timed,
    together,
)
from pipelines.joins.stream_table import POSITION
from pipelines.joins.watermarks import (
    NOTHING_YET,
    PLACE,
    RANK,
    SIDE,
    TIME,
    VERSION,
    Position,
    limit,
    mark,
    marked,
    marks_at,
    passed,
    placed_at,
    reached,
    risen,
    value,
    walked,
    with_watermarks,
)
from pipelines.plan import Computed, EpochPlan
from pipelines.spec import ROW_COLUMNS, STREAM_COLUMNS, Window
from pipelines.window_state import Held, held, put_state
from pipelines.workspace import Workspace

EPOCH, EPOCH_POSITION = STREAM_COLUMNS

SPANS = 64
"""Into so many parts the times of an epoch are cut, each for one task."""

NOT_ADAPTED = 1_000_000
"""Plans for so many rows are not changed while they run: that costs more than it saves."""

APPENDED_ROWS = {"appended": "count(1)"}

WHOLE_SPAN = 2**62


def compute_windowed(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """
    Compute an epoch of a join of two streams into the stage's parts `result` and `state`.

    A flush lets every row go that waits, null-padded where it is kept and met none; nothing is read of the streams.

    Returns:
        The clocks after the epoch: of each stream the greatest time in the order, and of each watermarked column, as
        `stream.column`, its greatest value (microseconds, or the integer itself). Counts: read, late, null_keys (rows
        with a null in an equality of ON or in a time that it bounds), null_values, ignored_changes, behind_cut (all
        but of a flush), appended, and of the rows that wait buffered (after the epoch), buffered_inserted,
        buffered_updated (that met their first row), buffered_deleted, and buffered_kept where all are written anew.

    Raises:
        CannotContinue: A commit of a stream changed or deleted rows, or rows lack what orders them.
        BufferFull: More rows would wait than `max_buffered_rows` allows.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `tables.reading` says; it wraps this call.
    """
    clocks: dict[str, int] = {}
    came = [part.changed_rows for part in plan.sources]
    is_small = plan.strategy == "incremental" and None not in came and sum(rows or 0 for rows in came) <= NOT_ADAPTED
    with settings(workspace.spark, NOT_ADAPTIVE if is_small else {}):
        size = plan.state_bytes + plan.stream_bytes
        counts = few_or_many(workspace, plan, size, partial(_compute, workspace, bound, plan, stage, clocks))
    return Computed(counts, clocks)


def _compute(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, clocks: dict[str, int], few: bool
) -> dict[str, int]:
    meetings = Meetings(workspace, bound, plan, stage, few)
    counts = {**meetings.put_result(), **meetings.put_state(), **meetings.counts()}
    clocks |= meetings.clocks()
    return counts


class Meetings:
    """
    What meets in one epoch.

    Args:
        workspace: Where to work.
        bound: The join.
        plan: The epoch; its `state_version` says what waits before it.
        stage: Takes what is used several times.
        few: Whether few rows came, which pass through the driver.
    """

    def __init__(self, workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, few: bool) -> None:
        self._workspace, self._bound, self._plan, self._stage, self._few = workspace, bound, plan, stage, few
        self._join, self._semantics = bound.join, bound.semantics
        self._judged = Observation()
        self._told: dict[str, int | None] | None = None
        self._positions: list[Position] | None = None
        self._is_known = False
        self._fates: DataFrame | None = None

    @property
    def window(self) -> Window:
        """What bounds the join in time."""
        assert self._join.window is not None
        return self._join.window

    def put_result(self) -> dict[str, int]:
        """Write the epoch's rows of the result into the stage, and count them."""
        held = self._held.rows
        if self._plan.strategy == "flush":
            self._fates = self._all_leave(held)
            return self._stage.put("result", self._rows_alone(self._fates.where(LONE)), APPENDED_ROWS)
        arrived = came(self._placed, self._semantics)
        self._refuse_too_many(arrived, held)
        found = self._pairs(arrived, held)

        def fates_of(met: DataFrame | None) -> DataFrame:
            # Every row passes here, where those that meet may leave out a side for the other one that is empty.
            rows = arrived if self._is_known else came(self._looked_at(self._placed), self._semantics)
            return fates(rows, held, met, self._ends, self._join, self._semantics)

        if not preserved(self._join):
            counts = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
            self._fates = fates_of(None)
            return counts
        if self._few or self._needs_pairs:
            found = self._kept("pairs", found)
            self._fates = self._kept("fates", fates_of(marks_of(found, self._join, self._semantics)))
            rows = self._rows_of(found).unionByName(self._rows_alone(self._alone()))
            return self._stage.put("result", rows, APPENDED_ROWS)
        # The rows of many pairs are written once, and tell by themselves which rows they are made of.
        paired = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
        written = self._stage.get(self._workspace.spark, "result", self._bound.columns)
        met = marks_of(_identities_of(written), self._join, self._semantics)
        self._fates = self._kept("fates", fates_of(met))
        more = self._stage.put("result", self._rows_alone(self._alone()), APPENDED_ROWS, add=True)
        return {"appended": paired["appended"] + more["appended"]}

    def put_state(self) -> dict[str, int]:
        """Write what becomes of the rows that wait into the stage, and count them; the result has been written."""
        assert self._fates is not None
        return put_state(self._stage, self._fates, self._held, self._bound, self._plan)

    def rows(self) -> DataFrame:
        """Give the epoch's rows of the result, for a replay."""
        self.put_result()
        return self._stage.get(self._workspace.spark, "result", self._bound.columns)

    def clocks(self) -> dict[str, int]:
        """Say how far the times of streams and columns go once the epoch is through."""
        clocks = dict(self._plan.clocks)
        if self._plan.strategy == "flush":
            return clocks
        for arrived in self._arrived:
            for source in self._join.sources if len(self._arrived) == 1 else (arrived.source,):
                if arrived.reached is not None:
                    clocks[source] = max(arrived.reached, clocks.get(source, arrived.reached))
        for number, watermark in enumerate(self.window.watermarks):
            end = self._ends[number]
            if end != NOTHING_YET:
                clocks[self._clock(number)] = end + watermark.lateness
        return clocks

    def counts(self) -> dict[str, int]:
        """Count what came and took no part, or could not meet."""
        if self._plan.strategy == "flush":
            return {}
        facts = [arrived.facts() for arrived in self._arrived]
        counts = {name: sum(each[name] for each in facts) for name in facts[0]}
        return {**counts, **{name: self._known[name] or 0 for name in ("late", "null_keys")}}

    def _clock(self, number: int) -> str:
        """Name the clock of a watermarked column."""
        time = self.window.watermarks[number].time
        return f"{self._join.inputs[time.input].source}.{time.column}"

    @cached_property
    def _held(self) -> Held:
        known = {n: NOTHING_YET if floor is None else floor for n, floor in enumerate(self._floors)}
        return held(self._workspace, self._bound, self._plan, known, few=self._few)

    @cached_property
    def _arrived(self) -> tuple[Arrived, ...]:
        places = (0,) if self._bound.is_read_once else (0, 1)
        return tuple(Arrived(self._workspace, self._bound, self._plan, place) for place in places)

    @cached_property
    def _placed(self) -> DataFrame:
        """Read what came, give each row its place and the watermarks there, and judge it."""
        join, numbers = self._join, range(len(self.window.watermarks))
        wrapped = [
            identified(arrived.frame.withColumnRenamed(POSITION, TIME), join, place)
            for place, arrived in enumerate(self._arrived)
        ]
        came = both_sides(wrapped[0], join) if len(wrapped) == 1 else together(*wrapped)
        rows = marked(timed(came, join), self.window, self._semantics)
        keep = self._few or self._most is not None
        if self._plan.strategy == "incremental" and not self._bound.times:
            placed = self._by_commits(rows)
        elif self._comes_in_order:
            nothing = {name(n): F.lit(NOTHING_YET) for n in numbers for name in (reached, limit)}
            after = {passed(n): F.coalesce(mark(n), F.lit(NOTHING_YET)) for n in numbers}
            placed = rows.withColumns(nothing | after)
        else:
            span, keep = WHOLE_SPAN if self._few else self._time(rows) // SPANS + 1, True
            placed = with_watermarks(rows.unionByName(self._floor(), allowMissingColumns=True), self.window, span)
        unused = [*map(mark, numbers), *map(reached, numbers)]
        found = judged(placed, join, self._semantics)
        if keep:
            self._is_known = True
            found = self._kept("arrived", self._looked_at(found).drop(*unused))
        elif self._comes_in_order:
            self._is_known = True
            self._told = found.agg(*self._looks()).collect()[0].asDict()
        for arrived in self._arrived:
            arrived.facts()
        return found if keep else found.drop(*map(reached, numbers))

    def _by_commits(self, rows: DataFrame) -> DataFrame:
        """Place rows by their commits: these are few, so that watermarks are looked at on the driver."""
        window, numbers = self.window, range(len(self.window.watermarks))
        if self._few:
            rows = brought(rows).frame
        self._positions = walked(marks_at(rows, window).collect(), self._floors)
        kinds = [StructField(name, IntegerType() if name == RANK else LongType()) for name in PLACE]
        kinds += [StructField(name(n), LongType()) for name in (reached, passed) for n in numbers]
        known = [(one.time, one.rank, one.version, *one.before, *one.after) for one in self._positions]
        return placed_at(rows, literal(self._workspace.spark, known, StructType(kinds)), window)

    @property
    def _comes_in_order(self) -> bool:
        """
        Tell whether rows of a first load come in the order of the only times that bounds and watermarks know.

        None is late then, and none lies below a limit as it comes.
        """
        window, streams = self.window, self._bound.streams
        marks = window.watermarks
        return (
            self._plan.strategy in ("load", "reset")
            and not (self._bound.times or window.by_date or self._few or self._most)
            and self._semantics == "strict"
            and [(mark.time.input, mark.time.column) for mark in marks]
            == [(place, stream.event_time) for place, stream in enumerate(streams)]
            and all(bound.allowance + marks[bound.lesser].lateness >= 0 for bound in window.bounds)
        )

    def _looks(self) -> list[Column]:
        """Say what is asked of rows that were judged."""
        numbers = range(len(self.window.watermarks))
        return [
            F.count(F.expr(f"IF({LATE}, 1, NULL)")).alias("late"),
            F.count(F.expr(f"IF({NULL_KEY} AND NOT {LATE}, 1, NULL)")).alias("null_keys"),
            *(F.max(mark(n)).alias(f"mark{n}") for n in numbers),
            *(end(value(n)).alias(f"{name}{n}") for name, end in (("from", F.min), ("to", F.max)) for n in numbers),
        ]

    def _looked_at(self, rows: DataFrame) -> DataFrame:
        """Give rows that were judged, and see what is asked of them while they are read."""
        return rows.observe(self._judged, *self._looks())

    @property
    def _known(self) -> Mapping[str, int | None]:
        """Give what was asked of the rows; they have been read."""
        return self._judged.get if self._told is None else self._told

    @cached_property
    def _ends(self) -> dict[int, int]:
        """Give the watermarks after all rows, by their places; the rows have been read."""
        if self._positions is not None and not self._positions:
            return {n: NOTHING_YET if floor is None else floor for n, floor in enumerate(self._floors)}
        if self._positions:
            return dict(enumerate(self._positions[-1].after))
        marks = {n: (self._known[f"mark{n}"], floor) for n, floor in enumerate(self._floors)}
        return {n: max(NOTHING_YET if one is None else one for one in each) for n, each in marks.items()}

    def _time(self, rows: DataFrame) -> int:
        """Give how much time of the order the rows take up."""
        first, last = rows.agg(F.min(TIME), F.max(TIME)).collect()[0]
        return 0 if first is None else int(last - first)

    @property
    def _span(self) -> int:
        """Give how much time of the rows one task is to look at; they have been read."""
        # Rows that wait may be as old as bounds and lateness allow, whatever the times of those that came.
        waits = sum(abs(bound.allowance) for bound in self.window.bounds) + 1
        waits += max(watermark.lateness for watermark in self.window.watermarks)
        ends = [(self._known[f"from{n}"], self._known[f"to{n}"]) for n in range(len(self.window.watermarks))]
        taken = [last - first for first, last in ends if first is not None and last is not None]
        return max(waits, *taken, 0) // SPANS + 1

    @cached_property
    def _floors(self) -> list[int | None]:
        """Give the watermarks before the epoch, by their places; None where nothing came."""
        known = [self._plan.clocks.get(self._clock(n)) for n in range(len(self.window.watermarks))]
        if self._semantics != "strict":
            most = max((clock for clock in known if clock is not None), default=None)
            known = [most] * len(known)
        pairs = zip(known, self.window.watermarks, strict=True)
        return [None if clock is None else clock - watermark.lateness for clock, watermark in pairs]

    def _floor(self) -> DataFrame:
        """Give the watermarks before the epoch as a row that comes before all others."""
        marks = [F.lit(floor).cast("bigint").alias(mark(n)) for n, floor in enumerate(self._floors)]
        place = (F.lit(NOTHING_YET).alias(TIME), F.lit(2).alias(RANK), F.lit(-1).cast("bigint").alias(VERSION))
        return self._workspace.spark.range(1).select(F.lit(2).alias(SIDE), *place, *marks)

    def _pairs(self, arrived: DataFrame, held: DataFrame) -> DataFrame:
        found = selected(pairs(arrived, held, self._join, self._semantics), self._join)
        return found.select(AT, FIRST, SECOND, BY_LEFT, ROW)

    @property
    def _needs_pairs(self) -> bool:
        """Whether pairs tell more than the rows that they make: those that WHERE drops, or which row came later."""
        return self._join.where is not None or is_eager(self._semantics)

    def _alone(self) -> DataFrame:
        assert self._fates is not None
        rises = None
        if self._positions is not None:
            rises = {n: risen(self._positions, self.window, n) for n in range(len(self.window.watermarks))}
        span = 1 if rises is not None else self._span
        return alone(self._fates, self._placed, self._join, span, kept_as=self._kept, rises=rises)

    def _all_leave(self, held: DataFrame) -> DataFrame:
        """Give the fates of the rows that wait, when all leave."""
        kept = preserved(self._join) if not is_eager(self._semantics) else ()
        lone = f"NOT {MATCHED} AND {SIDE} IN ({', '.join(map(str, kept))})" if kept else "FALSE"
        last = max((self._plan.clocks.get(source, NOTHING_YET) for source in self._join.sources), default=NOTHING_YET)
        return held.withColumns({OP: F.lit("delete"), LONE: F.expr(lone), AT: F.lit(last).cast("bigint")})

    def _rows_of(self, found: DataFrame) -> DataFrame:
        """Lay pairs out as rows of the result."""
        return self._laid_out(found, _identity(f"{FIRST}."), _identity(f"{SECOND}."))

    def _rows_alone(self, lone: DataFrame) -> DataFrame:
        """Lay rows that stand alone out as rows of the result."""
        sides = [f"IF({SIDE} = {place}, {_identity('')}, NULL)" for place in (0, 1)]
        return self._laid_out(selected(lone, self._join), *sides)

    def _laid_out(self, rows: DataFrame, left: str, right: str) -> DataFrame:
        added = (*STREAM_COLUMNS, *ROW_COLUMNS)
        values = [
            F.col(f"{ROW}.{quote(field.name)}").cast(field.dataType).alias(field.name)
            for field in self._bound.columns
            if field.name not in added
        ]
        epoch = F.lit(self._plan.epoch).cast("bigint").alias(EPOCH)
        identities = [F.expr(sql).alias(name) for name, sql in zip(ROW_COLUMNS, (left, right), strict=True)]
        kept = rows if self._join.where is None else rows.where(f"{ROW} IS NOT NULL")
        return kept.select(*values, epoch, F.col(AT).alias(EPOCH_POSITION), *identities)

    @property
    def _most(self) -> int | None:
        return self._workspace.file.joins[self._plan.join].max_buffered_rows

    def _refuse_too_many(self, arrived: DataFrame, held: DataFrame) -> None:
        """
        See that no more rows wait, after any position, than may.

        Raises:
            BufferFull: More do.
        """
        if self._most is None:
            return
        once = self._bound.is_single_store
        counted = most_waiting(
            arrived, held, self._placed, self._join, self._semantics, (WHOLE_SPAN, self._span), once=once
        )
        most = counted.agg(F.max("most")).collect()[0][0] or 0
        if most > self._most:
            raise BufferFull(
                self._plan.join,
                "more rows would wait for rows of the other stream than `max_buffered_rows` allows",
                expected=f"at most {self._most:,} rows after each position",
                found=f"{most:,}",
                hint="raise the limit, narrow the bounds of ON or the lateness; nothing was published",
            )

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        if self._few:
            return brought(frame).frame
        self._stage.put(name, frame)
        return self._stage.get(self._workspace.spark, name, frame.schema)


def _identity(prefix: str) -> str:
    """Give the SQL of what the result has of a row's identity."""
    return f"named_struct('version', {prefix}{VERSION}, 'hash', {prefix}{HASH}, 'number', {prefix}{NUMBER})"


def _identities_of(rows: DataFrame) -> DataFrame:
    """Give the identities of both rows of each row of the result, as `pairs` gives them."""
    found = []
    for place, (name, column) in enumerate(zip((FIRST, SECOND), ROW_COLUMNS, strict=True)):
        fields = (f"'{VERSION}', {column}.version", f"'{HASH}', {column}.hash", f"'{NUMBER}', {column}.number")
        found.append(F.expr(f"named_struct('{SIDE}', {place}, {', '.join(fields)})").alias(name))
    return rows.select(*found, F.lit(False).alias(BY_LEFT))
