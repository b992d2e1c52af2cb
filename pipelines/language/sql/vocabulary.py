"""
The constructs that an expression may contain.

The module lists allowed constructs, not forbidden ones, so that unknown constructs are refused. For each allowed
construct, Spark gives the output of `render` the same meaning as the original text; a test compares them.
"""

import re
from collections.abc import Iterator

from sqlglot import exp

from pipelines.language.sql.dialect import Verbatim, as_written
from pipelines.language.sql.functions import BARE, objection, words
from pipelines.language.sql.objection import Objection

OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.Paren, exp.Not, exp.Neg, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.BitwiseAnd, exp.BitwiseOr,
    exp.BitwiseXor, exp.BitwiseNot, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape,
)  # fmt: skip
OPERANDS: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.Boolean, exp.Null, exp.Var, exp.Case, exp.If, exp.Cast,
    exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.IntervalSpan, exp.Anonymous,
    exp.Lambda, exp.Bracket, exp.Dot, exp.Extract,
)  # fmt: skip
VOCABULARY = frozenset(OPERATORS + OPERANDS)
TYPES = frozenset(
    exp.DataType.build(name, dialect=Verbatim).this
    for name in words(
        """
        boolean tinyint smallint int bigint float double decimal string binary date timestamp timestamp_ntz
        timestamp_ltz array<int> map<int,int> struct<a:int>
        """
    )
)
TIMES = frozenset(exp.DataType.build(name, dialect=Verbatim).this for name in words("date timestamp timestamp_ltz"))

CLOCK_WORD = re.compile(r"\s*(now|today|tomorrow|yesterday)(?![a-z])\s*([a-z+-]\S*)?\s*", re.IGNORECASE)
TIME_OF_DAY = re.compile(r"\s*T?\d{1,2}:.*", re.IGNORECASE | re.DOTALL)

CALLED: dict[type[exp.Expr], Objection] = {
    exp.Window: Objection("window functions (OVER) are not supported", "a result row has one row of each input"),
    exp.Query: Objection("subqueries are not supported", "name sources in FROM and JOIN"),
    exp.Exists: Objection("subqueries (EXISTS) are not supported", "name sources in FROM and JOIN"),
    exp.Parameter: Objection("parameters are not supported", "write the value: it is part of the join's definition"),
    exp.Placeholder: Objection("parameters are not supported", "write the value: it is part of the join's definition"),
    exp.Distinct: Objection("DISTINCT is not supported"),
    exp.Order: Objection("ORDER BY inside a function is not supported"),
    exp.Star: Objection("`*` inside an expression is not supported", "name the columns"),
    exp.Alias: Objection("AS inside an expression is not supported", "name fields with named_struct"),
    exp.Aliases: Objection("an output has several names", "give each result column one name"),
    exp.Concat: Objection("adjacent strings are not joined", r"join them with `||`; write a quote in a string as \'"),
}


def refused(expression: exp.Expr) -> Iterator[Objection]:
    """
    Find the constructs of an expression that a statement may not use; parts of a refused construct are not checked.

    The expression is an item of the SELECT list without its alias, or the condition of ON or WHERE.
    """
    pending = [expression]
    while pending:
        node = pending.pop()
        found = _objection(node)
        if found:
            yield found._replace(about=node)
        else:
            pending.extend(node.iter_expressions(reverse=True))


def _objection(node: exp.Expr) -> Objection | None:
    for kind, called in CALLED.items():
        if isinstance(node, kind):
            return called
    if node.args.get("query"):
        return CALLED[exp.Query]
    if type(node) not in VOCABULARY or _is_other_form(node):
        return Objection(f"`{as_written(node)}` is not supported in a join")
    if isinstance(node, exp.Anonymous):
        return objection(node.name, len(node.expressions))
    if isinstance(node, exp.Column):
        return _bare_function(node)
    if isinstance(node, exp.Lambda):
        return _mixed_case(node)
    if isinstance(node, exp.Literal | exp.RawString):
        return _clock(node)
    return None


def _is_other_form(node: exp.Expr) -> bool:
    if type(node) is exp.DataType:
        return node.this not in TYPES or bool(node.args.get("collate"))
    if isinstance(node, exp.In):
        return not node.expressions
    if isinstance(node, exp.Between):
        return node.args.get("symmetric") is not None
    if isinstance(node, exp.Interval):
        return not isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Dot):
        return not isinstance(node.expression, exp.Identifier)
    if isinstance(node, exp.Bracket):
        return len(node.expressions) != 1
    if isinstance(node, exp.Cast):
        return any(node.args.get(option) for option in ("format", "action", "default"))
    return False


def _bare_function(column: exp.Column) -> Objection | None:
    name = column.this
    if not column.table and not name.args.get("quoted") and name.name.lower() in BARE:
        return objection(name.name, 0)
    return None


def _mixed_case(function: exp.Lambda) -> Objection | None:
    """Refuse names that differ from a lambda's parameter only in case: Spark reads the parameter, sqlglot a column."""
    parameters = {parameter.name.lower() for parameter in function.expressions}
    for column in function.this.find_all(exp.Column):
        if column.parts[0].name.lower() in parameters:
            return Objection(f"`{column.parts[0].name}` differs from the lambda's parameter only in case")
    return None


def _clock(literal: exp.Expr) -> Objection | None:
    text = literal.name
    if (isinstance(literal, exp.RawString) or literal.is_string) and CLOCK_WORD.fullmatch(text):
        return Objection(
            f"'{text}' means the time of the query where Spark expects a date or a timestamp",
            "write a date; to compare with this text itself, write concat('to', 'day')",
        )
    cast = literal.parent
    if isinstance(cast, exp.Cast) and cast.to.this in TIMES and TIME_OF_DAY.fullmatch(text):
        return Objection(f"'{text}' as a timestamp is a time on the day of the query", "write date and time")
    return None
