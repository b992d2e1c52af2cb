"""
Whether a commit and the columns of a table are those that an epoch recorded.

Columns are traced from one version to another through the commits of the table's history:

    RENAME COLUMN a TO b        the column at a is at b after the commit
    DROP COLUMN, ADD COLUMNS    a column of this name after the commit differs from all columns before it
    RESTORE TO VERSION n        every column is where it was at version n

A commit whose parameters do not show its effect counts as a replacement of all columns.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from lakehouse.errors.errors import FeedUnavailable
from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from lakehouse.tables.delta_log import Commit, commit_info, commit_line, open_log
from lakehouse.tables.table import Table, commits_since, find, table_detail, with_commits_since
from lakehouse.values.compare import char_type, inner_types
from lakehouse.values.locations import local_path
from lakehouse.values.recorded import UNKNOWN, CommitIdentity, SourceVersions, UsedColumn
from lakehouse.values.sqltext import Address, quote

ColumnPath = tuple[str, ...]
"""The names of a column and of nested fields; `element`, `key` and `value` stand for the parts of arrays and maps."""

_EVERYTHING: ColumnPath = ()
"""The path that contains all columns."""

_IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
"""The table property by which commits record their times themselves."""

_TRANSACTION = StructType([StructField("appId", StringType()), StructField("version", LongType())])
_LOG = StructType([StructField("txn", _TRANSACTION)])
_FILES = (("json", "*.json"), ("parquet", "*.checkpoint*.parquet"))
"""The files of a log with transactions, by format: commits, and checkpoints other than those in JSON."""


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Return the identity of the commit that made a version of a table, from the table's known commits and its log."""
    time = next((commit.at for commit in table.commits if commit.version == version), None)
    return CommitIdentity(time, _transaction_in(table.files, _log_of(table.address, table.location), version))


def identity_at(engine: Engine, address: Address, version: int) -> CommitIdentity:
    """
    Return the identity of the commit that made a version of a table that may have changed since it was looked up. Only
    a table whose log this process cannot read, and itself records times, is looked up again as a whole.
    """
    transaction = _transaction_in(engine.files, address.path, version)
    if transaction:
        return CommitIdentity(None, transaction)
    detail = table_detail(engine.spark, address)
    if detail is None:
        return UNKNOWN
    transaction = _transaction_in(engine.files, _log_of(address, detail["location"] or ""), version)
    if transaction or not _keeps_times(detail["properties"]):
        return CommitIdentity(None, transaction)
    table = find(engine, address)
    return UNKNOWN if table is None else target_identity(with_commits_since(engine, table, version), version)


def target_identity(table: Table, version: int) -> CommitIdentity:
    """
    Return the identity of a commit of a table that lakejoin maintains. Its time counts only if the log itself records
    it: the times of files change when a whole lake is copied.
    """
    identity = commit_identity(table, version)
    return identity if _keeps_times(table.properties) else replace(identity, time=None)


def _keeps_times(properties: Mapping[str, str]) -> bool:
    return properties.get(_IN_COMMIT_TIMES, "false").lower() == "true"


def _log_of(address: Address, location: str) -> str:
    """Return the folder whose log is read for a table: of a catalog, which keeps its credentials, only a local one."""
    return location if address.path or local_path(location) is not None else ""


def _transaction_in(files: Files, location: str, version: int) -> str:
    if not files.has_logs(location):
        return ""
    line = commit_line(files, location, version)
    transaction = commit_info(line).get("txnId")
    if line and transaction is None:  # not every writer records a transaction id
        transaction = hashlib.sha256(line.encode()).hexdigest()
    return str(transaction or "")


