"""The commits of a table's history: what each one did, as its writer recorded it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

DATA_FREE_OPERATIONS = frozenset(
    {
        "OPTIMIZE",
        "VACUUM START",
        "VACUUM END",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "CLUSTER BY",
        "UPGRADE PROTOCOL",
        "ADD CONSTRAINT",
        "DROP CONSTRAINT",
        "ADD COLUMNS",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "RENAME COLUMN",
        "DROP COLUMNS",
        "REORG",
        "COMPUTE STATS",
        "CREATE TABLE",
    }
)
"""Operations that leave every row unchanged. Any other operation in a table's history may have changed rows."""

UPKEEP_OPERATIONS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CLUSTER BY"}
    | {"UPGRADE PROTOCOL", "REORG", "COMPUTE STATS"}
)
"""Operations that anyone may run on a lakejoin table, because they leave rows, columns and constraints unchanged."""

ROWS_CHANGED = {
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "STREAMING UPDATE Append": ("numOutputRows",),
    "WRITE Append": ("numOutputRows",),
}
"""The metrics that count the rows changed by a commit, by operation."""

BYTES_ADDED = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
"""The metrics with the bytes of a commit's new files; a commit has one of them."""

PARAMETERS = ("oldColumnPath", "newColumnPath", "columns", "version", "properties")
"""The parameters that show the effect of column operations and of RESTORE on columns, and the properties set."""


@dataclass(frozen=True)
class Commit:
    """
    One commit of a table's history.

    Args:
        at: Its time, UTC.
        metadata: The user metadata from the writer.
        parameters: Those of `PARAMETERS` that the operation has.
        user: The name of the user who made it; empty if the platform does not record it.
    """

    version: int
    at: datetime
    operation: str
    metadata: str
    metrics: Mapping[str, str]
    mode: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    @property
    def described(self) -> str:
        """The operation, the version, the time and, if the platform records it, the user, for a message."""
        by = f", by {self.user}" if self.user else ""
        return f"{self.operation} in version {self.version}, {self.at:%Y-%m-%d %H:%M:%S} UTC{by}"

    @property
    def changes_data(self) -> bool:
        """Whether rows may have changed."""
        return self.operation not in DATA_FREE_OPERATIONS

    @property
    def changed_rows(self) -> int | None:
        """The number of changed rows that the writer reports; None if it reports none. A hint, never relied upon."""
        names = ROWS_CHANGED.get(f"{self.operation} {self.mode}".rstrip(), ())
        if not names or not all(self.metrics.get(name, "").isdecimal() for name in names):
            return None
        return sum(int(self.metrics[name]) for name in names)

    @property
    def only_adds(self) -> bool:
        """Whether the commit is known to add rows and to change no others."""
        counts = {name: self.metrics.get(f"numTargetRows{name}") for name in ("Updated", "Deleted")}
        is_insert = self.operation == "MERGE" and set(counts.values()) == {"0"}
        return is_insert or f"{self.operation} {self.mode}" in ("WRITE Append", "STREAMING UPDATE Append")

    @property
    def added_bytes(self) -> int:
        """The bytes of its new files; 0 if the writer does not report them."""
        return next((int(self.metrics[name]) for name in BYTES_ADDED if self.metrics.get(name, "").isdecimal()), 0)
