"""Plain values that an epoch records of its sources and its result, and the times and durations in tables."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

CHANGELOG, STATE = "__changelog", "__state"
"""The name suffixes of the tables that lakejoin maintains beside a result."""


@dataclass(frozen=True)
class CommitIdentity:
    """
    The known facts that identify a commit.

    Args:
        time: Its time, UTC; None if unknown.
        transaction: Delta's id of its transaction, or a hash of its commit information if that contains no id; empty
            if this process cannot read either.
    """

    time: datetime | None = None
    transaction: str = ""

    def contradicts(self, other: "CommitIdentity") -> bool:
        """
        Return whether these are different commits with the same version; an unknown fact contradicts nothing.

        A table that is restored from a copy of its files keeps its id, and may reach a recorded version with other
        commits. Transactions decide if both are known: the time of a commit may be that of its file, which a copy of a
        lake changes.
        """
        if self.transaction and other.transaction:
            return self.transaction != other.transaction
        return self.time is not None and other.time is not None and self.time != other.time


UNKNOWN = CommitIdentity()


@dataclass(frozen=True)
class UsedColumn:
    """
    A column of a source, or a field nested in one.

    Args:
        path: Its name, after the names of the column and the fields that contain it; `element`, `key` and `value` stand
            for the contents of arrays and maps.
        type: Its type as Spark writes it; `struct`, `array` or `map` if its fields follow.
    """

    path: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class SourceVersions:
    """
    The versions of a source that an epoch read: (from_version, to_version] of the table with this id.

    A from_version of -1 means the whole table. A stream that another join produces also has the epochs of that join,
    (from_epoch, to_epoch]: an epoch that only moves a watermark makes no version. `columns` are the columns that the
    epoch used, as of to_version, and `commit` is the commit that made to_version.
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
class Estimate:
    """The estimated seconds of an epoch, and `pace`, the factor by which those of the constants were multiplied."""

    seconds: float
    pace: float = 1.0


@dataclass(frozen=True)
class Slice:
    """
    A range of the key space of a result.

    Args:
        condition: An SQL condition on a key column; each key meets the condition of exactly one slice.
        rows: The number of rows of the result that met the condition when the slices were computed.
        where: An SQL condition on columns of the result that further restricts the rows; empty for no restriction.
    """

    condition: str
    rows: int
    where: str = ""


@dataclass(frozen=True)
class Checksum:
    """
    The checksum of the rows of a table, in any order; `lakehouse.values.checksums` defines the hash of a row.

    Args:
        xor: The `bit_xor` of the hashes of the rows; 0 for no row.
        sum: The sum of the low 24 bits of these hashes; 0 for no row.
    """

    rows: int = 0
    xor: int = 0
    sum: int = 0


def utc(moment: datetime) -> datetime:
    """Convert a time to UTC; a naive one, as `collect()` returns TIMESTAMP, is in the zone of the driver's process."""
    return moment.astimezone(UTC)


def micros(moment: datetime) -> int:
    """Return an aware point in time in microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


CLUSTERING_COLUMNS = 4
"""The most columns by which Delta clusters a table."""

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"

_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}
"""Delta's default for each property."""

_SECONDS = {"week": 604_800.0, "day": 86_400.0, "hour": 3_600.0, "minute": 60.0}
_SECONDS |= {"second": 1.0, "millisecond": 1e-3, "microsecond": 1e-6}
"""The units of a retention, in seconds. Delta refuses months and years, whose length varies."""


def interval_seconds(interval: str) -> float | None:
    """Parse `interval 30 days`, `1 week` or `interval 1 day 12 hours` as seconds; None for any other text."""
    words = interval.lower().split()
    if words[:1] == ["interval"]:
        words = words[1:]
    parts = [(number, unit.removesuffix("s")) for number, unit in zip(words[::2], words[1::2], strict=False)]
    if not parts or len(words) % 2:
        return None
    if not all(re.fullmatch(r"\d+(\.\d+)?", number) and unit in _SECONDS for number, unit in parts):
        return None
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return total if math.isfinite(total) else None


def retention_seconds(properties: Mapping[str, str]) -> float | None:
    """
    Return for how many seconds a change stays readable: as long as Delta retains both removed files and the log. It is
    None if the retention of files has an unknown format.
    """
    files, log = (_retention(properties, name) for name in (FILE_RETENTION, LOG_RETENTION))
    return files if files is None or log is None else min(files, log)


def file_retention_seconds(properties: Mapping[str, str]) -> float | None:
    """Return for how many seconds Delta retains removed files of a table; None for an unknown format."""
    return _retention(properties, FILE_RETENTION)


def _retention(properties: Mapping[str, str], name: str) -> float | None:
    return interval_seconds(properties.get(name, _DEFAULTS[name]))
