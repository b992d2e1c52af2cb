"""The bounds of a join of two streams: which comparisons of ON give one, and why others do not."""

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import read_expression
from pipelines.language.statement.windows import Bound, Time, equalities, find_bounds, one_side
from tests.cases import cases

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

WATERMARKS = {"l": ("t", "s"), "r": ("t", "s")}
NAMES = ("l", "r")


def read(sql: str) -> exp.Expr:
    expression, objections = read_expression(sql)
    assert expression is not None
    assert not objections
    return expression


def input_of(column: exp.Column) -> int | None:
    return NAMES.index(column.table.lower()) if column.table.lower() in NAMES else None


def time_of(column: exp.Column) -> Time | None:
    place = input_of(column)
    if place is None or column.name.lower() not in WATERMARKS[NAMES[place]]:
        return None
    return Time(place, column.name.lower())


def found(*conditions: str) -> tuple[tuple[Bound, ...], list[Objection]]:
    return find_bounds([read(sql) for sql in conditions], time_of, NAMES)


def text(time: Time) -> str:
    return f"{NAMES[time.input]}.{time.column}"


def bounds(*conditions: str) -> dict[str, int]:
    """What each condition bounds, as `greater - lesser`, with the allowance."""
    return {f"{text(bound.greater)} {text(bound.lesser)}": bound.allowance for bound in found(*conditions)[0]}


def both(left: int, right: int) -> dict[str, int]:
    """The bounds `l.t >= r.t - left` and `r.t >= l.t - right`."""
    return {"l.t r.t": left, "r.t l.t": right}


LEFT = {
    "l.t >= r.t - 5": 5,
    "l.t > r.t - 5": 5,
    "r.t - 5 <= l.t": 5,
    "r.t - 5 < l.t": 5,
    "(L.T >= ((r.t) - (5)))": 5,
    "l.t + 5 >= r.t": 5,
    "l.t + 7 >= r.t + 2": 5,
    "5 + l.t >= r.t": 5,
    "l.t - r.t >= -5": 5,
    "r.t - l.t <= 5": 5,
    "5 >= r.t - l.t": 5,
    "0 >= r.t - l.t - 5": 5,
    "l.t - (r.t - 5) >= 0": 5,
    "-l.t <= 5 - r.t": 5,
    "l.t >= r.t": 0,
    "l.t >= r.t + 2 + 2": -4,
    "l.t >= r.t + (2 + 2)": -4,
    "l.t - (3 - 2) >= r.t": -1,
    "l.t >= r.t - (-4)": -4,
    "l.t >= r.t + -4": 4,
    "l.t >= r.t - - 4": -4,
    "l.t >= r.t - CAST(4 AS BIGINT)": 4,
    "l.t >= r.t - CAST(-4 AS TINYINT)": -4,
    "l.t >= r.t - 4L": 4,
    "l.t >= r.t - 2 * 2": 4,
    "l.t >= r.t - -2 * (3 - 1)": -4,
    "NOT (l.t < r.t - 5)": 5,
    "NOT l.t <= r.t - 5": 5,
    "NOT (r.t - 5 > l.t)": 5,
    "NOT NOT (l.t >= r.t - 5)": 5,
    "NOT (NOT (l.t >= r.t - 5 AND l.k = r.k))": 5,
    "NOT (l.t < r.t - 5 OR l.k <> r.k)": 5,
    "NOT (NOT (l.t >= r.t - 5) OR l.t < r.t - 7)": 5,
    "l.k = r.k AND (l.v > 3 AND (l.t >= r.t - 5)) AND (l.v = 1 OR r.v = 2)": 5,
    "l.t >= r.t - 9 AND l.t >= r.t - 5 AND l.t >= r.t - 7": 5,
    "l.t >= r.t - 5 AND l.t >= r.t - 9": 5,
    "l.t >= r.t - 5 AND FALSE": 5,
    "l.t BETWEEN r.t - 5 AND 9": 5,
    "l.t BETWEEN r.t - 5 AND r.t + l.v": 5,
    "l.t >= r.t - 5 AND r.t + length('abc') >= l.t": 5,
}
"""Conditions that bound how far `l.t` lies behind `r.t`, with the allowance, and nothing else."""

