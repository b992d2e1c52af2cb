"""
Replay a join with a stream: compute each recorded epoch again from the source versions in the ledger.

`verify` compares the replayed rows with the rows that the result holds of the epoch; `backfill` appends missing rows.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.conditions import reading
from lakehouse.entries import COMMITTED, Entry
from lakehouse.errors import CannotContinue, Drifted, FeedUnavailable
from lakehouse.small import TooLarge
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import find, get, read
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import counted, examples_of
from pipelines.epochs.lookup.compute import Lookups
from pipelines.epochs.preflight import check_columns
from pipelines.epochs.streams.prepare import BACKFILL, checked_state
from pipelines.epochs.streams.source_progress import source_kind
from pipelines.epochs.window.compute import Meetings
from pipelines.joins.difference import bag_difference
from pipelines.plan.checks import check_definition
from pipelines.plan.request import Remedy
from pipelines.plan.values import APPENDED, Computed, EpochPlan, SourceRange, Strategy
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch
from pipelines.spec import STREAM_COLUMNS

EPOCH = STREAM_COLUMNS[0]
BEGINNINGS = ("load", "reset", "accept")
"""Strategies of epochs before which no epoch is replayed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replayed:
    """
    One recorded epoch, computed again.

    Args:
        entry: Its *committed* row.
        different: The `bag_difference` of the replayed rows and the rows that the result holds of the epoch.
    """

    entry: Entry
    different: DataFrame


class Replay:
    """
    The recorded epochs of a join's result.

    Args:
        workspace: Where to work.
        name: The join.
        version: The version of the result to compare; the newest if None.

    Raises:
        NotYetRun: Another join that it reads has no epoch.
        CannotContinue: The join has no epoch, or its definition has changed.
    """

    def __init__(self, workspace: Workspace, name: str, version: int | None = None) -> None:
        self._workspace = workspace
        self.bound = bind_join(workspace, name)
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

    def epochs(self) -> Iterator[Replayed]:
        """
        Replay epoch by epoch, newest first. Evaluate a difference before requesting the next, which deletes its stage.

        Raises:
            FeedUnavailable: The sources of the next epoch are no longer readable; `conditions.reading` raises it.
        """
        for entry in self.entries():
            with _scratch(self._workspace, entry) as stage:
                expected = self._expected(entry, stage)
                found = self.held.where(F.col(EPOCH) == entry.epoch)
                yield Replayed(entry, bag_difference(expected, found.select(*map(quote, self.names))))

    def strangers(self) -> DataFrame:
        """Return the rows that no epoch since the last beginning made, as surplus rows of a `bag_difference`."""
        committed = [entry for entry in self.history.entries if entry.step == COMMITTED]
        begin = max((entry for entry in committed if entry.strategy in BEGINNINGS), key=lambda entry: entry.epoch)
        known = [entry.epoch for entry in committed if entry.epoch >= begin.epoch]
        rows = self.held.where(~F.coalesce(F.col(EPOCH), F.lit(0)).isin(known))
        if begin.strategy == "accept":  # the user accepted all rows that existed then
            rows = rows.where(F.col(EPOCH) > begin.epoch)
        return bag_difference(rows.where("false").select(*map(quote, self.names)), rows)

    def _expected(self, entry: Entry, stage: Stage) -> DataFrame:
        bound = at_recorded(self.bound, entry.sources, "backfill --reset")
        ranges = tuple(map(SourceRange.recorded, entry.sources))
        strategies: Mapping[str, Strategy] = {"incremental": "incremental", "flush": "flush"}
        strategy = strategies.get(entry.strategy, "load")
        clocks = {} if strategy == "load" else self.history.clocks_before(entry.epoch)
        plan = EpochPlan(entry.join, entry.epoch, strategy, entry.reason, ranges, clocks=clocks)
        if entry.state is not None:
            plan = replace(plan, state_version=entry.state.base_version)
        self._inspect(bound, plan)
        kind = Lookups if bound.join.window is None else Meetings
        if (
            strategy == "incremental"
            and entry.counts.get("read", limits.CHANGES_VIA_DRIVER) < limits.CHANGES_VIA_DRIVER
        ):
            try:
                return kind(self._workspace, bound, plan, stage, via_driver=True).rows()
            except TooLarge:
                log.info("%s: epoch %s is replayed through the stage", entry.join, entry.epoch)
        return kind(self._workspace, bound, plan, stage, via_driver=False).rows()

    def _inspect(self, bound: BoundJoin, plan: EpochPlan) -> None:
        """Inspect the feeds that an epoch read, so that distorted rows are read from the tables."""
        ranges = {part.name: part for part in plan.sources}
        for table in bound.sources if plan.strategy == "incremental" else ():
            part, name = ranges[table.address.label], table.address.label
            if part.has_changes and source_kind(self._workspace, table) != "global_table":
                self._workspace.feeds.inspect(name, table, part.read_after, part.to_version, bound.used(name))


