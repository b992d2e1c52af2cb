"""Check the SQL that expectations pass to Spark unchanged: it may only read rows."""

from collections.abc import Iterator, Mapping
from typing import Any

import sqlglot
from sqlglot import exp

from pipelines.spec.sql.dialect import Verbatim
from pipelines.spec.sql.functions import AGGREGATES, ALLOWED, GENERATORS, UNSTABLE, WINDOWS, words

KNOWN = (ALLOWED | AGGREGATES | GENERATORS | UNSTABLE | WINDOWS) - words("input_file_name")
"""The allowed functions, which depend on rows only. Other functions can read files or run Java code."""

OWN_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""With these parsers, a condition is not SQL: `col("seats") > 0`."""


def faults_of_sql(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """
    Find errors in the SQL arguments of an expectation.

    Args:
        arguments: The arguments, by name.

    Yields:
        The name of the argument and the problem.
    """
    query, condition = arguments.get("unexpected_rows_query"), arguments.get("row_condition")
    if isinstance(query, str):
        yield from (("unexpected_rows_query", problem) for problem in _problems(query.replace("{batch}", "batch")))
    if isinstance(condition, str) and arguments.get("condition_parser") not in OWN_PARSERS:
        yield from (("row_condition", problem) for problem in _problems(f"SELECT * FROM batch WHERE {condition}"))


def _problems(sql: str) -> Iterator[str]:
    try:
        statements = sqlglot.parse(sql, read=Verbatim)
    except Exception:  # the text is arbitrary, and sqlglot may raise any error
        yield "is not a Spark SQL query"
        return
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        yield "must be one query that only reads"
        return
    called = {function.name.lower() for function in statements[0].find_all(exp.Anonymous)}
    yield from (f"`{name}` is not a function that an expectation may call" for name in sorted(called - KNOWN))
