"""
A sqlglot dialect that passes Spark SQL through unchanged.

By default, sqlglot interprets functions to translate between dialects: it writes `nvl` as COALESCE and `to_timestamp`
as a cast. This dialect translates nothing: a function is only a name with arguments, and Spark evaluates exactly what
the user wrote.
"""

from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

SPECIAL_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT")


class VerbatimParser(SparkParser):
    """Spark's grammar; functions are not interpreted."""

    ADD_JOIN_ON_TRUE: ClassVar = False  # keep a JOIN without ON as it is
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in SPECIAL_SYNTAX}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _warn_unsupported(self) -> None:
        """Log nothing about unsupported commands: lakejoin refuses them with its own message."""


class VerbatimGenerator(SparkGenerator):
    """Spark's syntax; keeps `<=>`, because IS NOT DISTINCT FROM has another precedence."""

    TRANSFORMS: ClassVar = {**SparkGenerator.TRANSFORMS, exp.NullSafeEQ: lambda self, node: self.binary(node, "<=>")}


class Verbatim(Spark):
    """The dialect with the parser and the generator above."""

    Parser = VerbatimParser
    Generator = VerbatimGenerator


def render(expression: exp.Expr) -> str:
    """Format an expression as Spark SQL without comments, with every column in backticks."""
    return expression.sql(Verbatim, identify=True, comments=False)


def laid_out(statement: exp.Select, *, pretty: bool = True) -> str:
    """Format a statement over several lines, without comments; quote names only if the parser misreads it otherwise."""
    text = statement.sql(Verbatim, comments=False, normalize_functions=False, pretty=pretty)
    try:
        is_same = render(sqlglot.parse_one(text, read=Verbatim)) == render(statement)
    except SqlglotError:
        is_same = False
    return text if is_same else statement.sql(Verbatim, identify=True, comments=False, pretty=pretty)


def as_item(item: exp.Expr) -> str:
    """Format an item of a SELECT list as `laid_out` does a statement."""
    return laid_out(exp.Select(expressions=[item.copy()]), pretty=False).removeprefix("SELECT ")


def as_named(table: exp.Expr) -> str:
    """Format an input for a message as FROM names it, without AS."""
    if isinstance(table, exp.Subquery):
        return f"({as_written(table.unnest())}) {table.alias}"
    return " ".join(as_written(part) for part in (exp.table_(table.this), table.args.get("alias")) if part)


def as_written(expression: exp.Expr) -> str:
    """Format an expression for a message, with names as the user wrote them, truncated to 80 characters."""
    text = as_text(expression)
    return text if len(text) <= 80 else text[:77] + "..."


def as_text(expression: exp.Expr) -> str:
    """Format an expression that a message tells the user to write."""
    return expression.sql(Verbatim, comments=False, normalize_functions=False)
