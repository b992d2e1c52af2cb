"""
What an epoch writes, as values: its tables, and how a part of its stage gets into each.

A plan has the writes without numbers of rows; a computed epoch, and so the ledger, has them with these numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from lakehouse.values.recorded import UNKNOWN, CommitIdentity
from lakehouse.values.sqltext import Address

Part = Literal["result", "changelog", "state"]
Mode = Literal["merge", "append", "append in place", "overwrite", "overwrite in place"]
RESULT_PART: Part = "result"
CHANGELOG_PART: Part = "changelog"
STATE_PART: Part = "state"
"""The parts of a stage that are written: one for the result, its changelog and its buffered rows."""


@dataclass(frozen=True)
class TargetVersions:
    """
    A table that an epoch writes.

    Args:
        id: Its table id; empty if the epoch creates it.
        base_version: The version that the epoch was computed against; -1 if the epoch creates the table.
        version: The version that the epoch made; None until it is committed.
        commit: The commit that made `version`, and `base_version` until then; unknown for a new table.
    """

    address: Address
    id: str
    base_version: int
    version: int | None = None
    commit: CommitIdentity = UNKNOWN

    @staticmethod
    def of_new(address: Address) -> "TargetVersions":
        """Return a table that the epoch creates."""
        return TargetVersions(address, "", -1)

    @property
    def newest(self) -> int:
        """The version that the epoch made or, until it is committed, was computed against: that of `commit`."""
        return self.base_version if self.version is None else self.version

    @property
    def is_new(self) -> bool:
        """Whether the epoch creates the table."""
        return self.base_version < 0


@dataclass(frozen=True)
class Merge:
    """
    A change set (`op`, `key`, `before`, `after`) is merged into a table, with so many rows for each operation. The
    `distinguishing` columns tell an updated row from the row that it replaces; all columns if empty.
    """

    mode: ClassVar[Mode] = "merge"
    target: TargetVersions
    part: Part
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    distinguishing: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows that the write changes."""
        return self.inserted + self.updated + self.deleted

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written."""
        return not self.rows


@dataclass(frozen=True)
class _Rows:
    target: TargetVersions
    part: Part
    rows: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written."""
        return not self.rows


@dataclass(frozen=True)
class Append(_Rows):
    """Rows are appended to a table; those of a first load of tables are computed where they are written."""

    mode: ClassVar[Mode] = "append"


@dataclass(frozen=True)
class AppendInPlace(_Rows):
    """Rows are appended to a table where they are computed; only aggregates of them are taken beforehand."""

    mode: ClassVar[Mode] = "append in place"


@dataclass(frozen=True)
class Overwrite(_Rows):
    """
    Rows replace all rows of a table, which then has so many rows.

    Args:
        deleted: The number of rows of the part that are left out, because they are deleted.
        has_images: Whether the part is a change set with all rows of the table: its `after` images are written, but for
            those of deleted rows.
    """

    mode: ClassVar[Mode] = "overwrite"
    deleted: int = 0
    has_images: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written; no rows replace all rows, too."""
        return False


@dataclass(frozen=True)
class OverwriteInPlace(_Rows):
    """Rows replace all rows of a table where they are computed; their number is known once they are written."""

    mode: ClassVar[Mode] = "overwrite in place"

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written; no rows replace all rows, too."""
        return False


Write = Merge | Append | AppendInPlace | Overwrite | OverwriteInPlace


def target_of_part(writes: Sequence[Write], part: Part) -> TargetVersions | None:
    """Return the table that gets a part of the stage; None if no write is of this part."""
    return next((write.target for write in writes if write.part == part), None)


def staged_rows(write: Write) -> int:
    """Return the number of rows of the part that is written."""
    return write.rows + (write.deleted if isinstance(write, Overwrite) else 0)


def merged(target: TargetVersions, counts: Mapping[str, int]) -> Merge:
    """Return the write of a staged change set into a result, from the counts that were taken while it was staged."""
    return Merge(target, RESULT_PART, counts["inserted"], counts["updated"], counts["deleted"])


def with_rows(write: Write, rows: int) -> Write:
    """Return a write of plain rows with their number."""
    assert not isinstance(write, Merge)
    return replace(write, rows=rows)


def written(write: Write, target: TargetVersions) -> Write:
    """Return a write with other versions of its table."""
    return replace(write, target=target)
