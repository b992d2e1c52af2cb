"""One epoch of one join: its plan, with the join bound to its tables."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from lakehouse.ledger.entries import JoinHistory
from pipelines.binding.bound import BoundJoin
from pipelines.binding.sources import BoundKTable
from pipelines.plan.values import EpochPlan

B = TypeVar("B", BoundJoin, BoundKTable)
"""What has epochs: a join, or the KTable of a changelog source."""


@dataclass(frozen=True)
class Epoch(Generic[B]):
    """An epoch to run; the sources of its join or KTable are at the versions that it reads."""

    bound: B
    plan: EpochPlan

    @property
    def rows_read(self) -> int | None:
        """About how many rows of the sources the epoch reads, by their logs; None if these do not say."""
        if self.plan.strategy == "incremental":
            numbers = [source.changed_rows for source in self.plan.sources if source.has_changes]
        else:
            numbers = [table.rows for table in self.bound.sources]
        return None if None in numbers else sum(number or 0 for number in numbers)

    @property
    def newest(self) -> dict[str, int]:
        """The newest known version of each source, by name."""
        tables = self.bound.sources
        return {table.address.label: max(table.version, *(c.version for c in table.commits)) for table in tables}


@dataclass(frozen=True)
class Prepared(Generic[B]):
    """A plan with its inputs; `bound` is None for an open epoch, which needs no source and no pipeline file."""

    plan: EpochPlan
    history: JoinHistory
    bound: B | None

    @property
    def epoch(self) -> Epoch[B]:
        """The epoch to run; no epoch is open."""
        assert self.bound is not None, f"an open epoch must be finished first: {self.plan.reason}"
        return Epoch(self.bound, self.plan)
