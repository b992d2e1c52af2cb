"""The tables that a join reads: a source at its newest version, what lakejoin keeps as its last epoch left it."""

from typing import Literal

from lakehouse.entries import TargetVersions
from lakehouse.errors import CannotContinue, LakejoinError
from lakehouse.tables import Table, at_rest, find, get
from pipelines.binding.ktable import pinned_ktable
from pipelines.binding.workspace import Workspace


class NotYetRun(LakejoinError):
    """A join is to be read that has no committed epoch."""


def get_input(workspace: Workspace, name: str) -> Table:
    """
    Look up what a join reads; it has to be there.

    Args:
        workspace: Where to look.
        name: A source, or another join.

    Returns:
        The table: a source at its newest version; the result of a join, or the KTable of a changelog source, at the
        version that its last committed epoch made. Where only commits without data change follow that, it is the last
        of these: Delta refuses old versions.

    Raises:
        NotYetRun, NotLoaded: The join, or the changelog source, has no committed epoch.
        CannotContinue: Its result is not the table that its last epoch wrote.
        LakejoinError: There is no such table.
    """
    return _kept_by_us(workspace, name) or get(workspace.spark, workspace.source(name))


def get_log(workspace: Workspace, name: str, result: Table) -> Table:
    """
    Look up the changelog of another join at the version of the epoch that its result is read at.

    Args:
        workspace: Where to look.
        name: The join.
        result: Its result, as `get_input` gives it.

    Raises:
        NotYetRun: The join kept no changelog with that epoch.
        CannotContinue: The changelog is not the table that the epoch wrote.
    """
    history = workspace.ledger.of(name)
    last = history.at_result(result.version)
    kept = None if last is None else last.changelog
    if last is None or kept is None:
        raise NotYetRun(
            name,
            "this join has kept no changelog yet, which a join with a changelog reads",
            hint=f"run `lakejoin backfill --select {name}`",
        )
    return _pinned(workspace, name, "changelog", kept, last.epoch)


def find_input(workspace: Workspace, name: str) -> Table | None:
    """Look up what a join reads as `get_input` does; None where there is no such source."""
    return _kept_by_us(workspace, name) or find(workspace.spark, workspace.source(name))


def _kept_by_us(workspace: Workspace, name: str) -> Table | None:
    """Look up a table that epochs of ours write: another join's result, the KTable of a changelog source."""
    if name in workspace.file.joins:
        return _as_committed(workspace, name)
    return pinned_ktable(workspace, name) if workspace.file.sources[name].kind == "changelog" else None


def _as_committed(workspace: Workspace, name: str) -> Table:
    last = workspace.ledger.of(name).committed  # before the table, which may be further on but not behind
    if last is None or last.result.version is None:
        raise NotYetRun(
            name,
            "this join has no committed epoch yet, so that no other join can read its result",
            hint=f"run `lakejoin run --select +{name}`",
        )
    return _pinned(workspace, name, "result", last.result, last.epoch)


def _pinned(
    workspace: Workspace, name: str, which: Literal["result", "changelog"], target: TargetVersions, epoch: int
) -> Table:
    """Look up a table at the version that an epoch made, or a later one without other data."""
    address = workspace.table(name) if which == "result" else workspace.changelog(name)
    assert address is not None
    table = find(workspace.spark, address)
    if table is None or table.id != target.id:
        raise CannotContinue(
            name,
            f"the {which} table was dropped" if table is None else f"the {which} table was replaced by another one",
            expected=f"the table with id {target.id}, which epoch {epoch} wrote",
            found=f"id {table.id}" if table else "no table",
            hint=f"run `lakejoin backfill --select {name}`",
        )
    assert target.version is not None
    return at_rest(workspace.spark, table, target.version)
