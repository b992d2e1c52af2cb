"""
Joins of two streams: rows meet within a window, and are buffered until nothing can meet them any more.

    new rows ──────► watermarks, limits ─► pairs ─► stage: result
    buffered rows ─────────────────────────┘  └─► buffer changes ─┬─► stage: result (unmatched rows)
                                                                  └─► stage: state (rows buffered from now on)
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.suites import Suite, of_two_streams
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.errors import BufferFull
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import with_rows
from lakehouse.session.session import NOT_ADAPTIVE, settings
from lakehouse.values.sqltext import quote, struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.epochs.streams.kind import StreamKind
from pipelines.epochs.window.gate import gate_windowed
from pipelines.epochs.window.ordered_rows import Ordered, floors_of, ordered_rows, task_width
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
from pipelines.joins.watermarks import NOTHING_YET, window_of
from pipelines.language import ROW_COLUMNS, STREAM_COLUMNS
from pipelines.language.names import HASH, MATCHED, NUMBER, SIDE, VERSION
from pipelines.plan.values import APPENDED, Computed

EPOCH, EPOCH_POSITION = STREAM_COLUMNS

APPENDED_ROWS = {APPENDED: "count(1)"}


@dataclass(frozen=True)
class WindowKind(StreamKind):
    """A join of two streams; its buffered rows are a table beside the result."""

    def suite(self, bound: BoundJoin) -> Suite:
        """See `Kind.suite`; semantics that repeat rows by intent have no rules against repeated rows."""
        rules = [] if is_eager(bound.semantics) else of_two_streams(outer_sides(bound.join), ROW_COLUMNS)
        return super().suite(bound) + rules

    def compute_epoch(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """
        See `StreamKind.compute_epoch`; the parts of the stage are `result` and `state`.

        A flush removes every buffered row, null-padded if it is of an outer side and unmatched; it reads no stream.

        Returns:
            The clocks after the epoch: for each stream the greatest time in the order, and for each watermarked column,
            as `stream.column`, its greatest value (microseconds, or the integer itself). The positions that the epoch
            passed. Counts: read, late, null_keys (rows with a null in an equality of ON or in a time that ON bounds),
            null_values, ignored_changes, behind_cut (all of these except in a flush), appended, and for the buffered
            rows buffered (after the epoch), buffered_inserted, buffered_updated (rows that met their first row),
            buffered_deleted, and buffered_kept if all are rewritten.

        Raises:
            CannotContinue: A commit of a stream changed or deleted rows, or the column that orders rows is null.
            BufferFull: More rows would be buffered than `max_buffered_rows` allows.
        """
        workspace, plan = self.workspace, epoch.plan
        new_rows = [part.changed_rows for part in plan.sources]
        is_known = plan.strategy == "incremental" and None not in new_rows
        is_small = is_known and sum(rows or 0 for rows in new_rows) <= limits.LARGE_STREAM_ROWS
        with settings(workspace.spark, NOT_ADAPTIVE if is_small else {}):
            return via_driver_or_stage(
                workspace, plan, plan.stream.bytes, stage, lambda scratch: Meetings(workspace, epoch, scratch).compute()
            )

    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """See `StreamKind.epoch_rows`."""
        return Meetings(self.workspace, epoch, scratch).rows()

    def gate_sources(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
        """See `StreamKind.gate_sources`: let the rows meet once more."""
        return gate_windowed(self.workspace, epoch, stage, entry.counts)


class Meetings:
    """The pairs and unmatched rows of one epoch; its plan names the version with the rows buffered before it."""

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace, self._epoch, self._scratch = workspace, epoch, scratch
        self._stage = scratch.stage
        self._bound, self._plan = epoch.bound, epoch.plan
        self._join, self._semantics = self._bound.join, self._bound.semantics

    def compute(self) -> Computed:
        """Write the epoch's rows of the result, and the changes of the buffered rows, into the stage."""
        buffered = self._buffered()
        if self._plan.strategy == "flush":
            appended, changes = self._put_flushed(buffered.rows)
            return self._computed(appended, changes, buffered)
        with self._ordered() as ordered:
            appended, changes = self._put_result(ordered, buffered.rows)
            return self._computed(appended, changes, buffered, ordered)

    def rows(self) -> DataFrame:
        """Return the epoch's rows of the result, for a replay."""
        buffered = self._buffered()
        if self._plan.strategy == "flush":
            self._put_flushed(buffered.rows)
        else:
            with self._ordered() as ordered:
                self._put_result(ordered, buffered.rows)
        return self._stage.get(self._workspace.spark, "result", self._bound.columns)

    def _buffered(self) -> BufferedRows:
        return read_buffered(self._workspace, self._epoch, floors_of(self._epoch), self._scratch)

    def _ordered(self) -> AbstractContextManager[Ordered]:
        return ordered_rows(self._workspace, self._epoch, self._scratch, must_keep=self._max_buffered is not None)

    def _computed(
        self, appended: dict[str, int], changes: DataFrame, buffered: BufferedRows, ordered: Ordered | None = None
    ) -> Computed:
        """Stage the changes of the buffered rows, and describe the epoch; a flush has no new rows."""
        counts, state = put_state(self._stage, changes, buffered, self._epoch)
        writes, counts = (state, with_rows(self._plan.writes[-1], appended[APPENDED])), {**appended, **counts}
        if ordered is None:
            return Computed(counts, writes, clocks=dict(self._plan.stream.clocks))
        counted = ordered.counted()
        counts |= {**ordered.read, "late": counted["late"], "null_keys": counted["null_keys"]}
        return Computed(counts, writes, clocks=dict(ordered.clocks), positions=ordered.positions)

    def _put_flushed(self, buffered: DataFrame) -> tuple[dict[str, int], DataFrame]:
        """Stage the rows of a flush; return their counts, and the buffer changes."""
        changes = self._flushed(buffered)
        return self._stage.put("result", self._unmatched_rows(changes.where(UNMATCHED)), APPENDED_ROWS), changes

    def _put_result(self, ordered: Ordered, buffered: DataFrame) -> tuple[dict[str, int], DataFrame]:
        """Stage the epoch's rows of the result; return their counts, and the buffer changes."""
        new_rows = as_new_rows(ordered.rows, self._semantics)
        self._check_buffered(ordered, new_rows, buffered)
        found = self._pairs(new_rows, buffered)

        def changes_of_buffer(met: DataFrame | None) -> DataFrame:
            # This reads every row; the search for pairs may leave out a side if the other one is empty.
            rows = as_new_rows(ordered.all_rows, self._semantics)
            return buffer_changes(rows, buffered, met, ordered.ends, self._join, self._semantics)

        if not outer_sides(self._join):
            counts = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
            return counts, changes_of_buffer(None)
        if self._scratch.via_driver or self._needs_pairs:
            found = self._scratch.keep("pairs", found)
            met = matched_rows(found, self._join, self._semantics)
            changes = self._scratch.keep("buffer_changes", changes_of_buffer(met))
            rows = self._rows_of(found).unionByName(self._unmatched_rows(self._unmatched(ordered, changes)))
            return self._stage.put("result", rows, APPENDED_ROWS), changes
        # Many pairs are written once; the written rows identify the rows that they are made of.
        paired = self._stage.put("result", self._rows_of(found), APPENDED_ROWS)
        written = self._stage.get(self._workspace.spark, "result", self._bound.columns)
        met = matched_rows(_identities_of(written), self._join, self._semantics)
        changes = self._scratch.keep("buffer_changes", changes_of_buffer(met))
        more = self._stage.put(
            "result", self._unmatched_rows(self._unmatched(ordered, changes)), APPENDED_ROWS, add=True
        )
        return {APPENDED: paired[APPENDED] + more[APPENDED]}, changes

    def _pairs(self, new_rows: DataFrame, buffered: DataFrame) -> DataFrame:
        found = selected(pairs(new_rows, buffered, self._join, self._semantics), self._join)
        return found.select(AT, FIRST, SECOND, BY_LEFT, ROW)

    @property
    def _needs_pairs(self) -> bool:
        """Whether pairs hold more than the rows that they make: pairs that WHERE drops, or which row came later."""
        return self._join.where is not None or is_eager(self._semantics)

    def _unmatched(self, ordered: Ordered, changes: DataFrame) -> DataFrame:
        width = task_width(window_of(self._join), ordered.counted()) if ordered.rises is None else 1
        return unmatched(changes, ordered.steps, self._join, width, materialize=self._scratch.keep, rises=ordered.rises)

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
        sides = [f"IF({SIDE} = {index}, {_identity('')}, NULL)" for index in (0, 1)]
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

    def _check_buffered(self, ordered: Ordered, new_rows: DataFrame, buffered: DataFrame) -> None:
        if self._max_buffered is None:
            return
        widths = (ordered.order_width, task_width(window_of(self._join), ordered.counted()))
        counted = peak_buffered(
            new_rows, buffered, ordered.steps, self._join, self._semantics, widths, once=self._bound.is_single_store
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
    for index, (name, column) in enumerate(zip((FIRST, SECOND), ROW_COLUMNS, strict=True)):
        parts = {VERSION: f"{column}.version", HASH: f"{column}.hash", NUMBER: f"{column}.number"}
        found.append(F.expr(struct({SIDE: str(index), **parts})).alias(name))
    return rows.select(*found, F.lit(False).alias(BY_LEFT))
