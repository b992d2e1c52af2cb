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

from lakehouse.errors.conditions import is_about_a_row, reading, value_error
from lakehouse.errors.errors import AnotherRun, BrokenEpoch, CannotContinue, GateFailed
from lakehouse.ledger.entries import ABANDONED, SLICE, Entry, JoinHistory
from lakehouse.publish.merge import OPERATIONS, committed_counts
from lakehouse.publish.ownership import check_owner, run_of
from lakehouse.publish.writes import Append, Merge, TargetVersions, Write, merged, written
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import Table, read
from lakehouse.values.pruning import slices_of
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Kind
from pipelines.epochs.publish.gate import gated
from pipelines.epochs.publish.open_epoch import is_still
from pipelines.epochs.publish.publish import close, publishing_entry, write_staged
from pipelines.epochs.run.recovery import is_gone, refuse_elsewhere
from pipelines.plan.values import Computed, EpochPlan, SourceRange
from pipelines.report.progress import Progress, SliceProgress, Stopwatch

log = logging.getLogger(__name__)


class BackfillOpen(AnotherRun):
    """A sliced backfill has begun and is not finished."""

    code = "BACKFILL_OPEN"


def backfill_in_slices(
    kind: Kind[BoundJoin], epoch: Epoch[BoundJoin], number: int, watch: Stopwatch, progress: Progress
) -> Entry:
    """
    Reconcile a result, or the part of it that the plan names, with its sources, slice by slice.

    Returns:
        The committed row; its counts cover all slices.

    Raises:
        DuplicateKey: A source, or the result, holds a key twice.
        GateFailed: A slice did not pass its gate; the slices before it stay written.
        ForeignWriter: A foreign write changed the result meanwhile.
        AnotherRun: Another run began an epoch meanwhile.
    """
    workspace, bound, plan = kind.workspace, epoch.bound, epoch.plan
    with watch.step("check"), reading(plan.join):
        counts = kind.check_whole(epoch)
        result = read(workspace.spark, bound.result, plan.result.base_version)
        slices = slices_of(result.where(plan.where) if plan.where else result, bound.join.key, number)
    slices = tuple(replace(part, where=plan.where or "") for part in slices)
    entry = publishing_entry(epoch, uuid.uuid4().hex, "", Computed(counts, plan.writes))
    entry = replace(entry, slices=slices, reason=f"{plan.reason}, in {len(slices)} slices")
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _write_slices(kind, bound, entry, set(), watch, progress)


def resume_slices(kind: Kind[BoundJoin], history: JoinHistory, watch: Stopwatch, progress: Progress) -> Entry | None:
    """
    Finish an open sliced backfill at the versions that it recorded; abandon it, and return None, if it cannot continue.

    Raises:
        LakejoinError: As `backfill_in_slices` raises it.
    """
    workspace, entry = kind.workspace, history.open
    assert entry is not None
    try:
        if history.broken is not None:
            raise BrokenEpoch(entry.join, history.broken.message)
        if is_gone(workspace, entry):
            raise BrokenEpoch(entry.join, "a table of it was dropped")
        refuse_elsewhere(workspace, entry)
        with reading(entry.join):
            bound, done = kind.at_recorded(entry), workspace.ledger.slices_done(entry)
        return _write_slices(kind, bound, entry, done, watch, progress)
    except CannotContinue as error:
        why = error.problem
    except Exception as error:
        if not is_about_a_row(error):
            raise
        log.warning("%s: the open backfill was abandoned: %s", entry.join, value_error(error))
        return None
    log.warning("%s: the open backfill is abandoned: %s", entry.join, why)
    _abandon(workspace, entry, why)
    return None


