"""Answers to queries over the tables of a pipeline file, by their names there. Only queries are executed."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sqlglot
from pyspark.errors import ParseException, PySparkException
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from lakehouse.errors.conditions import is_missing
from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.ledger.runs import Run
from lakehouse.values.recorded import CHANGELOG
from lakehouse.values.sqltext import quote
from pipelines.binding.workspace import Workspace
from pipelines.commands.plain_values import plain_value, plain_values
from pipelines.commands.runs import find_run, version_in
from pipelines.language import PipelineFile
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import Verbatim
from pipelines.report import ColumnReport, QueryReport

ONLY_A_QUERY = "SELECT * FROM (WITH lakejoin_asked AS (\n{query}\n) SELECT * FROM lakejoin_asked)"
"""
The statement that is analysed before the query is run, so that commands are refused.

It begins with SELECT, so it is not a command itself. Spark accepts it only if the text in parentheses is a query: the
commands that begin like a query (WITH ... INSERT, FROM ... INSERT) are not allowed in parentheses.
"""

BEGINS_A_QUERY = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
"""The words that a Spark query may begin with."""

ONE_QUERY = "enter one read-only query: SELECT, WITH, FROM, VALUES or TABLE ..."


class BadQuery(LakejoinError):
    """The text is not a query, refers to an unknown table or column, or fails."""

    exit_code = 2
    code = "BAD_QUERY"

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__("sql", problem, hint=hint)


def answer(workspace: Workspace, query: str, limit: int, run: str = "") -> QueryReport:
    """
    Run one query over the sources, the results, their changelogs and `lakejoin_ledger`, and return its first rows.

    With the id of a `run`, or `last complete`, tables other than the ledger are read at its versions.

    Values are those of JSON, as `plain_values` converts them.

    Raises:
        BadQuery: The text is not a query, refers to an unknown table or column, or fails.
        UnknownRun: No run has this id, or it does not have a table of the query.
    """
    query = bare_query(query)
    named = _named(workspace, query)
    chosen = find_run(workspace, run, named) if run else None
    with _views(workspace, named, chosen):
        try:
            # Reading the schema triggers the analysis under Spark Connect.
            _ = workspace.spark.sql(ONLY_A_QUERY.format(query=query)).schema
        except PySparkException as error:
            raise _refusal(workspace.file, query, error, lines_before=1) from error
        try:
            frame = workspace.spark.sql(query)
            columns = tuple(ColumnReport(name=field.name, type=field.dataType.simpleString()) for field in frame.schema)
            collected = plain_values(frame).limit(limit + 1).collect()
        except PySparkException as error:
            raise _refusal(workspace.file, query, error) from error
    rows = tuple(tuple(map(plain_value, row)) for row in collected[:limit])
    return QueryReport(
        columns=columns, rows=rows, more=len(collected) > limit, run_id="" if chosen is None else chosen.id
    )


def bare_query(query: str) -> str:
    """
    Remove the semicolons at the end of a query, with the comments after them, so that it can be put into parentheses.

    A text that is empty, has several statements, or begins like a command is a BadQuery; Spark decides about others.
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


def _named(workspace: Workspace, query: str) -> list[str]:
    """Return the tables whose names occur as words in a query; all if it cannot be tokenized."""
    words = words_in(query)
    file = workspace.file
    names = dict.fromkeys((*file.sources, *file.joins, *(name + CHANGELOG for name in file.joins), LEDGER))
    return [name for name in names if words is None or name.lower() in words]


@contextmanager
def _views(workspace: Workspace, names: Sequence[str], run: Run | None) -> Iterator[None]:
    """Provide tables as views, at the versions of a run if one is given."""
    file, views = workspace.file, []
    try:
        for name in names:
            address = workspace.source(name) if name in file.sources else workspace.table(name)
            at = "" if run is None or name == LEDGER else f" VERSION AS OF {version_in(workspace, run, name)}"
            try:
                workspace.spark.sql(f"SELECT * FROM {address.sql}{at}").createOrReplaceTempView(quote(address.label))
            except PySparkException as error:
                if not is_missing(error):
                    raise BadQuery(f"{address.label} cannot be read: {_short_message(error)}") from error
            else:
                views.append(address.label)
        yield
    finally:
        for label in views:
            workspace.spark.catalog.dropTempView(label)


def _refusal(file: PipelineFile, query: str, error: PySparkException, lines_before: int = 0) -> BadQuery:
    """Build the error for a query that Spark received after some lines of text, and that it refused or that failed."""
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    position = _position(str(error), query, lines_before)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return _unknown_table(file, parameters.get("relationName", ""), position)
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in parameters:
        columns = [name for name in dict.fromkeys(re.split(r", (?=`)", parameters.get("proposal", ""))) if name]
        hint = f"did you mean {' or '.join(columns)}?" if columns else ""
        return BadQuery(f"unknown column {parameters['objectName']}{position}", hint)
    return BadQuery(f"{_short_message(error)}{position}", ONE_QUERY if isinstance(error, ParseException) else "")


def _unknown_table(file: PipelineFile, quoted: str, position: str) -> BadQuery:
    """Build the error for a table that does not exist, by its quoted name such as `a`.`b`."""
    parts = [part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)+)`", quoted)] or [quoted]
    tables = {name.lower(): name for name in [*file.sources, *file.joins, LEDGER]}
    name = tables.get(parts[0].lower()) if len(parts) == 1 else None
    if name in file.sources:
        hint = "create it, or correct `table:` or `path:` in the pipeline file"
        return BadQuery(f"the source {name} does not exist", hint)
    if name is not None:
        return BadQuery(f"{name} does not exist yet", "run `lakejoin run` to create it")
    hint = nearest(parts[-1], tables.values()) or f"known tables: {', '.join(tables.values())}"
    return BadQuery(f"unknown table `{'.'.join(parts)}`{position}", hint)


def _short_message(error: Exception) -> str:
    """Return the first line of a Spark message without error condition, SQLSTATE and advice about settings."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "Spark refused the query")
    words = re.sub(r"^\[[A-Z][A-Z0-9_.]*\] ", "", first)
    return re.split(r" If necessary set | Please, fix | SQLSTATE: |; line \d+", words)[0].strip().rstrip(".")


def _position(message: str, query: str, lines_before: int) -> str:
    position = re.search(r"\bline (\d+),? pos (\d+)", message.split("== SQL")[0])
    if not position:
        return ""
    line, column = int(position[1]) - lines_before, int(position[2]) + 1
    if line > query.count("\n") + 1:
        return " (at the end of the query)"
    return f" (line {line}, column {column})" if line > 0 else ""
