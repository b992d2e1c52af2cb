"""
The change feed of few commits, read from the files that the log names.

Delta's rules for a commit: if it has files of changes, its feed is their rows; if not, each row of an added file is an
insert and each row of a removed file is a delete. Spark reads the feed if a commit needs any other rule.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from lakehouse import limits
from lakehouse.address import local_path
from lakehouse.commits import Commit
from lakehouse.direct_rows import has_early, why_spark
from lakehouse.engine import Engine
from lakehouse.feed import FEED_COLUMNS
from lakehouse.tables import Table, commits_since
from lakehouse.values import plain_schema

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

TYPE = FEED_COLUMNS[0]

READ_WHOLE = {"add": "insert", "remove": "delete"}
"""The kind of change of each row of a file that a commit without files of changes adds or removes."""


class NotReadable(Exception):
    """The files of the commits alone do not show which rows changed; the text is the reason."""


@dataclass(frozen=True)
class File:
    """
    A file with rows of a feed.

    Args:
        path: The file.
        kind: The kind of change of each row; empty if the file has a column of it.
        commit: The commit.
        size: Its bytes.
    """

    path: Path
    kind: str
    commit: Commit
    size: int


def read_feed_directly(engine: Engine, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame | None:
    """
    Read the feed of versions (after, to] without Spark.

    Args:
        engine: Our engines.
        table: The table.
        after: The last version that is already processed.
        to: The last version to read.
        columns: The columns of the table to read.

    Returns:
        The columns, then `_change_type`, `_commit_version`, `_commit_timestamp`, as a literal of later plans; None if
        Spark has to read the feed, also because it is too large for this process.
    """
    import pyarrow

    if why_spark(table, columns):
        return None
    folder = local_path(table.address.path) or ""
    commits = commits_since(engine, table, after)
    schema = plain_schema([table.schema[name] for name in columns])
    kinds = {field.name: to_arrow_type(field.dataType) for field in schema}
    try:
        actions = {commit.version: actions_of(Path(folder), commit, table.schema) for commit in commits}
        read = [commit for commit in commits if commit.version <= to]
        files = [file for commit in read for file in files_of(Path(folder), commit, actions[commit.version])]
        if sum(file.size for file in files) > limits.DIRECT_FEED_BYTES:
            raise NotReadable("its files are too large")
        rows = _empty(kinds)
        for file in files:
            rows = pyarrow.concat_tables([rows, _rows(file, kinds, limits.ROWS_ON_DRIVER - rows.num_rows)])
        if rows.get_total_buffer_size() > limits.BYTES_ON_DRIVER:
            raise NotReadable("its rows are too large")
        rows.validate(full=True)  # text that is not valid UTF-8
        if has_early(rows):
            raise NotReadable("it has dates or times that Spark may shift")
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException, NotReadable) as error:
        # Spark, which reads the feed then, reports what is wrong.
        log.info("%s: Spark reads the feed: %s", table.address.label, str(error).partition("\n")[0])
        return None
    added = zip(FEED_COLUMNS, (StringType(), LongType(), TimestampType()), strict=True)
    return engine.spark.createDataFrame(rows, StructType([*schema, *(StructField(*pair) for pair in added)]))


def actions_of(folder: Path, commit: Commit, schema: StructType) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the actions of a commit by their kind, if the columns are those of the table afterwards."""
    actions: dict[str, list[Mapping[str, Any]]] = {}
    file = folder / "_delta_log" / f"{commit.version:020d}.json"
    if file.stat().st_size > limits.DIRECT_COMMIT_BYTES:
        raise NotReadable(f"version {commit.version} changes too many files")
    with file.open(encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            ((kind, action),) = json.loads(line).items()
            actions.setdefault(kind, []).append(action)
    columns = [StructType.fromJson(json.loads(action["schemaString"])) for action in actions.get("metaData", ())]
    if any(found.simpleString() != schema.simpleString() for found in columns):
        raise NotReadable(f"version {commit.version} has other columns")
    return actions


def files_of(folder: Path, commit: Commit, actions: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[File]:
    """Return the files whose rows are the feed of a commit."""
    whole = [(kind, action) for kind in READ_WHOLE for action in actions.get(kind, ()) if action["dataChange"]]
    if "cdc" in actions:
        return [_file(folder, action, "", commit) for action in actions["cdc"]]
    if commit.operation == "MERGE" and any(kind == "remove" for kind, _ in whole):
        # Delta's feed leaves out such files if the MERGE has changed no row.
        raise NotReadable(f"version {commit.version} is a MERGE that rewrote files without files of changes")
    if any(action.get("deletionVector") for _, action in whole):
        raise NotReadable(f"version {commit.version} deletes rows by deletion vectors")
    return [_file(folder, action, READ_WHOLE[kind], commit) for kind, action in whole]


def _file(folder: Path, action: Mapping[str, Any], kind: str, commit: Commit) -> File:
    if action.get("partitionValues"):  # they count, not what the file may have in such a column
        raise NotReadable("the table is partitioned")
    return File(folder / unquote(action["path"]), kind, commit, int(action["size"]))


def _rows(file: File, kinds: Mapping[str, "pyarrow.DataType"], most: int) -> "pyarrow.Table":
    """Read the rows of a file, at most a number of them, in the form of the feed."""
    import pyarrow
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as source:
        int96 = {column.path for column in source.schema if column.physical_type == "INT96"}
        _check_columns(source, [*kinds, *([] if file.kind else [TYPE])])
        if source.metadata.num_rows > most:
            raise NotReadable("it has too many rows")
        read = source.read([*kinds, *([] if file.kind else [TYPE])])
    number = read.num_rows

    def repeated(value: str | int | datetime, kind: "pyarrow.DataType") -> "pyarrow.Array":
        return pyarrow.repeat(pyarrow.scalar(value, kind), number)

    columns = [_converted(read[name], kind, is_int96=name in int96) for name, kind in kinds.items()]
    change = repeated(file.kind, pyarrow.string()) if file.kind else read[TYPE].cast(pyarrow.string())
    version = repeated(file.commit.version, pyarrow.int64())
    at = repeated(file.commit.at, pyarrow.timestamp("us", "UTC"))
    return pyarrow.table([*columns, change, version, at], schema=_empty(kinds).schema)


def _check_columns(source: "pyarrow.parquet.ParquetFile", names: Sequence[str]) -> None:
    """Check that a file has the columns by the names of the table. Spark finds others, too: it ignores their case."""
    known = source.schema_arrow.names
    for name in names:
        if name not in known or [other.lower() for other in known].count(name.lower()) > 1:
            raise NotReadable(f"a file does not have one column {name}")


def _converted(values: "pyarrow.ChunkedArray", kind: "pyarrow.DataType", *, is_int96: bool) -> "pyarrow.ChunkedArray":
    """Return the values of a file in the type of the table, which Arrow may call by another name."""
    from pyarrow import types

    is_text = types.is_string(kind) and (types.is_large_string(values.type) or types.is_string_view(values.type))
    is_bytes = types.is_binary(kind) and (types.is_large_binary(values.type) or types.is_binary_view(values.type))
    is_moment = types.is_timestamp(kind) and bool(kind.tz)  # INT96 has no time zone in Arrow; Spark writes UTC
    is_same = is_moment if is_int96 else values.type == kind
    if not (is_same or is_text or is_bytes):
        raise NotReadable(f"a file has values of type {values.type} where {kind} is expected")
    return values.cast(kind)


def _empty(kinds: Mapping[str, "pyarrow.DataType"]) -> "pyarrow.Table":
    """Return a feed without rows."""
    import pyarrow

    added = zip(FEED_COLUMNS, (pyarrow.string(), pyarrow.int64(), pyarrow.timestamp("us", "UTC")), strict=True)
    return pyarrow.schema([*kinds.items(), *added]).empty_table()
