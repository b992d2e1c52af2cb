"""
Replay a join with a stream: compute each recorded epoch again from the source versions in the ledger.

`verify` compares the replayed rows with the rows that the result has of the epoch; `backfill` appends missing rows.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.entries import COMMITTED, Entry
from lakehouse.errors import CannotContinue
from lakehouse.small import TooLarge
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import find, get, read
from lakehouse.writes import RESULT_PART, STATE_PART, Merge, Write, with_rows, written
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Difference, add_up
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.preflight import check_columns, target_of
from pipelines.epochs.scratch import Scratch
from pipelines.epochs.streams.prepare import checked_state
from pipelines.epochs.streams.source_progress import source_kind
from pipelines.joins.difference import bag_difference
from pipelines.plan.checks import check_definition
from pipelines.plan.request import Decision
from pipelines.plan.values import APPENDED, Computed, EpochPlan, SourceRange, Strategy, StreamInput
from pipelines.spec import STREAM_COLUMNS

EPOCH = STREAM_COLUMNS[0]
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
        kind: The kind of the join, which computes the rows of an epoch.
        version: The version of the result to compare; the newest if None.
        bound: The join; None to bind it.

    Raises:
        NotYetRun: Another join that it reads has no epoch.
        CannotContinue: The join has no epoch, or its definition has changed.
    """

    def __init__(self, kind: Replayable, version: int | None = None, bound: BoundJoin | None = None) -> None:
        self._kind, name = kind, kind.name
        workspace = self._workspace = kind.workspace
        self.bound = bound or bind_join(workspace, name)
        self.history = workspace.ledger.of(name)
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
        check_definition(name, self.bound.definition, last.definition, hint)
        self.last = last
        self.version = get(workspace.engine, self.bound.result).version if version is None else version
        self.held = read(workspace.spark, self.bound.result, self.version)
        check_columns(name, "result", self.bound.columns, self.held.schema, self.bound.columns_remedy)
        self.names = self.bound.columns.fieldNames()

    def entries(self) -> list[Entry]:
        """List the epochs to replay, newest first, back to the load or reset, or to an acceptance of the result."""
        found = []
        committed = {entry.epoch: entry for entry in self.history.entries if entry.step == COMMITTED}
        for number in sorted(committed, reverse=True):
            entry = committed[number]
            if entry.strategy in ("load", "incremental", "reset", "flush"):
                found.append(entry)
            if entry.strategy in BEGINNINGS:
                break
        return found

    def differences(self) -> Iterator[Difference]:
        """
        Compare the result with its epochs: first the rows that no epoch made, then epoch by epoch, newest first.

        Evaluate a difference before requesting the next, which deletes its stage.

        Raises:
            FeedUnavailable: The sources of the next epoch are no longer readable; `conditions.reading` raises it.
        """
        yield Difference(self._strangers())
        for entry in self.entries():
            with _scratch(self._workspace, entry) as stage:
                expected = self._expected(entry, stage)
                found = self.held.where(F.col(EPOCH) == entry.epoch)
                yield Difference(bag_difference(expected, found.select(*map(quote, self.names))), entry)

    def _strangers(self) -> DataFrame:
        """Return the rows that no epoch since the last beginning made, as surplus rows of a `bag_difference`."""
        committed = [entry for entry in self.history.entries if entry.step == COMMITTED]
        begin = max((entry for entry in committed if entry.strategy in BEGINNINGS), key=lambda entry: entry.epoch)
        known = [entry.epoch for entry in committed if entry.epoch >= begin.epoch]
        rows = self.held.where(~F.coalesce(F.col(EPOCH), F.lit(0)).isin(known))
        if begin.strategy == "accept":  # the user accepted all rows that existed then
            rows = rows.where(F.col(EPOCH) > begin.epoch)
        return bag_difference(rows.where("false").select(*map(quote, self.names)), rows)

    def _expected(self, entry: Entry, stage: Stage) -> DataFrame:
        strategies: Mapping[str, Strategy] = {"incremental": "incremental", "flush": "flush"}
        plan = EpochPlan(
            entry.join,
            entry.epoch,
            strategies.get(entry.strategy, "load"),
            entry.reason,
            tuple(map(SourceRange.recorded, entry.sources)),
            self._writes(entry),
            stream=StreamInput(self.history.clocks_before(entry.epoch)),
        )
        if plan.strategy == "load":
            plan = replace(plan, stream=StreamInput())
        epoch = Epoch(at_recorded(self.bound, entry.sources), plan)
        self._inspect(epoch)
        is_small = entry.counts.get("read", limits.CHANGES_VIA_DRIVER) < limits.CHANGES_VIA_DRIVER
        if plan.strategy == "incremental" and is_small:
            try:
                return self._kind.epoch_rows(epoch, Scratch(stage, via_driver=True))
            except TooLarge:
                log.info("%s: epoch %s is replayed through the stage", entry.join, entry.epoch)
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
    last = Replay(kind, plan.result.base_version, bound).last
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
    nothing = Computed({APPENDED: 0}, plan.writes, plan.stream.clocks)
    if plan.strategy == "accept":
        return nothing
    replay = Replay(kind, plan.result.base_version, epoch.bound)
    missing: list[DataFrame] = []

    def keep(difference: Difference) -> None:
        assert difference.entry is not None, "no epoch made the row that is missing"
        part = f"missing_{difference.entry.epoch}"
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
