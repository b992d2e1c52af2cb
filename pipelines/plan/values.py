"""
The plan of one epoch of a join, as a value: `plan` prints it and `run` executes it.

This module reads no table; other modules gather the facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakehouse import limits
from lakehouse.commit_identity import UNKNOWN, CommitIdentity
from lakehouse.entries import SourceVersions, StreamPosition, UsedColumn

APPENDED = "appended"
"""The name of the count of rows that an epoch appends to the result of a join with a stream."""

BUFFERED_UNCHANGED = "buffered_kept"
"""The name of the count of buffered rows that stay unchanged, in an epoch that rewrites all buffered rows."""


BUFFERED = {"insert": "buffered_inserted", "update": "buffered_updated", "delete": "buffered_deleted"}
"""For each operation on the buffered rows of a join of two streams, the name of its count."""

Strategy = Literal["nothing", "resume", "load", "incremental", "reconcile", "replay", "accept", "reset", "flush"]
Refresh = Literal["auto", "incremental", "full"]


@dataclass(frozen=True)
class SourceRange:
    """
    The versions of a source that an epoch accounts for.

    Args:
        name: The name of the source.
        id: Its table id.
        from_version: The last version that earlier epochs account for; -1 at the load.
        to_version: The pinned version.
        read_after: The version after which the feed is read. Leading commits without data are not read. Equal to
            `to_version` if the epoch does not read the feed.
        changed_rows: The number of changed rows according to the commits to be read; None if a commit does not state
            it.
        epochs: The epochs (from, to] of the other join that the epoch accounts for, if the source is a stream that
            another join writes.
        columns: The columns that the join uses, as of `to_version`.
        commit: The commit of `to_version`.
    """

    name: str
    id: str
    from_version: int
    to_version: int
    read_after: int
    changed_rows: int | None = None
    epochs: tuple[int, int] = (0, 0)
    columns: tuple[UsedColumn, ...] = ()
    commit: CommitIdentity = UNKNOWN

    @property
    def has_changes(self) -> bool:
        """Whether the epoch reads the feed."""
        return self.read_after < self.to_version

    @staticmethod
    def recorded(read: SourceVersions) -> "SourceRange":
        """Return the range that an epoch read, to read it again."""
        epochs = (read.from_epoch, read.to_epoch)
        after, at = read.from_version, read.to_version
        return SourceRange(
            read.name, read.id, after, at, after, epochs=epochs, columns=read.columns, commit=read.commit
        )

    @staticmethod
    def nothing_after(read: SourceVersions) -> "SourceRange":
        """Return the empty range after the range that an earlier epoch read."""
        at, epochs = read.to_version, (read.to_epoch, read.to_epoch)
        return SourceRange(read.name, read.id, at, at, at, epochs=epochs, columns=read.columns, commit=read.commit)


@dataclass(frozen=True)
class EpochPlan:
    """
    One epoch of one join.

    Args:
        join: The name of the join.
        epoch: The number of the epoch.
        strategy: nothing, resume, load, incremental or reconcile. For a join with a stream also replay (append the
            missing rows), accept (take the result as it is), reset (load the result again in place) and flush (close
            all buffered rows).
        reason: The reason for the strategy: a stable code, a colon, and a description.
        sources: The versions that are read, left before right.
        result_id: The table id of the result; empty before the load.
        base_version: The version of the result that the epoch is computed against; -1 before the load.
        changelog_id: The table id of the changelog; empty if the join keeps none, or if it does not exist yet.
        changelog_version: The version of the changelog; -1 without a changelog.
        state_id: The table id of the buffered rows of a join of two streams; else empty.
        state_version: The version of that table; -1 without it.
        clocks: For a join with a stream: the greatest time of each source in its order so far, from the ledger.
        state_bytes: The size of the files of `state_version` in bytes.
        stream_bytes: The size of the new files of its streams in bytes.
        more: Whether the sources have further commits beyond this epoch.
    """

    join: str
    epoch: int
    strategy: Strategy
    reason: str
    sources: tuple[SourceRange, ...] = ()
    result_id: str = ""
    base_version: int = -1
    changelog_id: str = ""
    changelog_version: int = -1
    state_id: str = ""
    state_version: int = -1
    state_bytes: int = 0
    clocks: Mapping[str, int] = field(default_factory=dict)
    stream_bytes: int = 0
    more: bool = False

    @property
    def via_driver(self) -> bool:
        """Whether the changes of an incremental epoch are expected to be small enough for the driver."""
        changed = [source.changed_rows for source in self.sources if source.has_changes]
        return (
            self.strategy == "incremental"
            and None not in changed
            and sum(rows or 0 for rows in changed) <= limits.CHANGES_VIA_DRIVER
        )

    @property
    def rewrites_state(self) -> bool:
        """Whether the epoch rewrites all buffered rows, which costs less than a MERGE if the state is small."""
        return self.strategy != "incremental" or self.state_bytes + self.stream_bytes <= limits.REWRITTEN_STATE_BYTES


@dataclass(frozen=True)
class Computed:
    """
    The outcome of computing an epoch.

    Args:
        counts: The counts of the epoch.
        clocks: For a join with a stream: the clocks after the epoch.
        positions: For a join with a stream: the positions of the epoch.
    """

    counts: dict[str, int]
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[StreamPosition, ...] = ()
