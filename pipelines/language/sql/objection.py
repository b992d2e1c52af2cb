"""Objections to a statement, the parts of its text that they are about, and their form as faults of the file."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import sqlglot
from rich.cells import cell_len
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakehouse.errors.errors import Fault
from pipelines.language.sql.dialect import Verbatim

WIDEST = 100
"""The maximum number of characters of a line in a message."""

OPENING = {"(": 1, "[": 1, ")": -1, "]": -1}


class Span(NamedTuple):
    """The characters of a text from `start` to `end`, exclusive."""

    start: int
    end: int

    def row(self, text: str) -> int:
        """Return the row of the text in which the span starts, from 0."""
        return text.count("\n", 0, self.start)


class Objection(NamedTuple):
    """A problem of a statement, a hint, and the part of the statement, or the keyword, that it is about."""

    problem: str
    hint: str = ""
    about: exp.Expr | str | Span | None = None

    def moved_to(self, clause: str) -> "Objection":
        """Return an objection to an ON as one to the clause in which its condition is written."""
        return self._replace(problem=clause + self.problem[2:]) if self.problem.startswith("ON:") else self

    def span(self, sql: str) -> Span | None:
        """Return the span of the statement that the objection is about."""
        if isinstance(self.about, exp.Expr):
            return span_of(self.about, sql)
        return span_of_word(self.about, sql) if isinstance(self.about, str) else self.about


def faults_of(
    objections: Iterable[Objection], path: str, sql: str, line_of: Callable[[int | None], int | None] = lambda _: None
) -> list[Fault]:
    """
    Convert the objections to a statement to faults, each once, in the order of the statement.

    The path is its dotted keys. `line_of` returns the line in the file of a row of the statement, from 0, or of the
    whole statement for None.
    """
    found = {}
    for objection in objections:
        span = objection.span(sql)
        line = line_of(span.row(sql) if span else None)
        shown = excerpt(sql, span) if span else ""
        found[Fault(path, objection.problem, objection.hint, line, shown)] = span or (0, 0)
    return sorted(found, key=lambda fault: found[fault])


def excerpt(sql: str, span: Span) -> str:
    """Format a part of a statement for a message: its first line, truncated, and a line that underlines it."""
    begin = sql.rfind("\n", 0, span.start) + 1
    written = sql[begin:].split("\n", 1)[0]
    line = "".join(letter if letter.isprintable() else " " for letter in written).rstrip()
    start, end = span.start - begin, min(span.end - begin, len(line))
    left = max(0, min(start - WIDEST // 3, len(line) - WIDEST))
    shown = line[left : left + WIDEST]
    before, after = "..." if left else "", "..." if left + WIDEST < len(line) else ""
    pad = cell_len(before + shown[: start - left])
    marked = cell_len(shown[start - left : end - left])
    return f"{before}{shown}{after}\n{' ' * pad}{'^' * max(marked, 1)}"


def span_of(node: exp.Expr, sql: str) -> Span | None:
    """Return the span of a node from its first word to its closing brackets; None if it has no position."""
    positions = [part.meta for part in node.walk() if "start" in part.meta]
    if not positions:
        return None
    span = Span(min(position["start"] for position in positions), max(position["end"] for position in positions) + 1)
    if isinstance(node, exp.Subquery | exp.Exists):
        span = _opened(span, sql)
    return _closed(_after(span, "EXISTS", sql) if isinstance(node, exp.Exists) else span, sql)


def place_of_last_output(sql: str) -> Span | None:
    """Return the span of the last output of a SELECT list with its alias; None if the text has no list before FROM."""
    depth, output, is_begun = 0, list[Token](), False
    for token in _tokens(sql):
        kind = None if depth else token.token_type
        if kind == TokenType.FROM and output:
            return Span(output[0].start, output[-1].end + 1)
        if kind in (TokenType.SELECT, TokenType.COMMA):
            output, is_begun = [], is_begun or kind == TokenType.SELECT
        elif is_begun:
            output.append(token)
        depth += OPENING.get(token.text, 0)
    return None


def span_of_word(word: str, sql: str) -> Span | None:
    """Find one or more keywords, outside of brackets if they occur there, and not behind a dot; else return None."""
    whole = r"(?!\w)" if word[-1].isalnum() else ""
    written = re.compile(r"\s+".join(map(re.escape, word.split())) + whole, re.IGNORECASE)
    depth, nested, before = 0, None, ""
    for token in _tokens(sql):
        found = None if before == "." else written.match(sql, token.start)
        before = token.text
        if found and not depth:
            return Span(*found.span())
        if found and nested is None:
            nested = Span(*found.span())
        depth += OPENING.get(token.text, 0)
    return nested


def _opened(span: Span, sql: str) -> Span:
    """Extend the span to the left, to the bracket that encloses it."""
    depth = 0
    for token in reversed([token for token in _tokens(sql) if token.start < span.start]):
        depth += OPENING.get(token.text, 0)
        if depth > 0:
            return Span(token.start, span.end)
    return span


def _after(span: Span, word: str, sql: str) -> Span:
    """Extend the span to the left by a word, if that word directly precedes it."""
    before = [token for token in _tokens(sql) if token.start < span.start]
    return Span(before[-1].start, span.end) if before and before[-1].text.upper() == word else span


def _closed(span: Span, sql: str) -> Span:
    """
    Extend the span to the right until its brackets close, also those of a call that directly follow it. A bracket that
    closes within it may have been opened before it, by a word without a position, such as CAST.
    """
    depth = 0
    for token in _tokens(sql):
        if token.start < span.start:
            continue
        is_within = token.start < span.end
        if not is_within and not depth and not (token.text == "(" and token.start == span.end):
            return span
        depth = max(depth + OPENING.get(token.text, 0), 0)
        if not is_within and not depth:
            return Span(span.start, token.end + 1)
    return span


def _tokens(sql: str) -> list[Token]:
    try:
        return sqlglot.tokenize(sql, read=Verbatim)
    except SqlglotError:
        return []
