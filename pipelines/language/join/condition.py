"""Conditions over the columns of one source: its options `tombstone` and `null_value`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from lakehouse.errors.errors import Fault
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read_expression
from pipelines.language.statement.scope import fields_of

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
    """
    Resolve the column names in a condition, which the source may qualify, and return it with the errors in it.

    Without a condition, the result is one that is never true.
    """
    if sql is None:
        return NEVER, ()
    expression, objections = read_expression(sql)
    if expression is not None:
        objections += _unknown(source, expression, columns)
    if objections or expression is None:
        return NEVER, faults_of(objections, condition_path(source, option), sql)
    real = {column.lower(): column for column in columns}
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


def _unknown(name: str, expression: exp.Expr, columns: Sequence[str]) -> Iterator[Objection]:
    real = {column.lower(): column for column in columns}
    for column in expression.find_all(exp.Column):
        first = _parts(name, column, real)[0]
        if first.lower() not in real:
            problem = f"`{as_written(column)}`: {name} has no column `{first}`"
            yield Objection(problem, nearest(first, columns), column)


def _parts(name: str, column: exp.Column, known: Collection[str]) -> list[str]:
    """Return a column and the names of its nested fields, without the name of the source that may qualify it."""
    parts = [part.name for part in column.parts]
    is_qualified = len(parts) > 1 and parts[0].lower() == name.lower() and parts[1].lower() in known
    return parts[1:] if is_qualified else parts
