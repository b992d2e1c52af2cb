"""An epoch that is open in the ledger: whether it still is, the tables it writes, and the errors that stop it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from lakehouse.errors.conditions import first_line, is_about_a_row, is_missing, is_of_spark, refusal
from lakehouse.errors.errors import (
    AnotherRun,
    BrokenEpoch,
    CannotContinue,
    FeedUnavailable,
    ForeignWriter,
    LakejoinError,
    Remedy,
)
from lakehouse.ledger.entries import ABANDONED, BROKEN, Entry
from lakehouse.publish.merge import Fence
from lakehouse.publish.ownership import check_history, check_owner, run_of
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Merge, TargetVersions, Write
from lakehouse.tables.columns import differences, evolution, evolve
from lakehouse.tables.creation import drop
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import CHANGE_FEED, Table, find, get, refresh
from pipelines.binding.workspace import Workspace

T = TypeVar("T")


def application(workspace: Workspace, join: str) -> str:
    """Return the application id under which the epochs of a join are written."""
    return f"{workspace.ledger.id}/{join}"


def abandon_load(workspace: Workspace, entry: Entry, why: str) -> None:
    """
    Drop the result of an unfinished first load, and record that its epoch is abandoned.

    Raises:
        ForeignWriter: A table that lakejoin did not create exists at its address.
    """
    _drop(workspace, entry)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=why))


def fence_of(workspace: Workspace, entry: Entry) -> Fence:
    """Return the fence that marks the commits of an epoch, or of one of its slices."""
    return Fence(application(workspace, entry.join), entry.epoch, entry.run_id, entry.slice)


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
        f"epoch {entry.epoch} was finished or abandoned by another run meanwhile",
        hint="run again to process newer commits",
    )


def is_open(workspace: Workspace, entry: Entry) -> bool:
    """Return whether the epoch is still open in the ledger, under the same run id."""
    current = workspace.ledger.of(entry.join).open
    return current is not None and current.epoch == entry.epoch and current.run_id == entry.run_id


def is_closed(workspace: Workspace, entry: Entry) -> bool:
    """Return whether another run has finished or abandoned the epoch."""
    return not is_open(workspace, entry)


def is_still(workspace: Workspace, target: TargetVersions, join: str, *, feed: bool = True) -> Table:
    """
    Look up a table that an epoch writes, and check that it is still the one that the epoch recorded.

    Raises:
        BrokenEpoch: The table is not the one that the epoch was computed against.
        ForeignWriter: It was put back from a copy meanwhile.
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
    check_history(workspace.engine, table, target, join)
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


def run_write(workspace: Workspace, entry: Entry, target: TargetVersions, action: Callable[[], T]) -> T:
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
        if not is_of_spark(error) or (entry.is_in_place and is_about_a_row(error)):
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


def _drop(workspace: Workspace, entry: Entry) -> None:
    address = entry.result.address
    table = find(workspace.engine, address)
    if table is None:
        return
    check_owner(workspace.engine, table, 0, {entry.run_id})
    first = table.commits[-1]
    if first.version != 0 or first.operation != "CREATE TABLE":  # our load begins with an empty table
        raise ForeignWriter(
            entry.join,
            "a table that lakejoin did not create exists at the address of the result",
            found=f"{first.operation} in version {first.version}",
            hint=f"move it away, or run `lakejoin backfill --select {entry.join}` to adopt it",
        )
    drop(workspace.engine, address)


def with_columns(workspace: Workspace, entry: Entry, write: Write, stage: Stage) -> int:
    """
    Change the columns of a table to those of the rows staged for it; return its version afterwards.

    Raises:
        ForeignWriter: A foreign write changed the table.
        AnotherRun: Another run finished the epoch meanwhile.
    """
    engine, target = workspace.engine, write.target

    def changed() -> list[Commit]:
        table = is_still(workspace, target, entry.join)
        commits = check_owner(engine, table, target.base_version, {entry.run_id}, entry.join)
        staged = stage.schema(write.part)
        columns = staged["after"].dataType if isinstance(write, Merge) else staged
        assert isinstance(columns, StructType)
        if not differences(columns, table.schema):
            return commits
        if not is_open(workspace, entry):
            raise another_run(entry)
        change = evolution(columns, table)
        assert change is not None, "columns that ALTER TABLE cannot give are planned as an overwrite"
        evolve(workspace.spark, target.address, change, fence_of(workspace, entry).user_metadata)
        return check_owner(engine, refresh(engine, table), target.base_version, {entry.run_id}, entry.join)

    own = (commit.version for commit in run_write(workspace, entry, target, changed) if run_of(commit) == entry.run_id)
    return max(own, default=target.base_version)
