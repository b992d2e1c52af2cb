"""
The log of a table on this machine, read by delta-rs: one look takes milliseconds and sees one version. Spark reads the
log instead if the table needs a feature whose effect on the log is not known here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from lakehouse.errors.address import Address, local_path
from lakehouse.session.engine import Engine
from lakehouse.tables.commits import PARAMETERS, Commit

if TYPE_CHECKING:
    from deltalake import DeltaTable

READABLE_FEATURES = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"}
    | {"v2Checkpoint", "vacuumProtocolCheck"}
)
"""The features of a reader under which the log means what it says. Others may keep commits elsewhere."""

UNADJUSTED_COMMITS = 100
"""Commits. Spark adjusts the times of this many earlier commits before those that it needs."""

COORDINATED = "delta.coordinatedCommits"
"""The beginning of the properties of tables that keep their newest commits elsewhere."""


@dataclass(frozen=True)
class Log:
    """The log of a table at its newest version, as delta-rs has loaded it."""

    table: "DeltaTable"
    folder: Path

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self.table.version())

    @property
    def id(self) -> str:
        """Delta's table id."""
        return str(self.table.metadata().id)

    @property
    def location(self) -> str:
        """The folder, as Spark writes it."""
        return f"file:{self.folder}"

    @property
    def features(self) -> frozenset[str]:
        """The features that a reader needs."""
        return frozenset(self.table.protocol().reader_features or ())

    @cached_property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return {name: str(value) for name, value in self.table.metadata().configuration.items()}

    @cached_property
    def schema(self) -> StructType:
        """The columns, as Spark shows them to a reader."""
        return _as_read(StructType.fromJson(json.loads(self.table.schema().to_json())))

    @cached_property
    def size(self) -> int:
        """The total bytes of the files."""
        return sum(self._files["size_bytes"].to_pylist())

    @property
    def rows(self) -> int | None:
        """The number of rows in the files, with rows that are marked as deleted; None if their statistics lack it."""
        numbers = self._files["num_records"].to_pylist() if "num_records" in self._files.column_names else [None]
        return None if None in numbers else sum(numbers)

    @cached_property
    def _files(self) -> Any:
        import pyarrow

        return pyarrow.table(self.table.get_add_actions(flatten=True))

    def commits(self, limit: int) -> list[Commit]:
        """Return the commits among the newest versions that the log still has, newest first."""
        first = max(self.version - limit + 1, 0)
        times = file_times(self.folder, first, self.version)
        versions = [version for version in range(self.version, first - 1, -1) if version in times]
        return [
            _commit(version, commit_info(commit_line(self.folder, version)), times[version]) for version in versions
        ]


def open_log(engine: Engine, address: Address) -> tuple[Log | None, str]:
    """Open the log of a table, or return None and why Spark has to read it; the reason is empty if no table exists."""
    why = engine.why_spark(address)
    if why:
        return None, why
    folder = Path(local_path(address.path) or "")
    if not (folder / "_delta_log").is_dir():
        # A default file system other than the local one has paths of the same form. Spark also knows other formats.
        is_missing = engine.is_embedded and not folder.exists()
        return None, "" if is_missing else "not a Delta table on this machine"
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(folder)
    except (DeltaError, OSError, ValueError) as error:
        return None, f"delta-rs cannot read it: {str(error).splitlines()[0]}"
    log = Log(table, folder)
    unknown = sorted(log.features - READABLE_FEATURES)
    if unknown:
        return None, f"feature {', '.join(unknown)}"
    if any(name.startswith(COORDINATED) for name in table.metadata().configuration):
        return None, "coordinated commits"
    return log, ""


def file_times(folder: Path, first: int, last: int) -> dict[int, int]:
    """
    Return the times of commits in milliseconds since 1970, by version, adjusted as Spark does it for a change feed.

    They are the modification times of the files. A time that is not later than that of the previous commit becomes that
    time plus one millisecond. A version whose file is gone is left out.
    """
    times: dict[int, int] = {}
    previous = None
    for version in range(max(first - UNADJUSTED_COMMITS, 0), last + 1):
        try:
            modified = (folder / "_delta_log" / f"{version:020d}.json").stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            continue
        previous = modified if previous is None or modified > previous else previous + 1
        times[version] = previous
    return times


def commit_line(folder: Path, version: int) -> str:
    """Return the line about a commit in its file of the log; empty if the file is gone or has no such line."""
    try:
        with (folder / "_delta_log" / f"{version:020d}.json").open(encoding="utf-8") as actions:
            return next((line for line in actions if line.startswith('{"commitInfo"')), "")
    except (OSError, ValueError):  # removed with old log entries, or not accessible to this process
        return ""


def commit_info(line: str) -> dict[str, Any]:
    """Return the information about a commit from its line; empty if it cannot be read."""
    try:
        return dict(json.loads(line)["commitInfo"])
    except (ValueError, KeyError, TypeError):
        return {}


def _commit(version: int, info: Mapping[str, Any], modified: int) -> Commit:
    parameters = _texts(info.get("operationParameters") or {})
    return Commit(
        version=version,
        at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=info.get("inCommitTimestamp") or modified),
        operation=str(info.get("operation") or ""),
        metadata=str(info.get("userMetadata") or ""),
        metrics=_texts(info.get("operationMetrics") or {}),
        mode=parameters.get("mode") or parameters.get("outputMode") or "",
        parameters={name: parameters[name] for name in PARAMETERS if name in parameters},
        user=str(info.get("userName") or ""),
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a JSON object as Spark shows them: text as it is, everything else as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }


def _as_read(schema: StructType) -> StructType:
    """Leave out the metadata of fields that Delta keeps to itself."""
    fields = []
    for field in schema:
        metadata = {name: value for name, value in field.metadata.items() if not name.startswith("delta.")}
        fields.append(StructField(field.name, _type_as_read(field.dataType), field.nullable, metadata))
    return StructType(fields)


def _type_as_read(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return _as_read(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_type_as_read(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_type_as_read(kind.keyType), _type_as_read(kind.valueType), kind.valueContainsNull)
    return kind
