"""
Comparisons in which Spark pads the values of CHAR columns.

lakejoin reads a CHAR(n) column as a padded string. Spark SQL pads the shorter side when it compares such a column with
a constant or with a CHAR column of another length: `c = 'ab'` is true for a CHAR(5) that holds 'ab'. A comparison of
the plain strings would give another result, so these comparisons are refused.
"""

from collections.abc import Iterator, Mapping

from sqlglot import exp

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import read_expression

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
COMPARING_FUNCTIONS = frozenset({"decode", "equal_null", "nullif"})
"""Functions that Spark rewrites to comparisons of their arguments."""

Columns = Mapping[tuple[str, ...], str]
"""The types of CHAR columns, such as `char(5)`, by alias, if the column has one, and name."""


def padded_comparisons(sql: str, columns: Columns) -> Iterator[Objection]:
    """Yield an objection for each comparison of an expression in which Spark would pad a CHAR column."""
    expression, _ = read_expression(sql)
    if expression is None:
        return
    for column in expression.find_all(exp.Column):
        kind = columns.get(tuple(part.name for part in column.parts))
        if kind is not None and any(_is_padded(operand, kind, columns) for operand in _compared_with(column)):
            name = as_written(column).replace("`", "")
            yield Objection(
                f"{name} is {kind.upper()}, which Spark pads in this comparison",
                f"compare rtrim({name}), without the padding, or CAST({name} AS STRING), with it",
            )


def column_parts(sql: str) -> tuple[str, ...]:
    """Return the alias and the name of an expression that is a column, maybe in parentheses; empty if it is none."""
    expression, _ = read_expression(sql)
    column = None if expression is None else expression.unnest()
    return tuple(part.name for part in column.parts) if isinstance(column, exp.Column) else ()


def _compared_with(column: exp.Expr) -> list[exp.Expr]:
    """Return the expressions that a column, or a field of it, is compared with directly."""
    node = column
    while isinstance(node.parent, exp.Paren | exp.Dot):
        node = node.parent
    parent = node.parent
    if isinstance(parent, COMPARISONS):
        return [parent.right if parent.left is node else parent.left]
    if isinstance(parent, exp.In):
        return list(parent.expressions) if parent.this is node else []
    if isinstance(parent, exp.Between):
        return [parent.args["low"], parent.args["high"]] if parent.this is node else [parent.this]
    if isinstance(parent, exp.Case):  # the operand of a simple CASE
        return [branch.this for branch in parent.args["ifs"]] if parent.this is node else []
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case) and parent.parent.this is not None:
        return [parent.parent.this] if parent.this is node else []
    if isinstance(parent, exp.Anonymous) and parent.name.lower() in COMPARING_FUNCTIONS:
        return [argument for argument in parent.expressions if argument is not node]
    return []


def _is_padded(operand: exp.Expr, kind: str, columns: Columns) -> bool:
    operand = operand.unnest()
    if isinstance(operand, exp.Column):
        other = columns.get(tuple(part.name for part in operand.parts))
        return other is not None and other != kind
    if operand.find(exp.Column) is not None:
        return False
    is_text = isinstance(operand, exp.Literal) and operand.is_string
    if isinstance(operand, exp.Null) or (isinstance(operand, exp.Literal) and not is_text):
        return False
    return not (is_text and kind == f"char({len(operand.name)})")
