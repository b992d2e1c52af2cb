"""The tables that a join reads: a source at its newest version, what lakejoin keeps as its last epoch left it."""

from dataclasses import replace
from itertools import takewhile

from lakehouse.errors import CannotContinue, LakejoinError
from lakehouse.tables import Table, commits_since, find, get
from pipelines.ktable import pinned_ktable
from pipelines.workspace import Workspace


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


def get_log(workspace: Workspace, name: str) -> Table:
    """
    Look up the changelog of another join at the version that its last committed epoch made.

    Raises:
        NotYetRun: The join has kept no changelog yet.
        LakejoinError: There is no such table.
    """
    last = workspace.ledger.of(name).committed
    kept = None if last is None else last.changelog
    if kept is None or kept.version is None:
        raise NotYetRun(
            name,
            "this join has kept no changelog yet, which a join with a changelog reads",
            hint=f"run `lakejoin backfill --select {name}`" if last else f"run `lakejoin run --select +{name}`",
        )
    return replace(get(workspace.spark, kept.address), version=kept.version)


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
    table = find(workspace.spark, workspace.table(name))
    if table is None or table.id != last.result.id:
        raise CannotContinue(
            name,
            "the result table was dropped" if table is None else "the result table was replaced by another one",
            expected=f"the table with id {last.result.id}, which epoch {last.epoch} wrote",
            found=f"id {table.id}" if table else "no table",
            hint=f"run `lakejoin backfill --select {name}`",
        )
    later = commits_since(workspace.spark, table, last.result.version)
    quiet = [commit.version for commit in takewhile(lambda commit: not commit.changes_data, later)]
    return replace(table, version=max(quiet, default=last.result.version))
