"""
The tables that a join reads: sources at their newest version, tables of lakejoin at their last committed epoch.

A run pins the sources of all its joins before the first of them, and the results as they come.
"""

from typing import Literal

from lakehouse.errors.errors import CannotContinue, LakejoinError
from lakehouse.ledger.entries import Entry
from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.table import Table, at_rest, find
from pipelines.binding.run_versions import result_table, source_table
from pipelines.binding.sources import pinned_ktable
from pipelines.binding.workspace import Workspace


class NotYetRun(LakejoinError):
    """A join that another join reads has no committed epoch, or no changelog."""


def get_input(workspace: Workspace, name: str) -> Table:
    """
    Return the table of a source or another join that a join reads; it must exist.

    It is a source at its newest version, or the result of a join or the KTable of a changelog source at the version
    that its last committed epoch made. If only commits without data change follow that version, the table is at the
    last of them, because Delta refuses old versions.

    Raises:
        NotYetRun, NotLoaded: The join, or the changelog source, has no committed epoch.
        CannotContinue: The result is not the table that its last epoch wrote.
    """
    return _own_table(workspace, name) or source_table(workspace, name)


def get_log(workspace: Workspace, name: str, result: Table) -> Table:
    """
    Return the changelog of another join at the epoch at which its `result`, from `get_input`, is read.

    Raise `NotYetRun` if the join kept none in that epoch, and `CannotContinue` if it is another table.
    """
    history = workspace.ledger.of(name)
    last = history.at_result(result.version)
    target = None if last is None else last.changelog
    if last is None or target is None:
        raise NotYetRun(
            name,
            "the changelog of this join does not exist yet, and another join reads it",
            hint=f"run `lakejoin backfill --select {name}`",
        )
    return _pinned(workspace, name, "changelog", target, last.epoch)


def find_input(workspace: Workspace, name: str) -> Table | None:
    """Return the table that a join reads, as `get_input` does; None if a source does not exist."""
    return _own_table(workspace, name) or find(workspace.engine, workspace.source(name))


def _own_table(workspace: Workspace, name: str) -> Table | None:
    """Return a table that epochs write, another join's result or a KTable; None for other sources."""
    if name in workspace.file.joins:
        return _as_committed(workspace, name)
    return pinned_ktable(workspace, name) if workspace.file.sources[name].kind == "changelog" else None


def _as_committed(workspace: Workspace, name: str) -> Table:
    def at(entry: Entry) -> Table:
        return _pinned(workspace, name, "result", entry.result, entry.epoch)

    table = result_table(workspace, name, at)
    if table is None:
        raise NotYetRun(
            name,
            "this join has no committed epoch yet, so other joins cannot read its result",
            hint=f"run `lakejoin run --select +{name}`",
        )
    return table


def _pinned(
    workspace: Workspace, name: str, which: Literal["result", "changelog"], target: TargetVersions, epoch: int
) -> Table:
    """Return a table at the version that an epoch made, or at a later one with the same data."""
    address = workspace.table(name) if which == "result" else workspace.changelog(name)
    assert address is not None
    table = find(workspace.engine, address)
    if table is None or table.id != target.id:
        raise CannotContinue(
            name,
            f"the {which} table was dropped" if table is None else f"the {which} table was replaced by another one",
            expected=f"the table with id {target.id}, which epoch {epoch} wrote",
            found=f"id {table.id}" if table else "no table",
            hint=f"run `lakejoin backfill --select {name}`",
        )
    assert target.version is not None
    return at_rest(workspace.engine, table, target.version)
