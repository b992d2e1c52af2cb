"""
Publish a staged change set and close its epoch: run the MERGE, check what it did, write the committed row.

Everything is read from the ledger's *publishing* row and the stage, so that any later process can do the same again.
"""

from dataclasses import replace
from functools import partial

from lakehouse import limits
from lakehouse.ledger.entries import COMMITTED, PUBLISHING, Entry
from lakehouse.publish.merge import OPERATIONS, committed_counts, merge
from lakehouse.publish.ownership import check_owner
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import RESULT_PART, Append, AppendInPlace, Merge, Overwrite, TargetVersions, Write
from lakehouse.session.session import settings, small_query_settings
from lakehouse.tables.commit_log import identity_at
from lakehouse.tables.commits import Commit
from lakehouse.values.recorded import SourceVersions
from pipelines.binding.bound import BoundJoin
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.publish.appends import append_in_place, append_staged
from pipelines.epochs.publish.open_epoch import broken, fence_of, is_open, is_still, run_write
from pipelines.plan.values import Computed
from pipelines.report.progress import Stopwatch


def publishing_entry(
    epoch: Epoch[BoundJoin] | Epoch[BoundKTable], run_id: str, stage: str, computed: Computed
) -> Entry:
    """Build the *publishing* row of an epoch; this row and the stage suffice to finish the epoch."""
    plan = epoch.plan
    return Entry(
        join=plan.join,
        epoch=plan.epoch,
        step=PUBLISHING,
        run_id=run_id,
        strategy=plan.strategy,
        reason=plan.reason,
        definition=epoch.bound.definition,
        sources=tuple(
            SourceVersions(s.name, s.id, s.from_version, s.to_version, *s.epochs, s.columns, s.commit)
            for s in plan.sources
        ),
        writes=computed.writes,
        stage=stage,
        counts=computed.counts,
        clocks=computed.clocks,
        positions=computed.positions,
        checksum=computed.checksum,
        statement=epoch.bound.statement,
    )


def publish(workspace: Workspace, entry: Entry, watch: Stopwatch, stage: Stage | None = None) -> Entry:
    """
    Publish an epoch from its publishing row and its stage; a second call writes nothing twice.

    Args:
        stage: The stage, if this process computed the epoch: it may hold deferred parts.

    Raises:
        BrokenEpoch: The commit changed other rows than were staged; the ledger records this, too.
        ForeignWriter: A foreign write changed the result since the epoch was computed.
        AnotherRun: Another run finished the epoch meanwhile.
    """
    return close(workspace, entry.with_versions(write_staged(workspace, entry, watch, stage)), watch)


def write_staged(
    workspace: Workspace, entry: Entry, watch: Stopwatch, stage: Stage | None = None
) -> tuple[TargetVersions, ...]:
    """
    Write what an epoch, or one slice of it, has staged to its tables, the result last; return them with new versions.

    Raises:
        BrokenEpoch, ForeignWriter, AnotherRun: As `publish` raises them.
    """
    _check_result(workspace, entry)
    made = []
    for write in entry.writes:
        version = write.target.base_version
        if not write.is_empty:
            with watch.step(_step(write)):
                version = _write(workspace, entry, write, stage or Stage(entry.stage))
        made.append(replace(write.target, version=version))
    return tuple(made)


def _step(write: Write) -> str:
    """Return the name of the step that writes a table, under which its seconds are recorded."""
    if write.part != RESULT_PART:
        return write.part
    return "merge" if isinstance(write, Merge) else "append"


def _check_result(workspace: Workspace, entry: Entry) -> None:
    """Check the result for foreign writes and for its feed, before the epoch writes to the tables beside it."""
    if len(entry.writes) > 1:
        result = is_still(workspace, entry.result, entry.join)
        check_owner(workspace.engine, result, entry.result.base_version, {entry.run_id}, entry.join)


def _write(workspace: Workspace, entry: Entry, write: Write, stage: Stage) -> int:
    """Write a part of the stage to its table, unless it is already written, and return the table's new version."""
    match write:
        case Merge():
            return _merge(workspace, entry, write)
        case Append() | Overwrite():
            return append_staged(workspace, entry, write, stage)
        case AppendInPlace():
            return append_in_place(workspace, entry, write, stage)


def _merge(workspace: Workspace, entry: Entry, write: Merge) -> int:
    target, part = write.target, write.part
    table = is_still(workspace, target, entry.join, feed=target != entry.state)
    fence = fence_of(workspace, entry)
    staged = {"inserted": write.inserted, "updated": write.updated, "deleted": write.deleted}
    ops = [op for op, name in OPERATIONS.items() if staged[name]]

    def merged() -> Commit | None:
        base, stage, columns = target.base_version, Stage(entry.stage), write.distinguishing
        still_open = partial(is_open, workspace, entry)
        return merge(workspace.engine, table, stage, ops, fence, base, still_open, part, entry.join, columns)

    with settings(workspace.spark, small_query_settings(table.size) if write.rows <= limits.CHANGES_VIA_DRIVER else {}):
        commit = run_write(workspace, entry, target, merged)
    counted = committed_counts(workspace.engine, table, commit) if commit else dict.fromkeys(staged, 0)
    made = staged if counted is None else {name: counted[name] for name in staged}
    if commit is None or made != staged:
        found = f"{made} in version {commit.version if commit else 'none'} of the {part}"
        raise broken(workspace, entry, str(staged), found)
    return commit.version


def close(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """Write the committed row of an epoch, whose writes have the new versions, then delete the stage."""
    with watch.step("ledger"):
        entry = entry.with_versions([_identified(workspace, target) for target in entry.targets])
        committed = workspace.ledger.append(replace(entry, step=COMMITTED, seconds=dict(watch.seconds)))
    if entry.stage:
        Stage(entry.stage).delete()
    return committed


def _identified(workspace: Workspace, target: TargetVersions) -> TargetVersions:
    """Return a table of an epoch with the commit of its new version: a copy may have another one with this number."""
    assert target.version is not None
    return replace(target, commit=identity_at(workspace.engine, target.address, target.version))
