"""The rows of the ledger as plain values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from lakehouse.publish import writes
from lakehouse.publish.writes import AppendInPlace, OverwriteInPlace, TargetVersions, Write
from lakehouse.values.recorded import Checksum, Estimate, Slice, SourceVersions

PUBLISHING: Literal["publishing"] = "publishing"
COMMITTED: Literal["committed"] = "committed"
REJECTED: Literal["rejected"] = "rejected"
REFUSED: Literal["refused"] = "refused"
ABANDONED: Literal["abandoned"] = "abandoned"
BROKEN: Literal["broken"] = "broken"
SLICE: Literal["slice"] = "slice"
VERIFIED: Literal["verified"] = "verified"
Step = Literal["publishing", "committed", "rejected", "refused", "abandoned", "broken", "slice", "verified"]

CLOSING = (COMMITTED, ABANDONED)
ATTEMPTS = (REJECTED, REFUSED)
"""The steps of attempts that published nothing; they use up no number."""
REJECTED_LOAD = "rejected by its gate: "
"""The start of the message of a load that was abandoned because its gate failed; the findings follow."""


COLUMNS = "columns"
"""The count of an epoch that gives its tables other columns: 1."""


@dataclass(frozen=True)
class StreamPosition:
    """
    A position in the input of an epoch of a join with a stream: its time, in microseconds since 1970, and the
    watermarks of the result that moved there, by column, in microseconds or, for integers, in the unit of the column.
    """

    time: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class Entry:
    """
    One row of the ledger, whose columns `lakehouse/README.md` describes.

    Args:
        run_id: The run that took the step; a resuming run keeps the id of the run it finishes.
        writes: What the epoch writes; the result is last because it is published last.
        stage: The stage's folder; empty for a load.
        message: Why the epoch was rejected, refused, abandoned or broken; for a committed epoch its warnings, one per
            line.
        clocks: The greatest time so far of each source in its order, in microseconds since 1970 or in the unit of its
            `order_by`; for two streams also the greatest value of each watermarked column.
        positions: The positions of the epoch of a stream in their order; a first load is one position.
        slice: The number of the slice that the row is about, from 0; None for a row about the whole epoch.
        checksum: The checksum of the result after the epoch; None for a join with a stream, and if it is unknown.
        estimates: What the ways to compute the epoch were estimated to take, by strategy, when it was planned.
        at: When the row was written, UTC.
        statement: The statement of the join as it was written; empty for a changelog source.
    """

    join: str
    epoch: int
    step: Step
    run_id: str
    strategy: str
    reason: str
    definition: str
    sources: tuple[SourceVersions, ...]
    writes: tuple[Write, ...]
    stage: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[StreamPosition, ...] = ()
    slices: tuple[Slice, ...] = ()
    slice: int | None = None
    checksum: Checksum | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    at: datetime | None = None
    statement: str = ""

    @property
    def targets(self) -> tuple[TargetVersions, ...]:
        """The tables that the epoch writes, the result last."""
        return tuple(write.target for write in self.writes)

    @property
    def result(self) -> TargetVersions:
        """The versions of the result table."""
        return self.writes[-1].target

    @property
    def changelog(self) -> TargetVersions | None:
        """The versions of the changelog; None if the epoch writes none."""
        return writes.target_of_part(self.writes, writes.CHANGELOG_PART)

    @property
    def state(self) -> TargetVersions | None:
        """The versions of the table of buffered rows; None unless the join is one of two streams."""
        return writes.target_of_part(self.writes, writes.STATE_PART)

    @property
    def is_staged(self) -> bool:
        """Whether the stage of the epoch holds anything to write."""
        writes = self.changes_columns or not all(write.is_empty for write in self.writes)
        return bool(self.stage) and writes and not self.is_in_place

    @property
    def is_in_place(self) -> bool:
        """Whether the rows of the result are in no stage, but computed where they are written."""
        in_place = (write for write in self.writes if isinstance(write, AppendInPlace | OverwriteInPlace))
        return any(not write.is_empty for write in in_place)

    @property
    def overwrites_in_place(self) -> bool:
        """Whether all rows of the result are replaced where they are computed."""
        return any(isinstance(write, OverwriteInPlace) for write in self.writes)

    @property
    def changes_columns(self) -> bool:
        """Whether the tables get the columns of the rows that are staged for them."""
        return bool(self.counts.get(COLUMNS))

    def with_versions(self, targets: Sequence[TargetVersions]) -> "Entry":
        """Return the step with other versions of the tables that it writes, in their order."""
        return replace(self, writes=tuple(map(writes.written, self.writes, targets)))


@dataclass(frozen=True)
class JoinHistory:
    """
    The rows of the ledger for one join about whole epochs; a property with one entry takes it from the highest epoch.

    The recent rows include all rows of their epochs, and reach back to a committed epoch if the join has one. Few
    callers need the older ones, which a function reads; None if none exist.
    """

    recent: tuple[Entry, ...]
    older: Callable[[], tuple[Entry, ...]] | None = None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All rows about whole epochs."""
        return self.recent if self.older is None else (*self.older(), *self.recent)

    def since(self, epoch: int) -> tuple[Entry, ...]:
        """Return rows that include all rows of the epochs after a number."""
        first = min((entry.epoch for entry in self.recent), default=0)
        return self.recent if first <= epoch + 1 else self.entries

    @property
    def committed(self) -> Entry | None:
        """The last committed epoch."""
        return self.last_committed(lambda _: True)

    def last_committed(self, condition: Callable[[Entry], bool]) -> Entry | None:
        """Return the last committed epoch that meets a condition; None if none does."""

        def last_of(entries: Iterable[Entry]) -> Entry | None:
            met = (entry for entry in entries if entry.step == COMMITTED and condition(entry))
            return max(met, key=lambda entry: entry.epoch, default=None)

        return last_of(self.recent) or last_of(self.entries)

    @property
    def open(self) -> Entry | None:
        """The publishing row of the open epoch, which follows the last closed epoch; None if no epoch is open."""
        candidates = (e for e in self.recent if e.step == PUBLISHING and e.epoch >= self.next_epoch)
        return max(candidates, key=lambda e: e.epoch, default=None)

    @property
    def broken(self) -> Entry | None:
        """The broken row of the open epoch; None if it has none."""
        current = self.open
        rows = (e for e in self.recent if e.step == BROKEN and current is not None and e.epoch == current.epoch)
        return next(rows, None)

    @property
    def next_epoch(self) -> int:
        """The number of the next epoch: one more than the last closed epoch."""
        return 1 + max((e.epoch for e in self.recent if e.step in CLOSING), default=0)

    def clocks_before(self, epoch: int) -> Mapping[str, int]:
        """Return the clocks of the last committed epoch before an epoch."""
        last = self.last_committed(lambda entry: entry.epoch < epoch)
        return {} if last is None else last.clocks

    def until(self, epoch: int) -> "JoinHistory":
        """Return the rows of the epochs up to and including one."""
        return JoinHistory(tuple(entry for entry in self.entries if entry.epoch <= epoch))

    def between(self, after: int, until: int) -> list[Entry]:
        """Return the committed epochs (after, until], in order."""
        committed = (entry for entry in self.since(after) if entry.step == COMMITTED and after < entry.epoch <= until)
        return sorted(committed, key=lambda entry: entry.epoch)

    def watermarks_at(self, epoch: int) -> dict[str, int]:
        """Return the watermarks of the result after an epoch, by column, counted from the last load or reset."""
        watermarks: dict[str, int] = {}
        for entry in self.between(0, epoch):
            if entry.strategy in ("load", "reset"):
                watermarks = {}
            for position in entry.positions:
                watermarks |= position.watermarks
        return watermarks

    def at_result(self, version: int) -> Entry | None:
        """Return the last committed epoch in a version of the result; None for a version before the first epoch."""
        return self.last_committed(lambda entry: _version(entry.result) <= version)

    def epoch_of_changelog(self, version: int) -> int:
        """Return the number of the last epoch in a version of the changelog; 0 for a version before the first epoch."""
        last = self.last_committed(lambda entry: entry.changelog is not None and _version(entry.changelog) <= version)
        return 0 if last is None else last.epoch

    def read_up_to(self, version: int) -> int:
        """Return the version up to which the only source was read for a version of the result; -1 before any epoch."""
        last = self.at_result(version)
        return -1 if last is None else last.sources[0].to_version

    def run_ids(self, *, with_abandoned: bool = False) -> set[str]:
        """Return the recent runs whose commits are lakejoin's own, if wanted also those of abandoned epochs."""
        steps = CLOSING if with_abandoned else (COMMITTED,)
        return {e.run_id for e in self.recent if e.step in steps}


def _version(target: TargetVersions) -> int:
    assert target.version is not None, "a committed epoch records the versions of its targets"
    return target.version
