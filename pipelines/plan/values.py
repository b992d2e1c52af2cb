"""
What one epoch of a join will do, as a value: `plan` prints it and `run` executes it.

Pure: the facts are gathered elsewhere, nothing here reads a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakehouse import limits
from lakehouse.commit_identity import UNKNOWN, CommitIdentity
from lakehouse.entries import SourceVersions, StreamPosition, UsedColumn

APPENDED = "appended"
"""The count of rows that an epoch adds to the result of a join with a stream."""

BUFFERED_UNCHANGED = "buffered_kept"
"""The count of rows that wait on as they were, of an epoch that writes all rows that wait anew."""


BUFFERED = {"insert": "buffered_inserted", "update": "buffered_updated", "delete": "buffered_deleted"}
"""The operations on the rows that wait in a join of two streams, and what each is counted as."""

Strategy = Literal["nothing", "resume", "load", "incremental", "reconcile", "replay", "accept", "reset", "flush"]
Refresh = Literal["auto", "incremental", "full"]


@dataclass(frozen=True)
class SourceRange:
    """
    The versions of a source that an epoch accounts for.

    Args:
        name: The source.
        id: Its table id.
        from_version: Last version accounted for before, -1 at the load.
        to_version: The pinned version.
        read_after: Where reading the feed starts: commits without data at the front are not read. Equal to
            `to_version` if nothing is to be read.
        changed_rows: How many rows the commits to be read say they changed; None where one does not say.
        epochs: Of a stream that another join makes: (from, to], the epochs of that join that are accounted for.
        columns: Those of its columns that the join uses, as they are at `to_version`.
        commit: The commit that made `to_version`.
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
        """Tell whether the feed is read at all."""
        return self.read_after < self.to_version

    @staticmethod
    def recorded(read: SourceVersions) -> "SourceRange":
        """Give what an epoch read, to read it once more."""
        epochs = (read.from_epoch, read.to_epoch)
        after, at = read.from_version, read.to_version
        return SourceRange(
            read.name, read.id, after, at, after, epochs=epochs, columns=read.columns, commit=read.commit
        )

    @staticmethod
    def nothing_after(read: SourceVersions) -> "SourceRange":
        """Give the range of an epoch that reads nothing after what one before it read."""
        at, epochs = read.to_version, (read.to_epoch, read.to_epoch)
        return SourceRange(read.name, read.id, at, at, at, epochs=epochs, columns=read.columns, commit=read.commit)


@dataclass(frozen=True)
class EpochPlan:
    """
    One epoch of one join.

    Args:
        join: The join.
        epoch: Its number.
        strategy: nothing, resume, load, incremental or reconcile; of a join with a stream also replay (what it lacks is
            appended), accept (it is taken as it is), reset (it is loaded anew in its place) and flush (what waits
            leaves).
        reason: A stable code, a colon, and words.
        sources: What is read, left before right.
        result_id: Table id of the result; empty before the load.
        base_version: The version of the result that the epoch is computed against; -1 before the load.
        changelog_id: Table id of the changelog; empty where none is kept, or before it is there.
        changelog_version: Its version; -1 where there is none.
        state_id: Table id of the rows that wait, in a join of two streams; else empty.
        state_version: Its version; -1 where there is none.
        clocks: Of a join with a stream: for each source the greatest time in its order so far, as the ledger has them.
        state_bytes: How many bytes the files of that version have.
        stream_bytes: How many bytes the files have that came to its streams.
        more: Whether its sources are further on than the epoch goes.
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
        """Tell whether the changes of an incremental epoch seem so few that they may pass through the driver."""
        changed = [source.changed_rows for source in self.sources if source.has_changes]
        return (
            self.strategy == "incremental"
            and None not in changed
            and sum(rows or 0 for rows in changed) <= limits.CHANGES_VIA_DRIVER
        )

    @property
    def rewrites_state(self) -> bool:
        """Tell whether the rows that wait are written anew as a whole, which costs less than a MERGE of a few."""
        return self.strategy != "incremental" or self.state_bytes + self.stream_bytes <= limits.REWRITTEN_STATE_BYTES


@dataclass(frozen=True)
class Computed:
    """What an epoch was computed to: its counts, and of a join with a stream the clocks after it, and its positions."""

    counts: dict[str, int]
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[StreamPosition, ...] = ()
