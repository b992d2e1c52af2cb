"""
Compute one epoch of a join of two streams.

    rows that came ─► watermarks, limits ─► pairs ─────────────────► stage: result
    rows that wait ─────────────────────────┘  └─► alone, waiting ─► stage: result, state

What waits between epochs lies in a table beside the result. It and the result are written from the stage, so that both
are of the same epoch, and a row of it names by what it is known in the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from lakehouse.errors import BufferFull
from lakehouse.session import settings
from lakehouse.small import brought
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import create, drop, find, get, read
from lakehouse.values import plain_schema
from pipelines.arrived import Arrived
from pipelines.binding import BoundJoin
from pipelines.epoch import NOT_ADAPTIVE, few_or_many
from pipelines.joins.meaning import ROW
from pipelines.joins.stream_stream import (
    AT,
    BY_LEFT,
    FIRST,
    HASH,
    IDENTITY,
    LATE,
    MATCHED,
    NULL_KEY,
    NUMBER,
    OP,
    SECOND,
    alone,
    came,
    identified,
    is_eager,
    judged,
    marks_of,
    most_waiting,
    pairs,
    preserved,
    selected,
    state_changes,
    timed,
    together,
    waiting,
)
from pipelines.joins.stream_table import POSITION
from pipelines.joins.watermarks import (
    NOTHING_YET,
    SIDE,
    TIME,
    VERSION,
    mark,
    marked,
    passed,
    reached,
    risen,
    rises_of,
    value,
    with_watermarks,
)
from pipelines.plan import WAITING, Computed, EpochPlan
from pipelines.spec import ROW_COLUMNS, STREAM_COLUMNS, Window
from pipelines.workspace import Workspace

EPOCH, EPOCH_POSITION = STREAM_COLUMNS
STATE_ROWS = ("left_row", "right_row")
"""The columns of the state with the rows of the left and of the right stream, one of them null."""

SMALL_STATE = 4 * 2**20
"""A state of so many bytes is brought to the driver, where few rows came."""

SPANS = 64
"""Into so many parts the times of an epoch are cut, each for one task."""

NOT_ADAPTED = 1_000_000
"""Plans for so many rows are not changed while they run: that costs more than it saves."""

FEW_POSITIONS = 200
"""So many commits of an epoch are looked at on the driver."""

WHOLE_SPAN = 2**62


def state_schema(bound: BoundJoin) -> StructType:
    """Give the columns of the table of rows that wait: identity, whether a row has met another, and the two rows."""
    identity = [
        StructField(SIDE, IntegerType()),
        StructField(VERSION, LongType()),
        StructField(HASH, LongType()),
        StructField(NUMBER, IntegerType()),
        StructField(MATCHED, BooleanType()),
    ]
    rows = []
    for place, name in enumerate(STATE_ROWS):
        kinds = bound.table(place).schema
        rows.append(StructField(name, StructType([kinds[column] for column in bound.join.inputs[place].columns])))
    return StructType([*identity, *rows])


def create_state(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """
    Create the table of rows that wait, empty, and name it in the plan.

    One that is there is what an earlier result has left: a load takes the place of it, and a reset, which writes all of
    it anew, where its columns are others.
    """
    assert bound.state is not None
    spark, schema = workspace.spark, state_schema(bound)
    table = find(spark, bound.state)
    if table is not None:
        differs = plain_schema(table.schema.fields) != plain_schema(schema.fields)
        has_rows = any(commit.changes_data for commit in table.commits) or table.size > 0
        if differs or (plan.strategy == "load" and has_rows):
            drop(spark, bound.state)
    create(spark, bound.state, schema, IDENTITY, feed=False)
    made = get(spark, bound.state)
    return replace(plan, state_id=made.id, state_version=made.version)


def compute_windowed(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """
    Compute an epoch of a join of two streams into the stage's parts `result` and `state`.

    Returns:
        The clocks after the epoch: of each stream the greatest time in the order, and of each watermarked column, as
        `stream.column`, its greatest value (microseconds, or the integer itself). Counts: read, late, null_keys (rows
        with a null in an equality of ON or in a time that it bounds), null_values, ignored_changes, behind_cut,
        appended, and of the rows that wait buffered (after the epoch), buffered_inserted, buffered_updated (that met
        their first row), and buffered_deleted.

    Raises:
        CannotContinue: A commit of a stream changed or deleted rows, or rows lack what orders them.
        BufferFull: More rows would wait than `max_buffered_rows` allows.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `tables.reading` says; it wraps this call.
    """
    clocks: dict[str, int] = {}
    came = [part.changed_rows for part in plan.sources]
    is_small = plan.strategy == "incremental" and None not in came and sum(rows or 0 for rows in came) <= NOT_ADAPTED
    with settings(workspace.spark, NOT_ADAPTIVE if is_small else {}):
        counts = few_or_many(workspace, plan, partial(_compute, workspace, bound, plan, stage, clocks))
    return Computed(counts, clocks)


def compute_flush(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """
    Compute the epoch that lets every row that waits go, null-padded where it is kept and met none.

    Returns:
        The clocks as they were, and counts: appended, buffered (0), buffered_inserted, buffered_updated (none) and
        buffered_deleted.
    """
    meetings = Meetings(workspace, bound, plan, stage, few=False)
    lone = meetings.flushed()
    appended = stage.put("result", lone, {"appended": "count(1)"})
    counts = {"buffered": 0, **stage.put("state", meetings.emptied(), STATE_COUNTS)}
    return Computed({**appended, **counts}, plan.clocks)


STATE_COUNTS = {name: f"count_if(op = '{op}')" for op, name in WAITING.items()}


@dataclass(frozen=True)
class _Arrivals:
    """
    The rows that came.

    Args:
        placed: Placed and judged.
        ends: The watermarks after them, by number.
        rises: Where there are few positions: when the limit of each watermarked column rose.
    """

    placed: DataFrame
    ends: Mapping[int, int]
    rises: Mapping[int, Sequence[tuple[int, int]]] | None


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
        self._arrived = tuple(Arrived(workspace, bound, plan, place) for place in (0, 1))
        self._judged = Observation()
        self._spans = (WHOLE_SPAN, WHOLE_SPAN)

    @property
    def window(self) -> Window:
        """What bounds the join in time."""
        assert self._join.window is not None
        return self._join.window

    @property
    def _by_commit(self) -> bool:
        """Whether all rows of a commit have one position."""
        return self._plan.strategy == "incremental" and not self._bound.times

    def put(self) -> dict[str, int]:
        """Write the epoch's rows of result and state into the stage, and count them."""
        arrivals, held = self._arrivals(), self._held()
        arrived = came(arrivals.placed, self._semantics)
        self._refuse_too_many(arrived, held, arrivals)
        found, met = self._pairs(arrived, held), None
        if not preserved(self._join):
            counts = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
        elif self._few or self._needs_pairs:
            found = self._kept("pairs", found)
            met = marks_of(found, self._join, self._semantics)
            lone = self._alone(arrived, held, met, arrivals)
            rows = self._rows_of(found).unionByName(self._rows_alone(lone))
            counts = self._stage.put("result", rows, APPENDED_ROWS)
        else:
            # The rows of many pairs are written once, and tell by themselves which rows they are made of.
            paired = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
            written = self._stage.get(self._workspace.spark, "result", self._bound.columns)
            met = marks_of(_identities_of(written), self._join, self._semantics)
            lone = self._alone(arrived, held, met, arrivals)
            more = self._stage.put("result", self._rows_alone(lone), APPENDED_ROWS, add=True)
            counts = {"appended": paired["appended"] + more["appended"]}
        counts |= self._put_state(arrived, held, met, arrivals)
        return {**counts, **self._counts()}

    def rows(self) -> DataFrame:
        """Give the epoch's rows of the result, for a replay."""
        if self._plan.strategy == "flush":
            return self.flushed()
        arrivals, held = self._arrivals(), self._held()
        arrived = came(arrivals.placed, self._semantics)
        found = self._pairs(arrived, held)
        if not preserved(self._join):
            return self._rows_of(found)
        found = self._kept("pairs", found)
        met = marks_of(found, self._join, self._semantics)
        return self._rows_of(found).unionByName(self._rows_alone(self._alone(arrived, held, met, arrivals)))

    def flushed(self) -> DataFrame:
        """Give the rows that stand alone once no row waits any more."""
        kept = preserved(self._join) if not is_eager(self._semantics) else ()
        sides = ", ".join(map(str, kept)) or "NULL"
        held = self._held().where(f"NOT {MATCHED} AND {SIDE} IN ({sides})")
        last = max((self._plan.clocks.get(source, NOTHING_YET) for source in self._join.sources), default=NOTHING_YET)
        return self._rows_alone(held.withColumn(AT, F.lit(last).cast("bigint")))

    def emptied(self) -> DataFrame:
        """Give the changes that take all rows out of the state."""
        held = self._held().withColumn(OP, F.lit("delete"))
        return self._changes(held)

    def clocks(self) -> dict[str, int]:
        """Say how far the times of streams and columns go once the epoch is through; the rows have been read."""
        clocks = dict(self._plan.clocks)
        for arrived in self._arrived:
            if arrived.reached is not None:
                clocks[arrived.source] = max(arrived.reached, clocks.get(arrived.source, arrived.reached))
        for number, watermark in enumerate(self.window.watermarks):
            most = self._judged.get[f"w{number}"]
            if most is not None and most != NOTHING_YET:
                clocks[self._clock(number)] = most + watermark.lateness
        return clocks

    def _clock(self, number: int) -> str:
        """Name the clock of a watermarked column."""
        time = self.window.watermarks[number].time
        return f"{self._join.inputs[time.input].source}.{time.column}"

    def _counts(self) -> dict[str, int]:
        """Count what came and took no part, or could not meet."""
        facts = [arrived.facts() for arrived in self._arrived]
        counts = {name: sum(each[name] for each in facts) for name in facts[0]}
        return {**counts, "late": self._judged.get["late"], "null_keys": self._judged.get["null_keys"]}

    def _arrivals(self) -> _Arrivals:
        """Read what came, and give each row its place, the watermarks there, and what follows from them."""
        join, window = self._join, self.window
        wrapped = [
            identified(arrived.frame.withColumnRenamed(POSITION, TIME), join, place)
            for place, arrived in enumerate(self._arrived)
        ]
        rows = timed(together(*wrapped), join)
        if not self._few:
            self._spans = self._measured(rows)
        events = marked(rows, window, self._semantics).unionByName(self._floor(), allowMissingColumns=True)
        few_positions = self._by_commit and not self._few
        placed = with_watermarks(events, window, self._spans[0], few_positions=few_positions)
        placed = judged(placed, join, self._semantics).observe(
            self._judged,
            F.count(F.expr(f"IF({LATE}, 1, NULL)")).alias("late"),
            F.count(F.expr(f"IF({NULL_KEY} AND NOT {LATE}, 1, NULL)")).alias("null_keys"),
            *(F.max(mark(n)).alias(f"w{n}") for n in range(len(window.watermarks))),
        )
        numbers = range(len(window.watermarks))
        unused = [name(n) for n in numbers for name in (mark, reached)]
        if not preserved(join) and self._most is None:
            unused += map(passed, numbers)
        kept = self._kept("arrived", placed.drop(*unused))
        for arrived in self._arrived:
            arrived.facts()
        known = {n: self._judged.get[f"w{n}"] for n in numbers}
        ends = {n: NOTHING_YET if last is None else last for n, last in known.items()}
        rises = None
        if self._by_commit and preserved(join):
            found = rises_of(kept, window).limit(FEW_POSITIONS + 1).collect()
            if len(found) <= FEW_POSITIONS:
                rises = {n: risen(found, window, n) for n in numbers}
        return _Arrivals(kept, ends, rises)

    def _measured(self, rows: DataFrame) -> tuple[int, int]:
        """Find how much time of the order, and of the rows, one task is to look at."""
        # Rows that wait may be as old as bounds and lateness allow, whatever the times of those that came.
        waits = sum(abs(bound.allowance) for bound in self.window.bounds) + 1
        waits += max(watermark.lateness for watermark in self.window.watermarks)
        if self._by_commit:
            return WHOLE_SPAN, waits
        columns = [TIME, *(value(n) for n in range(len(self.window.watermarks)))]
        ends = [end(column) for column in columns for end in (F.min, F.max)]
        found = list(rows.agg(*ends).collect()[0])
        spans = [0 if least is None else most - least for least, most in zip(found[::2], found[1::2], strict=True)]
        return spans[0] // SPANS + 1, max(waits, *spans[1:]) // SPANS + 1

    def _floor(self) -> DataFrame:
        """Give the watermarks before the epoch as a row that comes before all others."""
        floors: list[Column] = [
            F.lit(2).alias(SIDE),
            F.lit(NOTHING_YET).alias(TIME),
            F.lit(-1).cast("bigint").alias(VERSION),
        ]
        known = {n: self._plan.clocks.get(self._clock(n)) for n in range(len(self.window.watermarks))}
        if self._semantics != "strict":
            most = max((clock for clock in known.values() if clock is not None), default=None)
            known = dict.fromkeys(known, most)
        for n, clock in known.items():
            number = None if clock is None else clock - self.window.watermarks[n].lateness
            floors.append(F.lit(number).cast("bigint").alias(mark(n)))
        return self._workspace.spark.range(1).select(*floors)

    def _held(self) -> DataFrame:
        """Give the rows that wait before the epoch."""
        assert self._bound.state is not None
        spark, plan = self._workspace.spark, self._plan
        rows = read(spark, self._bound.state, plan.state_version)
        if plan.strategy not in ("incremental", "flush"):
            rows = rows.where("false")
        elif self._few and get(spark, self._bound.state).size <= SMALL_STATE:
            rows = brought(rows).frame
        aliases = {name: item.alias for name, item in zip(STATE_ROWS, self._join.inputs, strict=True)}
        return waiting(rows.withColumnsRenamed(aliases), self._join)

    def _pairs(self, arrived: DataFrame, held: DataFrame) -> DataFrame:
        found = selected(pairs(arrived, held, self._join, self._semantics), self._join)
        return found.select(AT, FIRST, SECOND, BY_LEFT, ROW)

    @property
    def _needs_pairs(self) -> bool:
        """Whether pairs tell more than the rows that they make: those that WHERE drops, or which row came later."""
        return self._join.where is not None or is_eager(self._semantics)

    def _alone(self, arrived: DataFrame, held: DataFrame, met: DataFrame | None, arrivals: _Arrivals) -> DataFrame:
        found = alone(
            arrived,
            held,
            met,
            arrivals.placed,
            arrivals.ends,
            self._join,
            self._semantics,
            self._spans,
            kept_as=self._kept,
            rises=arrivals.rises,
        )
        assert found is not None
        return found

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

    def _put_state(
        self, arrived: DataFrame, held: DataFrame, met: DataFrame | None, arrivals: _Arrivals
    ) -> dict[str, int]:
        seen = Observation()
        told = state_changes(arrived, held, met, arrivals.ends, self._join, self._semantics)
        stays = F.count(F.expr(f"IF({OP} IS NULL OR {OP} <> 'delete', 1, NULL)"))
        counted = told.observe(seen, stays.alias("buffered"))
        counts = self._stage.put("state", self._changes(counted.where(f"{OP} IS NOT NULL")), STATE_COUNTS)
        return {**counts, "buffered": seen.get["buffered"]}

    def _changes(self, told: DataFrame) -> DataFrame:
        """Lay changes of the state out as the stage has them: `op`, `key`, `before`, `after`."""
        aliases = [item.alias for item in self._join.inputs]
        rows = [f"'{name}', {quote(alias)}" for name, alias in zip(STATE_ROWS, aliases, strict=True)]
        key = ", ".join(f"'{name}', {name}" for name in IDENTITY)
        before = f"{MATCHED} AND {OP} <> 'update'"
        image = "named_struct(" + ", ".join([key, f"'{MATCHED}', {{0}}", *rows]) + ")"
        return told.select(
            F.col(OP).alias("op"),
            F.expr(f"named_struct({key})").alias("key"),
            F.expr(f"IF({OP} = 'insert', NULL, {image.format(before)})").alias("before"),
            F.expr(f"IF({OP} = 'delete', NULL, {image.format(MATCHED)})").alias("after"),
        )

    @property
    def _most(self) -> int | None:
        return self._workspace.file.joins[self._plan.join].max_buffered_rows

    def _refuse_too_many(self, arrived: DataFrame, held: DataFrame, arrivals: _Arrivals) -> None:
        """
        See that no more rows wait, after any position, than may.

        Raises:
            BufferFull: More do.
        """
        if self._most is None:
            return
        counted = most_waiting(arrived, held, arrivals.placed, self._join, self._semantics, self._spans)
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


APPENDED_ROWS = {"appended": "count(1)"}


def _compute(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, clocks: dict[str, int], few: bool
) -> dict[str, int]:
    meetings = Meetings(workspace, bound, plan, stage, few)
    counts = meetings.put()
    clocks |= meetings.clocks()
    return counts


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
