"""
Joins of two streams: the time bounds of ON, which limit the buffered rows.

    l.t BETWEEN r.t - 5 AND r.t + 2     l.t is at least r.t minus 5, and r.t is at least l.t minus 2
    NOT (l.t < r.t - 5)                 the first of these two bounds
    l.t - r.t <= 2                      the second

ON is still applied to each pair. A bound may therefore be wider than the condition: a strict comparison counts as
non-strict. A bound must never be narrower: a condition that is not understood gives no bound.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import DAY, NoLength, Unit, microseconds
from pipelines.language.statement.columns import EQUAL, ambiguous, conjuncts, index_of
from pipelines.language.statement.definition import How, Time
from pipelines.language.statement.statement import Inferred, Inputs, JoinClause, Keys, Side, Statement

TimeOf = Callable[[exp.Column], Time | None]

WhyNot = Callable[[exp.Column], str]

InputOf = Callable[[exp.Column], int | None]
UNEQUAL = (exp.NEQ, exp.NullSafeNEQ)

AT_LEAST = (exp.GTE, exp.GT)

AT_MOST = (exp.LTE, exp.LT)
UNDER_OR = "under an OR it need not hold"

OTHERWISE = "it is not one of =, <, <=, >, >= and BETWEEN"
WHOLE = re.compile(r"\d{1,18}")

INTEGERS = {exp.DType.TINYINT: 7, exp.DType.SMALLINT: 15, exp.DType.INT: 31, exp.DType.BIGINT: 63}
"""The integer types, with their number of bits without the sign."""


@dataclass(frozen=True)
class Bound:
    """
    A time bound: `greater` is at least `lesser` minus `allowance`.

    Args:
        allowance: In microseconds if the constant is an interval, else the number as written.
        unit: The unit of the constant; "" for a 0 that is not written as an interval, which fits any type.
        has_days: Whether the length depends on the time zone: the condition has an interval of a day or more, as days
            have 23 to 25 hours, or subtracts one time from the other, which compares wall-clock times.
    """

    greater: Time
    lesser: Time
    allowance: int
    unit: Unit
    has_days: bool = False


@dataclass(frozen=True)
class _Sum:
    """A linear sum: times with their coefficients, and a constant of numbers or intervals."""

    times: Mapping[Time, int] = field(default_factory=dict)
    constant: int = 0
    units: frozenset[str] = frozenset()
    has_days: bool = False

    def plus(self, other: "_Sum", factor: int = 1) -> "_Sum":
        counts = {
            time: self.times.get(time, 0) + factor * other.times.get(time, 0) for time in {**self.times, **other.times}
        }
        times = {time: count for time, count in counts.items() if count}
        constant = self.constant + factor * other.constant
        is_long = not times and abs(constant) >= DAY
        has_days = self.has_days or other.has_days or is_long or bool(self.times and other.times)
        return _Sum(times, constant, self.units | other.units, has_days)


class NoBound(Exception):
    """A comparison gives no bound; the text says why."""


class NoTime(NoBound):
    """A comparison contains a column that is not watermarked."""

    def __init__(self, column: exp.Column) -> None:
        super().__init__(f"`{as_written(column)}` is neither constant nor among the `watermarks` of its source")
        self.column = column


def windowed(inputs: Inputs, on: exp.Expr, where: exp.Expr | None) -> tuple[Inferred | None, list[Objection]]:
    """Infer a join of two streams, which need no key, within the time bounds of ON; None if it has objections."""
    sides, (how,) = inputs.sides, inputs.hows
    doubts = list(ambiguous(on, "ON", sides))
    _, found = find_window_bounds(asserted(on, how, where), sides)
    if doubts or found:
        return None, [*doubts, *found]
    keys = Keys((0,), frozenset({frozenset({0})}), ())
    further = tuple(conjunct for conjunct in conjuncts(on) if not _is_window(conjunct, sides))
    return Inferred(sides, (JoinClause(how, on, further, inputs.clauses[0]),), keys), []


def bounds_of(statement: Statement) -> tuple[Bound, ...]:
    """Return the time bounds of a join of two streams that its statement shows without a schema."""
    step = statement.steps[0]
    bounds, _ = find_window_bounds(asserted(step.on, step.how, statement.where), statement.sides)
    return bounds


def find_window_bounds(
    conditions: Sequence[exp.Expr], sides: Sequence[Side]
) -> tuple[tuple[Bound, ...], list[Objection]]:
    """Find the bounds between the watermarked columns of two streams, as `find_bounds` does."""
    names = (sides[0].alias, sides[1].alias)
    return find_bounds(conditions, lambda column: time_of(column, sides), names, lambda column: _no_time(column, sides))


def asserted(on: exp.Expr, how: How, where: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that hold for every matched pair of rows: ON, and WHERE of an inner join."""
    return [on, where] if where is not None and how == "inner" else [on]


def _is_window(conjunct: exp.Expr, sides: Sequence[Side]) -> bool:
    """Return whether a condition is an equality between both inputs or a bound on their times."""
    bounds, _ = find_window_bounds([conjunct], sides)
    return bool(bounds) or bool(equalities(conjunct, lambda column: index_of(column, sides)))


