"""
Commits, and the log of a table on this machine or on S3, read by delta-rs: one look takes milliseconds and sees one
version. Spark reads the log instead if the table needs a feature whose effect on the log is not known here.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from lakehouse.errors.errors import StorageFailed
from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from lakehouse.values.locations import local_path
from lakehouse.values.sqltext import Address

if TYPE_CHECKING:
    from deltalake import DeltaTable

UPKEEP_OPERATIONS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CLUSTER BY"}
    | {"UPGRADE PROTOCOL", "REORG", "COMPUTE STATS"}
)
"""Operations that anyone may run on a lakejoin table, because they leave rows, columns and constraints unchanged."""

_DATA_FREE_OPERATIONS = UPKEEP_OPERATIONS | {"CREATE TABLE", "ADD CONSTRAINT", "DROP CONSTRAINT", "ADD COLUMNS"}
_DATA_FREE_OPERATIONS |= {"CHANGE COLUMN", "CHANGE COLUMNS", "RENAME COLUMN", "DROP COLUMNS"}
"""Operations that leave every row unchanged. Any other operation in a table's history may have changed rows."""

_ROWS_CHANGED = {
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "STREAMING UPDATE Append": ("numOutputRows",),
    "WRITE Append": ("numOutputRows",),
}
"""The metrics that count the rows changed by a commit, by operation."""

_BYTES_ADDED = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
"""The metrics with the bytes of a commit's new files; a commit has one of them."""

PARAMETERS = ("oldColumnPath", "newColumnPath", "columns", "version", "properties")
"""The parameters that show the effect of column operations and of RESTORE on columns, and the properties set."""


@dataclass(frozen=True)
class Commit:
    """
    One commit of a table's history, as its writer recorded it: its time (UTC), the user metadata, those of `PARAMETERS`
    that the operation has, and the user who made it, empty if the platform does not record it.
    """

    version: int
    at: datetime
    operation: str
    metadata: str
    metrics: Mapping[str, str]
    _: KW_ONLY
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
        return self.operation not in _DATA_FREE_OPERATIONS

    @property
    def changed_rows(self) -> int | None:
        """The number of changed rows that the writer reports; None if it reports none. A hint, never relied upon."""
        names = _ROWS_CHANGED.get(f"{self.operation} {self.mode}".rstrip(), ())
        if not names or not all(self.metrics.get(name, "").isdecimal() for name in names):
            return None
        return sum(int(self.metrics[name]) for name in names)

    @property
    def only_adds(self) -> bool:
        """Whether the commit is known to add rows and to change no others."""
        counts = {self.metrics.get(f"numTargetRows{name}") for name in ("Updated", "Deleted")}
        is_insert = self.operation == "MERGE" and counts == {"0"}
        return is_insert or f"{self.operation} {self.mode}" in ("WRITE Append", "STREAMING UPDATE Append")

    @property
    def added_bytes(self) -> int:
        """The bytes of its new files; 0 if the writer does not report them."""
        return next((int(self.metrics[name]) for name in _BYTES_ADDED if self.metrics.get(name, "").isdecimal()), 0)


_READABLE_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"}
    | {"v2Checkpoint", "vacuumProtocolCheck"}
)
"""The features of a reader under which the log means what it says. Others may keep commits elsewhere."""

UNADJUSTED_COMMITS = 100
"""Commits. Spark adjusts the times of this many earlier commits before those that it needs."""

_COORDINATED = "delta.coordinatedCommits"
"""The beginning of the properties of tables that keep their newest commits elsewhere."""


