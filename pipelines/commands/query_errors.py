"""The text of a query, and why Spark did not take it, in words."""

import re
from collections.abc import Iterator

import sqlglot
from pyspark.errors import ParseException, PySparkException
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from lakehouse.errors import LakejoinError
from lakehouse.ledger import NAME as LEDGER
from pipelines.spec import PipelineFile
from pipelines.spec.names import nearest
from pipelines.spec.sql.dialect import Verbatim

BEGINS_A_QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
"""The words that a query of Spark begins with."""

ONE_QUERY = "one query is answered, which changes nothing: SELECT, WITH, FROM, VALUES or TABLE ..."


class BadQuery(LakejoinError):
    """The text is no query, names what is not there, or fails."""

    exit_code = 2
    code = "BAD_QUERY"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__("sql", problem, hint=hint)


def bare_query(query: str) -> str:
    """
    Take off the semicolons at the end, and the comments after them.

    Args:
        query: The text as given.

    Returns:
        A text that can stand in brackets if it is a query; whether it is one is for Spark to say.

    Raises:
        BadQuery: It is empty, holds several statements, or is a command by its first word.
    """
    try:
        tokens = list(sqlglot.tokenize(query, read=Verbatim))
    except SqlglotError:
        return query  # a quote or comment left open; Spark says it better
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        query = query[: tokens.pop().start]
    if not tokens:
        raise BadQuery("the query is empty", ONE_QUERY)
    first = tokens[0].text
    if first.upper() not in BEGINS_A_QUERY:
        raise BadQuery(f"`{first}` begins no query", ONE_QUERY)
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise BadQuery("several statements", ONE_QUERY)
    return query


def words_in(query: str) -> frozenset[str] | None:
    """
    Take a query apart.

    Args:
        query: The query.

    Returns:
        Its words in small letters, names in backticks without these; None if only Spark can tell.
    """
    try:
        return frozenset(token.text.lower() for token in sqlglot.tokenize(query, read=Verbatim))
    except SqlglotError:
        return None


def unreadable(name: str, error: Exception) -> BadQuery:
    """
    Say in words why a table that a query names cannot be read.

    Args:
        name: The table.
        error: What Spark raised.

    Returns:
        The error to raise.
    """
    return BadQuery(f"{name} cannot be read: {_telling_part(str(error))}")


def refusal(file: PipelineFile, query: str, error: PySparkException, lines_before: int = 0) -> BadQuery:
    """
    Say in words why Spark did not take a query.

    Args:
        file: The pipeline file, whose names the query may use.
        query: The query.
        error: What Spark raised.
        lines_before: How many lines stood before the query in the text that Spark was given.

    Returns:
        The error to raise.
    """
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    place = _place(str(error), query, lines_before)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return _unknown_table(file, _parts(parameters.get("relationName", "")), place)
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        offered = list(dict.fromkeys(re.split(r", (?=`)", parameters.get("proposal", ""))))
        hint = f"did you mean {' or '.join(offered)}?" if any(offered) else ""
        return BadQuery(f"there is no column {parameters['objectName']}{place}", hint)
    return BadQuery(f"{_telling_part(str(error))}{place}", ONE_QUERY if isinstance(error, ParseException) else "")


def _unknown_table(file: PipelineFile, parts: list[str], place: str) -> BadQuery:
    known = {name.lower(): name for name in [*file.sources, *file.joins, LEDGER]}
    name = known.get(parts[0].lower()) if len(parts) == 1 else None
    if name in file.sources:
        return BadQuery(
            f"the source {name} is not there", "create it, or correct `table:` or `path:` in the pipeline file"
        )
    if name is not None:
        return BadQuery(f"{name} is not there yet", "`lakejoin run` makes it")
    hint = nearest(parts[-1], known.values()) or f"there are {', '.join(known.values())}"
    return BadQuery(f"there is no table `{'.'.join(parts)}`{place}", hint)


def _parts(name: str) -> list[str]:
    """Take a quoted name apart: `a`.`b`."""
    return [part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)+)`", name)] or [name]


def _telling_part(message: str) -> str:
    """Give Spark's first line without the name of the condition, the SQLSTATE and advice about settings."""
    first = next(_lines(message), "Spark refuses it")
    words = re.sub(r"^\[[A-Z][A-Z0-9_.]*\] ", "", first)
    return re.split(r" If necessary set | Please, fix | SQLSTATE: |; line \d+", words)[0].strip().rstrip(".")


def _lines(message: str) -> Iterator[str]:
    return (line.strip() for line in message.splitlines() if line.strip())


def _place(message: str, query: str, lines_before: int) -> str:
    found = re.search(r"\bline (\d+),? pos (\d+)", message.split("== SQL")[0])
    if not found:
        return ""
    line, column = int(found[1]) - lines_before, int(found[2]) + 1
    if line > query.count("\n") + 1:
        return " (at the end of the query)"
    return f" (line {line}, column {column})" if line > 0 else ""
