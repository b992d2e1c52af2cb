"""
Replay a join with a stream: compute the recorded epochs again from the source versions in the ledger.

Epochs between which no change came behind the cut are replayed as one, since each cut is then a prefix of the total
order. If that differs from the result, or can no longer be read, each half of them is replayed, down to one epoch.

`verify` compares the replayed rows with the rows that the result has of the epoch; `backfill` appends missing rows.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Protocol

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import CannotContinue, FeedUnavailable
from lakehouse.ledger.entries import COMMITTED, Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import RESULT_PART, STATE_PART, Merge, Write, with_rows, written
from lakehouse.tables.table import find, read
from lakehouse.values.driver_rows import TooLarge
from lakehouse.values.sqltext import quote
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Difference, add_up
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.preflight import check_columns, target_of
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.prepare import checked_state
from pipelines.epochs.streams.source_progress import source_kind
from pipelines.joins.difference import bag_difference
from pipelines.language import STREAM_COLUMNS
from pipelines.plan.decide import check_definition
from pipelines.plan.request import Decision
from pipelines.plan.values import APPENDED, Computed, EpochPlan, SourceRange, Strategy, StreamInput

EPOCH, POSITION = STREAM_COLUMNS
BEGINNINGS = ("load", "reset", "accept")
"""Strategies of epochs before which no epoch is replayed."""

log = logging.getLogger(__name__)


class Replayable(Protocol):
    """A kind of join with a stream, as far as a replay needs it."""

    @property
    def workspace(self) -> Workspace:
        """Where the tables are."""

    @property
    def name(self) -> str:
        """The join."""

    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """
        Return the rows that an epoch adds to the result.

        Raises:
            TooLarge: The rows should pass through the driver, which cannot hold them.
        """


class Replay:
    """
    The recorded epochs of a join's result.

    Args:
        version: The version of the result to compare; that of the last epoch if None.
        bound: The join; None to bind it.
        is_accepted: Whether the rows are accepted as they are, whichever definition made them, so that none is computed
            again.
        until: The last epoch that the version holds; the last of the ledger if None.

    Raises:
        NotYetRun: Another join that it reads has no epoch.
        CannotContinue: The join has no epoch, or its definition has changed.
    """

    def __init__(
        self,
        kind: Replayable,
        version: int | None = None,
        bound: BoundJoin | None = None,
        *,
        is_accepted: bool = False,
        until: int | None = None,
    ) -> None:
        self._kind, name = kind, kind.name
        workspace = self._workspace = kind.workspace
        self.bound = bound or bind_join(workspace, name)
        self.history = workspace.ledger.of(name)
        if until is not None:
            self.history = self.history.until(until)
        last = self.history.committed
        if last is None:
            raise CannotContinue(
                name,
                "the ledger holds no epoch of this join, so nothing can be replayed",
                expected="an epoch",
                found="none",
                hint=f"move the table at the address of the result away, then run `lakejoin run --select {name}`",
            )
        hint = f"run `lakejoin backfill --reset --select {name}` to recreate the result"
        reads = {table.address.label for table in (*self.bound.sources, *self.bound.logs.values())}
        reads_others = reads != {source.name for source in last.sources}
        is_of_options = bool(last.statement) and last.statement == self.bound.statement
        if not is_accepted or reads_others or is_of_options:
            check_definition(name, self.bound.definition, last.definition, hint)
        self.last = last
        self.version = last.result.newest if version is None else version
        self.held = read(workspace.spark, self.bound.result, self.version)
        check_columns(name, "result", self.bound.columns, self.held.schema, self.bound.columns_remedy)
        self.names = self.bound.columns.fieldNames()

    def entries(self) -> list[Entry]:
        """List the epochs to replay, newest first, back to the load or reset, or to an acceptance of the result."""
        replayed = []
        committed = {entry.epoch: entry for entry in self.history.entries if entry.step == COMMITTED}
        for number in sorted(committed, reverse=True):
            entry = committed[number]
            if entry.strategy in ("load", "incremental", "reset", "flush"):
                replayed.append(entry)
            if entry.strategy in BEGINNINGS:
                break
        return replayed

    def differences(self) -> Iterator[Difference]:
        """
        Compare the result with its epochs: first the rows that no epoch made, then its epochs, newest first.

        Evaluate a difference before requesting the next, which deletes its stage.

        Raises:
            FeedUnavailable: The sources of the next epoch are no longer readable; `conditions.reading` raises it.
        """
        yield Difference(self._strangers())
        for entries in self._together():
            yield from self._compared(entries)

    def _compared(self, entries: Sequence[Entry]) -> Iterator[Difference]:
        """Compare the rows of several epochs replayed as one; if they differ or are unreadable, those of each half."""
        if len(entries) > 1 and self._are_equal(entries):
            yield Difference(None, tuple(entries))
        elif len(entries) > 1:
            half = len(entries) // 2
            yield from self._compared(entries[:half])
            yield from self._compared(entries[half:])
        else:
            (entry,) = entries
            with _scratch(self._workspace, entry) as stage:
                found = self.held.where(F.col(EPOCH) == entry.epoch)
                rows = bag_difference(self._expected(entries, stage), found.select(*map(quote, self.names)))
                yield Difference(rows, (entry,))

    def _together(self) -> list[list[Entry]]:
        """List the epochs to replay, newest first, in groups of which each can be replayed as one epoch."""
        groups: list[list[Entry]] = []
        for entry in self.entries():
            if groups and self._continues(entry, groups[-1][-1]):
                groups[-1].append(entry)
            else:
                groups.append([entry])
        return groups

    def _continues(self, before: Entry, entry: Entry) -> bool:
        """Return whether an epoch and the one before it have the rows of one epoch over the changes of both."""
        if {before.strategy, entry.strategy} != {"incremental"} or entry.counts.get("behind_cut", 1):
            return False
        earlier = {source.name: source for source in before.sources}
        for source in entry.sources:
            known = self._workspace.file.sources.get(source.name)
            is_global = known is not None and known.kind == "global_table"
            previous = earlier[source.name]
            if (
                source.id != previous.id
                or (source.to_version if is_global else source.from_version) != previous.to_version
            ):
                return False
        return True

    def _are_equal(self, entries: Sequence[Entry]) -> bool:
        """Return whether the result has the rows of several epochs, replayed as one; False if they are unreadable."""
        held = self.held.where(F.col(EPOCH).isin([entry.epoch for entry in entries]))
        found = [self._held_by_epoch.get(entry.epoch) for entry in reversed(entries)]
        counts = [0 if row is None else row["rows"] for row in found]
        if counts != [entry.writes[-1].rows for entry in reversed(entries)]:
            return False
        ends = [(row["first"], row["last"]) for row in found if row is not None]
        if any(None in one for one in ends) or any(one[1] > other[0] for one, other in pairwise(ends)):
            return False
        names = [quote(name) for name in self.names if name != EPOCH]  # of which the rows of one epoch have one
        with suppress(FeedUnavailable), _scratch(self._workspace, entries[0]) as stage, reading(self.bound.join.name):
            expected = self._expected(entries, stage).select(*names)
            return bag_difference(expected, held.select(*names)).isEmpty()
        return False

    @cached_property
    def _held_by_epoch(self) -> Mapping[int, Row]:
        """By epoch the number of its rows in the result, and their first and last position."""
        facts = [F.count(F.lit(1)).alias("rows"), F.min(POSITION).alias("first"), F.max(POSITION).alias("last")]
        return {row[EPOCH]: row for row in self.held.groupBy(EPOCH).agg(*facts).collect()}

    def _strangers(self) -> DataFrame:
        """Return the rows that no epoch since the last beginning made, as surplus rows of a `bag_difference`."""
        committed = [entry for entry in self.history.entries if entry.step == COMMITTED]
        begin = max((entry for entry in committed if entry.strategy in BEGINNINGS), key=lambda entry: entry.epoch)
        known = [entry.epoch for entry in committed if entry.epoch >= begin.epoch]
        rows = self.held.where(~F.coalesce(F.col(EPOCH), F.lit(0)).isin(known))
        if begin.strategy == "accept":  # the user accepted all rows that existed then
            rows = rows.where(F.col(EPOCH) > begin.epoch)
        return bag_difference(rows.where("false").select(*map(quote, self.names)), rows)

    def _expected(self, entries: Sequence[Entry], stage: Stage) -> DataFrame:
        """Return the rows of an epoch, or those of several, newest first, as one epoch."""
        newest, first = entries[0], entries[-1]
        strategies: Mapping[str, Strategy] = {"incremental": "incremental", "flush": "flush"}
        since = {source.name: SourceRange.recorded(source) for source in first.sources}
        plan = EpochPlan(
            join=newest.join,
            epoch=newest.epoch,
            strategy=strategies.get(newest.strategy, "load"),
            reason=newest.reason,
            sources=tuple(SourceRange.recorded(source).since(since[source.name]) for source in newest.sources),
            writes=self._writes(first),
            stream=StreamInput(self.history.clocks_before(first.epoch)),
        )
        if plan.strategy == "load":
            plan = replace(plan, stream=StreamInput())
        epoch = Epoch(at_recorded(self.bound, newest.sources), plan)
        self._inspect(epoch)
        read = sum(entry.counts.get("read", limits.CHANGES_VIA_DRIVER) for entry in entries)
        if plan.strategy == "incremental" and read < limits.CHANGES_VIA_DRIVER:
            try:
                return self._kind.epoch_rows(epoch, Scratch(stage, via_driver=True))
            except TooLarge:
                log.info("%s: epoch %s is replayed through the stage", newest.join, newest.epoch)
        return self._kind.epoch_rows(epoch, Scratch(stage))

    def _writes(self, entry: Entry) -> tuple[Write, ...]:
        """Return what an epoch wrote, in the tables of this pipeline file: the lake may be a copy."""
        addresses = {RESULT_PART: self.bound.result, STATE_PART: self.bound.state}
        return tuple(
            written(write, replace(write.target, address=addresses.get(write.part) or write.target.address))
            for write in entry.writes
        )

    def _inspect(self, epoch: Epoch[BoundJoin]) -> None:
        """Inspect the feeds that an epoch read, so that distorted rows are read from the tables."""
        bound, plan = epoch.bound, epoch.plan
        ranges = {part.name: part for part in plan.sources}
        for table in bound.sources if plan.strategy == "incremental" else ():
            part, name = ranges[table.address.label], table.address.label
            if part.has_changes and source_kind(self._workspace, table) != "global_table":
                self._workspace.feeds.inspect(name, table, part.read_after, part.to_version, bound.used(name))


def plan_replay(kind: Replayable, prepared: Prepared[BoundJoin], remedy: Decision) -> Prepared[BoundJoin]:
    """
    Plan the epoch that repairs a result, or accepts it as it is; the epoch reads no new versions of the sources.

    Raises:
        CannotContinue: As `Replay` raises it.
    """
    bound, plan, history = prepared.epoch.bound, prepared.plan, prepared.history
    last = Replay(kind, plan.result.base_version, bound, is_accepted=bool(remedy)).last
    plan = replace(plan, sources=tuple(map(SourceRange.nothing_after, last.sources)))
    stream = StreamInput(last.clocks)
    if remedy:
        plan = replace(plan, strategy="accept", reason="accept: the user accepted the result as it is")
    if bound.state is not None:
        state = checked_state(kind.workspace, bound, last, history, find(kind.workspace.engine, bound.state))
        plan = replace(plan, writes=(Merge(target_of(bound.state, state), STATE_PART), *plan.writes))
        stream = replace(stream, buffered_bytes=state.size)
    return replace(prepared, plan=replace(plan, stream=stream))


def compute_replay(kind: Replayable, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
    """
    Compute the rows that the result lacks into the stage's part `result`, each with the number of its epoch.

    Raises:
        CannotContinue: The result holds rows that no epoch made, or an epoch can no longer be read; the user decides.
    """
    plan = epoch.plan
    nothing = Computed({APPENDED: 0}, plan.writes, clocks=plan.stream.clocks)
    if plan.strategy == "accept":
        return nothing
    replay = Replay(kind, plan.result.base_version, epoch.bound)
    missing: list[DataFrame] = []

    def keep(difference: Difference) -> None:
        assert difference.rows is not None
        (entry,) = difference.entries  # no epoch lacks a row that none made
        part = f"missing_{entry.epoch}"
        each = F.explode(F.expr("array_repeat(1, CAST(-surplus AS INT))")).alias("copy")
        stage.put(part, difference.rows.where("surplus < 0").select("row", each).select("row.*"))
        missing.append(stage.get(kind.workspace.spark, part))

    total = add_up(plan.join, replay.differences(), keep)
    if total.unreadable is not None:
        found = f"{total.unreadable.problem}: {total.unreadable.found}"
        raise _needs_decision(plan.join, "an epoch can no longer be replayed", found) from total.unreadable
    if total.surplus:
        found = f"{total.surplus:,} surplus rows: {'; '.join(total.examples)}"
        raise _needs_decision(plan.join, "the result holds rows that no epoch made", found)
    if not missing:
        return nothing
    counts = stage.put("result", reduce(DataFrame.unionAll, missing), {APPENDED: "count(1)"})
    return replace(nothing, counts=counts, writes=(*plan.writes[:-1], with_rows(plan.writes[-1], counts[APPENDED])))


def _needs_decision(join: str, problem: str, found: str) -> CannotContinue:
    return CannotContinue(
        join,
        problem,
        expected="only rows of its recorded epochs, some of which may be missing",
        found=found,
        hint=f"`lakejoin backfill --accept --select {join}` accepts the result as it is; `--reset` recreates it from "
        "the stream and the tables as they are now",
    )


@contextmanager
def _scratch(workspace: Workspace, entry: Entry) -> Iterator[Stage]:
    """Create a stage for the intermediate rows of a replay, and delete it afterwards."""
    stage = workspace.dry_run_stage(entry.join, entry.epoch, uuid.uuid4().hex)
    try:
        yield stage
    finally:
        stage.delete()