def _write_slices(
    kind: Kind[BoundJoin], bound: BoundJoin, entry: Entry, done: set[int], watch: Stopwatch, progress: Progress
) -> Entry:
    """Write the remaining slices, then the committed row."""
    start, rows = time.monotonic(), sum(part.rows for part in entry.slices)
    before = through = sum(part.rows for number, part in enumerate(entry.slices) if number in done)
    for number, part in enumerate(entry.slices):
        if number in done:
            continue
        took = time.monotonic() - start
        left = took / (through - before) * (rows - through) if through > before else None
        progress.slice(
            entry.join, SliceProgress(number=number, of=len(entry.slices), rows=through, of_rows=rows, left=left)
        )
        _write_slice(kind, bound, entry, number, watch)
        through += part.rows
    with watch.step("ledger"):
        writes = [_written(kind.workspace, entry, write) for write in entry.writes]
    changed, counts = writes[-1], dict(entry.counts)
    with watch.step("checksum"):
        assert changed.target.version is not None, "the version of a written result is known"
        checksum = kind.checksum(bound, changed.target.version)
    if isinstance(changed, Merge):
        counts |= {"inserted": changed.inserted, "updated": changed.updated, "deleted": changed.deleted}
    counts |= {write.part: write.rows for write in writes[:-1]}
    entry = replace(entry, counts=counts, writes=tuple(writes), checksum=checksum)
    return close(kind.workspace, entry, watch)


def _write_slice(kind: Kind[BoundJoin], bound: BoundJoin, entry: Entry, number: int, watch: Stopwatch) -> None:
    """Compare one slice with the current tables, and write the differences."""
    name, workspace = entry.join, kind.workspace
    part = entry.slices[number]
    epoch = Epoch(
        bound, _plan(entry, [_own(workspace, entry, target)[0] for target in entry.targets], part.where or None)
    )
    stage = workspace.stage(name, entry.epoch, f"{entry.run_id}-{number}-{uuid.uuid4().hex[:8]}")
    try:
        with watch.step("compute"), reading(name):
            computed = kind.compute_slice(epoch, part, stage)
        staged = replace(publishing_entry(epoch, entry.run_id, stage.path, computed), slice=number)
        with watch.step("gate"):
            verdict, warned, hint = gated(kind, epoch, stage, staged)
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
    except Exception as error:
        if is_about_a_row(error):  # at the versions of this backfill the slice can never be computed
            _abandon(workspace, entry, value_error(error))
        raise
    finally:
        stage.delete()
    with watch.step("ledger"):
        row = replace(staged.with_versions(targets), step=SLICE, stage="", message="\n".join(warned.findings))
        workspace.ledger.append(row)


def _plan(entry: Entry, tables: list[Table], where: str | None) -> EpochPlan:
    ranges = tuple(map(SourceRange.recorded, entry.sources))
    targets = [TargetVersions(table.address, table.id, table.version) for table in tables]
    writes = tuple(map(written, entry.writes, targets))
    return EpochPlan(
        join=entry.join,
        epoch=entry.epoch,
        strategy="reconcile",
        reason=entry.reason,
        sources=ranges,
        writes=writes,
        where=where,
    )


def _own(workspace: Workspace, entry: Entry, target: TargetVersions) -> tuple[Table, list[Commit]]:
    """Return a table and the backfill's commits to it so far; raise an error if it has foreign writes."""
    table = is_still(workspace, target, entry.join)
    commits = check_owner(workspace.engine, table, target.base_version, {entry.run_id}, entry.join)
    return table, [commit for commit in commits if run_of(commit) == entry.run_id]


def _written(workspace: Workspace, entry: Entry, write: Write) -> Write:
    """Return a write with the version of its table after all slices, and the counts of their commits."""
    table, commits = _own(workspace, entry, write.target)
    counts = dict.fromkeys(OPERATIONS.values(), 0)
    for commit in commits:
        changed = committed_counts(workspace.engine, table, commit) or {}
        counts = {name: number + changed.get(name, 0) for name, number in counts.items()}
    version = max([write.target.base_version, *(commit.version for commit in commits)])
    target = replace(write.target, version=version)
    if isinstance(write, Merge):
        return merged(target, counts)
    return Append(target, write.part, counts["inserted"])


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
