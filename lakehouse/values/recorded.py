"""What an epoch records of its sources and its result, as plain values."""

from dataclasses import dataclass
from datetime import datetime

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
    epoch used, as of to_version, and `commit` is the commit that made to_version; epochs of earlier versions of
    lakejoin recorded neither.
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
