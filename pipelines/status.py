"""Where each join stands: its last epoch and how far its sources have moved on. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.errors import FeedUnavailable
from lakehouse.tables import commits_since, find
from pipelines.workspace import Workspace


@dataclass(frozen=True)
class JoinStatus:
    """
    One join.

    Args:
        join: The join.
        state: current, behind, not loaded, open (an epoch waits to be finished), broken or unreadable.
        epoch: Its last committed epoch, 0 before the load.
        result_version: The version of the result that epoch made.
        lag: For each source the number of commits with data that the result does not have yet.
        note: What a person should know.
    """

    join: str
    state: str
    epoch: int
    result_version: int | None
    lag: Mapping[str, int]
    note: str = ""

    def text(self) -> str:
        """Render for a person."""
        behind = ", ".join(f"{source} {commits} commits behind" for source, commits in self.lag.items() if commits)
        where = f"epoch {self.epoch}, version {self.result_version}" if self.epoch else "no epoch"
        return (
            f"{self.join}: {self.state} ({where})"
            + (f"; {behind}" if behind else "")
            + (f"\n  {self.note}" * bool(self.note))
        )

    def json(self) -> dict[str, Any]:
        """Render for a machine."""
        return {
            "join": self.join,
            "state": self.state,
            "epoch": self.epoch,
            "result_version": self.result_version,
            "lag": dict(self.lag),
            "note": self.note,
        }


def status_of(workspace: Workspace, name: str) -> JoinStatus:
    """Look at one join's ledger and sources."""
    history = workspace.ledger.of(name)
    last = history.committed
    lag: dict[str, int] = {}
    note = ""
    for versions in last.sources if last else ():
        table = find(workspace.spark, workspace.source(versions.name))
        if table is None or table.id != versions.id:
            note = f"{versions.name} is not the table that the last epoch read"
            continue
        try:
            commits = commits_since(workspace.spark, table, versions.to_version)
        except FeedUnavailable as error:
            note = f"{versions.name}: {error.problem} ({error.found})"
            continue
        lag[versions.name] = sum(commit.changes_data for commit in commits)
    if history.broken is not None:
        state, note = "broken", history.broken.message
    elif history.open is not None:
        state, note = "open", f"epoch {history.open.epoch} waits to be finished by `lakejoin run`"
    elif last is None:
        state = "not loaded"
    elif note:
        state = "unreadable"
    else:
        state = "behind" if any(lag.values()) else "current"
    epoch, version = (last.epoch, last.result.version) if last else (0, None)
    return JoinStatus(name, state, epoch, version, lag, note)
