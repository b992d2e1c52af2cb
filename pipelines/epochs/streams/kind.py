"""Joins with a stream: rows are appended to the result, and stay as they were when they met."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.gate import gate_stream, stream_facts
from expectations.suites import Suite, of_stream
from expectations.validation import Verdict
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import CannotContinue, Commands, Drifted, LakejoinError
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.tables.table import Table, get, read, read_rows
from lakehouse.values.recorded import micros
from lakehouse.values.sqltext import quote
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Published, Total, add_up
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.sources.failing_rows import row_failed
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.new_rows import as_time
from pipelines.epochs.streams.prepare import create_targets, plan_flush, plan_reset, prepare_stream
from pipelines.epochs.streams.replay import Replay, compute_replay, plan_replay
from pipelines.epochs.streams.source_progress import last_position, source_kind
from pipelines.joins.changelog import BACKFILL as BACKFILL_CAUSE
from pipelines.language import STREAM_COLUMNS
from pipelines.plan.decide import OF_STREAMS
from pipelines.plan.request import Request
from pipelines.plan.values import Computed, Resume
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


@dataclass(frozen=True)
class StreamKind(Kind[BoundJoin]):
    """
    What joins of a stream with tables and joins of two streams share.

    A backfill replays the recorded epochs and appends rows that the result lacks. It never computes the result from the
    current tables, unless the user asks to reset it.
    """

    commands: ClassVar[Commands] = OF_STREAMS
    only_appends: ClassVar[bool] = True

    def prepare(self, request: Request) -> Prepared[BoundJoin]:
        """See `Kind.prepare`."""
        asked = request.backfill
        if asked is not None and asked.where is not None:
            raise LakejoinError(
                self.name,
                "`--where` cannot reconcile a join with a stream: its rows depend on the order in which rows arrived",
                hint=f"run `lakejoin backfill --select {self.name}` to append missing rows of the recorded epochs",
            )
        prepared = prepare_stream(self.workspace, self.name, backfill=asked is not None, goal=request.goal)
        if isinstance(prepared.plan.route, Resume):
            return prepared
        if request.flush:
            return plan_flush(prepared)
        if asked is None or prepared.plan.result.is_new:
            return prepared
        if request.resets:
            return plan_reset(self.workspace, prepared)
        return plan_replay(self, prepared, asked.remedy)

    def row_failed(self, error: Exception) -> LakejoinError:
        """See `Kind.row_failed`; the row is searched for in the sources as they are now."""
        return row_failed(self.workspace, bind_join(self.workspace, self.name), error)

    def verify(self, against: str = "", published: Published | None = None) -> JoinReport:
        """
        See `Kind.verify`: replay the recorded epochs, as far back as their sources are readable, and compare both ways.

        Raises:
            Drifted: Rows differ; the message gives the numbers and examples.
            FeedUnavailable: No epoch has sources that are still readable.
            CannotContinue: No epoch was committed since the user accepted the result as it is.
        """
        if against:
            raise LakejoinError(
                self.name,
                "no other table can be compared: the result of a join with a stream depends on the order of arrival",
                hint=f"`lakejoin verify --select {self.name}` replays its recorded epochs",
            )
        watch, name = Stopwatch(), self.name
        with watch.step("verify"):
            with reading(name):
                version, until = (None, None) if published is None else (published.version, published.entry.epoch)
                replay = Replay(self, version, until=until)
            total = add_up(name, replay.differences())
        if not total.epochs:
            if total.unreadable is not None:
                raise total.unreadable
            raise CannotContinue(
                name,
                "no epoch can be replayed",
                expected="an epoch after the result was accepted as it is",
                found=f"{replay.last.strategy} of epoch {replay.last.epoch}",
                hint=f"run `lakejoin run --select {name}` to make one when the sources have new rows",
            )
        which = _epochs(total)
        if total.missing or total.surplus:
            raise _drifted(name, total)
        expected = sum(entry.writes[-1].rows for entry in total.epochs)
        return JoinReport(
            join=name,
            outcome="done",
            epoch=total.epochs[0].epoch,
            strategy="verify",
            reason=f"{name} at version {replay.version} against a replay of {which}",
            counts={"missing": 0, "surplus": 0, "expected": expected, "epochs": len(total.epochs)},
            seconds=dict(watch.seconds),
            details=(f"{expected:,} rows equal a replay of {which}", *_unreadable(total)),
        )

    def suite(self, bound: BoundJoin) -> Suite:
        """See `Kind.suite`."""
        return of_stream(STREAM_COLUMNS)

    def create_targets(self, epoch: Epoch[BoundJoin]) -> Epoch[BoundJoin]:
        """See `Kind.create_targets`."""
        return create_targets(self.workspace, epoch)

    def compute(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """See `Kind.compute`."""
        plan, bound = epoch.plan, epoch.bound
        if plan.repairs:
            return compute_replay(self, epoch, stage)
        computed = self.compute_epoch(epoch, stage)
        if not bound.is_read:  # no other join reads the positions
            computed = replace(computed, positions=())
        if not plan.reads_snapshots:
            return computed
        clocks = _clocks_of_load(self.workspace, epoch, computed.clocks)
        end = max((clocks.get(stream.source, 0) for stream in bound.streams), default=0)
        return replace(computed, clocks=clocks, positions=tuple(replace(at, time=end) for at in computed.positions))

    @abstractmethod
    def compute_epoch(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """Compute the rows of an epoch that reads its streams, or flushes them."""

    @abstractmethod
    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """Return the rows that a recorded epoch adds to the result; see `Replayable`."""

    def gate(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """See `Kind.gate`: validate the rows that the epoch adds to the result."""
        findings: tuple[str, ...] = ()
        appended = entry.writes[-1].rows
        if appended:
            spark, number = self.workspace.spark, None if epoch.plan.repairs else epoch.plan.epoch
            found = stage.facts(spark, "result", stream_facts(number, *STREAM_COLUMNS), epoch.bound.columns)
            findings = gate_stream(spark, found, appended).findings
        return Verdict(findings + self.gate_sources(epoch, stage, entry).findings)

    @abstractmethod
    def gate_sources(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
        """Validate what an epoch has staged against its sources."""


def _clocks_of_load(workspace: Workspace, epoch: Epoch[BoundJoin], computed: Mapping[str, int]) -> dict[str, int]:
    """
    Return the clock of each source after a first load, or a reset.

    The rows that a load reads have times of their own, or none; the feed that follows has commit times. The clock of a
    source is therefore the time of its newest commit with data; for another join's result it is the last position, and
    for a source with an ordering column the greatest value of that column.
    """
    bound = epoch.bound
    clocks = dict(computed)
    for table in bound.sources:
        is_known = table.address.label in bound.times and table.address.label in computed
        if source_kind(workspace, table) != "global_table" and not is_known:
            newest = _newest_time(workspace, epoch, table)
            if newest is not None:
                clocks[table.address.label] = newest
    return clocks


def _newest_time(workspace: Workspace, epoch: Epoch[BoundJoin], table: Table) -> int | None:
    """Return the clock of a source that is read whole; None if it is unknown."""
    bound, plan = epoch.bound, epoch.plan
    name = table.address.label
    column = bound.times.get(name)
    if column is not None:
        time = F.expr(as_time(quote(column), table.schema[column].dataType))
        greatest: int | None = read_rows(workspace.spark, table, table.version).agg(F.max(time)).collect()[0][0]
        return greatest
    if name in bound.made:
        (until,) = (part.epochs[1] for part in plan.sources if part.name == name)
        last = bound.made[name].last_committed(lambda entry: entry.epoch <= until)
        assert last is not None
        return last_position(workspace, last)
    if name in bound.logs:  # its commits are later than the changes that they hold
        log = bound.logs[name]
        logged = read(workspace.spark, log.address, log.version).where(f"_cause <> '{BACKFILL_CAUSE}'")
        newest_change: int | None = logged.agg(F.max(F.unix_micros("_at"))).collect()[0][0]
        return newest_change
    if source_kind(workspace, table) == "changelog":
        read_up_to = workspace.ledger.of(name).read_up_to(table.version)
        table = replace(get(workspace.engine, workspace.source(name)), version=read_up_to)
    known = [commit for commit in table.commits if commit.version <= table.version]
    newest = next((commit for commit in known if commit.changes_data), known[-1] if known else None)
    return None if newest is None else micros(newest.at)


def _drifted(join: str, total: Total) -> Drifted:
    return Drifted(
        join,
        f"the result has drifted: {total.missing:,} rows are missing, {total.surplus:,} do not belong there",
        expected=f"the rows of {_epochs(total)}, replayed",
        found="; ".join(total.examples),
        hint=f"run `lakejoin backfill --select {join}` to append the missing rows; surplus rows need `--accept` or "
        "`--reset`",
    )


def _epochs(total: Total) -> str:
    first, newest = total.epochs[-1].epoch, total.epochs[0].epoch
    return f"epoch {first}" if first == newest else f"epochs {first} to {newest}"


def _unreadable(total: Total) -> list[str]:
    error, first = total.unreadable, total.epochs[-1].epoch
    return [] if error is None else [f"epochs before {first} can no longer be read ({error.problem}: {error.found})"]
