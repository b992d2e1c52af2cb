"""Resolve the references of a statement to columns of its tables."""

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.objection import Objection
from pipelines.language.statement import statement as parsed
from pipelines.language.statement.columns import is_null_of_nulls
from pipelines.language.statement.definition import Link
from pipelines.language.statement.scope import Scope
from pipelines.language.statement.statement import Statement, absent_after


def references(statement: Statement, scope: Scope) -> Iterator[Link]:
    """
    Resolve the references, each after those that reach the inputs that it needs, and add objections to the scope.

    A reference needs its own input, or, if parts of the key come from several inputs, all inputs before the referenced
    one.
    """
    reached = set(statement.keys.members)
    pending = list(_resolved(statement, scope))
    while pending:
        ready = [link for link in pending if link.needed <= reached]
        if not ready:
            if not scope.objections:
                link = statement.keys.links[-1]
                problem = f"ON: `{as_written(link.expressions[0])}` is not a column of the input that keys the result"
                scope.objections.append(Objection(problem, "write an alias before each column", link.expressions[0]))
            return
        yield from ready
        reached |= {link.input for link in ready}
        pending = [link for link in pending if link not in ready]


def _resolved(statement: Statement, scope: Scope) -> Iterator[Link]:
    for link in statement.keys.links:
        found = parsed.ReferenceClause(link.side, tuple(map(scope.resolve, link.expressions)), link.null_safe)
        places = [{scope.place(column) for column in one.find_all(exp.Column)} for one in found.expressions]
        over = sorted(place for place in set().union(*places) if place is not None)
        if None in set().union(*places):
            continue  # the scope has objected to the column
        objection = _objection(statement, link, places, over)
        if objection is not None:
            scope.objections.append(objection)
            continue
        written = tuple(map(render, found.expressions))
        if len(over) == 1:
            yield Link(link.side, written, over[0], link.null_safe)
            continue
        # A changed row of a table adds no row to a stream, so that nothing is followed.
        followed = over[-1] if statement.reads_stream else _followed(statement, found, places, over)
        if followed is None:
            name, about = statement.sides[link.side].source, link.expressions[0]
            problem = f"ON: each input from which a part of the key of {name} is taken may be absent"
            scope.objections.append(Objection(problem, "compare the parts from one of them by `=`", about))
            continue
        overs = tuple(min((place for place in of if place is not None), default=followed) for of in places)
        yield Link(link.side, written, followed, link.null_safe, overs)


def _objection(
    statement: Statement, link: parsed.ReferenceClause, places: Sequence[set[int | None]], over: Sequence[int]
) -> Objection | None:
    name, about = statement.sides[link.side].source, link.expressions[0]
    if not over or any(len(of) > 1 for of in places):
        return Objection(f"ON: each part of the key of {name} must be taken from one other input", about=about)
    if link.side in over:
        own = next(one for one, of in zip(link.expressions, places, strict=True) if link.side in of)
        return Objection(
            f"ON: `{as_written(own)}` is a column of {name} itself", "write an alias before each column", own
        )
    if len(over) == 1:
        return None
    if over[-1] > link.side:
        problem = f"ON: parts of the key of {name} are taken from inputs after it"
        return Objection(problem, "write an alias before each column", about)
    return None


def _followed(
    statement: Statement, link: parsed.ReferenceClause, places: Sequence[set[int | None]], over: Iterable[int]
) -> int | None:
    """
    Choose the input through which to follow a reference with parts from several inputs.

    Wherever the reference leads to a row, that input must have one: it is never absent, or a part is null without it.
    """
    absent = absent_after(step.how for step in statement.steps[: link.side - 1])

    def parts(place: int) -> list[int]:
        return [part for part, of in enumerate(places) if place in of]

    def preference(place: int) -> tuple[bool, bool, int, int]:
        plain = all(isinstance(link.expressions[part].unnest(), exp.Column) for part in parts(place))
        return place not in statement.keys.members, not plain, -len(parts(place)), place

    def is_null_without(place: int) -> bool:
        return any(is_null_of_nulls(link.expressions[part]) for part in parts(place) if part not in link.null_safe)

    usable = [place for place in over if place not in absent or is_null_without(place)]
    return min(usable, key=preference, default=None)