BOTH = {
    "l.t BETWEEN r.t - 5 AND r.t + 2": (5, 2),
    "r.t BETWEEN l.t - 2 AND l.t + 5": (5, 2),
    "r.t - l.t BETWEEN 0 AND 5": (5, 0),
    "l.t - r.t BETWEEN -5 AND 2": (5, 2),
    "NOT (l.t NOT BETWEEN r.t - 5 AND r.t + 2)": (5, 2),
    "l.t = r.t": (0, 0),
    "l.t <=> r.t": (0, 0),
    "NOT (l.t <> r.t)": (0, 0),
    "NOT (l.t IS DISTINCT FROM r.t)": (0, 0),
    "l.t = r.t + 5": (-5, 5),
    "r.t + 5 = l.t": (-5, 5),
    "l.t + 5 = r.t": (5, -5),
    "l.t - 5 = r.t": (-5, 5),
    "r.t = l.t - 5": (-5, 5),
    "l.t >= r.t + 5 AND r.t >= l.t + 5": (-5, -5),
    "l.t = r.t AND l.t <= r.t - 3 AND l.t >= r.t - 3": (0, -3),
}


@pytest.mark.parametrize(("sql", "allowance"), LEFT.items())
def test_a_comparison_gives_a_bound(sql, allowance):
    """Whatever is added on which side, and whichever way round."""
    assert bounds(sql) == {"l.t r.t": allowance}
    (bound,) = found(sql)[0]
    assert (bound.unit, bound.has_days) == ("number" if allowance else "", False)


@pytest.mark.parametrize(("sql", "allowances"), BOTH.items())
def test_a_condition_bounds_both_times(sql, allowances):
    """BETWEEN, equalities and two comparisons limit both sides; also where no pair could ever meet them."""
    assert bounds(sql) == both(*allowances)
    assert found(sql)[1] == []


def test_several_times_of_a_side_are_bounded_each_for_itself():
    """Bounds come in the order of their first appearance, one a pair."""
    sql = "r.s >= l.t - 2 AND l.t >= r.t - 5 AND l.s >= r.t AND r.s >= l.t - 1"
    assert list(bounds(sql).items()) == [("r.s l.t", 1), ("l.t r.t", 5), ("l.s r.t", 0)]


def test_several_conditions_count_together():
    """Of an inner join WHERE counts as ON."""
    assert bounds("l.t >= r.t - 5", "r.t >= l.t - 1 AND l.t >= r.t - 4") == both(4, 1)


@cases(
    "interval, length",
    ("INTERVAL 1 HOUR", HOUR),
    ("INTERVAL '1' HOUR", HOUR),
    ("interval '2' hours", 2 * HOUR),
    ("INTERVAL -1 HOUR", -HOUR),
    ("INTERVAL '-1' HOUR", -HOUR),
    ("- INTERVAL 1 HOUR", -HOUR),
    ("INTERVAL '15 minutes'", 15 * MINUTE),
    ("INTERVAL '1 day 2 hours'", 26 * HOUR),
    ("INTERVAL '1 day -2 hours'", 22 * HOUR),
    ("INTERVAL '5 seconds 3 milliseconds 2 microseconds'", 5_003_002),
    ("INTERVAL '1 02:03:04.5' DAY TO SECOND", DAY + 2 * HOUR + 3 * MINUTE + 4_500_000),
    ("INTERVAL '-1 02:03:04.5' DAY TO SECOND", -(DAY + 2 * HOUR + 3 * MINUTE + 4_500_000)),
    ("INTERVAL '+1 02' DAY TO HOUR", 26 * HOUR),
    ("INTERVAL '02:03' HOUR TO MINUTE", 2 * HOUR + 3 * MINUTE),
    ("INTERVAL '01:00:00.000001' HOUR TO SECOND", HOUR + 1),
    ("INTERVAL '90:05' MINUTE TO SECOND", 90 * MINUTE + 5 * SECOND),
    ("INTERVAL 2 WEEKS", 14 * DAY),
    ("INTERVAL 3 MILLISECONDS", 3000),
    ("INTERVAL '4' MICROSECOND", 4),
    ("INTERVAL 1.5 SECOND", 1_500_000),
    ("INTERVAL '1.0000019' SECOND", 1_000_001),
    ("INTERVAL '1' HOUR * 2", 2 * HOUR),
    ("2 * INTERVAL '1' HOUR", 2 * HOUR),
    ("(INTERVAL 1 HOUR - INTERVAL 5 MINUTES)", 55 * MINUTE),
    ("INTERVAL 0 SECONDS", 0),
)
def test_an_interval_is_measured(interval, length):
    """All units up to the week, in any spelling, are microseconds."""
    ((bound,), _) = found(f"l.t >= r.t - {interval}")
    assert (bound.allowance, bound.unit, bound.has_days) == (length, "interval", abs(length) >= DAY)


