"""
Publish a staged change set and close its epoch: run the MERGE, check what it did, write the committed row.

Everything is read from the ledger's *publishing* row and the stage, so that any later process can do the same again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation

from lakehouse import limits
from lakehouse.commits import Commit
from lakehouse.conditions import first_line, is_conflict, is_missing, is_of_spark
from lakehouse.entries import BROKEN, COMMITTED, PUBLISHING, Entry, SourceVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, CannotContinue, FeedUnavailable, ForeignWriter, LakejoinError
from lakehouse.feed import CHANGE_FEED
from lakehouse.publish import ATTEMPTS, FENCED, OPERATIONS, Fence, append, check_owner, committed_counts, merge
from lakehouse.refusals import refusal
from lakehouse.remedies import Remedy
from lakehouse.session import settings, small_query_settings
from lakehouse.stage import Stage
from lakehouse.tables import Table, get, read, refresh
from lakehouse.writes import RESULT_PART, Append, AppendInPlace, Merge, Overwrite, TargetVersions, Write
from pipelines.binding.bound import BoundJoin
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.plan.values import Computed
from pipelines.report.progress import Stopwatch

T = TypeVar("T")


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
    )


def publish(workspace: Workspace, entry: Entry, watch: Stopwatch, stage: Stage | None = None) -> Entry:
    """
    Publish an epoch from its publishing row and its stage; a second call writes nothing twice.

    Args:
        workspace: Where to work.
        entry: The publishing row.
        watch: Times the steps.
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
    Write what an epoch, or one slice of it, has staged to its tables, the result last.

    Returns:
        The tables, with their new versions.

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
            return _append(workspace, entry, write, stage)
        case AppendInPlace():
            return _append_in_place(workspace, entry, write, stage)


def _append_in_place(workspace: Workspace, entry: Entry, write: AppendInPlace, stage: Stage) -> int:
    """Compute the rows of a deferred part where they are appended, and check that they are those of the gate."""
    deferred, seen = stage.deferred.get(write.part), list[Observation]()

    def rows() -> DataFrame:
        assert deferred is not None, "an epoch in place whose rows are not written is abandoned"
        frame, observation = deferred.observed()
        seen.append(observation)
        return frame

    def appended() -> tuple[int, int | None, Mapping[str, object]]:
        made = append_rows(workspace, entry, write.target, rows)
        # Only a query that has ended has values: after a failed attempt nothing is known but the number of rows.
        return *made, dict(seen[0].get) if len(seen) == 1 else {}

    version, number, found = _run_write(workspace, entry, write.target, appended)
    _check_number(workspace, entry, write, version, number)
    if deferred is not None and found and found != deferred.found:
        raise broken(workspace, entry, f"rows with {dict(deferred.found)}", f"{found} in version {version}")
    return version


def _append(workspace: Workspace, entry: Entry, write: Append | Overwrite, stage: Stage) -> int:
    """Append a part of the stage to its table, or replace all rows of the table by it."""

    def rows() -> DataFrame:
        staged = stage.get(workspace.spark, write.part)
        has_images = isinstance(write, Overwrite) and write.has_images
        return staged.where("op <> 'delete'").select("after.*") if has_images else staged

    def appended() -> tuple[int, int | None]:
        return append_rows(workspace, entry, write.target, rows, overwrite=isinstance(write, Overwrite))

    with settings(workspace.spark, small_query_settings(0) if write.rows <= limits.CHANGES_VIA_DRIVER else {}):
        version, number = _run_write(workspace, entry, write.target, appended)
    _check_number(workspace, entry, write, version, number)
    return version


def _check_number(
    workspace: Workspace, entry: Entry, write: Append | AppendInPlace | Overwrite, version: int, number: int | None
) -> None:
    """Check that a commit has as many rows as the gate has seen, if the history records their number."""
    if number not in (write.rows, None):
        raise broken(workspace, entry, f"{write.rows} rows", f"{number} in version {version} of the {write.part}")


def append_rows(
    workspace: Workspace,
    entry: Entry,
    target: TargetVersions,
    rows: Callable[[], DataFrame],
    *,
    overwrite: bool = False,
) -> tuple[int, int | None]:
    """
    Append an epoch's rows to a table exactly once, however often it is called.

    Args:
        workspace: Where to work.
        entry: The epoch's publishing row.
        target: The table, with the version that the epoch was computed against: a changelog, the state, or the result
            of a join with a stream.
        rows: Returns the rows to append.
        overwrite: Whether the rows replace all rows of the table.

    Returns:
        The version of the table that holds the rows, and their number; None if the history does not record it.

    Raises:
        ForeignWriter: A foreign write changed the table.
        AnotherRun: Another run finished the epoch meanwhile.
        BrokenEpoch: The table was replaced.
    """

    fence = fence_of(workspace, entry)

    def own(table: Table) -> Commit | None:
        commits = check_owner(workspace.engine, table, target.base_version, {entry.run_id}, entry.join)
        ours = [commit for commit in commits if commit.metadata == fence.user_metadata and commit.changes_data]
        if ours and ours[-1].operation == "RESTORE":  # the epoch is being abandoned
            raise broken(workspace, entry, "its rows", f"a RESTORE removed them in version {ours[-1].version}")
        return ours[-1] if ours else None

    table = is_still(workspace, target, entry.join, feed=target != entry.state)
    made, left = own(table), ATTEMPTS
    while made is None:
        is_beaten, left = False, left - 1
        try:
            append(rows(), target.address, fence, overwrite=overwrite)
        except Exception as error:
            if not is_conflict(error):
                raise
            # Another run appended the same rows, or maintenance rewrote the replaced files: the history shows which.
            is_beaten = True
        made = own(refresh(workspace.engine, table))
        if made is None and not (is_beaten and left and is_open(workspace, entry)):
            raise another_run(entry)
    counts = committed_counts(workspace.engine, table, made)
    return made.version, None if counts is None else counts["inserted"]