@dataclass(frozen=True)
class Log:
    """The log of a table at its newest version, as delta-rs has loaded it."""

    table: "DeltaTable"
    files: Files
    folder: str
    version: int
    id: str
    properties: Mapping[str, str]

    @property
    def location(self) -> str:
        """The folder, as Spark writes it."""
        local = local_path(self.folder)
        return self.folder if local is None else f"file:{local}"

    @cached_property
    def schema(self) -> StructType:
        """The columns as Spark shows them to a reader, without the metadata that Delta keeps to itself."""

        def as_read(fields: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in fields.items() if not name.startswith("delta.")}

        return StructType.fromJson(json.loads(self.table.schema().to_json(), object_hook=as_read))

    @cached_property
    def size(self) -> int:
        """The total bytes of the files."""
        return sum(self._files["size_bytes"].to_pylist())

    @property
    def rows(self) -> int | None:
        """The number of rows in the files, with rows that are marked as deleted; None if their statistics lack it."""
        numbers = self._files["num_records"].to_pylist() if "num_records" in self._files.column_names else [None]
        return None if None in numbers else sum(numbers)

    def has_no_null(self, columns: Iterable[str]) -> bool:
        """Return whether some columns have no null in any file, by the statistics of all files."""
        if self.properties.get("delta.columnMapping.mode", "none") != "none":
            return False  # the statistics have other names
        known = self._files.column_names
        return all("." not in name and f"null_count.{name}" in known and self._is_zero(name) for name in columns)

    def _is_zero(self, column: str) -> bool:
        return not any(number is None or number for number in self._files[f"null_count.{column}"].to_pylist())

    @cached_property
    def _files(self) -> Any:
        import pyarrow

        return pyarrow.table(self.table.get_add_actions(flatten=True))

    def commits(self, limit: int) -> list[Commit]:
        """Return the commits among the newest versions that the log still has, newest first."""
        first = max(self.version - limit + 1, 0)
        times = _commit_times(self.files, self.folder, first, self.version)
        versions = (version for version in range(self.version, first - 1, -1) if version in times)
        return [_commit(self.files, self.folder, version, times[version]) for version in versions]


def open_log(engine: Engine, address: Address) -> tuple[Log | None, str]:
    """Open the log of a table, or return None and why Spark has to read it; the reason is empty if no table exists."""
    why = engine.why_spark(address)
    if why:
        return None, why
    folder, files = address.path, engine.files
    from deltalake.exceptions import DeltaError

    try:
        if not files.exists(f"{folder}/_delta_log"):
            # A default file system other than the local one has paths of the same form. Spark knows other formats, too.
            is_sure = engine.is_embedded or local_path(folder) is None
            return None, "" if is_sure and not files.exists(folder) else "not a Delta table on this machine or on S3"
        table = files.delta_table(folder)
    except StorageFailed as error:
        return None, f"lakejoin cannot read it: {error.found or error.problem}"
    except (DeltaError, OSError, ValueError) as error:
        return None, f"delta-rs cannot read it: {str(error).splitlines()[0]}"
    unknown = sorted(set(table.protocol().reader_features or ()) - _READABLE_FEATURES)
    if unknown:
        return None, f"feature {', '.join(unknown)}"
    metadata = table.metadata()
    properties = {name: str(value) for name, value in metadata.configuration.items()}
    if any(name.startswith(_COORDINATED) for name in properties):
        return None, "coordinated commits"
    return Log(table, files, folder, int(table.version()), str(metadata.id), properties), ""


def _commit_times(files: Files, folder: str, first: int, last: int) -> dict[int, int]:
    """
    Return the times of commits whose files exist in milliseconds since 1970, by version: those of the files, adjusted
    as Spark does it for a change feed. A time that is not later than the previous one becomes that plus one.
    """
    times: dict[int, int] = {}
    previous = None
    names = {_file(version): version for version in range(max(first - UNADJUSTED_COMMITS, 0), last + 1)}
    for name, modified in files.modified(f"{folder}/_delta_log", [*names]).items():
        version = names[name]
        previous = modified if previous is None or modified > previous else previous + 1
        times[version] = previous
    return times


def _file(version: int) -> str:
    return f"{version:020d}.json"


def commit_line(files: Files, folder: str, version: int) -> str:
    """Return the line about a commit in its file of the log; empty if the file is gone or has no such line."""
    try:
        with files.text(f"{folder}/_delta_log/{_file(version)}") as actions:
            return next((line for line in actions if line.startswith('{"commitInfo"')), "")
    except (OSError, ValueError, StorageFailed):  # removed with old log entries, or not accessible to this process
        return ""


def commit_info(line: str) -> dict[str, Any]:
    """Return the information about a commit from its line; empty if it cannot be read."""
    try:
        return dict(json.loads(line)["commitInfo"])
    except (ValueError, KeyError, TypeError):
        return {}


def _commit(files: Files, folder: str, version: int, modified: int) -> Commit:
    info = commit_info(commit_line(files, folder, version))
    parameters = _texts(info.get("operationParameters") or {})
    return Commit(
        version,
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=info.get("inCommitTimestamp") or modified),
        str(info.get("operation") or ""),
        str(info.get("userMetadata") or ""),
        _texts(info.get("operationMetrics") or {}),
        mode=parameters.get("mode") or parameters.get("outputMode") or "",
        parameters={name: parameters[name] for name in PARAMETERS if name in parameters},
        user=str(info.get("userName") or ""),
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a JSON object as Spark shows them: text as it is, everything else as JSON."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return {name: text for name, text in texts.items() if values[name] is not None}
