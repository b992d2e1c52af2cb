"""
Spark SQL that goes through sqlglot unchanged.

sqlglot translates between dialects: it knows functions by their meaning and writes `nvl` as COALESCE, `to_timestamp`
as a cast. Nothing is translated here, so a function is only a name with arguments, and what Spark evaluates is what
was written.
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
    """Spark's grammar without any knowledge of functions."""

    ADD_JOIN_ON_TRUE: ClassVar = False  # a JOIN without ON stays one
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in SPECIAL_SYNTAX}
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}

    def _warn_unsupported(self) -> None:
        """Log nothing about a command, which is refused in our own words."""


class VerbatimGenerator(SparkGenerator):
    """Spark's spelling; `<=>` stays, because IS NOT DISTINCT FROM binds otherwise."""

    TRANSFORMS: ClassVar = {
        **SparkGenerator.TRANSFORMS,
        exp.NullSafeEQ: lambda self, node: self.binary(node, "<=>"),
    }


class Verbatim(Spark):
    """The dialect made of the two."""

    Parser = VerbatimParser
    Generator = VerbatimGenerator


def render(expression: exp.Expr) -> str:
    """
    Write an expression as Spark SQL, every column in backticks.

    Args:
        expression: What to write.

    Returns:
        The text, without comments.
    """
    return expression.sql(Verbatim, identify=True, comments=False)


def laid_out(statement: exp.Select) -> str:
    """
    Write a statement over several lines: names as the user wrote them where that can be read again.

    Args:
        statement: What to write.

    Returns:
        The text, without comments.
    """
    text = statement.sql(Verbatim, comments=False, normalize_functions=False, pretty=True)
    try:
        is_same = render(sqlglot.parse_one(text, read=Verbatim)) == render(statement)
    except SqlglotError:
        is_same = False
    return text if is_same else statement.sql(Verbatim, identify=True, comments=False, pretty=True)


def as_written(expression: exp.Expr) -> str:
    """
    Write an expression for a message: names as the user wrote them.

    Args:
        expression: What to write.

    Returns:
        The text, cut if it is long.
    """
    text = expression.sql(Verbatim, comments=False, normalize_functions=False)
    return text if len(text) <= 80 else text[:77] + "..."
