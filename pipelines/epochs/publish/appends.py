"""Append the rows of an epoch to a table exactly once: from its stage, or where they are computed."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, Observation

from lakehouse import limits
from lakehouse.errors.conditions import is_conflict
from lakehouse.ledger.entries import Entry
from lakehouse.publish.merge import ATTEMPTS, append, committed_counts
from lakehouse.publish.ownership import FENCED, check_owner
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Append, AppendInPlace, Overwrite, TargetVersions
from lakehouse.session.session import settings, small_query_settings
from lakehouse.tables.commits import Commit
from lakehouse.tables.table import Table, read, refresh
from pipelines.binding.workspace import Workspace
from pipelines.epochs.publish.open_epoch import another_run, broken, fence_of, is_open, is_still, run_write


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
        target: With the version that the epoch was computed against.
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


def append_staged(workspace: Workspace, entry: Entry, write: Append | Overwrite, stage: Stage) -> int:
    """Append a part of the stage to its table, or replace all rows of the table by it."""

    def rows() -> DataFrame:
        staged = stage.get(workspace.spark, write.part)
        has_images = isinstance(write, Overwrite) and write.has_images
        return staged.where("op <> 'delete'").select("after.*") if has_images else staged

    def appended() -> tuple[int, int | None]:
        return append_rows(workspace, entry, write.target, rows, overwrite=isinstance(write, Overwrite))

    with settings(workspace.spark, small_query_settings(0) if write.rows <= limits.CHANGES_VIA_DRIVER else {}):
        version, number = run_write(workspace, entry, write.target, appended)
    _check_number(workspace, entry, write, version, number)
    return version


def append_in_place(workspace: Workspace, entry: Entry, write: AppendInPlace, stage: Stage) -> int:
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

    version, number, found = run_write(workspace, entry, write.target, appended)
    _check_number(workspace, entry, write, version, number)
    if deferred is not None and found and found != deferred.found:
        raise broken(workspace, entry, f"rows with {dict(deferred.found)}", f"{found} in version {version}")
    return version


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


def _check_number(
    workspace: Workspace, entry: Entry, write: Append | AppendInPlace | Overwrite, version: int, number: int | None
) -> None:
    """Check that a commit has as many rows as the gate has seen, if the history records their number."""
    if number not in (write.rows, None):
        raise broken(workspace, entry, f"{write.rows} rows", f"{number} in version {version} of the {write.part}")