def last_transaction(engine: Engine, address: Address, application: str) -> int | None:
    """
    Return the newest version that an application wrote to a table under its own id; None if the table has none, does
    not exist, or lies where the files of its log cannot be read.
    """
    log, why = open_log(engine, address)
    if log is not None:
        return log.table.transaction_version(application)
    table = find(engine, address) if why else None
    if table is None or not table.location:
        return None
    newest: list[int] = []
    for file_format, files in _FILES:
        # No such file, or none that the session may read: a catalog may hide the folder.
        with suppress(PySparkException):
            actions = engine.spark.read.schema(_LOG).format(file_format).load(f"{table.location}/_delta_log/{files}")
            versions = actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0]
            newest += (int(version) for version in versions if version is not None)
    return max(newest, default=None)


def columns_in(schema: StructType, names: Sequence[str]) -> tuple[UsedColumn, ...]:
    """Describe columns in the order of their names, in any case, each before its fields; ignore unknown names."""
    fields = {field.name.lower(): field for field in schema}
    used = [fields[name.lower()] for name in names if name.lower() in fields]
    return tuple(column for f in used for column in _described((f.name,), f.dataType, char_type(f) or ""))


def changed_columns(engine: Engine, table: Table, recorded: SourceVersions, commits: Sequence[Commit]) -> str:
    """
    Describe the columns that an epoch used and that have been replaced or redefined by the commits since, one clause
    for each column or field; return "" if all are unchanged. Unchanged rows may have other values in these columns.
    """
    names = [column.path[0] for column in recorded.columns if len(column.path) == 1]
    now = columns_in(table.schema, names)
    different = tuple(_differences(recorded.columns, now))
    if different or not commits or not names:
        return "; ".join(different)
    since = base = recorded.to_version
    try:
        while (lowest := lowest_target(commits, base)) < base:
            base, commits = lowest, commits_since(engine, table, lowest)
    except FeedUnavailable as error:
        return f"the effect of a RESTORE on the columns is unknown: {error.problem} ({error.found})"
    others = other_columns([column.path for column in now], commits, since, commits[-1].version)
    return "; ".join(
        f"{_shown(path)} is not the same column as at version {since}: {commit.operation} in version {commit.version}"
        for path, commit in others.items()
        if path[:-1] not in others
    )


def _differences(before: Sequence[UsedColumn], now: Sequence[UsedColumn]) -> Iterator[str]:
    was, is_now = ({_key(column): column for column in columns} for columns in (before, now))
    types = {key: [of[key].type if key in of else "absent" for of in (was, is_now)] for key in (*was, *is_now)}
    different = [key for key, (old, new) in types.items() if old != new]
    for key in different:
        if key[:-1] not in different:
            old, new = types[key]
            yield f"{_shown((was.get(key) or is_now[key]).path)} was {old} and is {new}"
    if not different and list(was) != list(is_now):
        key = next(key for key, other in zip(was, is_now, strict=True) if key != other)
        yield f"the fields of {_shown(was[key].path[:-1])} are in another order"


def _key(column: UsedColumn) -> ColumnPath:
    """Return what identifies a column or field: values show the case of a field's name, not that of a column's."""
    return (column.path[0].lower(), *column.path[1:])


def _described(path: ColumnPath, data_type: DataType, declared: str = "") -> Iterator[UsedColumn]:
    names: Sequence[str] = {ArrayType: ("element",), MapType: ("key", "value")}.get(type(data_type), ())
    if isinstance(data_type, StructType):
        names = data_type.fieldNames()
    is_nested = isinstance(data_type, (ArrayType, MapType, StructType))
    yield UsedColumn(path, declared or (data_type.typeName() if is_nested else data_type.simpleString()))
    for name, inner in zip(names, inner_types(data_type), strict=True):
        yield from _described((*path, name), inner)


def _shown(path: ColumnPath) -> str:
    return ".".join(map(quote, path))


class _Moved(NamedTuple):
    """The rename of the column or field at one path."""

    old: ColumnPath
    new: ColumnPath


class _Replaced(NamedTuple):
    """The removal or addition of the columns or fields at these paths."""

    paths: tuple[ColumnPath, ...]


