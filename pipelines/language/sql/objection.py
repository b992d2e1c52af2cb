"""Objections to a statement, and their conversion to faults of the pipeline file."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlglot import exp

from lakehouse.errors.errors import Fault
from pipelines.language.sql.places import Span, excerpt, span_of, span_of_word


class Objection(NamedTuple):
    """A problem of a statement, a hint, and the part of the statement, or the keyword, that it is about."""

    problem: str
    hint: str = ""
    about: exp.Expr | str | Span | None = None

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
