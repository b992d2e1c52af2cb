"""
Compute one epoch of a join of two streams.

    new rows ──────► watermarks, limits ─► pairs ─► stage: result
    buffered rows ─────────────────────────┘  └─► buffer changes ─┬─► stage: result (unmatched rows)
                                                                  └─► stage: state (rows buffered from now on)
"""

from functools import cached_property, partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.errors import BufferFull
from lakehouse.ledger.entries import StreamPosition
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Write, with_rows
from lakehouse.session.session import NOT_ADAPTIVE, settings
from lakehouse.values.sqltext import quote, struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.epochs.window.ordered_rows import OrderedRows
from pipelines.epochs.window.state import BufferedRows, put_state, read_buffered
from pipelines.joins.expiry import OP, UNMATCHED, buffer_changes, peak_buffered, unmatched
from pipelines.joins.meaning import ROW
from pipelines.joins.pairs import (
    AT,
    BY_LEFT,
    FIRST,
    SECOND,
    as_new_rows,
    is_eager,
    matched_rows,
    outer_sides,
    pairs,
    selected,
)
from pipelines.joins.watermarks import NOTHING_YET
from pipelines.plan.values import APPENDED, Computed
from pipelines.spec import ROW_COLUMNS, STREAM_COLUMNS
from pipelines.spec.statement.added_columns import HASH, MATCHED, NUMBER, SIDE, VERSION

EPOCH, EPOCH_POSITION = STREAM_COLUMNS


APPENDED_ROWS = {APPENDED: "count(1)"}


