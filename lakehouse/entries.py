"""What the ledger says, as plain values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

from lakehouse.address import Address
from lakehouse.commit_identity import UNKNOWN, CommitIdentity

PUBLISHING: Literal["publishing"] = "publishing"
COMMITTED: Literal["committed"] = "committed"
REJECTED: Literal["rejected"] = "rejected"
ABANDONED: Literal["abandoned"] = "abandoned"
BROKEN: Literal["broken"] = "broken"
SLICE: Literal["slice"] = "slice"
Step = Literal["publishing", "committed", "rejected", "abandoned", "broken", "slice"]

CLOSING = (COMMITTED, ABANDONED)
CHANGELOG, STATE = "__changelog", "__state"
"""How the names of the tables end that are kept beside a result."""
REJECTED_LOAD = "rejected by its gate: "
"""How the message of a load begins that was abandoned because its gate failed; the findings follow."""


@dataclass(frozen=True)
class UsedColumn:
    """
    A column of a source, or a field inside one.

    Args:
        path: Its name, after those of the column and the fields that it is in; `element`, `key` and `value` stand for
            what is in arrays and maps.
        type: Its type as Spark writes it; `struct`, `array` or `map` for one whose fields follow.
    """

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class SourceVersions:
    """
    What an epoch read of a source: versions (from_version, to_version] of the table with this id; from -1 is all.

    Of a stream that another join makes also which epochs of that join, (from_epoch, to_epoch]: one that only moved a
    watermark makes no version. `columns` are those that the epoch used, as they were at to_version, and `commit` is the
    one that made to_version; epochs of earlier versions of lakejoin recorded neither.
    """

    name: str
    id: str
    from_version: int
    to_version: int
    from_epoch: int = 0
    to_epoch: int = 0
    columns: tuple[UsedColumn, ...] = ()
    commit: CommitIdentity = UNKNOWN


@dataclass(frozen=True)
class StreamPosition:
    """
    A position that an epoch of a join with a stream passed.

    Args:
        time: Its time, in microseconds since 1970.
        watermarks: How far watermarks of the result moved at it, by column; those of times in microseconds since 1970,
            of integers as these count.
    """

    time: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class TargetVersions:
    """A table that an epoch writes: the version it was computed against, and once committed the version it made."""

    address: Address
    id: str
    base_version: int
    version: int | None = None


@dataclass(frozen=True)
class Slice:
    """
    A range of the key space of a result.

    Args:
        condition: A condition on a key column, as SQL; each key meets that of one slice.
        rows: How many rows of the result met it when it was cut.
        where: Which rows with such a key it is about, as SQL on columns of the result; all of them where it is empty.
    """

    condition: str
    rows: int
    where: str = ""


@dataclass(frozen=True)
class Entry:
    """
    One row of the ledger.

    Args:
        join: The join's name.
        epoch: Its number, from 1.
        step: publishing, committed, rejected, abandoned, broken or slice.
        run_id: The run that took the step; a resuming run keeps the id of the run it finishes.
        strategy: load, incremental or reconcile; of a join with a stream also replay, accept, reset or flush.
        reason: Why this strategy, as a code with words.
        definition: Fingerprint of the join's definition.
        sources: What was read.
        targets: What is written.
        stage: The stage's folder; empty for a load.
        counts: Rows read, looked_up, touched, inserted, updated, deleted, unchanged, null_keys; files for look-ups;
            changelog: rows appended to it; appended: rows added to the result of a join with a stream.
        seconds: Seconds of each step so far.
        message: Why it was rejected, abandoned or broken; of a committed one what it was warned of, a line each.
        clocks: Of a join with a stream: for each source the greatest time in its order so far, in microseconds since
            1970 or as its `order_by` counts; of two streams also the greatest value of each watermarked column.
        positions: Of a join with a stream, in their order, the positions that the epoch passed; a first load is one.
        slices: Of a backfill that goes slice by slice: its slices.
        slice: Which of them the row is about, from 0; None for all rows but those.
        at: When the row was written, UTC.
    """

    join: str
    epoch: int
    step: Step
    run_id: str
    strategy: str
    reason: str
    definition: str
    sources: tuple[SourceVersions, ...]
    targets: tuple[TargetVersions, ...]
    stage: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[StreamPosition, ...] = ()
    slices: tuple[Slice, ...] = ()
    slice: int | None = None
    at: datetime | None = None

    @property
    def result(self) -> TargetVersions:
        """The result table's versions: the last target, as the result is published last."""
        return self.targets[-1]

    @property
    def changelog(self) -> TargetVersions | None:
        """The changelog's versions, if the epoch kept one."""
        return self._besides(CHANGELOG)

    @property
    def state(self) -> TargetVersions | None:
        """The versions of the table of rows that wait, in a join of two streams."""
        return self._besides(STATE)

    def _besides(self, ending: str) -> TargetVersions | None:
        return next((target for target in self.targets[:-1] if target.address.label.endswith(ending)), None)


