"""Changelog sources: which joins read one, what its rows say, and what its KTable is defined by."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from lakehouse.errors import Fault, PipelineFileError
from pipelines.spec.chains import statement_of
from pipelines.spec.dialect import as_written, render
from pipelines.spec.model import PipelineFile, Source
from pipelines.spec.names import DELETED, ORDER, nearest
from pipelines.spec.objection import Objection, faults_of
from pipelines.spec.scope import fields_of
from pipelines.spec.syntax import read_expression


@dataclass(frozen=True)
class Changelog:
    """
    How the rows of a changelog source are read, under the real names of its columns.

    Args:
        source: Its name in the file.
        key: The key columns.
        order: The column that orders the rows of a key.
        tombstone: Spark SQL that is true for a row that deletes its key.
        columns: The columns of its KTable: the key, then the others in the order of the table; without `_deleted` and
            `_order`.
    """

    source: str
    key: tuple[str, ...]
    order: str
    tombstone: str
    columns: tuple[str, ...]


def changelogs(file: PipelineFile, names: Collection[str]) -> list[str]:
    """
    Name the changelog sources that joins read.

    Args:
        file: The pipeline file.
        names: Names of joins.

    Returns:
        Each source once, in the order of the file.
    """
    read = {source for name in names for source in changelogs_of(file, name)}
    return [source for source in file.sources if source in read]


def changelogs_of(file: PipelineFile, name: str) -> tuple[str, ...]:
    """Name the changelog sources that one join reads, in the order of FROM."""
    if not any(source.kind == "changelog" for source in file.sources.values()):
        return ()
    read = statement_of(file, name).sources
    return tuple(source for source in read if source in file.sources and file.sources[source].kind == "changelog")


def tombstone_path(source: str) -> str:
    """Name the place of a source's tombstone in the file."""
    return f"sources.{source}.tombstone"


def tombstone_faults(source: str, sql: str, line_of: Callable[[int | None], int | None]) -> list[Fault]:
    """
    Say what is wrong with a tombstone, as far as that shows without the columns of the source.

    Args:
        source: The name of the source.
        sql: The text of the tombstone.
        line_of: Gives the line of the file for a row of the text, or for the whole of it, for None.
    """
    _, objections = read_expression(sql)
    return faults_of(objections, tombstone_path(source), sql, line_of)


def canonical_tombstone(source: Source) -> str:
    """Write the tombstone of a source so that layout, comments and the case of keywords do not count."""
    if source.tombstone is None:
        return ""
    expression, _ = read_expression(source.tombstone)
    return source.tombstone if expression is None else render(expression)


def bind_changelog(name: str, source: Source, columns: Sequence[str]) -> Changelog:
    """
    Resolve the names that a changelog source gives.

    Args:
        name: Its name in the file.
        source: What the file says of it.
        columns: The columns of its table, in their order.

    Raises:
        PipelineFileError: With every column that is not there, or that has the name of one of the KTable's own.
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
        Fault(path, f"{name} has a column `{real[column]}`, as lakejoin's own table of it does", "give it another name")
        for column in (DELETED, ORDER)
        if column in real
    ]
    tombstone, found = _tombstone(name, source.tombstone, columns)
    if faults or found:
        raise PipelineFileError(name, [*faults, *found])
    key = tuple(real[column.lower()] for column in source.key)
    rest = tuple(column for column in columns if column not in key)
    return Changelog(name, key, real[source.order_by.lower()], tombstone, key + rest)


def _tombstone(name: str, sql: str | None, columns: Sequence[str]) -> tuple[str, Iterable[Fault]]:
    """Write the tombstone with real names; without one no row deletes."""
    if sql is None:
        return "false", ()
    expression, objections = read_expression(sql)
    if expression is not None:
        objections += _unknown(name, expression, columns)
    if objections or expression is None:
        return "", faults_of(objections, tombstone_path(name), sql)
    real = {column.lower(): column for column in columns}

    def resolved(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *fields = _parts(name, node, real)
        return fields_of(exp.column(exp.to_identifier(real[first.lower()], quoted=True)), fields)

    return render(expression.transform(resolved)), ()


def _unknown(name: str, expression: exp.Expr, columns: Sequence[str]) -> Iterator[Objection]:
    real = {column.lower(): column for column in columns}
    for column in expression.find_all(exp.Column):
        first = _parts(name, column, real)[0]
        if first.lower() not in real:
            problem = f"`{as_written(column)}`: {name} has no column `{first}`"
            yield Objection(problem, nearest(first, columns), column)


def _parts(name: str, column: exp.Column, known: Collection[str]) -> list[str]:
    """Give a column and the fields of it that are named; the source's name may stand before it."""
    parts = [part.name for part in column.parts]
    is_qualified = len(parts) > 1 and parts[0].lower() == name.lower() and parts[1].lower() in known
    return parts[1:] if is_qualified else parts
