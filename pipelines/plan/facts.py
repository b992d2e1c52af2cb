"""What was found of the tables of a join, as values, for `plan` to decide what the next epoch does."""

from dataclasses import dataclass

from lakehouse.commit_identity import UNKNOWN, CommitIdentity
from lakehouse.entries import UsedColumn


@dataclass(frozen=True)
class SourceFacts:
    """
    A source as it was found.

    Args:
        name: Its name in the pipeline file.
        id: Delta's table id.
        version: Its newest version, to which it is pinned.
        data_versions: The versions since the last epoch in which rows may have changed, ascending.
        gap: Why its feed cannot be read for these versions; empty if it can, as far as its log tells.
        changed_rows: How many rows these versions changed, as their commits say; None where one does not say.
        epochs: Of a stream that another join makes: (from, to], the epochs of that join since the last epoch.
        changed: Which of the columns that the last epoch used are others now; empty if none is. Rows that no commit
            changed may have other values then.
        columns: Those of its columns that the join uses, as they are at its newest version.
        commit: The commit that made that version.
        is_restored: Whether another commit than the recorded one lies under the version that the last epoch read.
    """

    name: str
    id: str
    version: int
    data_versions: tuple[int, ...] = ()
    gap: str = ""
    changed_rows: int | None = 0
    epochs: tuple[int, int] = (0, 0)
    changed: str = ""
    columns: tuple[UsedColumn, ...] = ()
    commit: CommitIdentity = UNKNOWN
    is_restored: bool = False

    @property
    def has_come(self) -> bool:
        """Tell whether anything came since the last epoch: rows, or only a watermark."""
        return bool(self.data_versions) or self.epochs[0] < self.epochs[1]


@dataclass(frozen=True)
class ResultFacts:
    """A table that epochs write, as it was found: the result, or its changelog."""

    id: str
    version: int


@dataclass(frozen=True)
class Redefined:
    """
    What a changed definition changes, as far as it shows: the ledger keeps a fingerprint, not the definition.

    Args:
        changes: A clause for each column of the result and each source that is another.
        way: What helps, if something else than a backfill in place.
    """

    changes: tuple[str, ...]
    way: str = ""

    def __str__(self) -> str:
        return "; ".join(self.changes) or "the same columns of the same sources, by other expressions or options"