@dataclass(frozen=True)
class JoinHistory:
    """
    What the ledger knows of one join; each field is the entry of the highest epoch that has one.

    Args:
        recent: Its newest rows, but for those about single slices; all rows of the epochs that they are about, and back
            to a closed epoch at least.
        older: Reads its other rows, which few questions need; None where there are none.
    """

    recent: tuple[Entry, ...]
    older: Callable[[], tuple[Entry, ...]] | None = None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All its rows, but for those about single slices."""
        return self.recent if self.older is None else (*self.older(), *self.recent)

    def since(self, epoch: int) -> tuple[Entry, ...]:
        """Give its rows, with those of all epochs after a number among them."""
        first = min((entry.epoch for entry in self.recent), default=0)
        return self.recent if first <= epoch + 1 else self.entries

    @property
    def committed(self) -> Entry | None:
        """The last committed epoch."""
        return self.last_committed(lambda _: True)

    def last_committed(self, condition: Callable[[Entry], bool]) -> Entry | None:
        """Give the last committed epoch that meets a condition."""

        def last_of(entries: Iterable[Entry]) -> Entry | None:
            met = (entry for entry in entries if entry.step == COMMITTED and condition(entry))
            return max(met, key=lambda entry: entry.epoch, default=None)

        return last_of(self.recent) or last_of(self.entries)

    @property
    def open(self) -> Entry | None:
        """The publishing row of an epoch after the last closed one."""
        waiting = (e for e in self.recent if e.step == PUBLISHING and e.epoch >= self.next_epoch)
        return max(waiting, key=lambda e: e.epoch, default=None)

    @property
    def broken(self) -> Entry | None:
        """The broken row of the open epoch."""
        waiting = self.open
        rows = (e for e in self.recent if e.step == BROKEN and waiting is not None and e.epoch == waiting.epoch)
        return next(rows, None)

    @property
    def next_epoch(self) -> int:
        """The number after the last closed epoch."""
        return 1 + max((e.epoch for e in self.recent if e.step in CLOSING), default=0)

    def clocks_before(self, epoch: int) -> Mapping[str, int]:
        """Give the clocks that the last committed epoch before one left."""
        last = self.last_committed(lambda entry: entry.epoch < epoch)
        return {} if last is None else last.clocks

    def between(self, after: int, until: int) -> list[Entry]:
        """Give the committed epochs (after, until], in their order."""
        made = (entry for entry in self.since(after) if entry.step == COMMITTED and after < entry.epoch <= until)
        return sorted(made, key=lambda entry: entry.epoch)

    def watermarks_at(self, epoch: int) -> dict[str, int]:
        """Give the watermarks of the result after an epoch, by column, since the result last began anew."""
        known: dict[str, int] = {}
        for entry in self.between(0, epoch):
            known = {} if entry.strategy in ("load", "reset") else known
            for passed in entry.positions:
                known |= passed.watermarks
        return known

    def at_result(self, version: int) -> Entry | None:
        """Give the last committed epoch that is in a version of the result; None for a version before the first."""
        return self.last_committed(lambda entry: _made(entry.result) <= version)

    def epoch_of_changelog(self, version: int) -> int:
        """Give the last epoch that is in a version of the join's changelog; 0 for a version before the first."""
        last = self.last_committed(lambda entry: entry.changelog is not None and _made(entry.changelog) <= version)
        return 0 if last is None else last.epoch

    def read_up_to(self, version: int) -> int:
        """Give how far the only source was read for a version of the result; -1 for one before the first epoch."""
        last = self.at_result(version)
        return -1 if last is None else last.sources[0].to_version

    def run_ids(self, *, with_abandoned: bool = False) -> set[str]:
        """The recent runs whose commits are ours; with those of epochs that were let go, which were taken back."""
        steps = CLOSING if with_abandoned else (COMMITTED,)
        return {e.run_id for e in self.recent if e.step in steps}


def _made(target: TargetVersions | None) -> int:
    assert target is not None
    assert target.version is not None, "a committed epoch knows what its targets became"
    return target.version