@cases(
    "sql, depends",
    ("l.t >= r.t - INTERVAL 23 HOURS", False),
    ("l.t >= r.t - INTERVAL 24 HOURS", True),
    ("l.t >= r.t - 2 * INTERVAL 12 HOURS", True),
    ("l.t >= r.t - (INTERVAL 12 HOURS + INTERVAL 12 HOURS)", True),
    ("l.t >= r.t - INTERVAL 12 HOURS - INTERVAL 12 HOURS", False),
    ("l.t + INTERVAL 1 DAY >= r.t + INTERVAL 1 DAY", True),
    ("r.t - l.t <= INTERVAL 1 HOUR", True),
    ("r.t - l.t <= 100000000000", False),
    ("l.t >= r.t - 100000000000", False),
)
def test_a_length_that_depends_on_the_time_zone_is_marked(sql, depends):
    """Spark adds days by the calendar, and subtracts timestamps as clocks show them."""
    ((bound,), _) = found(sql)
    assert bound.has_days is depends


def test_differences_of_times_are_compared_with_intervals():
    """Spark subtracts timestamps; as BETWEEN and as single comparisons."""
    assert bounds("r.t - l.t BETWEEN INTERVAL 0 SECOND AND INTERVAL 1 HOUR") == both(HOUR, 0)
    assert bounds("l.t - r.t <= INTERVAL 1 MINUTE AND r.t - l.t <= INTERVAL 1 HOUR") == both(HOUR, MINUTE)


def test_of_two_equal_bounds_the_exact_one_is_taken():
    """A length that every time zone measures alike is better than one that they do not."""
    sql = ("r.t - l.t <= INTERVAL 1 HOUR", "l.t >= r.t - INTERVAL 1 HOUR")
    for conditions in (sql, sql[::-1]):
        ((bound,), _) = found(*conditions)
        assert bound.has_days is False