def fence_off(workspace: Workspace, entry: Entry) -> bool:
    """
    Keep a run that may still be alive from appending the rows of an open epoch, by a commit without rows.

    The commit uses up the transaction of the epoch, so that Delta skips any later append under it.

    Returns:
        Whether the rows are not in the result, and never will be.
    """
    target, fence = entry.result, fence_of(workspace, entry)
    table = is_still(workspace, target, entry.join)
    nothing = read(workspace.spark, target.address, table.version).where("false")
    try:
        append(nothing, target.address, replace(fence, run_id=f"{FENCED}/{entry.run_id}"))
    except Exception as error:
        if not is_conflict(error):
            raise
    commits = check_owner(
        workspace.engine, refresh(workspace.engine, table), target.base_version, {entry.run_id}, entry.join
    )
    return not any(commit.metadata == fence.user_metadata for commit in commits)


def _run_write(workspace: Workspace, entry: Entry, target: TargetVersions, action: Callable[[], T]) -> T:
    """Run a write of an open epoch; if it fails, raise an error that says whether another run finished the epoch."""
    try:
        return action()
    except LakejoinError as error:
        if isinstance(error, ForeignWriter) and not is_open(workspace, entry):
            raise another_run(entry) from error  # it is the other run that has written
        raise
    except Exception as error:
        if not is_open(workspace, entry):
            raise another_run(entry) from error  # the other run deleted the stage
        if not is_of_spark(error):
            raise
        if isinstance(error, PySparkException) and is_missing(error) and entry.stage in str(error):
            raise CannotContinue(
                entry.join,
                f"epoch {entry.epoch} cannot be finished: a part of its stage is gone",
                expected=f"the folder {entry.stage}, with the rows that are still to be written",
                found=first_line(error),
                hint=Remedy("restore the folder, or {abandon}", entry.join),
            ) from error
        raise refusal(error, target.address, entry.epoch, entry.join) from error


def fence_of(workspace: Workspace, entry: Entry) -> Fence:
    """Return the fence that marks the commits of an epoch, or of one of its slices."""
    return Fence(f"{workspace.ledger.id}/{entry.join}", entry.epoch, entry.run_id, entry.slice)


def broken(workspace: Workspace, entry: Entry, staged: str, found: str) -> BrokenEpoch:
    """Record in the ledger that a commit differs from what was staged, and return the error to raise."""
    workspace.ledger.append(replace(entry, step=BROKEN, message=f"staged: {staged}; found: {found}"))
    return BrokenEpoch(
        entry.join,
        f"epoch {entry.epoch} is broken",
        expected=staged,
        found=found,
        hint=Remedy("{abandon}", entry.join),
    )


def another_run(entry: Entry) -> AnotherRun:
    """Return the error of a run whose epoch another run has finished."""
    return AnotherRun(
        entry.join,
        f"epoch {entry.epoch} was finished by another run meanwhile",
        hint="run again to process newer commits",
    )


def _merge(workspace: Workspace, entry: Entry, write: Merge) -> int:
    """Merge a part of the stage into its table."""
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
        commit = _run_write(workspace, entry, target, merged)
    counted = committed_counts(workspace.engine, table, commit) if commit else dict.fromkeys(staged, 0)
    made = staged if counted is None else {name: counted[name] for name in staged}
    if commit is None or made != staged:
        found = f"{made} in version {commit.version if commit else 'none'} of the {part}"
        raise broken(workspace, entry, str(staged), found)
    return commit.version


def close(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """Write the committed row of an epoch, whose writes have the new versions, then delete the stage."""
    with watch.step("ledger"):
        committed = workspace.ledger.append(replace(entry, step=COMMITTED, seconds=dict(watch.seconds)))
    if entry.stage:
        Stage(entry.stage).delete()
    return committed


def is_open(workspace: Workspace, entry: Entry) -> bool:
    """Return whether the epoch is still open in the ledger, under the same run id."""
    current = workspace.ledger.of(entry.join).open
    return current is not None and current.epoch == entry.epoch and current.run_id == entry.run_id


def is_still(workspace: Workspace, target: TargetVersions, join: str, *, feed: bool = True) -> Table:
    """
    Look up a table that an epoch writes, and check that it is still the same table.

    Args:
        workspace: Where to look.
        target: The table, as the epoch recorded it.
        join: The join, or the changelog source, that owns it.
        feed: Whether the table must have a change feed.

    Raises:
        BrokenEpoch: The table is not the one that the epoch was computed against.
        FeedUnavailable: Its change feed is off, which its readers need.
    """
    table = get(workspace.engine, target.address)
    if table.id != target.id:
        raise BrokenEpoch(
            target.address.label,
            "the table was replaced by another one while an epoch was open",
            expected=f"the table with id {target.id}",
            found=f"id {table.id}",
            hint=Remedy("{abandon}", join),
        )
    if feed and not table.feed_on:
        raise FeedUnavailable(
            target.address.label,
            "its change feed was turned off while an epoch was open",
            hint=Remedy(
                f"ALTER TABLE {table.address.sql} SET TBLPROPERTIES ({CHANGE_FEED} = true), "
                "then {run}, which finishes the epoch",
                join,
            ),
        )
    return table
