"""SQL that expectations hand on to Spark as it is: it may look at rows, and do nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import sqlglot
from sqlglot import exp

from pipelines.spec.sql.dialect import Verbatim
from pipelines.spec.sql.functions import AGGREGATES, ALLOWED, GENERATORS, UNSTABLE, WINDOWS, words

KNOWN = (ALLOWED | AGGREGATES | GENERATORS | UNSTABLE | WINDOWS) - words("input_file_name")
"""Functions of rows; others reach files, or run code of a Java class."""

OWN_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""With these a condition is no SQL: `col("seats") > 0`."""


def faults_of_sql(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """
    Say what is wrong with the SQL among the arguments of an expectation.

    Args:
        arguments: The arguments, by name.

    Yields:
        The name of an argument, and the problem.
    """
    query, condition = arguments.get("unexpected_rows_query"), arguments.get("row_condition")
    if isinstance(query, str):
        yield from (("unexpected_rows_query", problem) for problem in _problems(query.replace("{batch}", "batch")))
    if isinstance(condition, str) and arguments.get("condition_parser") not in OWN_PARSERS:
        yield from (("row_condition", problem) for problem in _problems(f"SELECT * FROM batch WHERE {condition}"))


def _problems(sql: str) -> Iterator[str]:
    try:
        statements = sqlglot.parse(sql, read=Verbatim)
    except Exception:  # sqlglot is given arbitrary text; whatever it stumbles over is a fault of the text
        yield "not a query in Spark SQL"
        return
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        yield "must be one query, which changes nothing"
        return
    called = {function.name.lower() for function in statements[0].find_all(exp.Anonymous)}
    yield from (f"`{name}` is not among the functions of rows" for name in sorted(called - KNOWN))