def time_of(column: exp.Column, sides: Sequence[Side]) -> Time | None:
    """Return the watermarked column that a column refers to; None if it is none, or unclear without a schema."""
    name = column.parts[1].name if column.table and len(column.parts) > 1 else column.name
    indexes = [
        index
        for index, side in enumerate(sides)
        if side.time(name) and (not column.table or column.parts[0].name.lower() == side.alias.lower())
    ]
    found = sides[indexes[0]].time(name) if len(indexes) == 1 and len(column.parts) < 3 else None
    return None if found is None else Time(indexes[0], found)


def _no_time(column: exp.Column, sides: Sequence[Side]) -> str:
    """Explain why a column of another join's result has no watermark; return an empty text for other columns."""
    index = index_of(column, sides)
    if index is None or not sides[index].is_result:
        return ""
    return (
        f"`{as_written(column)}` has no watermark in the result of {sides[index].source}: a time column keeps its "
        "watermark only if the ON of that join bounds it and its SELECT list passes it on unchanged"
    )


def find_bounds(
    conditions: Sequence[exp.Expr], time_of: TimeOf, names: tuple[str, str], why_not: WhyNot = lambda _: ""
) -> tuple[tuple[Bound, ...], list[Objection]]:
    """
    Find the tightest bound for each pair of times of two streams, and objections if a direction has no bound.

    Args:
        conditions: ON, and WHERE of an inner join.
        time_of: Returns the watermarked column that a column refers to; None for any other column.
        names: The aliases of the two inputs, for messages.
        why_not: Explains why a column of another join's result is not watermarked.
    """
    found: dict[tuple[Time, Time], Bound] = {}
    doubts: dict[str, exp.Expr] = {}
    for condition in conditions:
        for node, holds in _asserted(condition):
            pairs = _ordered(node, holds)
            reasons = [] if pairs else [UNDER_OR if isinstance(node, exp.Or | exp.And) else OTHERWISE]
            for greater, lesser in pairs:
                try:
                    bound = _bound(_sum(greater, time_of), _sum(lesser, time_of))
                except (NoBound, NoLength) as reason:
                    reasons.append((why_not(reason.column) if isinstance(reason, NoTime) else "") or str(reason))
                    continue
                if bound is not None:
                    key = bound.greater, bound.lesser
                    found[key] = min(found.get(key, bound), bound, key=lambda one: (one.allowance, one.has_days))
            if reasons and _is_meant_as_bound(node, bool(pairs), time_of, names):
                doubts |= {f"`{as_written(node)}` gives no bound: {reason}": node for reason in reasons}
    bounds = tuple(found.values())
    missing = {(0, 1), (1, 0)} - {(bound.greater.input, bound.lesser.input) for bound in bounds}
    if not missing:
        return bounds, []
    columns = [column for condition in conditions for column in condition.find_all(exp.Column)]
    seen = {time.input: time.column for time in reversed([*map(time_of, columns)]) if time}
    about = next(iter(doubts.values()), conditions[0] if conditions else None)
    return bounds, [_unbounded(missing, seen, names, bounds, tuple(doubts))._replace(about=about)]


def one_side(on: exp.Expr, input_of: InputOf) -> tuple[tuple[exp.Expr, ...], tuple[exp.Expr, ...]]:
    """Find the conditions of ON on the left input alone and on the right one; both contain those without columns."""
    over = [(conjunct, _inputs(conjunct, input_of)) for conjunct in conjuncts(on)]
    left, right = (tuple(conjunct for conjunct, inputs in over if inputs <= {index}) for index in (0, 1))
    return left, right


def equalities(on: exp.Expr, input_of: InputOf) -> tuple[tuple[exp.Expr, exp.Expr], ...]:
    """Find the equalities of ON: for each, its operand over the left input and that over the right input."""
    ends = [(node.this.unnest(), node.expression.unnest()) for node in conjuncts(on) if isinstance(node, exp.EQ)]
    either_way = [pair for one, other in ends for pair in ((one, other), (other, one))]
    return tuple(
        (left, right) for left, right in either_way if (_inputs(left, input_of), _inputs(right, input_of)) == ({0}, {1})
    )


def _inputs(node: exp.Expr, input_of: InputOf) -> set[int | None]:
    return {input_of(column) for column in node.find_all(exp.Column)}


def _asserted(on: exp.Expr) -> Iterator[tuple[exp.Expr, bool]]:
    """Yield the parts of a condition, each with whether it is true or false when the condition holds."""
    for part in conjuncts(on):
        if isinstance(part, exp.Not):
            yield from _denied(part.this)
        else:
            yield part, True


def _denied(node: exp.Expr) -> Iterator[tuple[exp.Expr, bool]]:
    node = node.unnest()
    if isinstance(node, exp.Or):
        yield from _denied(node.this)
        yield from _denied(node.expression)
    elif isinstance(node, exp.Not):
        yield from _asserted(node.this)
    else:
        yield node, False


