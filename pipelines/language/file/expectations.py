"""
Check the expectations of a join without Great Expectations: find unknown names and arguments.

The SQL that they pass to Spark unchanged may only read rows.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from expectations.catalogue import argument_faults, names
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import Verbatim
from pipelines.language.sql.functions import AGGREGATES, ALLOWED, GENERATORS, UNSTABLE, WINDOWS, words

KNOWN = (ALLOWED | AGGREGATES | GENERATORS | UNSTABLE | WINDOWS) - words("input_file_name")
"""The allowed functions, which depend on rows only. Other functions can read files or run Java code."""

OWN_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""With these parsers, a condition is not SQL: `col("seats") > 0`."""


class ExpectationMisfit(NamedTuple):
    """An error in an expectation: the keys below `expectations` that lead to it, the problem and a hint."""

    path: tuple[str, ...]
    problem: str
    hint: str = ""


def expectation_misfits(items: object) -> Iterator[ExpectationMisfit]:
    """Find errors in the expectations of a join; the model of the file reports items without the form of an option."""
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or not all(isinstance(arguments, dict) for arguments in item.values()):
            continue  # the model of the file reports a wrong form
        if len(item) != 1:
            yield ExpectationMisfit(
                (str(place),), "must be one expectation", "begin each with a dash: `- expect_...: {...}`"
            )
        for name, arguments in item.items():
            yield from _misfits((str(place), name), name, arguments)


def _misfits(path: tuple[str, ...], name: str, arguments: Mapping[str, Any]) -> Iterator[ExpectationMisfit]:
    if name not in names():
        hint = nearest(name, names()) or "greatexpectations.io/expectations lists them"
        yield ExpectationMisfit(path, "no such expectation for a table", hint)
        return
    for fault in argument_faults(name, arguments):
        hint = nearest(fault.argument, fault.known) or (f"arguments: {', '.join(fault.known)}" if fault.known else "")
        yield ExpectationMisfit((*path, fault.argument), fault.problem, hint)
    for argument, problem in _faults_of_sql(arguments):
        yield ExpectationMisfit((*path, argument), problem)


def _faults_of_sql(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each SQL argument of an expectation that has an error, and the problem."""
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