def lowest_target(commits: Iterable[Commit], since: int) -> int:
    """Return the lowest of a version and the target versions of the RESTORE commits."""
    return min([since, *(_parent(commit) for commit in commits if commit.operation == "RESTORE")])


def other_columns(
    paths: Iterable[ColumnPath], commits: Iterable[Commit], since: int, until: int
) -> dict[ColumnPath, Commit]:
    """
    Find the paths, of those that two versions have, at which the later one has a different column, each with the first
    commit that moved or replaced the earlier column. The commits begin after `lowest_target`.
    """
    steps = list(_steps({commit.version: commit for commit in commits}, since, until))
    replacing = {path: _replacing(_folded(path), steps) for path in paths}
    return {path: commit for path, commit in replacing.items() if commit is not None}


def _steps(commits: Mapping[int, Commit], since: int, until: int) -> Iterable[tuple[Commit, _Moved | _Replaced]]:
    """List the steps from the columns of one version to another's: commits undone, then commits applied."""
    undone, done = [], []
    while since != until:
        if since > until:
            undone.append(commits[since])
            since = _parent(commits[since])
        else:
            done.append(commits[until])
            until = _parent(commits[until])
    for commit in (*undone, *reversed(done)):
        step = _step(commit)
        if isinstance(step, _Moved) and commit in undone:
            step = _Moved(step.new, step.old)
        if step is not None:
            yield commit, step


def _replacing(path: ColumnPath, steps: Iterable[tuple[Commit, _Moved | _Replaced]]) -> Commit | None:
    """Trace the column at a path; return the first commit that moved or replaced it, None if it ends there."""
    at: ColumnPath = path
    first: Commit | None = None
    for commit, step in steps:
        if isinstance(step, _Moved) and _is_within(at, step.old):
            now = step.new + at[len(step.old) :]
            first, at = (first if now == at else first or commit), now
        elif any(_is_within(at, taken) for taken in ((step.new,) if isinstance(step, _Moved) else step.paths)):
            return first or commit
    return None if at == path else first


def _parent(commit: Commit) -> int:
    """Return the version from whose columns a commit starts: the previous one, or the target of a RESTORE."""
    target = commit.parameters.get("version", "") if commit.operation == "RESTORE" else ""
    return int(target) if target.isdecimal() else commit.version - 1


def _step(commit: Commit) -> _Moved | _Replaced | None:
    values = commit.parameters
    if commit.operation == "RENAME COLUMN":
        old, new = (_path(values.get(name, "")) for name in ("oldColumnPath", "newColumnPath"))
        return _Moved(old, new) if old and new else _Replaced((_EVERYTHING,))
    if commit.operation in ("DROP COLUMNS", "ADD COLUMNS"):
        return _Replaced(_named(values.get("columns", "")))
    is_unclear = commit.operation == "REPLACE COLUMNS" or (commit.operation == "RESTORE" and not values.get("version"))
    return _Replaced((_EVERYTHING,)) if is_unclear else None


def _named(columns: str) -> tuple[ColumnPath, ...]:
    try:
        names = [part if isinstance(part, str) else part["column"]["name"] for part in json.loads(columns)]
    except (ValueError, TypeError, KeyError):
        return (_EVERYTHING,)
    return tuple(map(_path, names))


def _path(text: str) -> ColumnPath:
    """Parse a path, in which only names with a dot are in backticks; lower case, `_EVERYTHING` if it is ambiguous."""
    parts = re.findall(r"(?:`([^`]*\.[^`]*)`|([^.`]+))(?:\.|$)", text)
    names = [quoted or plain for quoted, plain in parts]
    written = ".".join(f"`{quoted}`" if quoted else plain for quoted, plain in parts)
    return _folded(names) if written == text else _EVERYTHING


def _folded(path: Iterable[str]) -> ColumnPath:
    return tuple(name.lower() for name in path)


def _is_within(path: ColumnPath, outer: ColumnPath) -> bool:
    return path[: len(outer)] == outer