def verify_stream(workspace: Workspace, name: str) -> JoinReport:
    """
    Replay the recorded epochs of a join with a stream, as far back as its sources are readable, and compare both ways.

    Returns:
        The report; `counts` has expected (rows of the replayed epochs), missing, surplus, and epochs.

    Raises:
        Drifted: Rows differ; the message gives the numbers and examples.
        FeedUnavailable: No epoch has sources that are still readable.
        CannotContinue: No epoch was committed since the user accepted the result as it is.
    """
    watch = Stopwatch()
    with watch.step("verify"):
        with reading(name):
            last = workspace.ledger.of(name).committed
            replay = Replay(workspace, name, None if last is None else last.result.version)
        total, examples = counted(replay.strangers())
        replayed, unreadable = [], ""
        try:
            with reading(name):
                for epoch in replay.epochs():
                    found, more = counted(epoch.different)
                    total = {key: total[key] + found[key] for key in total}
                    examples += more
                    replayed.append(epoch.entry)
        except FeedUnavailable as error:
            unreadable = f"{error.problem}: {error.found}"
            if not replayed:
                raise
        if not replayed:
            raise CannotContinue(
                name,
                "no epoch can be replayed",
                expected="an epoch after the result was accepted as it is",
                found=f"{replay.last.strategy} of epoch {replay.last.epoch}",
                hint=f"run `lakejoin run --select {name}` to make one when the sources have new rows",
            )
        expected = sum(entry.counts.get(APPENDED, 0) for entry in replayed)
    first, newest = replayed[-1].epoch, replayed[0].epoch
    which = f"epoch {first}" if first == newest else f"epochs {first} to {newest}"
    if total["missing"] or total["surplus"]:
        raise Drifted(
            name,
            f"the result has drifted: {total['missing']:,} rows are missing, {total['surplus']:,} do not belong there",
            expected=f"the rows of {which}, replayed",
            found="; ".join(examples_of(examples)),
            hint=f"run `lakejoin backfill --select {name}` to append the missing rows; surplus rows need `--accept` or "
            "`--reset`",
        )
    details = [f"{expected:,} rows equal a replay of {which}"]
    if unreadable:
        details.append(f"epochs before {first} can no longer be read ({unreadable})")
    return JoinReport(
        join=name,
        outcome="done",
        epoch=newest,
        strategy="verify",
        reason=f"{name} at version {replay.version} against a replay of {which}",
        counts={**total, "expected": expected, "epochs": len(replayed)},
        seconds=dict(watch.seconds),
        details=tuple(details),
    )


def plan_replay(workspace: Workspace, name: str, remedy: Remedy) -> tuple[EpochPlan, BoundJoin]:
    """
    Plan the epoch that repairs a result, or accepts it as it is; the epoch reads no new versions of the sources.

    Raises:
        CannotContinue: As `Replay` raises it.
    """
    replay = Replay(workspace, name)
    last, table = replay.last, get(workspace.engine, replay.bound.result)
    ranges = tuple(map(SourceRange.nothing_after, last.sources))
    reason = "accept: the user accepted the result as it is" if remedy else BACKFILL
    plan = EpochPlan(
        name,
        replay.history.next_epoch,
        "accept" if remedy else "replay",
        reason,
        ranges,
        table.id,
        table.version,
        clocks=last.clocks,
    )
    if replay.bound.state is not None:
        state = checked_state(workspace, replay.bound, last, replay.history, find(workspace.engine, replay.bound.state))
        plan = replace(plan, state_id=state.id, state_version=state.version, state_bytes=state.size)
    return plan, replay.bound


def compute_replay(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """
    Compute the rows that the result lacks into the stage's part `result`, each with the number of its epoch.

    Raises:
        CannotContinue: The result holds rows that no epoch made, or an epoch can no longer be read; the user decides.
    """
    if plan.strategy == "accept":
        return Computed({APPENDED: 0}, plan.clocks)
    replay = Replay(workspace, plan.join, plan.base_version)
    surplus, examples = counted(replay.strangers())
    missing: list[DataFrame] = []
    try:
        with reading(plan.join):
            for epoch in replay.epochs():
                found, more = counted(epoch.different)
                surplus = {key: surplus[key] + found[key] for key in surplus}
                examples += more
                if found["missing"]:
                    part, rows = f"missing_{epoch.entry.epoch}", epoch.different.where("surplus < 0")
                    each = F.explode(F.expr("array_repeat(1, CAST(-surplus AS INT))")).alias("copy")
                    stage.put(part, rows.select("row", each).select("row.*"))
                    missing.append(stage.get(workspace.spark, part))
    except FeedUnavailable as error:
        found_unreadable = f"{error.problem}: {error.found}"
        raise _needs_decision(plan.join, "an epoch can no longer be replayed", found_unreadable) from error
    if surplus["surplus"]:
        found_surplus = f"{surplus['surplus']:,} surplus rows: {'; '.join(examples_of(examples))}"
        raise _needs_decision(plan.join, "the result holds rows that no epoch made", found_surplus)
    if not missing:
        return Computed({APPENDED: 0}, plan.clocks)
    whole = reduce(DataFrame.unionAll, missing)
    return Computed(stage.put("result", whole, {APPENDED: "count(1)"}), plan.clocks)


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
