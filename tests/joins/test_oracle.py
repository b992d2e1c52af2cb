"""The oracle of stream-stream joins: the rows of the design's table one by one, and against two recorded engines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.joins import hazelcast, kafka_streams
from tests.joins.oracle import OTHER, PRESERVED, Bound, Emitted, Oracle, Row, Side, TooManyRows, Values

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"
recorded = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded vectors are not beside the repository")

HOWS = list(PRESERVED)
FIVE_EACH_WAY = (Bound("l.t", "r.t", 5), Bound("r.t", "l.t", 5))


def join(
    how: str = "full", bounds: Sequence[Bound] = FIVE_EACH_WAY, lateness: dict[str, int] | None = None, **options: Any
) -> Oracle:
    """Make a join ON l.k = r.k AND the bounds AND l.v > 0; both sides have the times t and u, of which t is bound."""
    return Oracle(
        how,
        bounds,
        times={"l": ("t", "u"), "r": ("t", "u")},
        lateness={"l.t": 0, "r.t": 0} if lateness is None else lateness,
        meets=lambda left, right: meets(bounds, left, right),
        alone={"l": lambda values: None if values["v"] is None else values["v"] > 0, "r": lambda values: True},
        keys=dict.fromkeys(OTHER, lambda values: values["k"] is None),
        **options,
    )


def meets(bounds: Sequence[Bound], left: Values, right: Values) -> bool:
    values = {f"{side}.{name}": value for side, row in (("l", left), ("r", right)) for name, value in row.items()}
    if None in (left["k"], left["v"], left["t"], right["t"]):
        return False
    within = all(values[greater] >= values[lesser] - allowance for greater, lesser, allowance in bounds)
    return within and left["k"] == right["k"] and left["v"] > 0


def row(name: Any, t: int | None, k: str | None = "k", v: int | None = 1, u: int | None = None) -> Row:
    return name, {"t": t, "k": k, "v": v, "u": u}


def names(emitted: Sequence[Emitted]) -> list[tuple[Any, Any]]:
    return [(one.left and one.left[0], one.right and one.right[0]) for one in emitted]


def held(oracle: Oracle) -> list[Any]:
    return [one.row[0] for one in oracle.buffered]


class TestRules:
    def test_late_rows_are_dropped_before_all_else(self):
        oracle = join()
        oracle.rows("l", [row("A", 10)])
        assert oracle.rows("l", [row("late, and of no key", 9, k=None)]) == []
        assert oracle.rows("l", [row("late, and of no use", 9, v=0)]) == []
        assert oracle.counts == {"late": 2}
        assert held(oracle) == ["A"]

    def test_equal_is_not_late(self):
        oracle = join()
        oracle.rows("l", [row("A", 10)])
        oracle.rows("l", [row("B", 10)])
        assert held(oracle) == ["A", "B"]

    def test_the_watermark_of_the_other_side_makes_nothing_late(self):
        oracle = join()
        oracle.rows("r", [row("a", 12)])
        assert names(oracle.rows("l", [row("A", 7)])) == [("A", "a")]

    def test_rows_below_their_limit_join_and_are_not_stored(self):
        oracle = join(lateness={"l.t": 0, "r.t": 2})
        oracle.rows("r", [row("a", 10), row("b", 18)])
        assert oracle.limits() == {"l.t": 11, "l.u": None, "r.t": None, "r.u": None}
        assert names(oracle.rows("l", [row("A", 10)])) == [("A", "a")]
        assert held(oracle) == ["a", "b"]
        assert oracle.counts == {"below_limit": 1}

    def test_rows_below_their_limit_that_meet_nothing_are_padded_at_once(self):
        for how, padded in (("left", [("A", None)]), ("full", [("A", None)]), ("right", []), ("inner", [])):
            oracle = join(how)
            oracle.rows("r", [row("a", 20)])
            assert names(oracle.rows("l", [row("A", 14)])) == padded
            assert held(oracle) == ["a"]

    def test_equal_to_the_limit_is_within(self):
        oracle = join()
        oracle.rows("r", [row("a", 20)])
        assert names(oracle.rows("l", [row("A", 15)])) == [("A", "a")]
        assert held(oracle) == ["a", "A"]

    @pytest.mark.parametrize("useless", [0, None], ids=["false", "null"])
    def test_rows_that_fail_a_condition_of_one_side_are_never_stored(self, useless: int | None):
        for how, padded in (("left", [("A", None)]), ("inner", [])):
            oracle = join(how)
            oracle.rows("r", [row("a", 10)])
            assert names(oracle.rows("l", [row("A", 10, v=useless)])) == padded
            assert held(oracle) == ["a"]

    def test_rows_with_a_null_key_are_padded_at_once_or_dropped(self):
        for how, padded, dropped in (("full", [("A", None)], 0), ("right", [], 1)):
            oracle = join(how)
            assert names(oracle.rows("l", [row("A", 10, k=None)])) == padded
            assert held(oracle) == []
            assert oracle.counts["null_keys"] == dropped

    def test_a_null_time_that_a_bound_uses_is_a_null_key(self):
        for how, padded, dropped in (("full", [(None, "a")], 0), ("left", [], 1)):
            oracle = join(how)
            assert names(oracle.rows("r", [row("a", None)])) == padded
            assert held(oracle) == []
            assert oracle.counts["null_keys"] == dropped

    def test_a_null_in_any_other_time_is_neither_late_nor_limiting(self):
        oracle = join(lateness={"l.t": 0, "l.u": 0, "r.t": 0})
        oracle.rows("l", [row("A", 10, u=10)])
        oracle.rows("l", [row("B", 10, u=None), row("late", 10, u=9)])
        assert held(oracle) == ["A", "B"]
        assert oracle.watermarks()["l.u"] == 10

    def test_rows_are_padded_once_as_they_leave(self):
        oracle = join()
        oracle.rows("l", [row("A", 10)])
        assert oracle.rows("r", [row("a", 15, k="other")]) == []
        assert oracle.rows("r", [row("b", 16, k="other")]) == [Emitted(3, row("A", 10), None)]
        assert oracle.flush() == [Emitted(4, None, row("a", 15, k="other")), Emitted(4, None, row("b", 16, k="other"))]

    def test_rows_that_met_leave_without_a_word(self):
        oracle = join()
        oracle.rows("l", [row("A", 10)])
        assert names(oracle.rows("r", [row("a", 15)])) == [("A", "a")]
        assert oracle.rows("r", [row("b", 100, k="other")]) == []
        assert held(oracle) == ["a", "b"]
        assert names(oracle.flush()) == [(None, "b")]

    def test_rows_of_one_position_see_what_was_before_it(self):
        oracle = join()
        assert oracle.rows("l", [row("A", 100), row("B", 1)]) == []
        assert held(oracle) == ["A", "B"]
        assert oracle.rows("l", [row("late", 99)]) == []
        assert names(oracle.rows("r", [row("a", 96), row("b", 1), row("c", 200)])) == [("A", "a"), ("B", "b")]
        assert held(oracle) == ["a", "c"]

    def test_of_a_self_join_the_right_rows_meet_the_left_rows_of_their_position(self):
        rows = [row("A", 1), row("B", 2)]
        assert names(join().both(rows, rows)) == [("A", "A"), ("B", "A"), ("A", "B"), ("B", "B")]

    def test_rows_that_are_ignored_move_their_watermark(self):
        oracle = join(lateness={"l.t": 1, "l.u": 0, "r.t": 0}, is_null_value=lambda values: values["v"] is None)
        assert oracle.rows("l", [row("null value", 10, v=None)]) == []
        assert oracle.watermarks()["l.t"] == 9
        oracle.rows("l", [row("null key", 20, k=None)])
        assert oracle.watermarks()["l.t"] == 19
        oracle.rows("l", [row("late", 18, u=30)])
        assert oracle.watermarks() == {"l.t": 19, "l.u": 30, "r.t": None, "r.u": None}
        assert oracle.counts == {"null_values": 1, "late": 1}

    def test_watermarks_never_fall(self):
        oracle = join()
        oracle.watermark("l.t", 15)
        oracle.watermark("l.t", 8)
        oracle.rows("l", [row("late", 10)])
        assert oracle.watermarks()["l.t"] == 15
        assert oracle.limits()["r.t"] == 10
        assert held(oracle) == []

    def test_the_watermark_of_the_result_is_the_lower_of_watermark_and_limit(self):
        oracle = join()
        oracle.watermark("l.t", 15)
        assert oracle.outputs() == {}
        oracle.watermark("r.t", 12)
        assert oracle.outputs() == {"l.t": 7, "r.t": 10}

    def test_the_highest_of_several_limits_counts(self):
        oracle = join(bounds=(*FIVE_EACH_WAY, Bound("r.t", "l.u", 0), Bound("r.t", "l.t", -2)))
        oracle.watermark("l.t", 10)
        assert oracle.limits()["r.t"] == 12
        oracle.watermark("l.u", 13)
        assert oracle.limits()["r.t"] == 13

    def test_a_flush_leaves_watermarks_where_they_are(self):
        oracle = join("left")
        oracle.rows("l", [row("A", 10)])
        oracle.rows("r", [row("a", 14)])
        oracle.rows("l", [row("B", 11, k="other")])
        assert names(oracle.flush()) == [("B", None)]
        assert (held(oracle), oracle.watermarks()["l.t"]) == ([], 11)
        assert oracle.rows("l", [row("late", 10)]) == []

    def test_rows_are_counted_after_those_that_leave(self):
        oracle = join(max_rows=2)
        oracle.rows("l", [row("A", 1)])
        oracle.rows("l", [row("B", 2)])
        oracle.rows("r", [row("a", 100)])
        assert (held(oracle), oracle.largest) == (["a"], 2)
        with pytest.raises(TooManyRows, match="3 rows after position 4: 2 may be held"):
            oracle.rows("r", [row("b", 100), row("c", 100)])


class TestKafkaModes:
    def test_no_row_is_late_and_there_is_one_stream_time(self):
        oracle = join("left", lateness={"l.t": 3, "r.t": 3}, semantics="kafka")
        oracle.rows("r", [row("a", 100)])
        assert (oracle.watermarks()["l.t"], oracle.limits()["l.t"], oracle.limits()["r.t"]) == (97, 92, 92)
        assert names(oracle.rows("l", [row("A", 91)])) == [("A", None)]
        assert names(oracle.rows("l", [row("B", 92)])) == []
        assert held(oracle) == ["a", "B"]
        assert names(oracle.rows("l", [row("C", 101, k="other")])) == [("B", None)]

    def test_0_10_2_pads_as_rows_come_and_not_again(self):
        oracle = join(semantics="kafka-0.10.2")
        assert names(oracle.rows("l", [row("A", 10)])) == [("A", None)]
        assert names(oracle.rows("r", [row("a", 12)])) == [("A", "a")]
        assert names(oracle.rows("l", [row("B", 100)])) == [("B", None)]
        assert oracle.flush() == []

    def test_0_10_0_looks_up_from_the_kept_side_only(self):
        options = {"semantics": "kafka-0.10.0", "is_null_value": lambda values: values["v"] is None}
        oracle = join("left", **options)
        oracle.alone["l"] = lambda values: True
        oracle.meets = lambda left, right: left["k"] == right["k"]
        assert names(oracle.rows("l", [row("A", 10)])) == [("A", None)]
        assert names(oracle.rows("r", [row("a", 10)])) == []
        assert names(oracle.rows("r", [row("null", 10, v=None)])) == []
        assert names(oracle.rows("l", [row("null", 10, v=None)])) == [("null", "a")]
        assert held(oracle) == ["a"]


def hazelcast_case(on: str = "l.k = r.k AND l.t = r.t AND l.v > 0", **changes: Any) -> hazelcast.Case:
    columns = ("k", "t", "v")
    case = hazelcast.Case(
        id="made up",
        type="left",
        columns={"l": columns, "r": columns},
        times={"l": ("t",), "r": ("t",)},
        bounds=(Bound("l.t", "r.t", 0), Bound("r.t", "l.t", 0)),
        equi=("k",),
        on=on,
        max_records=None,
        steps=(),
        recorded=hazelcast.Outcome(),
    )
    return replace(case, **changes)


def steps(*several: Any) -> tuple[dict[str, Any], ...]:
    """Write steps: (side, k, t) is a row, (column, value) a watermark, a text an action; a dictionary is itself."""
    written: list[dict[str, Any]] = []
    for step in several:
        if isinstance(step, dict):
            written.append(dict(step))
        elif isinstance(step, str):
            written.append({"action": step})
        elif len(step) == 2:
            written.append({"watermark": {"column": step[0], "value": step[1]}})
        else:
            written.append({"side": step[0], "row": {"k": step[1], "t": step[2], "v": 1}})
    return tuple({"seq": seq, **step} for seq, step in enumerate(written, start=1))


class TestHazelcast:
    @recorded
    def test_with_all_its_rules_the_oracle_is_the_engine(self):
        cases = [case for name in ("design", "processor") for case in read_hazelcast(name)]
        assert len(cases) == 102
        assert {case.id: problems for case in cases if (problems := hazelcast.misreadings(case))} == {}

    @recorded
    def test_every_difference_decides_as_many_cases_as_ever(self):
        cases = [case for name in ("design", "processor") for case in read_hazelcast(name)]
        found: Counter[str] = Counter()
        for case in cases:
            problems, differences = hazelcast.compare(case, hazelcast.expected(case))
            assert problems == []
            found += differences
        assert found == {"one_side_or_null_key": 37, "watermark_never_falls": 6, "watermark_not_repeated": 2}

    @recorded
    def test_where_no_difference_decides_the_record_is_what_must_come(self):
        same = [case for case in read_hazelcast("processor") if not list(hazelcast.deciding(case))]
        assert {case.id: problems for case in same if (problems := hazelcast.compare(case, case.recorded)[0])} == {}
        assert len(same) == 20

    @recorded
    def test_damage_is_noticed(self):
        case = next(case for case in read_hazelcast("processor") if hazelcast.expected(case).made)
        for damaged in (hazelcast.Outcome(), replace(hazelcast.expected(case), error=(3, "limit"))):
            assert hazelcast.compare(case, damaged)[0]

    def test_the_record_limit_is_looked_at_when_the_step_is_done(self):
        case = hazelcast_case(max_records=1, steps=steps(("l.t", 5), ("left", 1, 6), ("left", 1, 4), ("left", 1, 7)))
        assert hazelcast.expected(case).error == (4, "limit")
        assert hazelcast.replay(case, hazelcast.ENGINE).error == (3, "limit")
        assert list(hazelcast.deciding(case)) == ["limit_after_lateness"]

    def test_full_is_taken_and_other_types_are_not(self):
        case = hazelcast_case(type="full", steps=steps(("right", 1, 1), ("l.t", 2)))
        assert hazelcast.expected(case).made[2].rows == Counter([(None, None, None, 1, 1, 1)])
        assert hazelcast.replay(case, hazelcast.ENGINE).error == (0, "type")
        assert list(hazelcast.deciding(case)) == ["full_is_taken"]
        assert hazelcast.expected(hazelcast_case(type="semi")).error == (0, "type")

    def test_bounds_in_one_direction_are_not_enough(self):
        assert hazelcast.expected(hazelcast_case(bounds=(Bound("l.t", "r.t", 0),))).error == (0, "bounds")

    def test_null_times_do_not_fail(self):
        case = hazelcast_case(steps=steps(("left", 1, None), ("right", 1, None)))
        assert hazelcast.expected(case).error is None
        assert hazelcast.expected(case).made[1].rows == Counter([(1, None, 1, None, None, None)])
        assert hazelcast.replay(case, hazelcast.ENGINE).error == (1, "null_time")
        assert list(hazelcast.deciding(case)) == ["null_times"]

    def test_null_keys_are_padded_as_they_come(self):
        case = hazelcast_case(steps=steps(("left", None, 1), ("r.t", 5)))
        assert list(hazelcast.expected(case).made[1].rows) == [(None, 1, 1, None, None, None)]
        assert list(hazelcast.replay(case, hazelcast.ENGINE).made[2].rows) == [(None, 1, 1, None, None, None)]
        assert list(hazelcast.deciding(case)) == ["one_side_or_null_key"]

    def test_merged_states_have_all_rows_and_the_lower_watermarks(self):
        other = steps(("left", 2, 12), ("l.t", 12), ("r.t", 3))
        case = hazelcast_case(
            steps=steps(("left", 1, 10), ("l.t", 10), "save", {"action": "restore_merged", "other_steps": other})
        )
        assert hazelcast.expected(case).states[4] == hazelcast.State((1, 2), (), {"l.t": 3, "r.t": 10})

    def test_an_output_watermark_is_not_repeated(self):
        case = hazelcast_case(steps=steps(("l.t", 5), ("r.t", 5), "save", "restore", ("l.t", 6)))
        assert is_silent_after_restore(hazelcast.expected(case))
        assert not is_silent_after_restore(hazelcast.replay(case, hazelcast.ENGINE))
        assert list(hazelcast.deciding(case)) == ["watermark_not_repeated"]

    def test_conditions_have_three_values(self):
        meets, alone, keys = hazelcast.condition("l.k + 1 = r.k AND l.v <> r.v AND (l.v > 3 OR l.w IS NULL)", ())
        left = {"k": 1, "v": 2, "w": None}
        assert meets(left, {"k": 2, "v": 3}) is True
        assert meets(left, {"k": 2, "v": 2}) is False
        assert meets(left, {"k": 2, "v": None}) is None
        assert (alone["l"](left), alone["l"]({"v": None, "w": 1}), alone["r"]({})) == (True, None, True)
        assert (keys["l"](left), keys["l"]({"k": None}), keys["r"]({"k": None})) == (False, True, True)


def is_silent_after_restore(outcome: hazelcast.Outcome) -> bool:
    return outcome.made[5] == hazelcast.NOTHING


def read_hazelcast(name: str) -> list[hazelcast.Case]:
    return hazelcast.read(VECTORS / "hazelcast" / f"{name}.jsonl")


def read_kafka() -> list[kafka_streams.Case]:
    return [case for path in sorted((VECTORS / "kafka").glob("*.jsonl")) for case in kafka_streams.read(path)]


class TestKafkaStreams:
    @recorded
    def test_the_oracle_makes_what_must_come(self):
        found: Counter[str] = Counter()
        cases = read_kafka()
        assert Counter(case.in_order for case in cases) == {True: 87, False: 149}
        for case in cases:
            problems, differences = kafka_streams.compare(case, kafka_streams.emitted(case))
            assert problems == [], case.id
            found += differences
        assert found == {"pair_lost": 6, "alone_for_lost_pair": 2, "still_held": 1, "earlier": 24}

    @recorded
    def test_no_row_is_both_alone_and_joined_but_in_the_library(self):
        cases = [case for case in read_kafka() if case.semantics == "kafka"]
        assert not [
            case.id for case in cases if list(kafka_streams.alone_and_joined(case, kafka_streams.emitted(case)))
        ]
        assert sum(len(list(kafka_streams.alone_and_joined(case, case.output))) for case in cases) == 15

    @recorded
    def test_damage_is_noticed(self):
        for case in read_kafka():
            made = kafka_streams.emitted(case)
            if made:
                assert kafka_streams.compare(case, made[1:])[0]
                assert kafka_streams.compare(case, [*made, made[0]])[0]


ROWS = st.builds(
    lambda t, k, v, u: row(None, t, k, v, u),
    st.none() | st.integers(0, 25),
    st.sampled_from(["k", "k", "k", "j", None]),
    st.sampled_from([1, 1, 1, 0, None]),
    st.none() | st.integers(0, 25),
)
BOUNDS = st.builds(
    lambda after, before, more: (Bound("l.t", "r.t", after), Bound("r.t", "l.t", before), *more),
    st.integers(-2, 8),
    st.integers(-2, 8),
    st.sampled_from([(), (Bound("r.u", "l.t", 6),), (Bound("l.t", "r.u", 3),)]),
)
LATENESS = st.fixed_dictionaries({f"{side}.{time}": st.integers(0, 9) for side in OTHER for time in "tu"})


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Side, list[Row]]]:
    """Draw commits of one side each; every row is called by its place in the history."""
    commits = draw(st.lists(st.tuples(st.sampled_from("lr"), st.lists(ROWS, max_size=3)), max_size=20))
    return [
        (side, [((place, number), values) for number, (_, values) in enumerate(rows)])
        for place, (side, rows) in enumerate(commits)
    ]


class TestHistories:
    @given(st.sampled_from(HOWS), BOUNDS, LATENESS, st.sampled_from(["strict", "kafka"]), histories())
    def test_no_row_is_ever_both_alone_and_joined(self, how, bounds, lateness, semantics, history):
        oracle = join(how, bounds, lateness, semantics=semantics)
        emitted = [one for side, rows in history for one in oracle.rows(side, rows)] + oracle.flush()
        pairs = [one for one in names(emitted) if None not in one]
        padded = [name for one in names(emitted) if None in one for name in one if name]
        assert len(set(pairs)) == len(pairs)
        assert len(set(padded)) == len(padded)
        assert not set(padded) & {name for pair in pairs for name in pair}
        if semantics == "kafka" and how == "full":
            assert len(padded) + len({name for pair in pairs for name in pair}) == sum(len(rows) for _, rows in history)

    @given(st.sampled_from(HOWS), BOUNDS, LATENESS, histories())
    def test_a_pair_comes_if_on_holds_and_the_earlier_row_was_stored(self, how, bounds, lateness, history):
        oracle = join(how, bounds, lateness)
        emitted = [one for side, rows in history for one in oracle.rows(side, rows)]
        assert {one for one in names(emitted) if None not in one} == pairs_by_definition(bounds, lateness, history)

    @given(BOUNDS, LATENESS, histories())
    def test_no_row_is_held_that_could_meet_nothing_any_more(self, bounds, lateness, history):
        oracle = join("inner", bounds, lateness)
        for side, rows in history:
            oracle.rows(side, rows)
            limits = oracle.limits()
            for one in oracle.buffered:
                for time in "tu":
                    limit, value = limits[f"{one.side}.{time}"], one.row[1][time]
                    assert limit is None or value is None or value >= limit

    @given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
    def test_the_buffer_is_bounded_however_long_the_streams_are(self, before, after, disorder, random):
        oracle = join(
            "full", (Bound("l.t", "r.t", after), Bound("r.t", "l.t", before)), {"l.t": disorder, "r.t": disorder}
        )
        for time in range(60):
            for side in OTHER:
                oracle.rows(side, [row(time, time - random.randint(0, disorder), k=random.choice("jk"))])
        assert oracle.counts["late"] == 0
        assert oracle.largest <= len(OTHER) * (max(before, after) + 2 * disorder + 2)


def pairs_by_definition(bounds, lateness, history) -> set[tuple[Any, Any]]:
    """Name the pairs by looking at all of them, with W and limits taken anew from all positions before."""

    def watermark(column: str, place: int) -> float:
        times = [values[column[2]] for side, rows in history[:place] if side == column[0] for _, values in rows]
        return max((time for time in times if time is not None), default=float("-inf")) - lateness[column]

    def limit(column: str, place: int) -> float:
        marks = [watermark(bound.lesser, place) - bound.allowance for bound in bounds if bound.greater == column]
        return max(marks, default=float("-inf"))

    def is_below(limit_of, side: Side, values: Values, place: int) -> bool:
        return any(values[time] is not None and values[time] < limit_of(f"{side}.{time}", place) for time in "tu")

    bounding = {column for bound in bounds for column in bound[:2]}
    rows = [(place, side, one) for place, (side, several) in enumerate(history) for one in several]
    taken = [
        (place, side, one)
        for place, side, one in rows
        if not is_below(watermark, side, one[1], place)
        and not any(one[1][time] is None and f"{side}.{time}" in bounding for time in "tu")
    ]
    return {
        (left[0], right[0])
        for here, one_side, left in taken
        for there, other_side, right in taken
        if (one_side, other_side) == ("l", "r") and meets(bounds, left[1], right[1])
        for earlier, later in [((here, "l", left), there) if here < there else ((there, "r", right), here)]
        if not is_below(limit, earlier[1], earlier[2][1], later)
    }
