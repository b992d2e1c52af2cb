"""The options of sources over real columns: conditions, and how the rows of streams and changelogs are read."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.file.model import Source
from pipelines.language.names import DELETED, ORDER, nearest
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read_expression
from pipelines.language.statement.columns import fields_of
from pipelines.language.statement.statement import Side

OPTIONS = ("tombstone", "null_value")
"""The options of a source that hold conditions."""


class Condition(NamedTuple):
    """A condition over the real columns of a source, as Spark SQL, and the columns that it uses."""

    sql: str
    columns: tuple[str, ...]


NEVER = Condition("false", ())
"""The condition of an option that the file does not set."""


def condition_path(source: str, option: str) -> str:
    """Return the path of a condition in the file."""
    return f"sources.{source}.{option}"


def condition_faults(
    source: str, option: str, sql: str, line_of: Callable[[int | None], int | None]
) -> Iterable[Fault]:
    """Find the errors in a condition that show without columns; `line_of` is as for `faults_of`."""
    _, objections = read_expression(sql)
    return faults_of(objections, condition_path(source, option), sql, line_of)


def canonical(sql: str | None) -> str:
    """Format a condition in a canonical form, without differences in layout, comments or the case of keywords."""
    if sql is None:
        return ""
    expression, _ = read_expression(sql)
    return sql if expression is None else render(expression)


def bind_condition(
    source: str, option: str, sql: str | None, columns: Sequence[str]
) -> tuple[Condition, Iterable[Fault]]:
    """Resolve the columns of a condition, which the source may qualify, and find its errors; None is never true."""
    if sql is None:
        return NEVER, ()
    real = {column.lower(): column for column in columns}
    expression, objections = read_expression(sql)
    for column in expression.find_all(exp.Column) if expression is not None else ():
        first = _parts(source, column, real)[0]
        if first.lower() not in real:
            problem = f"`{as_written(column)}`: {source} has no column `{first}`"
            objections.append(Objection(problem, nearest(first, columns), column))
    if objections or expression is None:
        return NEVER, faults_of(objections, condition_path(source, option), sql)
    used: dict[str, None] = {}

    def resolved(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *fields = _parts(source, node, real)
        used[real[first.lower()]] = None
        return fields_of(exp.column(exp.to_identifier(real[first.lower()], quoted=True)), fields)

    return Condition(render(expression.transform(resolved)), tuple(used)), ()


def of_struct(condition: Condition, struct: str) -> str:
    """Rewrite a resolved condition over columns to the same condition over the fields of a struct column."""
    expression, _ = read_expression(condition.sql)
    assert expression is not None

    def within(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        return fields_of(exp.column(exp.to_identifier(struct)), [part.name for part in node.parts])

    return render(expression.transform(within))


def _parts(name: str, column: exp.Column, known: Collection[str]) -> list[str]:
    """Return a column and the names of its nested fields, without the name of the source that may qualify it."""
    parts = [part.name for part in column.parts]
    is_qualified = len(parts) > 1 and parts[0].lower() == name.lower() and parts[1].lower() in known
    return parts[1:] if is_qualified else parts


def _unknown_columns(name: str, named: Iterable[tuple[str, str]], columns: Sequence[str]) -> list[Fault]:
    """Find the columns, each with its path in the file, that the table of a source does not have."""
    real = {column.lower() for column in columns}
    return [
        Fault(path, f"{name} has no column `{column}`", nearest(column, columns))
        for path, column in named
        if column.lower() not in real
    ]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """
    How to read the rows of a stream, with the real names of its columns.

    Args:
        null_value: The condition for rows without a value, which are counted and ignored (KIP-77).
        order: The column that orders its rows; None if commits order them.
        event_time: Its first watermarked column, which orders the rows of an initial load without `order`.
        ignore_changes: Whether to skip updated and deleted rows, instead of failing.
    """

    source: str
    null_value: Condition
    order: str | None
    event_time: str | None
    ignore_changes: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are always needed, in addition to those that the statement uses."""
        named = (name for name in (self.order, self.event_time) if name is not None)
        return tuple(dict.fromkeys((*self.null_value.columns, *named)))


def bind_stream(name: str, source: Source, columns: Sequence[str]) -> Stream:
    """Resolve the column names in the options of a stream; raise `PipelineFileError` with every unknown column."""
    path, real = f"sources.{name}", {column.lower(): column for column in columns}
    named = [(f"{path}.watermarks", column) for column in source.watermarks]
    named += [(f"{path}.order_by", source.order_by)] if source.order_by is not None else []
    faults = _unknown_columns(name, named, columns)
    null_value, found = bind_condition(name, "null_value", source.null_value, columns)
    if faults or found:
        raise PipelineFileError(name, [*faults, *found])
    event_time = next((real[column.lower()] for column in source.watermarks), None)
    order = None if source.order_by is None else real[source.order_by.lower()]
    return Stream(
        source=name, null_value=null_value, order=order, event_time=event_time, ignore_changes=source.ignore_changes
    )


def bind_result(side: Side, columns: Sequence[str]) -> Stream:
    """Return how to read the result of another join that is a stream: its rows always have a value and never change."""
    real = {column.lower(): column for column in columns}
    event_time = next((real[column.lower()] for column, _ in side.times if column.lower() in real), None)
    null_value = Condition("FALSE", ())
    return Stream(source=side.source, null_value=null_value, order=None, event_time=event_time, ignore_changes=False)


@dataclass(frozen=True, kw_only=True)
class Changelog:
    """
    How to read the rows of a changelog source, with the real names of its columns.

    Args:
        order: The column that orders the rows of a key.
        tombstone: A Spark SQL condition that is true for rows that delete their key.
        columns: The columns of its KTable without `_deleted` and `_order`: the key, then the others as in the table.
        ignore_deletes: Whether to skip deleted rows of the source, instead of failing.
    """

    source: str
    key: tuple[str, ...]
    order: str
    tombstone: str
    columns: tuple[str, ...]
    ignore_deletes: bool = False


def bind_changelog(name: str, source: Source, columns: Sequence[str]) -> Changelog:
    """
    Resolve the column names in the options of a changelog source, whose table has these columns in this order.

    The error, `PipelineFileError`, has every unknown column, and every column with a name that the KTable needs itself.
    """
    path = f"sources.{name}"
    real = {column.lower(): column for column in columns}
    assert source.order_by is not None
    named = [(f"{path}.key", column) for column in source.key] + [(f"{path}.order_by", source.order_by)]
    faults = _unknown_columns(name, named, columns)
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