def compute_windowed(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
    """
    Compute an epoch of a join of two streams into the stage's parts `result` and `state`.

    A flush removes every buffered row, null-padded if it is of an outer side and unmatched; it reads no stream.

    Returns:
        The clocks after the epoch: for each stream the greatest time in the order, and for each watermarked column, as
        `stream.column`, its greatest value (microseconds, or the integer itself). The positions that the epoch passed.
        Counts: read, late, null_keys (rows with a null in an equality of ON or in a time that ON bounds), null_values,
        ignored_changes, behind_cut (all of these except in a flush), appended, and for the buffered rows buffered
        (after the epoch), buffered_inserted, buffered_updated (rows that met their first row), buffered_deleted, and
        buffered_kept if all are rewritten.

    Raises:
        CannotContinue: A commit of a stream changed or deleted rows, or the column that orders rows is null.
        BufferFull: More rows would be buffered than `max_buffered_rows` allows.
        FeedUnavailable, SchemaBroken: A feed cannot be read; `conditions.reading`, which wraps this call, raises them.
    """
    plan = epoch.plan
    new_rows = [part.changed_rows for part in plan.sources]
    is_small = (
        plan.strategy == "incremental"
        and None not in new_rows
        and sum(rows or 0 for rows in new_rows) <= limits.NOT_ADAPTIVE_ROWS
    )
    with settings(workspace.spark, NOT_ADAPTIVE if is_small else {}):
        return via_driver_or_stage(workspace, plan, plan.stream.bytes, stage, partial(_compute, workspace, epoch))


def _compute(workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> Computed:
    meetings = Meetings(workspace, epoch, scratch)
    try:
        appended = meetings.put_result()
        buffered, state = meetings.put_state()
        counts = {**appended, **buffered, **meetings.counts()}
        writes = (state, with_rows(epoch.plan.writes[-1], appended[APPENDED]))
        return Computed(counts, writes, meetings.clocks(), meetings.positions())
    finally:
        meetings.release()


class Meetings:
    """The pairs and unmatched rows of one epoch; its plan names the version with the rows buffered before it."""

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace, self._epoch, self._scratch = workspace, epoch, scratch
        self._stage = scratch.stage
        self._bound, self._plan = epoch.bound, epoch.plan
        self._join, self._semantics = self._bound.join, self._bound.semantics
        self._new_rows = OrderedRows(workspace, epoch, scratch, must_keep=self._max_buffered is not None)
        self._changes: DataFrame | None = None

    def put_result(self) -> dict[str, int]:
        """Write the epoch's rows of the result into the stage, and return their counts."""
        buffered = self._buffered.rows
        if self._plan.strategy == "flush":
            self._changes = self._flushed(buffered)
            return self._stage.put("result", self._unmatched_rows(self._changes.where(UNMATCHED)), APPENDED_ROWS)
        new_rows = as_new_rows(self._new_rows.rows, self._semantics)
        self._check_buffered(new_rows, buffered)
        found = self._pairs(new_rows, buffered)

        def changes_of_buffer(met: DataFrame | None) -> DataFrame:
            # This reads every row; the search for pairs may leave out a side if the other one is empty.
            rows = as_new_rows(self._new_rows.rows_counted, self._semantics)
            return buffer_changes(rows, buffered, met, self._new_rows.ends, self._join, self._semantics)

        if not outer_sides(self._join):
            counts = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
            self._changes = changes_of_buffer(None)
            return counts
        if self._scratch.via_driver or self._needs_pairs:
            found = self._scratch.keep("pairs", found)
            self._changes = self._scratch.keep(
                "buffer_changes", changes_of_buffer(matched_rows(found, self._join, self._semantics))
            )
            rows = self._rows_of(found).unionByName(self._unmatched_rows(self._unmatched()))
            return self._stage.put("result", rows, APPENDED_ROWS)
        # Many pairs are written once; the written rows identify the rows that they are made of.
        paired = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
        written = self._stage.get(self._workspace.spark, "result", self._bound.columns)
        met = matched_rows(_identities_of(written), self._join, self._semantics)
        self._changes = self._scratch.keep("buffer_changes", changes_of_buffer(met))
        more = self._stage.put("result", self._unmatched_rows(self._unmatched()), APPENDED_ROWS, add=True)
        return {APPENDED: paired[APPENDED] + more[APPENDED]}

    def put_state(self) -> tuple[dict[str, int], Write]:
        """Stage the changes of the buffered rows, after `put_result`; return their counts and how they are written."""
        assert self._changes is not None
        return put_state(self._stage, self._changes, self._buffered, self._epoch)

    def rows(self) -> DataFrame:
        """Return the epoch's rows of the result, for a replay."""
        try:
            self.put_result()
        finally:
            self.release()
        return self._stage.get(self._workspace.spark, "result", self._bound.columns)

    def release(self) -> None:
        """Release the cached rows."""
        self._new_rows.release()

    def clocks(self) -> dict[str, int]:
        """Return the clocks of streams and watermarked columns after the epoch."""
        return dict(self._plan.stream.clocks) if self._plan.strategy == "flush" else self._new_rows.clocks()

    def positions(self) -> tuple[StreamPosition, ...]:
        """Return the positions that the epoch passed, with the watermarks of the result."""
        return () if self._plan.strategy == "flush" else self._new_rows.positions

    def counts(self) -> dict[str, int]:
        """Return the counts of new rows, and of those that took no part or could not match."""
        return {} if self._plan.strategy == "flush" else self._new_rows.counts()

    @cached_property
    def _buffered(self) -> BufferedRows:
        return read_buffered(self._workspace, self._epoch, self._new_rows.floors, self._scratch)

    def _pairs(self, new_rows: DataFrame, buffered: DataFrame) -> DataFrame:
        found = selected(pairs(new_rows, buffered, self._join, self._semantics), self._join)
        return found.select(AT, FIRST, SECOND, BY_LEFT, ROW)

    @property
    def _needs_pairs(self) -> bool:
        """Whether pairs hold more than the rows that they make: pairs that WHERE drops, or which row came later."""
        return self._join.where is not None or is_eager(self._semantics)

    def _unmatched(self) -> DataFrame:
        assert self._changes is not None
        rises = self._new_rows.rises
        width = self._new_rows.task_width if rises is None else 1
        return unmatched(
            self._changes, self._new_rows.steps, self._join, width, materialize=self._scratch.keep, rises=rises
        )

    def _flushed(self, buffered: DataFrame) -> DataFrame:
        """Return the buffer changes of a flush, which removes all buffered rows."""
        outer = outer_sides(self._join) if not is_eager(self._semantics) else ()
        is_unmatched = f"NOT {MATCHED} AND {SIDE} IN ({', '.join(map(str, outer))})" if outer else "FALSE"
        last = max(
            (self._plan.stream.clocks.get(source, NOTHING_YET) for source in self._join.sources), default=NOTHING_YET
        )
        expiry = {OP: F.lit("delete"), UNMATCHED: F.expr(is_unmatched), AT: F.lit(last).cast("bigint")}
        return buffered.withColumns(expiry)

    def _rows_of(self, found: DataFrame) -> DataFrame:
        return self._result_rows(found, _identity(f"{FIRST}."), _identity(f"{SECOND}."))

    def _unmatched_rows(self, rows: DataFrame) -> DataFrame:
        sides = [f"IF({SIDE} = {place}, {_identity('')}, NULL)" for place in (0, 1)]
        return self._result_rows(selected(rows, self._join), *sides)

    def _result_rows(self, rows: DataFrame, left: str, right: str) -> DataFrame:
        added = (*STREAM_COLUMNS, *ROW_COLUMNS)
        values = [
            F.col(f"{ROW}.{quote(field.name)}").cast(field.dataType).alias(field.name)
            for field in self._bound.columns
            if field.name not in added
        ]
        epoch = F.lit(self._plan.epoch).cast("bigint").alias(EPOCH)
        identities = [F.expr(sql).alias(name) for name, sql in zip(ROW_COLUMNS, (left, right), strict=True)]
        shown = rows if self._join.where is None else rows.where(f"{ROW} IS NOT NULL")
        return shown.select(*values, epoch, F.col(AT).alias(EPOCH_POSITION), *identities)

    @property
    def _max_buffered(self) -> int | None:
        return self._workspace.file.joins[self._plan.join].max_buffered_rows

    def _check_buffered(self, new_rows: DataFrame, buffered: DataFrame) -> None:
        if self._max_buffered is None:
            return
        widths, once = self._new_rows.task_widths, self._bound.is_single_store
        counted = peak_buffered(
            new_rows, buffered, self._new_rows.steps, self._join, self._semantics, widths, once=once
        )
        most = counted.agg(F.max("most")).collect()[0][0] or 0
        if most > self._max_buffered:
            raise BufferFull(
                self._plan.join,
                "more rows would be buffered than `max_buffered_rows` allows",
                expected=f"at most {self._max_buffered:,} rows after each position",
                found=f"{most:,}",
                hint="raise the limit, narrow the bounds of ON or the lateness; nothing was published",
            )


def _identity(prefix: str) -> str:
    """Return the SQL of a row's identity, as the result holds it."""
    return struct({"version": f"{prefix}{VERSION}", "hash": f"{prefix}{HASH}", "number": f"{prefix}{NUMBER}"})


def _identities_of(rows: DataFrame) -> DataFrame:
    """Return the identities of both rows of each row of the result, as `pairs` returns them."""
    found = []
    for place, (name, column) in enumerate(zip((FIRST, SECOND), ROW_COLUMNS, strict=True)):
        parts = {VERSION: f"{column}.version", HASH: f"{column}.hash", NUMBER: f"{column}.number"}
        found.append(F.expr(struct({SIDE: str(place), **parts})).alias(name))
    return rows.select(*found, F.lit(False).alias(BY_LEFT))