def _ordered(node: exp.Expr, holds: bool) -> list[tuple[exp.Expr, exp.Expr]]:
    """Return pairs whose first element is at least the second if a comparison is true, or false, as `holds` says."""
    if isinstance(node, exp.Between):
        return [(node.this, node.args["low"]), (node.args["high"], node.this)] if holds else []
    if isinstance(node, EQUAL if holds else UNEQUAL):
        return [(node.this, node.expression), (node.expression, node.this)]
    if isinstance(node, AT_LEAST if holds else AT_MOST):
        return [(node.this, node.expression)]
    if isinstance(node, AT_MOST if holds else AT_LEAST):
        return [(node.expression, node.this)]
    return []


def _bound(greater: _Sum, lesser: _Sum) -> Bound | None:
    """Return the bound `greater >= lesser`; None if it does not compare times of two inputs."""
    over = greater.plus(lesser, -1)
    if len({time.input for time in over.times}) < 2:
        return None
    ends = {count: time for time, count in over.times.items()}
    if len(over.times) != 2 or set(ends) != {1, -1}:
        raise NoBound("it does not compare one time of each input")
    if len(over.units) > 1:
        raise NoBound("it mixes numbers and intervals")
    if abs(over.constant) >= 2**63:
        raise NoBound("the constant is too large")
    has_days = greater.has_days or lesser.has_days
    if "interval" in over.units:
        return Bound(ends[1], ends[-1], over.constant, "interval", has_days)
    return Bound(ends[1], ends[-1], over.constant, "number" if over.constant else "")


def _sum(node: exp.Expr, time_of: TimeOf) -> _Sum:
    """Convert an expression to a sum of times and a constant; raise NoBound if it is not one."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        if (time := time_of(node)) is None:
            raise NoTime(node)
        return _Sum({time: 1})
    if isinstance(node, exp.Literal) and not node.is_string and WHOLE.fullmatch(node.name):
        return _Sum(constant=int(node.name), units=frozenset({"number"}))
    if isinstance(node, exp.Interval) and (length := microseconds(node)) is not None:
        return _Sum(constant=length, units=frozenset({"interval"}), has_days=abs(length) >= DAY)
    if isinstance(node, exp.Neg):
        return _Sum().plus(_sum(node.this, time_of), -1)
    if isinstance(node, exp.Add | exp.Sub):
        one, other = _sum(node.this, time_of), _sum(node.expression, time_of)
        return one.plus(other, -1 if isinstance(node, exp.Sub) else 1)
    if isinstance(node, exp.Mul):
        factors = _sum(node.this, time_of), _sum(node.expression, time_of)
        for one, other in (factors, factors[::-1]):
            if not one.times and not other.times and one.units == {"number"}:
                return _Sum(units=other.units).plus(_Sum(other.times, other.constant), one.constant)
    if isinstance(node, exp.Cast) and node.to.this in INTEGERS:
        inner = _sum(node.this, time_of)
        if not inner.times and inner.units == {"number"} and abs(inner.constant) < 2 ** INTEGERS[node.to.this]:
            return inner
    raise NoBound(f"`{as_written(node)}` is not a time, whole number or interval")


def _is_meant_as_bound(node: exp.Expr, is_compared: bool, time_of: TimeOf, names: tuple[str, str]) -> bool:
    """Return whether a condition seems intended to bound the times of the two inputs; an equality of keys does not."""
    aliases = [name.lower() for name in names]
    columns = list(node.find_all(exp.Column))
    times = [time for column in columns if (time := time_of(column))]
    inputs = {time.input for time in times}
    if not is_compared or (isinstance(node, EQUAL) and not times):
        return len(inputs) == 2
    inputs |= {aliases.index(column.table.lower()) for column in columns if column.table.lower() in aliases}
    return len(inputs) == 2


def _unbounded(
    missing: set[tuple[int, int]],
    seen: Mapping[int, str],
    names: tuple[str, str],
    bounds: Sequence[Bound],
    reasons: tuple[str, ...],
) -> Objection:
    times = [f"{name}.{seen[index]}" if index in seen else "" for index, name in enumerate(names)]
    shown = [f"`{time}`" if time else f"the times of `{name}`" for time, name in zip(times, names, strict=True)]
    example = "10" if any(bound.unit == "number" for bound in bounds) else "INTERVAL 1 HOUR"
    if len(missing) == 2:
        what = f"how far {shown[0]} and {shown[1]} may lie apart"
        hint = f"for example: {times[0]} BETWEEN {times[1]} - {example} AND {times[1]} + {example}"
    else:
        ((greater, lesser),) = missing
        what = f"how far {shown[greater]} may lie behind {shown[lesser]}"
        hint = f"for example: {times[greater]} >= {times[lesser]} - {example}"
    if not all(times):
        hint = "compare a column in the `watermarks` of one source with one of the other source"
    problem = f"ON: the state would grow without end: nothing limits {what}"
    return Objection(problem, "; ".join(reasons) or hint)
