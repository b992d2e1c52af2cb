"""Find the rows for which the statement of a join raises, such as a division by zero, and say what to write."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lakehouse.errors.conditions import failed_expression, is_about_a_row, value_error
from lakehouse.errors.errors import PastRowFailed, Remedy, RowFailed
from lakehouse.session.session import settings
from lakehouse.tables.table import read_rows
from lakehouse.values.sqltext import quote, struct
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.joins.meaning import meaning
from pipelines.language import Input, Output
from pipelines.language.names import PREFIX

EXAMPLES = 3
"""The number of rows that a message shows."""

WITHOUT_ERRORS = {"spark.sql.ansi.enabled": "false"}
"""Under this setting an expression is null for a row for which it raises otherwise; sums wrap around."""

CHECKED: dict[type, str] = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply"}
"""The functions that return null where the operator raises, or wraps around."""


def row_failed(workspace: Workspace, bound: BoundJoin, error: Exception) -> RowFailed | PastRowFailed:
    """
    Return the error for a row for which the statement raises, with the expression and up to three rows.

    It is a PastRowFailed if the statement raises for no row of the bound versions: the row was mended meanwhile.
    """
    name, expression = bound.join.name, failed_expression(error)
    where, rows = _search(workspace, bound, expression)
    what = f"`{_as_written(bound, expression)}`" if expression else "an expression"
    found = value_error(error)
    if not rows and not bound.streams and not _raises(workspace, bound):
        return PastRowFailed(
            name,
            f"the statement raises for a row as it was in between: {what}",
            expected="a value for each row of each version, which the changelog or the stream needs",
            found=found,
            hint=Remedy("{mend past row}", name),
        )
    shown = f": {'; '.join(rows)}" if rows else ""
    return RowFailed(
        where or name,
        f"the statement of {name} raises for a row: {what}",
        expected="a value for each row",
        found=f"{found}{shown}",
        hint=Remedy("{mend}", name),
    )


def _as_written(bound: BoundJoin, expression: str) -> str:
    """Return an expression over groups with the values of their rows instead of the names that lakejoin gives them."""
    for item in bound.join.inputs:
        rows = item.ungrouped
        named = () if rows.query is None else zip(rows.columns, rows.query.values, strict=True)
        for name, value in named:
            expression = expression.replace(quote(name), value) if name.startswith(PREFIX) else expression
    return expression


def _raises(workspace: Workspace, bound: BoundJoin) -> bool:
    try:
        meaning(_inputs(workspace, bound), bound.join).write.format("noop").mode("overwrite").save()
    except Exception as error:
        if not is_about_a_row(error):
            raise
        return True
    return False


def _inputs(workspace: Workspace, bound: BoundJoin) -> list[DataFrame]:
    inputs = [(item, bound.table(place)) for place, item in enumerate(bound.join.inputs)]
    return [rows_of(workspace, item, table, table.version) for item, table in inputs]


def _search(workspace: Workspace, bound: BoundJoin, expression: str) -> tuple[str, list[str]]:
    """
    Return the sources of an expression, and up to three rows by their keys for which it raises.

    Both are empty if the expression is not one of the statement. Rows for which it takes a null for a value are missed.
    """
    try:
        tree = sqlglot.parse_one(expression, dialect="spark") if expression else None
    except SqlglotError:
        return "", []
    inputs = bound.join.inputs
    used = [] if tree is None else [*tree.find_all(exp.Column)]
    places = sorted({place for place, item in enumerate(inputs) for column in used if column.table == item.alias})
    if tree is None or not places:
        return "", []
    raises = f"({_checked(tree)}) IS NULL AND " + " AND ".join(f"{column.sql('spark')} IS NOT NULL" for column in used)
    where = ", ".join(dict.fromkeys(bound.table(place).address.label for place in places))
    is_of_query = not _is_of_statement(bound, expression) and _is_of_query(inputs[places[0]], expression)
    keys = {place: inputs[place].source_key if is_of_query else _key(bound, place) for place in places}
    columns = [(inputs[place].alias, name) for place, key in keys.items() for name in key]
    shown = {f"{alias}.{name}": quote(alias, name) for alias, name in columns}
    try:
        with settings(workspace.spark, WITHOUT_ERRORS):
            found = partial(_source_rows, expression) if is_of_query else _rows
            rows = found(workspace, bound, places, raises, shown).orderBy("shown").limit(EXAMPLES).collect()
    except PySparkException:  # the error that is looked into must not be hidden by another one
        return "", []
    return where, [", ".join(f"{name} = {value}" for name, value in row[0].asDict().items()) for row in rows]


def _rows(
    workspace: Workspace, bound: BoundJoin, places: Sequence[int], raises: str, shown: dict[str, str]
) -> DataFrame:
    """Return the values to show of the rows, or of the joined rows, that meet a condition."""
    tables = _inputs(workspace, bound)
    if len(places) == 1:
        (place,) = places
        met = tables[place].alias(bound.join.inputs[place].alias).where(raises)
        return met.select(F.expr(struct(shown)).alias("shown"))
    outputs = (Output("shown", struct(shown)), Output("raises", raises))
    return meaning(tables, replace(bound.join, outputs=outputs, where=None)).where("raises").select("shown")


def _is_of_statement(bound: BoundJoin, expression: str) -> bool:
    """Return whether an expression is one of the statement itself, over its inputs."""
    join = bound.join
    parts = (*(output.expression for output in join.outputs), *(step.on for step in join.steps), join.where or "")
    return any(expression in part for part in parts)


def _is_of_query(item: Input, expression: str) -> bool:
    """Return whether an expression is one of the subquery that an input is, over columns of its source."""
    query = item.ungrouped.query
    parts = () if query is None else (*query.values, query.where or "")
    return any(expression in part for part in parts)


def _source_rows(
    expression: str, workspace: Workspace, bound: BoundJoin, places: Sequence[int], raises: str, shown: dict[str, str]
) -> DataFrame:
    """Return the values to show of the rows of a source for which an expression of a subquery, the place, raises."""
    table, item = bound.table(places[0]), bound.join.inputs[places[0]].ungrouped
    rows = read_rows(workspace.spark, table, table.version).alias(item.alias)
    where = None if item.query is None else item.query.where
    taken = rows if where is None or expression in where else rows.where(where)
    return taken.where(raises).select(F.expr(struct(shown)).alias("shown"))


def _key(bound: BoundJoin, place: int) -> Sequence[str]:
    """Return the columns that tell rows of an input apart: its key or, for a stream, all columns that the join uses."""
    item = bound.join.inputs[place]
    return item.key or item.columns


def _checked(tree: Any) -> str:
    """Return an expression whose sums and products are null where they overflow."""

    def replaced(node: Any) -> Any:
        name = CHECKED.get(type(node))
        return node if name is None else exp.func(name, node.this, node.expression)

    return str(tree.transform(replaced).sql("spark"))
