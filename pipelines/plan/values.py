"""The plan of an epoch, which `plan` prints and `run` executes, and what it is made from: facts and a request."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from lakehouse import limits
from lakehouse.ledger.entries import StreamPosition
from lakehouse.publish.writes import CHANGELOG_PART, STATE_PART, TargetVersions, Write, target_of_part
from lakehouse.values.recorded import UNKNOWN, Checksum, CommitIdentity, Estimate, SourceVersions, UsedColumn

APPENDED = "appended"
"""The name of the count of rows that an epoch appends to the result of a join with a stream."""

Strategy = Literal[
    "nothing", "resume", "load", "incremental", "reconcile", "overwrite", "replay", "accept", "reset", "flush"
]

Refresh = Literal["auto", "incremental", "full"]


@dataclass(frozen=True)
class SourceFacts:
    """
    The state of a source.

    Args:
        version: Its newest version, to which it is pinned.
        data_versions: The versions since the last epoch in which rows may have changed, ascending.
        gap: The reason why the feed of these versions cannot be read; empty if the log shows no such reason.
        changed_rows: The rows changed by these versions according to their commits; None if a commit does not state it.
        epochs: For a stream that another join writes: the epochs (from, to] of that join since the last epoch.
        changed: The changes of the columns that the last epoch used, after which any row may have other values.
        columns: The columns that the join uses; like `commit`, of the newest version.
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


# The schema of reports shows this docstring.
@dataclass(frozen=True, kw_only=True)
class SourceRange:
    """
    The versions of a source that an epoch accounts for.

    Args:
        name: The name of the source.
        id: Its table id.
        from_version: The last version that earlier epochs account for; -1 at the load.
        to_version: The pinned version.
        read_after: The last version before the first commit with data; equal to `to_version` if the feed is not read.
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

    def since(self, earlier: "SourceRange") -> "SourceRange":
        """Return the range from the beginning of an earlier one, which it follows, to the end of this one."""
        epochs = (earlier.epochs[0], self.epochs[1])
        return replace(self, from_version=earlier.from_version, read_after=earlier.read_after, epochs=epochs)

    @staticmethod
    def recorded(read: SourceVersions) -> "SourceRange":
        """Return the range that an epoch read, to read it again."""
        return SourceRange(
            name=read.name,
            id=read.id,
            from_version=read.from_version,
            to_version=read.to_version,
            read_after=read.from_version,
            epochs=(read.from_epoch, read.to_epoch),
            columns=read.columns,
            commit=read.commit,
        )

    @staticmethod
    def nothing_after(read: SourceVersions) -> "SourceRange":
        """Return the empty range after the range that an earlier epoch read."""
        at, until = read.to_version, read.to_epoch
        return replace(SourceRange.recorded(read), from_version=at, read_after=at, epochs=(until, until))


@dataclass(frozen=True)
class Idle:
    """Nothing has to be done."""


@dataclass(frozen=True)
class Resume:
    """An open epoch has to be finished first."""


@dataclass(frozen=True)
class Staged:
    """The epoch goes through its stage, in one commit for each table."""


@dataclass(frozen=True)
class InPlace:
    """The rows are computed where they are written; the gate reads the table."""


@dataclass(frozen=True)
class Sliced:
    """The epoch goes slice by slice of the key space, at least two, each slice through a stage of its own."""

    number: int


Route = Idle | Resume | Staged | InPlace | Sliced
"""How an epoch gets its rows into the tables."""


@dataclass(frozen=True)
class StreamInput:
    """
    What an epoch of a join with a stream continues from.

    Args:
        clocks: The greatest time of each source in its order so far, from the ledger.
        new_bytes: The size of the new files of the streams.
    """

    clocks: Mapping[str, int] = field(default_factory=dict)
    new_bytes: int = 0
    buffered_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The size of the files that the epoch reads of streams and buffered rows, in bytes."""
        return self.new_bytes + self.buffered_bytes


@dataclass(frozen=True, kw_only=True)
class EpochPlan:
    """
    One epoch of one join.

    Args:
        strategy: For a join with a stream also replay (append the missing rows), accept (take the result as it is),
            reset (load the result again in place) and flush (close all buffered rows).
        reason: The reason for the strategy: a stable code, a colon, and a description.
        sources: The versions that are read, left before right.
        writes: What is written, without numbers of rows, the result last; empty if an open epoch has to be finished.
        where: For the reconciliation of a part of the result, the condition on its columns as SQL.
        checksum: The checksum of the result before an incremental epoch; None if it is unknown.
        properties: Table properties that the result gets before its rows, because it lacks them.
        estimates: What the ways to compute an epoch of a join of tables are estimated to take, by strategy.
        more: Whether the sources have further commits, which the run takes in epochs after this one.
        changes_columns: Whether the result gets other columns, so that the epoch is written in one piece.
    """

    join: str
    epoch: int
    strategy: Strategy
    reason: str
    sources: tuple[SourceRange, ...] = ()
    writes: tuple[Write, ...] = ()
    route: Route = field(default_factory=Staged)
    where: str | None = None
    stream: StreamInput = field(default_factory=StreamInput)
    checksum: Checksum | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    more: bool = False
    changes_columns: bool = False

    @property
    def result(self) -> TargetVersions:
        """The versions of the result."""
        return self.writes[-1].target

    @property
    def changelog(self) -> TargetVersions | None:
        """The changelog of the result; None if the join keeps none."""
        return target_of_part(self.writes, CHANGELOG_PART)

    @property
    def state(self) -> TargetVersions | None:
        """The buffered rows of a join of two streams; None for other joins."""
        return target_of_part(self.writes, STATE_PART)

    @property
    def via_driver(self) -> bool:
        """Whether the changes of an incremental epoch are expected to be small enough for the driver."""
        changed = [source.changed_rows for source in self.sources if source.has_changes]
        is_small = None not in changed and sum(rows or 0 for rows in changed) <= limits.CHANGES_VIA_DRIVER
        return self.strategy == "incremental" and is_small

    @property
    def reads_snapshots(self) -> bool:
        """Whether an epoch of a join with a stream reads its sources whole, not what has come since the last epoch."""
        return self.strategy in ("load", "reset")

    @property
    def repairs(self) -> bool:
        """Whether an epoch of a join with a stream repairs or accepts what the result holds, and reads nothing new."""
        return self.strategy in ("replay", "accept")

    @property
    def continues_state(self) -> bool:
        """Whether rows that are buffered before the epoch take part in it."""
        return self.strategy in ("incremental", "flush")

    @property
    def rewrites_state(self) -> bool:
        """Whether the epoch rewrites all buffered rows, which costs less than a MERGE if the state is small."""
        return self.strategy != "incremental" or self.stream.bytes <= limits.REWRITTEN_STATE_BYTES


@dataclass(frozen=True)
class Computed:
    """
    The outcome of computing an epoch.

    Args:
        writes: What is to be written, with numbers of rows, the result last.
        clocks: For a join with a stream: the clocks after the epoch, and `positions` its positions.
        checksum: For a join of tables: the checksum of the result after the epoch; None if it is unknown.
    """

    counts: Mapping[str, int]
    writes: tuple[Write, ...]
    _: KW_ONLY
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[StreamPosition, ...] = ()
    checksum: Checksum | None = None
