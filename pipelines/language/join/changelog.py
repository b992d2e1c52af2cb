"""Changelog sources: their readers among the joins, and how their rows are read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.file.model import PipelineFile, Source
from pipelines.language.join.chains import statement_of
from pipelines.language.join.condition import bind_condition
from pipelines.language.names import DELETED, ORDER, nearest


@dataclass(frozen=True, kw_only=True)
class Changelog:
    """
    How to read the rows of a changelog source, with the real names of its columns.

    Args:
        order: The column that orders the rows of a key.
        tombstone: A Spark SQL condition that is true for rows that delete their key.
        columns: The columns of its KTable without `_deleted` and `_order`: the key, then the others in the order of the
            table.
        ignore_deletes: Whether to skip deleted rows of the source, instead of failing.
    """

    source: str
    key: tuple[str, ...]
    order: str
    tombstone: str
    columns: tuple[str, ...]
    ignore_deletes: bool = False


def changelogs(file: PipelineFile, names: Collection[str]) -> list[str]:
    """Return the changelog sources that joins read, each once, in the order of the file."""
    read = {source for name in names for source in changelogs_of(file, name)}
    return [source for source in file.sources if source in read]


def changelogs_of(file: PipelineFile, name: str) -> tuple[str, ...]:
    """Return the changelog sources that one join reads, in the order of FROM."""
    if not any(source.kind == "changelog" for source in file.sources.values()):
        return ()
    read = statement_of(file, name).sources
    return tuple(source for source in read if source in file.sources and file.sources[source].kind == "changelog")


def bind_changelog(name: str, source: Source, columns: Sequence[str]) -> Changelog:
    """
    Resolve the column names in the options of a changelog source, whose table has these columns in this order.

    The error, `PipelineFileError`, has every unknown column, and every column with a name that the KTable needs itself.
    """
    path = f"sources.{name}"
    real = {column.lower(): column for column in columns}
    assert source.order_by is not None
    named = [(f"{path}.key", column) for column in source.key] + [(f"{path}.order_by", source.order_by)]
    faults = [
        Fault(where, f"{name} has no column `{column}`", nearest(column, columns))
        for where, column in named
        if column.lower() not in real
    ]
    faults += [
        Fault(path, f"{name} has a column `{real[column]}`, a name that lakejoin needs itself", "rename the column")
        for column in (DELETED, ORDER)
        if column in real
    ]
    tombstone, found = bind_condition(name, "tombstone", source.tombstone, columns)
    if faults or found:
        raise PipelineFileError(name, [*faults, *found])
    key = tuple(real[column.lower()] for column in source.key)
    rest = tuple(column for column in columns if column not in key)
    return Changelog(
        source=name,
        key=key,
        order=real[source.order_by.lower()],
        tombstone=tombstone.sql,
        columns=key + rest,
        ignore_deletes=source.ignore_deletes,
    )
