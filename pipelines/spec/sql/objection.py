"""What speaks against a statement, and the faults of the file that this makes."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlglot import exp

from lakehouse.errors import Fault
from pipelines.spec.sql.places import Span, excerpt, span_of, span_of_word


class Objection(NamedTuple):
    """Something that a statement must not hold, what would be right, and the part of the statement or its keyword."""

    problem: str
    hint: str = ""
    about: exp.Expr | str | Span | None = None

    def span(self, sql: str) -> Span | None:
        """Find the part of the statement that it is about."""
        if isinstance(self.about, exp.Expr):
            return span_of(self.about, sql)
        return span_of_word(self.about, sql) if isinstance(self.about, str) else self.about


def faults_of(
    objections: Iterable[Objection], path: str, sql: str, line_of: Callable[[int | None], int | None] = lambda _: None
) -> list[Fault]:
    """
    Say where in the file the objections to a statement are.

    Args:
        objections: What was found, also twice.
        path: The dotted keys of the statement.
        sql: The statement.
        line_of: Gives the line of the file for a row of the statement, from 0, or for the whole of it, for None.

    Returns:
        The faults to report, each once, in the order of the statement.
    """
    found = {}
    for objection in objections:
        span = objection.span(sql)
        line = line_of(span.row(sql) if span else None)
        shown = excerpt(sql, span) if span else ""
        found[Fault(path, objection.problem, objection.hint, line, shown)] = span or (0, 0)
    return sorted(found, key=lambda fault: found[fault])
