"""
What ON of a join of two streams says about their times, taken from its text.

    l.t BETWEEN r.t - 5 AND r.t + 2     l.t is at least r.t less 5, and r.t at least l.t less 2
    NOT (l.t < r.t - 5)                 the first of the two again
    l.t - r.t <= 2                      the second

A bound only limits what is kept, ON is still applied to each pair, so a bound may be wider than what is written: a
strict comparison counts as one that is not. It may never be narrower: what is not understood gives no bound.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from pipelines.spec.sql.dialect import as_written
from pipelines.spec.sql.lengths import DAY, NoLength, Unit, microseconds
from pipelines.spec.sql.objection import Objection
from pipelines.spec.statement.columns import conjuncts
from pipelines.spec.statement.definition import Time

TimeOf = Callable[[exp.Column], Time | None]
WhyNot = Callable[[exp.Column], str]
InputOf = Callable[[exp.Column], int | None]

EQUAL = (exp.EQ, exp.NullSafeEQ)
UNEQUAL = (exp.NEQ, exp.NullSafeNEQ)
AT_LEAST = (exp.GTE, exp.GT)
AT_MOST = (exp.LTE, exp.LT)

UNDER_OR = "under an OR it need not hold"
OTHERWISE = "it is none of =, <, <=, >, >= and BETWEEN"

WHOLE = re.compile(r"\d{1,18}")
INTEGERS = {exp.DType.TINYINT: 7, exp.DType.SMALLINT: 15, exp.DType.INT: 31, exp.DType.BIGINT: 63}
"""The types that hold whole numbers, by the bits besides the sign."""


@dataclass(frozen=True)
class Bound:
    """
    `greater` is at least `lesser` less `allowance`.

    Args:
        greater: A time of one input.
        lesser: A time of the other one.
        allowance: In microseconds where the constant was an interval, else as it was written.
        unit: What the constant was; "" for a 0 that was not written as an interval: it fits any type.
        has_days: Whether the length of the interval depends on the time zone: one of a day or more went in, and such
            days have 23 to 25 hours, or one time was subtracted from the other, which compares what clocks show.
    """

    greater: Time
    lesser: Time
    allowance: int
    unit: Unit
    has_days: bool = False


@dataclass(frozen=True)
class _Sum:
    """Times, each with how often it is added, and a constant made of numbers or of intervals."""

    times: Mapping[Time, int] = field(default_factory=dict)
    constant: int = 0
    units: frozenset[str] = frozenset()
    has_days: bool = False

    def plus(self, other: "_Sum", factor: int = 1) -> "_Sum":
        """Add what another sum says, so many times."""
        counts = {
            time: self.times.get(time, 0) + factor * other.times.get(time, 0) for time in {**self.times, **other.times}
        }
        times = {time: count for time, count in counts.items() if count}
        constant = self.constant + factor * other.constant
        is_long = not times and abs(constant) >= DAY
        has_days = self.has_days or other.has_days or is_long or bool(self.times and other.times)
        return _Sum(times, constant, self.units | other.units, has_days)


class NoBound(Exception):
    """Why a comparison gives no bound."""


class NoTime(NoBound):
    """A column in a comparison is no watermarked one."""

    def __init__(self, column: exp.Column) -> None:
        super().__init__(f"`{as_written(column)}` is neither constant nor among the `watermarks` of its source")
        self.column = column


def find_bounds(
    conditions: Sequence[exp.Expr], time_of: TimeOf, names: tuple[str, str], why_not: WhyNot = lambda _: ""
) -> tuple[tuple[Bound, ...], list[Objection]]:
    """
    Find how far the times of two streams may lie apart.

    Args:
        conditions: ON, and of an inner join WHERE.
        time_of: Tells the watermarked column that a column is, None for any other column.
        names: The aliases of the two inputs, for messages.
        why_not: Says why a column is no watermarked one, where that is not for the `watermarks` of its source.

    Returns:
        The tightest bound of each time on each other one, and what speaks against them: nothing exactly if there is a
        bound in each direction.
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
            if reasons and _came_close(node, bool(pairs), time_of, names):
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
    """
    Find what ON demands of the rows of one input alone.

    Args:
        on: The condition.
        input_of: Tells the input of a column, 0 or 1; None if that is not known.

    Returns:
        The conjuncts over the left input alone and those over the right; one without columns is among both.
    """
    over = [(conjunct, _inputs(conjunct, input_of)) for conjunct in conjuncts(on)]
    left, right = (tuple(conjunct for conjunct, inputs in over if inputs <= {place}) for place in (0, 1))
    return left, right


def equalities(on: exp.Expr, input_of: InputOf) -> tuple[tuple[exp.Expr, exp.Expr], ...]:
    """
    Find the equalities between the two inputs.

    Args:
        on: The condition.
        input_of: Tells the input of a column, 0 or 1; None if that is not known.

    Returns:
        For each the end over the left input alone and the end over the right alone; each has a column.
    """
    ends = [(node.this.unnest(), node.expression.unnest()) for node in conjuncts(on) if isinstance(node, exp.EQ)]
    either_way = [pair for one, other in ends for pair in ((one, other), (other, one))]
    return tuple(
        (left, right) for left, right in either_way if (_inputs(left, input_of), _inputs(right, input_of)) == ({0}, {1})
    )


def _inputs(node: exp.Expr, input_of: InputOf) -> set[int | None]:
    return {input_of(column) for column in node.find_all(exp.Column)}


def _asserted(on: exp.Expr) -> Iterator[tuple[exp.Expr, bool]]:
    """Give the parts of a condition that all are true, or, with False, that all are not."""
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
    """Give the pairs of which the first is at least the second where a comparison holds, or where it does not."""
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
    """Give the bound that one sum being at least another is; None if it does not compare times of two inputs."""
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
    """Read an expression as times and a constant, or raise why it is not that."""
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
        held = _sum(node.this, time_of)
        if not held.times and held.units == {"number"} and abs(held.constant) < 2 ** INTEGERS[node.to.this]:
            return held
    raise NoBound(f"`{as_written(node)}` is no time, whole number or interval")


def _came_close(node: exp.Expr, is_compared: bool, time_of: TimeOf, names: tuple[str, str]) -> bool:
    """Tell whether a condition looks as if it was to bound the times of the two inputs; a key does not."""
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
    """Say what keeps growing, and what to write or why what is written does not do."""
    times = [f"{name}.{seen[place]}" if place in seen else "" for place, name in enumerate(names)]
    shown = [f"`{time}`" if time else f"the times of `{name}`" for time, name in zip(times, names, strict=True)]
    example = "10" if any(bound.unit == "number" for bound in bounds) else "INTERVAL 1 HOUR"
    if len(missing) == 2:
        what = f"how far {shown[0]} and {shown[1]} may lie apart"
        hint = f"as an example: {times[0]} BETWEEN {times[1]} - {example} AND {times[1]} + {example}"
    else:
        ((greater, lesser),) = missing
        what = f"how far {shown[greater]} may lie behind {shown[lesser]}"
        hint = f"as an example: {times[greater]} >= {times[lesser]} - {example}"
    if not all(times):
        hint = "compare a time that is among the `watermarks` of one source with one of the other"
    problem = f"ON: the state would grow without end: nothing limits {what}"
    return Objection(problem, "; ".join(reasons) or hint)