NO_BOUND = {
    "l.t >= r.t - INTERVAL 1 MONTH": "months and years have no fixed length",
    "l.t >= r.t - INTERVAL 2 YEARS": "months and years have no fixed length",
    "l.t >= r.t - INTERVAL '1-2' YEAR TO MONTH": "months and years have no fixed length",
    "l.t >= r.t - INTERVAL '1 month 2 days'": "months and years have no fixed length",
    "l.t >= r.t - INTERVAL '1' NANOSECOND": "`INTERVAL '1' NANOSECOND` is not a time, whole number or interval",
    "l.t >= r.t - INTERVAL '1 2' DAY TO SECOND": "is not a time, whole number or interval",
    "l.t >= r.t - INTERVAL '1.5 hours'": "is not a time, whole number or interval",
    "l.t >= r.t - INTERVAL '1 day 2 moons'": "is not a time, whole number or interval",
    "l.t >= r.t - INTERVAL '1' HOUR * 1.5": "`1.5` is not a time, whole number or interval",
    "l.t >= r.t - INTERVAL '1' HOUR * INTERVAL '1' HOUR": "is not a time, whole number or interval",
    "l.t >= r.t + 5 - INTERVAL '1' HOUR": "it mixes numbers and intervals",
    "l.t >= r.t + l.v": "`l.v` is neither constant nor among the `watermarks` of its source",
    "l.t >= r.t + length('abc')": "`length('abc')` is not a time, whole number or interval",
    "l.t >= r.t * 2": "`r.t * 2` is not a time, whole number or interval",
    "l.t / 2 = r.t / 2": "`l.t / 2` is not a time, whole number or interval",
    "abs(l.t - r.t) <= 5": "`abs(l.t - r.t)` is not a time, whole number or interval",
    "l.t >= r.t + 4.5": "`4.5` is not a time, whole number or interval",
    "l.t >= r.t + '4'": "`'4'` is not a time, whole number or interval",
    "l.t >= r.t + CAST(300 AS TINYINT)": "is not a time, whole number or interval",
    "l.t >= r.t + CAST(4.5 AS INT)": "`4.5` is not a time, whole number or interval",
    "l.t >= CAST(r.t AS BIGINT)": "`CAST(r.t AS BIGINT)` is not a time, whole number or interval",
    "l.t >= r.t - 999999999999999999 * 999999999999999999": "the constant is too large",
    "l.t + r.t >= 5": "it does not compare one time of each input",
    "l.t + l.s >= r.t + 5": "it does not compare one time of each input",
    "l.t >= r.u - 4": "`r.u` is neither constant nor among the `watermarks` of its source",
    "l.u >= r.u - 4": "`l.u` is neither constant nor among the `watermarks` of its source",
    "l.t = r.u": "`r.u` is neither constant nor among the `watermarks` of its source",
    "l.t BETWEEN r.t - 1 AND r.t + 1 OR l.k = 1": "under an OR it need not hold",
    "(l.t >= r.t - 4 AND r.t >= l.t - 1) OR (l.t >= r.t - 6 AND r.t >= l.t - 2)": "under an OR it need not hold",
    "NOT (l.t < r.t - 4 AND r.t < l.t - 4)": "under an OR it need not hold",
    "l.t <> r.t": "it is not one of =, <, <=, >, >= and BETWEEN",
    "NOT (l.t = r.t)": "it is not one of =, <, <=, >, >= and BETWEEN",
    "l.t NOT BETWEEN r.t - 1 AND r.t + 1": "it is not one of =, <, <=, >, >= and BETWEEN",
    "l.t IN (r.t)": "it is not one of =, <, <=, >, >= and BETWEEN",
    "l.t >= r.t IS TRUE": "it is not one of =, <, <=, >, >= and BETWEEN",
}
"""Conditions that look as if they gave a bound, with the reason why they do not."""


@pytest.mark.parametrize(("sql", "reason"), NO_BOUND.items())
def test_a_condition_that_comes_close_is_told_why_it_does_not_do(sql, reason):
    """Nothing is found, and the hint names the condition and what is wrong with it."""
    found_bounds, (objection,) = found(f"{sql} AND l.k = r.k")
    assert found_bounds == ()
    assert "gives no bound: " in objection.hint
    assert reason in objection.hint
    assert "`l.k" not in objection.hint


@cases(
    "sql",
    "l.k = r.k",
    "TRUE",
    "1 = 2",
    "l.t >= l.s - 5 AND l.s >= l.t - 5",
    "l.t BETWEEN l.s AND l.s + 5",
    "l.t >= 5 AND r.t <= 7",
    "l.t - l.s <= 5",
    "l.t > l.u + 10",
    "l.k = 1 OR r.k = 2",
    "l.k <> r.k",
)
def test_other_conditions_give_no_bound_and_no_reason(sql):
    """Times of one input, constants and keys: the hint says what to write."""
    found_bounds, (objection,) = found(sql)
    assert found_bounds == ()
    assert "gives no bound" not in objection.hint
    assert objection.problem.startswith("ON: the state would grow without end: nothing limits how far ")


