"""Joins of two streams: the time bounds of their matches, and the watermarks of their inputs."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.lengths import lateness
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.bounds import Bound, equalities, find_bounds, one_side
from pipelines.language.statement.columns import ambiguous, conjuncts, place_of
from pipelines.language.statement.definition import How, Time, Watermark, Window, Within
from pipelines.language.statement.inputs import UPSTREAM, Inputs
from pipelines.language.statement.scope import NamedTable, Scope
from pipelines.language.statement.statement import Inferred, JoinClause, Keys, Side, Statement


def windowed(inputs: Inputs, on: exp.Expr, where: exp.Expr | None) -> tuple[Inferred | None, list[Objection]]:
    """Infer a join of two streams, which need no key, within the time bounds of ON; None if it has objections."""
    sides, (how,) = inputs.sides, inputs.hows
    doubts = list(ambiguous(on, "ON", sides))
    _, found = _bounds(asserted(on, how, where), sides)
    if doubts or found:
        return None, [*doubts, *found]
    keys = Keys((0,), frozenset({frozenset({0})}), ())
    further = tuple(conjunct for conjunct in conjuncts(on) if not _is_window(conjunct, sides))
    return Inferred(sides, (JoinClause(how, on, further),), keys), []


def bounds_of(statement: Statement) -> tuple[Bound, ...]:
    """Return the time bounds of a join of two streams that its statement shows without a schema."""
    step = statement.steps[0]
    bounds, _ = _bounds(asserted(step.on, step.how, statement.where), statement.sides)
    return bounds


def window_of(statement: Statement, scope: Scope) -> Window:
    """
    Build the window of a join of two streams; the scope collects objections to unknown columns and missing bounds.
    """
    step = statement.steps[0]
    resolved = [scope.resolve(condition) for condition in asserted(step.on, step.how, statement.where)]
    for table in scope.tables:
        for name, _ in table.side.times:
            if table.has(name):
                table.column(name)
    bounds, objections = _bounds(resolved, statement.sides)
    scope.objections += objections
    watermarks = list(watermarks_of(scope.tables))
    places = {(mark.time.input, mark.time.column.lower()): place for place, mark in enumerate(watermarks)}
    within = [
        Within(
            places[bound.greater.input, bound.greater.column.lower()],
            places[bound.lesser.input, bound.lesser.column.lower()],
            bound.allowance,
            bound.unit,
            bound.has_days,
        )
        for bound in bounds
    ]
    alone = [
        " AND ".join(f"({render(condition)})" for condition in conditions) or "TRUE"
        for conditions in one_side(resolved[0], scope.place)
    ]
    pairs = [(render(left), render(right)) for left, right in equalities(resolved[0], scope.place)]
    sides = (alone[0], alone[1])
    return Window(tuple(watermarks), tuple(within), tuple(pairs), sides, is_self_join=statement.is_self_join)


def watermarks_of(tables: Sequence[NamedTable]) -> Iterator[Watermark]:
    """Yield the watermarked columns of inputs."""
    for place, table in enumerate(tables):
        for name, written in table.side.times:
            time = Time(place, table.real(name) if table.has(name) else name)
            yield (
                Watermark(time, 0, is_from_upstream=True)
                if written == UPSTREAM
                else Watermark(time, *lateness(written))
            )


def time_of(column: exp.Column, sides: Sequence[Side]) -> Time | None:
    """Return the watermarked column that a column refers to; None if it is none, or unclear without a schema."""
    name = column.parts[1].name if column.table and len(column.parts) > 1 else column.name
    places = [
        place
        for place, side in enumerate(sides)
        if side.time(name) and (not column.table or column.parts[0].name.lower() == side.alias.lower())
    ]
    found = sides[places[0]].time(name) if len(places) == 1 and len(column.parts) < 3 else None
    return None if found is None else Time(places[0], found)


def asserted(on: exp.Expr, how: How, where: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that hold for every matched pair of rows: ON, and WHERE of an inner join."""
    return [on, where] if where is not None and how == "inner" else [on]


def _bounds(conditions: Sequence[exp.Expr], sides: Sequence[Side]) -> tuple[tuple[Bound, ...], list[Objection]]:
    names = (sides[0].alias, sides[1].alias)
    return find_bounds(conditions, lambda column: time_of(column, sides), names, lambda column: _no_time(column, sides))


def _no_time(column: exp.Column, sides: Sequence[Side]) -> str:
    """Explain why a column of another join's result has no watermark; return an empty text for other columns."""
    place = place_of(column, sides)
    if place is None or not sides[place].is_result:
        return ""
    return (
        f"`{as_written(column)}` has no watermark in the result of {sides[place].source}: a time column keeps its "
        "watermark only if the ON of that join bounds it and its SELECT list passes it on unchanged"
    )


def _is_window(conjunct: exp.Expr, sides: Sequence[Side]) -> bool:
    """Return whether a condition is an equality between both inputs or a bound on their times."""
    bounds, _ = _bounds([conjunct], sides)
    return bool(bounds) or bool(equalities(conjunct, lambda column: place_of(column, sides)))
