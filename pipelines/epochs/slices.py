"""
Backfill a large result slice by slice of its key space, with one commit for each slice.

    check ─► ledger: publishing ─► slices ─► ledger: committed
    each slice: compute ─► stage ─► gate ─► changelog ─► MERGE ─► ledger: slice

A sliced backfill is one epoch, at the source versions that it pinned. Until it is committed, the result is between two
states: nothing else runs for the join, and joins that read it stay at the epoch before. A killed backfill is resumed
from the ledger's rows.
"""

import logging
import time
import uuid
from dataclasses import replace

from lakehouse import limits
from lakehouse.commits import Commit
from lakehouse.conditions import reading
from lakehouse.entries import ABANDONED, SLICE, Entry, JoinHistory, TargetVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, CannotContinue, GateFailed
from lakehouse.publish import OPERATIONS, check_owner, committed_counts, run_of
from lakehouse.slices import slices_of
from lakehouse.tables import Table, read
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.gate import gated
from pipelines.epochs.publish import close, is_still, publishing_entry, write_staged
from pipelines.epochs.recovery import refuse_elsewhere
from pipelines.epochs.tables.partial_backfill import condition_of
from pipelines.epochs.tables.reconcile import check_whole, compute_differences
from pipelines.joins.filter import Subset
from pipelines.plan.checks import check_definition
from pipelines.plan.values import Computed, EpochPlan, SourceRange
from pipelines.report.progress import Progress, Sliced, Stopwatch
from pipelines.spec import Condition

log = logging.getLogger(__name__)


class BackfillOpen(AnotherRun):
    """A sliced backfill has begun and is not finished."""

    code = "BACKFILL_OPEN"


def slices_for(bound: BoundJoin, asked: int) -> int:
    """
    Return the number of slices for the backfill of a result.

    Args:
        bound: The join.
        asked: The number that the user asked for; if 0, the size of the sources decides.
    """
    return asked or 1 + sum(table.size for table in bound.sources) // limits.BYTES_PER_SLICE


def backfill_in_slices(
    workspace: Workspace,
    bound: BoundJoin,
    plan: EpochPlan,
    number: int,
    watch: Stopwatch,
    progress: Progress,
    where: Condition | None = None,
) -> Entry:
    """
    Reconcile a result, or a part of it, with its sources, slice by slice.

    Args:
        workspace: Where to work.
        bound: The join, with its sources at the versions of the plan.
        plan: The backfill as one epoch.
        number: The number of slices.
        watch: Times the steps.
        progress: Notified as each slice begins.
        where: The condition that selects the rows to reconcile; all rows if None.

    Returns:
        The committed row; its counts cover all slices.

    Raises:
        DuplicateKey: A source, or the result, holds a key twice.
        GateFailed: A slice did not pass its gate; the slices before it stay written.
        ForeignWriter: A foreign write changed the result meanwhile.
        AnotherRun: Another run began an epoch meanwhile.
    """
    with watch.step("check"), reading(plan.join):
        counts = check_whole(workspace, bound, plan)
        held = read(workspace.spark, bound.result, plan.base_version)
        slices = slices_of(held if where is None else held.where(where.sql), bound.join.key, number)
    if where is not None:
        slices = tuple(replace(part, where=where.sql) for part in slices)
    entry = publishing_entry(bound, plan, uuid.uuid4().hex, "", Computed(counts))
    entry = replace(entry, slices=slices, reason=f"{plan.reason}, in {len(slices)} slices")
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _write_slices(workspace, bound, entry, set(), watch, progress)


def resume_slices(workspace: Workspace, history: JoinHistory, watch: Stopwatch, progress: Progress) -> Entry | None:
    """
    Finish an open sliced backfill, at the versions that it recorded.

    Returns:
        The committed row; None if the backfill could not continue and was abandoned.

    Raises:
        LakejoinError: As `backfill_in_slices` raises it.
    """
    entry = history.open
    assert entry is not None
    try:
        if history.broken is not None:
            raise BrokenEpoch(entry.join, history.broken.message)
        refuse_elsewhere(workspace, entry)
        with reading(entry.join):
            bound = bind_join(workspace, entry.join)
            check_definition(entry.join, bound.definition, entry.definition, "")
            bound, done = at_recorded(bound, entry.sources), workspace.ledger.slices_done(entry)
        return _write_slices(workspace, bound, entry, done, watch, progress)
    except CannotContinue as error:
        why = error.problem
    log.warning("%s: the open backfill is abandoned: %s", entry.join, why)
    _abandon(workspace, entry, why)
    return None


