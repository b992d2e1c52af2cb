"""Describe the columns of a source that an epoch uses, with all nested fields, and the changes to them since."""

from collections.abc import Iterator, Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakehouse.errors.errors import FeedUnavailable
from lakehouse.session.engine import Engine
from lakehouse.tables.commits import Commit
from lakehouse.tables.lineage import Path, lowest_target, other_columns
from lakehouse.tables.table import Table, commits_since
from lakehouse.values.compare import char_type
from lakehouse.values.recorded import SourceVersions, UsedColumn
from lakehouse.values.sqltext import quote


def columns_in(schema: StructType, names: Sequence[str]) -> tuple[UsedColumn, ...]:
    """Describe columns in the order of their names, in any case, each before its fields; ignore unknown names."""
    held = {field.name.lower(): field for field in schema}
    wanted = [held[name.lower()] for name in names if name.lower() in held]
    return tuple(
        column for field in wanted for column in _described((field.name,), field.dataType, char_type(field) or "")
    )


def changed_columns(engine: Engine, table: Table, recorded: SourceVersions, commits: Sequence[Commit]) -> str:
    """
    Describe the columns that an epoch used and that have been replaced or redefined since, one clause for each column
    or field; return "" if all are unchanged, or if the epoch recorded none. Unchanged rows may have other values in
    these columns.

    Args:
        table: The source as it is pinned now.
        commits: The commits of the table since then, oldest first.
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


def _key(column: UsedColumn) -> Path:
    """Return what identifies a column or field: values show the case of a field's name, not that of a column's."""
    return (column.path[0].lower(), *column.path[1:])


def _described(path: Path, kind: DataType, declared: str = "") -> Iterator[UsedColumn]:
    if isinstance(kind, StructType):
        yield UsedColumn(path, declared or "struct")
        for field in kind:
            yield from _described((*path, field.name), field.dataType)
    elif isinstance(kind, ArrayType):
        yield UsedColumn(path, declared or "array")
        yield from _described((*path, "element"), kind.elementType)
    elif isinstance(kind, MapType):
        yield UsedColumn(path, declared or "map")
        yield from _described((*path, "key"), kind.keyType)
        yield from _described((*path, "value"), kind.valueType)
    else:
        yield UsedColumn(path, declared or kind.simpleString())


def _shown(path: Path) -> str:
    return ".".join(map(quote, path))