@cases(
    "sql, problem, hint",
    ("l.t >= r.t - 5", "how far `r.t` may lie behind `l.t`", "for example: r.t >= l.t - 10"),
    ("r.t >= l.t - INTERVAL 1 HOUR", "how far `l.t` may lie behind `r.t`", "for example: l.t >= r.t - INTERVAL 1 HOUR"),
    (
        "l.t >= 5 AND r.s >= 7",
        "how far `l.t` and `r.s` may lie apart",
        "for example: l.t BETWEEN r.s - INTERVAL 1 HOUR AND r.s + INTERVAL 1 HOUR",
    ),
    (
        "l.k = r.k",
        "how far the times of `l` and the times of `r` may lie apart",
        "compare a column in the `watermarks` of one source with one of the other source",
    ),
    (
        "l.t >= r.t - 5 AND (l.k = 1 OR l.t <= r.t + 5) AND r.t + r.v >= l.t",
        "how far `r.t` may lie behind `l.t`",
        "`l.k = 1 OR l.t <= r.t + 5` gives no bound: under an OR it need not hold; "
        "`r.t + r.v >= l.t` gives no bound: `r.v` is neither constant nor among the `watermarks` of its source",
    ),
)
def test_the_missing_direction_is_named(sql, problem, hint):
    """Which time may lie how far behind which, and what to write or why what is written does not do."""
    _, (objection,) = found(sql)
    assert objection.problem == f"ON: the state would grow without end: nothing limits {problem}"
    assert objection.hint == hint


def test_the_objection_is_about_the_condition_that_came_close():
    on = read("l.k = r.k AND l.t >= r.t * 2")
    assert find_bounds([on], time_of, NAMES)[1][0].about == on.expression
    on = read("l.k = r.k")
    assert find_bounds([on], time_of, NAMES)[1][0].about is on


@cases(
    "sql, left, right",
    ("l.k = r.k AND l.v > 3 AND r.v > 4", ["l.v > 3"], ["r.v > 4"]),
    ("(l.v > 3 AND l.u IN (1)) AND l.v > r.v", ["l.v > 3", "l.u IN (1)"], []),
    ("TRUE AND r.v IS NULL", ["TRUE"], ["TRUE", "r.v IS NULL"]),
    ("l.v = 1 OR l.v = 2", ["l.v = 1 OR l.v = 2"], []),
    ("l.v = x AND x = 3", [], []),
)
def test_conditions_over_one_input_are_told_apart(sql, left, right):
    """A condition without columns counts for both; a column of no known input for neither."""
    found_sides = one_side(read(sql), input_of)
    assert tuple([as_written(one) for one in side] for side in found_sides) == (left, right)


@cases(
    "sql, pairs",
    ("l.k = r.k", [("l.k", "r.k")]),
    ("(r.k) = upper(l.k)", [("upper(l.k)", "r.k")]),
    ("l.t = r.t + 5 AND l.k = r.k AND l.v > r.v", [("l.t", "r.t + 5"), ("l.k", "r.k")]),
    ("l.a + l.b = r.k", [("l.a + l.b", "r.k")]),
    ("l.a + r.b = r.k", []),
    ("l.a = l.b AND r.k = 3 AND l.k = x AND l.k <=> r.k", []),
    ("l.k = r.k OR l.v = r.v", []),
)
def test_equalities_have_a_left_and_a_right_end(sql, pairs):
    """Each end is over one input alone, whichever comes first in the text."""
    assert [(as_written(left), as_written(right)) for left, right in equalities(read(sql), input_of)] == pairs


small = st.integers(-4, 4)


@st.composite
def expressions(draw) -> str:
    """A time of either input, or the difference of both, with numbers added in some way."""
    text = draw(st.sampled_from(["l.t", "r.t", "(l.t)", "-l.t", "(l.t - r.t)", "(r.t - l.t)", "0", "l.s", "l.v"]))
    for constant in draw(st.lists(small, max_size=2)):
        form = draw(st.sampled_from(["{0} + {1}", "{0} - {1}", "{1} + {0}", "({0} - ({1} - 2 * 3))"]))
        text = form.format(text, constant)
    return text


