"""The text of a query, and errors of Spark about it as readable messages."""

import re

import sqlglot
from pyspark.errors import ParseException, PySparkException
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.ledger import NAME as LEDGER
from pipelines.language import PipelineFile
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import Verbatim

BEGINS_A_QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
"""The words that a Spark query may begin with."""

ONE_QUERY = "enter one read-only query: SELECT, WITH, FROM, VALUES or TABLE ..."


class BadQuery(LakejoinError):
    """The text is not a query, refers to an unknown table or column, or fails."""

    exit_code = 2
    code = "BAD_QUERY"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__("sql", problem, hint=hint)


def bare_query(query: str) -> str:
    """
    Remove the semicolons at the end of a query, with the comments after them, so that it can be put into parentheses.

    Spark decides whether the text is a query.

    Raises:
        BadQuery: The text is empty, has several statements, or begins with the word of a command.
    """
    try:
        tokens = list(sqlglot.tokenize(query, read=Verbatim))
    except SqlglotError:
        return query  # a quote or comment is not closed; the error of Spark is clearer
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        query = query[: tokens.pop().start]
    if not tokens:
        raise BadQuery("the query is empty", ONE_QUERY)
    first = tokens[0].text
    if first.upper() not in BEGINS_A_QUERY:
        raise BadQuery(f"a query cannot begin with `{first}`", ONE_QUERY)
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise BadQuery("the text has several statements", ONE_QUERY)
    return query


def words_in(query: str) -> frozenset[str] | None:
    """Return the words of a query in lower case, quoted names without backticks; None if it cannot be tokenized."""
    try:
        return frozenset(token.text.lower() for token in sqlglot.tokenize(query, read=Verbatim))
    except SqlglotError:
        return None


def unreadable(name: str, error: Exception) -> BadQuery:
    """Build the error for a table that a query names and that cannot be read."""
    return BadQuery(f"{name} cannot be read: {_short_message(str(error))}")


def refusal(file: PipelineFile, query: str, error: PySparkException, lines_before: int = 0) -> BadQuery:
    """
    Build the error for a query that Spark refused or that failed.

    `lines_before` is the number of lines before the query in the text that Spark received.
    """
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    place = _place(str(error), query, lines_before)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return _unknown_table(file, _parts(parameters.get("relationName", "")), place)
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        offered = list(dict.fromkeys(re.split(r", (?=`)", parameters.get("proposal", ""))))
        hint = f"did you mean {' or '.join(offered)}?" if any(offered) else ""
        return BadQuery(f"unknown column {parameters['objectName']}{place}", hint)
    return BadQuery(f"{_short_message(str(error))}{place}", ONE_QUERY if isinstance(error, ParseException) else "")


def _unknown_table(file: PipelineFile, parts: list[str], place: str) -> BadQuery:
    known = {name.lower(): name for name in [*file.sources, *file.joins, LEDGER]}
    name = known.get(parts[0].lower()) if len(parts) == 1 else None
    if name in file.sources:
        return BadQuery(
            f"the source {name} does not exist", "create it, or correct `table:` or `path:` in the pipeline file"
        )
    if name is not None:
        return BadQuery(f"{name} does not exist yet", "run `lakejoin run` to create it")
    hint = nearest(parts[-1], known.values()) or f"known tables: {', '.join(known.values())}"
    return BadQuery(f"unknown table `{'.'.join(parts)}`{place}", hint)


def _parts(name: str) -> list[str]:
    """Split a quoted name such as `a`.`b` into its parts."""
    return [part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)+)`", name)] or [name]


def _short_message(message: str) -> str:
    """Return the first line of a Spark message without error condition, SQLSTATE and advice about settings."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "Spark refused the query")
    words = re.sub(r"^\[[A-Z][A-Z0-9_.]*\] ", "", first)
    return re.split(r" If necessary set | Please, fix | SQLSTATE: |; line \d+", words)[0].strip().rstrip(".")


def _place(message: str, query: str, lines_before: int) -> str:
    found = re.search(r"\bline (\d+),? pos (\d+)", message.split("== SQL")[0])
    if not found:
        return ""
    line, column = int(found[1]) - lines_before, int(found[2]) + 1
    if line > query.count("\n") + 1:
        return " (at the end of the query)"
    return f" (line {line}, column {column})" if line > 0 else ""
