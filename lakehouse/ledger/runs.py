"""Whole runs as plain values: the rows of the ledger that are about no join, but about the cut of all of them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lakehouse.values.recorded import CommitIdentity
from lakehouse.values.sqltext import Address

BEGUN: Literal["begun"] = "begun"
COMPLETE: Literal["complete"] = "complete"
INCOMPLETE: Literal["incomplete"] = "incomplete"
RunStep = Literal["begun", "complete", "incomplete"]
RUN_STEPS: tuple[RunStep, ...] = (BEGUN, COMPLETE, INCOMPLETE)


@dataclass(frozen=True)
class CutSource:
    """A source at the version of a cut, and the commit that made this version."""

    name: str
    id: str
    version: int
    commit: CommitIdentity


@dataclass(frozen=True)
class RunResult:
    """The result of a join, or the KTable of a changelog source, after a run; version and id are None before it."""

    name: str
    address: Address
    id: str | None = None
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """
    A run of joins, which brings all of them to the same versions of their sources: its cut.

    Args:
        step: Where it stands: begun, and killed unless it still runs; complete, with every result at the cut; or
            incomplete, for the `reason`.
        cut: The sources of its joins.
        results: Its joins and the changelog sources that they read, in the order in which they are listed in reports.
        seconds: How long it took.
        at: When the row was written, UTC.
    """

    id: str
    step: RunStep
    cut: tuple[CutSource, ...]
    results: tuple[RunResult, ...]
    reason: str = ""
    seconds: float = 0.0
    at: datetime | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of its joins and changelog sources."""
        return frozenset(result.name for result in self.results)
