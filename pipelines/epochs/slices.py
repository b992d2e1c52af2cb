"""
The backfill of a large result, slice by slice of its key space, each as one commit.

    check ─► ledger: publishing ─► slices ─► ledger: committed
    each slice: compute ─► stage ─► gate ─► changelog ─► MERGE ─► ledger: slice

It is one epoch, at the versions to which it pinned the sources. Until it is committed the result is between two states:
nothing else is run, and joins that read it stay at the epoch before. A backfill that was killed is taken up where it
was, from the ledger's rows.
"""

import logging
import time
import uuid
from dataclasses import replace

from lakehouse import limits
from lakehouse.conditions import reading
from lakehouse.entries import ABANDONED, SLICE, Entry, JoinHistory, TargetVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, CannotContinue, GateFailed
from lakehouse.publish import OPERATIONS, check_owner, committed_counts, run_of
from lakehouse.slices import slices_of
from lakehouse.tables import Commit, Table, read
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
    """A backfill that goes slice by slice has begun and is not through."""

    code = "BACKFILL_OPEN"


def slices_for(bound: BoundJoin, asked: int) -> int:
    """
    Tell into how many slices the backfill of a result is cut.

    Args:
        bound: The join.
        asked: How many a person asked for; by the size of the tables if 0.
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
        bound: The join, its sources at the versions of the plan.
        plan: The backfill of all of it.
        number: How many slices there should be.
        watch: Times the steps.
        progress: Hears of each slice as it begins.
        where: Which rows it is about; all of them if None.

    Returns:
        The committed row; its counts are those of all slices.

    Raises:
        DuplicateKey: A source, or the result, holds a key twice.
        GateFailed: A slice did not pass; those before it stay written.
        ForeignWriter: Somebody else wrote to the result meanwhile.
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
    return _finished(workspace, bound, entry, set(), watch, progress)


def resume_slices(workspace: Workspace, history: JoinHistory, watch: Stopwatch, progress: Progress) -> Entry | None:
    """
    Finish a backfill that was begun, at the versions that it was begun with.

    Returns:
        The committed row; None if it was let go, for it could not go on.

    Raises:
        LakejoinError: As `backfill_in_slices`.
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
        return _finished(workspace, bound, entry, done, watch, progress)
    except CannotContinue as error:
        why = error.problem
    log.warning("%s: the backfill that was begun is let go: %s", entry.join, why)
    _let_go(workspace, entry, why)
    return None


def _finished(
    workspace: Workspace, bound: BoundJoin, entry: Entry, done: set[int], watch: Stopwatch, progress: Progress
) -> Entry:
    """Write the slices that are not written yet, then the committed row."""
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
        made = [_made(workspace, entry, target) for target in entry.targets]
    counts = {**entry.counts, **made[-1][1]}
    if entry.changelog is not None:
        counts["changelog"] = made[0][1]["inserted"]
    return close(workspace, replace(entry, counts=counts), [target for target, _ in made], watch)


def _write_slice(workspace: Workspace, bound: BoundJoin, entry: Entry, number: int, watch: Stopwatch) -> None:
    """Compare one slice with what the tables hold now, and write what differs."""
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
            _let_go(workspace, entry, f"slice {number + 1} did not pass its gate: {found}")
            raise GateFailed(
                name,
                f"slice {number + 1} of {len(entry.slices)} did not pass its gate; those before it are written",
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
    """Plan one slice, against the tables as they are now."""
    ranges = tuple(map(SourceRange.recorded, entry.sources))
    result = tables[-1]
    plan = EpochPlan(entry.join, entry.epoch, "reconcile", entry.reason, ranges, result.id, result.version)
    if entry.changelog is None:
        return plan
    return replace(plan, changelog_id=tables[0].id, changelog_version=tables[0].version)


def _own(workspace: Workspace, entry: Entry, target: TargetVersions) -> tuple[Table, list[Commit]]:
    """Look a table up, and the commits of the backfill to it so far; nobody else may have written to it."""
    table = is_still(workspace, target, entry.join)
    commits = check_owner(workspace.spark, table, target.base_version, {entry.run_id}, entry.join)
    return table, [commit for commit in commits if run_of(commit) == entry.run_id]


def _made(workspace: Workspace, entry: Entry, target: TargetVersions) -> tuple[TargetVersions, dict[str, int]]:
    """Give the version that all slices made of a table, and what their commits changed."""
    table, commits = _own(workspace, entry, target)
    counts = dict.fromkeys(OPERATIONS.values(), 0)
    for commit in commits:
        changed = committed_counts(workspace.spark, table, commit) or {}
        counts = {name: number + changed.get(name, 0) for name, number in counts.items()}
    return replace(target, version=max([target.base_version, *(commit.version for commit in commits)])), counts


def _let_go(workspace: Workspace, entry: Entry, why: str) -> None:
    message = f"{why}; a backfill reconciles the result"
    workspace.ledger.append(replace(entry, step=ABANDONED, message=message))


def refuse_open(entry: Entry) -> None:
    """
    Keep everything but a backfill of the whole result from a join whose backfill has begun.

    Raises:
        BackfillOpen: It has, and is not through.
    """
    if entry.slices:
        raise BackfillOpen(
            entry.join,
            f"the backfill of epoch {entry.epoch} has begun and is not through",
            hint=f"`lakejoin backfill --select {entry.join}` goes on with it where it stopped; let it end if it runs",
        )
