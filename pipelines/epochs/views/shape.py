"""
What a row of a result is: a row for each key of the tables that share one, or a pair of rows.

Everything else about results that are always the join of their sources is the same: planning, first loads,
reconciliations, backfills, verification.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame

from expectations.suites import KeyOfResult
from expectations.validation import Verdict
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.commits import Commits
from pipelines.epochs.sources.reading import EpochSources
from pipelines.language import ResolvedQuery


@dataclass(frozen=True, kw_only=True)
class Increment:
    """
    What the changes of the sources make of a result.

    Args:
        changes: The change set, as `lakehouse.publish.merge` takes it; None if no row of the result can change.
        logged: The rows for the changelog, in order; None if the join keeps none.
        touched: Returns the number of keys of the result that could change; None if all of them are in `changes`.
    """

    changes: DataFrame | None
    logged: DataFrame | None = None
    touched: Callable[[], int] | None = None


class Shape(ABC):
    """What a row of a result is, and how it is keyed, computed from changes, and validated when it is loaded."""

    is_cut_by_key: ClassVar[bool]
    """Whether a first load may cut its sources into ranges of the key of the result."""

    @abstractmethod
    def increment(self, epoch: Epoch[BoundJoin], sources: EpochSources, commits: Commits | None) -> Increment | None:
        """
        Compute what the changes of an epoch, already read, make of its result; return None if they touch no key of it.

        Args:
            commits: The changes of each commit, if the join keeps a changelog.
        """

    @abstractmethod
    def keyless(self, join: ResolvedQuery) -> str:
        """Return the SQL condition of a row that cannot be a row of the result, because its key has wrong nulls."""

    @abstractmethod
    def sides(self, join: ResolvedQuery) -> KeyOfResult:
        """Return the key of the result for its expectations: as a whole, or that of both sides."""

    @abstractmethod
    def gate_loaded(self, workspace: Workspace, epoch: Epoch[BoundJoin], version: int, seed: str) -> Verdict:
        """Validate the version of the result that a first load has written; the seed chooses the rows to look up."""
