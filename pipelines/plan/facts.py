"""The state of the tables of a join, as values from which the next epoch is planned."""

from dataclasses import KW_ONLY, dataclass

from lakehouse.values.recorded import UNKNOWN, CommitIdentity, UsedColumn


@dataclass(frozen=True)
class SourceFacts:
    """
    The state of a source.

    Args:
        id: Delta's table id.
        version: Its newest version, to which it is pinned.
        data_versions: The versions since the last epoch in which rows may have changed, ascending.
        gap: The reason why the feed of these versions cannot be read; empty if the log shows no such reason.
        changed_rows: The number of rows changed by these versions according to their commits; None if a commit does not
            state it.
        epochs: The epochs (from, to] of the other join since the last epoch, if the source is a stream that another
            join writes.
        changed: The changes of the columns that the last epoch used; empty if no column changed. After such a change,
            rows that no commit changed may have other values.
        columns: The columns that the join uses, as of the newest version.
        commit: The commit of the newest version.
        is_restored: Whether the version that the last epoch read is now another commit than the recorded one.
        may_be_recreated: Whether the result is reconciled by itself with a table that was created again.
    """

    name: str
    id: str
    version: int
    _: KW_ONLY
    data_versions: tuple[int, ...] = ()
    gap: str = ""
    changed_rows: int | None = 0
    epochs: tuple[int, int] = (0, 0)
    changed: str = ""
    columns: tuple[UsedColumn, ...] = ()
    commit: CommitIdentity = UNKNOWN
    is_restored: bool = False
    may_be_recreated: bool = False

    @property
    def has_news(self) -> bool:
        """Whether the source has new rows, or only a new watermark, since the last epoch."""
        return bool(self.data_versions) or self.epochs[0] < self.epochs[1]


@dataclass(frozen=True)
class Redefined:
    """
    What is known to differ between two definitions: the ledger records a fingerprint and the statement.

    Args:
        changes: A clause for each changed column of the result and each changed source, and the lines of the statement
            that differ, after `-` those of the last epoch and after `+` those in the pipeline file.
        remedy: The remedy; None if it is a backfill in place.
    """

    changes: tuple[str, ...]
    remedy: str | None = None

    def __str__(self) -> str:
        return "; ".join(self.changes) or "the columns and sources are the same, the expressions or options differ"