def _write_slices(
    workspace: Workspace, bound: BoundJoin, entry: Entry, done: set[int], watch: Stopwatch, progress: Progress
) -> Entry:
    """Write the remaining slices, then the committed row."""
    start, rows = time.monotonic(), sum(part.rows for part in entry.slices)
    before = through = sum(part.rows for number, part in enumerate(entry.slices) if number in done)
    for number, part in enumerate(entry.slices):
        if number in done:
            continue
        took = time.monotonic() - start
        left = took / (through - before) * (rows - through) if through > before else None
        progress.slice(entry.join, Sliced(number, len(entry.slices), through, rows, left))
        _write_slice(workspace, bound, entry, number, watch)
        through += part.rows
    with watch.step("ledger"):
        written = [_written(workspace, entry, target) for target in entry.targets]
    counts = {**entry.counts, **written[-1][1]}
    if entry.changelog is not None:
        counts["changelog"] = written[0][1]["inserted"]
    return close(workspace, replace(entry, counts=counts), [target for target, _ in written], watch)


def _write_slice(workspace: Workspace, bound: BoundJoin, entry: Entry, number: int, watch: Stopwatch) -> None:
    """Compare one slice with the current tables, and write the differences."""
    name, key = entry.join, bound.join.key
    tables = [_own(workspace, entry, target)[0] for target in entry.targets]
    plan = _plan(entry, tables)
    part = entry.slices[number]
    conditions = [Condition(part.condition, key)]
    if part.where:
        conditions.append(condition_of(workspace, bound, part.where, plan.base_version))
    subset = Subset(tuple(conditions), key)
    stage = workspace.stage(name, entry.epoch, f"{entry.run_id}-{number}-{uuid.uuid4().hex[:8]}")
    try:
        with watch.step("compute"), reading(name):
            counts = compute_differences(workspace, bound, plan, stage, subset, is_begun=True)
        staged = publishing_entry(bound, plan, entry.run_id, stage.path, Computed(counts))
        staged = replace(staged, slice=number)
        with watch.step("gate"):
            verdict, warned, hint = gated(workspace, bound, plan, stage, staged)
        if not verdict.passed:
            found = "; ".join(verdict.findings)
            _abandon(workspace, entry, f"slice {number + 1} did not pass its gate: {found}")
            raise GateFailed(
                name,
                f"slice {number + 1} of {len(entry.slices)} did not pass its gate; the slices before it are written",
                found=found,
                hint=hint,
            )
        targets = write_staged(workspace, staged, watch)
    finally:
        stage.delete()
    with watch.step("ledger"):
        workspace.ledger.append(
            replace(staged, step=SLICE, targets=targets, stage="", message="\n".join(warned.findings))
        )


def _plan(entry: Entry, tables: list[Table]) -> EpochPlan:
    """Plan one slice against the current tables."""
    ranges = tuple(map(SourceRange.recorded, entry.sources))
    result = tables[-1]
    plan = EpochPlan(entry.join, entry.epoch, "reconcile", entry.reason, ranges, result.id, result.version)
    if entry.changelog is None:
        return plan
    return replace(plan, changelog_id=tables[0].id, changelog_version=tables[0].version)


def _own(workspace: Workspace, entry: Entry, target: TargetVersions) -> tuple[Table, list[Commit]]:
    """Return a table and the backfill's commits to it so far; raise an error if it has foreign writes."""
    table = is_still(workspace, target, entry.join)
    commits = check_owner(workspace.engine, table, target.base_version, {entry.run_id}, entry.join)
    return table, [commit for commit in commits if run_of(commit) == entry.run_id]


def _written(workspace: Workspace, entry: Entry, target: TargetVersions) -> tuple[TargetVersions, dict[str, int]]:
    """Return a table with its version after all slices, and the counts of their commits."""
    table, commits = _own(workspace, entry, target)
    counts = dict.fromkeys(OPERATIONS.values(), 0)
    for commit in commits:
        changed = committed_counts(workspace.engine, table, commit) or {}
        counts = {name: number + changed.get(name, 0) for name, number in counts.items()}
    return replace(target, version=max([target.base_version, *(commit.version for commit in commits)])), counts


def _abandon(workspace: Workspace, entry: Entry, why: str) -> None:
    message = f"{why}; a backfill reconciles the result"
    workspace.ledger.append(replace(entry, step=ABANDONED, message=message))


def refuse_open(entry: Entry) -> None:
    """
    Check that no sliced backfill is open, which only a backfill of the whole result may resume.

    Raises:
        BackfillOpen: A sliced backfill has begun and is not finished.
    """
    if entry.slices:
        raise BackfillOpen(
            entry.join,
            f"the backfill of epoch {entry.epoch} has begun and is not finished",
            hint=f"wait for it if it is running, or run `lakejoin backfill --select {entry.join}` to resume it",
        )