comparisons = st.builds(
    "{} {} {}".format, expressions(), st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "<=>"]), expressions()
)
betweens = st.builds(
    "{} {} {} AND {}".format, expressions(), st.sampled_from(["BETWEEN", "NOT BETWEEN"]), expressions(), expressions()
)
conditions = st.recursive(
    comparisons | betweens,
    lambda parts: (
        st.builds("({}) AND ({})".format, parts, parts)
        | st.builds("({}) OR ({})".format, parts, parts)
        | st.builds("NOT ({})".format, parts)
    ),
    max_leaves=5,
)

OPERATORS = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "==",
    exp.NEQ: "!=",
    exp.NullSafeEQ: "==",
    exp.And: "and",
    exp.Or: "or",
}


def in_python(node: exp.Expr) -> str:
    """Write a condition over integers as Python, without any of the code under test."""
    if isinstance(node, exp.Column):
        return f"row['{node.sql()}']"
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, exp.Paren):
        return f"({in_python(node.this)})"
    if isinstance(node, exp.Neg | exp.Not):
        return f"({'-' if isinstance(node, exp.Neg) else 'not'} {in_python(node.this)})"
    if isinstance(node, exp.Between):
        return f"({' <= '.join(in_python(node.args[part]) for part in ('low', 'this', 'high'))})"
    return f"({in_python(node.this)} {OPERATORS[type(node)]} {in_python(node.expression)})"


def as_predicate(on: exp.Expr) -> Callable[[dict[str, int]], bool]:
    return eval(f"lambda row: {in_python(on)}")


def is_within(row: dict[str, int], bound: Bound) -> bool:
    return row[text(bound.greater)] >= row[text(bound.lesser)] - bound.allowance


@settings(max_examples=300, deadline=None)
@given(conditions, st.lists(small, min_size=3, max_size=3))
def test_whatever_meets_the_condition_is_within_the_bounds(sql, others):
    """No pair that the join would give is lost by what is forgotten."""
    on = read(sql)
    found_bounds, _ = find_bounds([on], time_of, NAMES)
    is_met = as_predicate(on)
    for left, right in product(range(-15, 16), repeat=2):
        row = {"l.t": left, "r.t": right, **dict(zip(("l.s", "l.v", "r.v"), others, strict=True))}
        if is_met(row):
            assert all(is_within(row, bound) for bound in found_bounds), (row, found_bounds)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([">=", "<="]), small, small), min_size=1, max_size=5))
def test_bounds_are_no_wider_than_the_condition(terms):
    """Of comparisons that are not strict, just the pairs within the bounds meet the condition."""
    sql = " AND ".join(
        f"{'l.t' if is_left else 'r.t'} + {one} {sign} {'r.t' if is_left else 'l.t'} - {other}"
        for is_left, sign, one, other in terms
    )
    on = read(sql)
    found_bounds, objections = find_bounds([on], time_of, NAMES)
    assert (not objections) == (len(found_bounds) == 2)
    is_met = as_predicate(on)
    for left in range(-20, 21):
        row = {"l.t": left, "r.t": 0}
        assert all(is_within(row, bound) for bound in found_bounds) == is_met(row), row


@pytest.mark.parametrize("text", ["1 day ago", "- 1 day", "-.5 second", "1 m", ".5 second"])
def test_intervals_that_spark_reads_otherwise_are_refused(text: str) -> None:
    _, objections = read_expression(f"INTERVAL '{text}'")
    assert [objection.problem for objection in objections] == [f"INTERVAL '{text}' is not supported"]


@cases("text", "INTERVAL '-1 day 2 hours'", "INTERVAL '1 02:03:04.5' DAY TO SECOND", "INTERVAL '-1' HOUR")
def test_other_intervals_are_not(text: str) -> None:
    assert read_expression(text)[1] == []
