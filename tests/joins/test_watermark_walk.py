"""Positions walked on the driver: what is known before and after each, and when limits rose."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelines.joins.watermarks import NOTHING_YET, Position, limit_rises, walk
from pipelines.language.statement.definition import Time, Watermark, Window, Within

WINDOW = Window(
    (Watermark(Time(0, "t"), 5), Watermark(Time(1, "t"), 5)),
    (Within(0, 1, 20), Within(1, 0, 10), Within(1, 0, 30)),
    (),
    ("TRUE", "TRUE"),
)
MARKS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 9), *[st.none() | st.integers(-50, 50)] * 2),
    max_size=12,
    unique_by=lambda row: row[:3],
)


def test_each_position_sees_what_came_before_it_and_not_itself() -> None:
    found = walk([(2, 1, 1, None, 40), (1, 0, 7, 30, None)], [NOTHING_YET, 10])
    assert found == [Position(1, 0, 7, (NOTHING_YET, 10), (30, 10)), Position(2, 1, 1, (30, 10), (30, 40))]


def test_a_limit_rises_with_the_watermark_of_the_other_side_by_the_tightest_bound() -> None:
    found = walk([(1, 0, 7, 30, None), (2, 1, 1, None, 40)], [NOTHING_YET, 10])
    assert limit_rises(found, WINDOW, 0) == [(-10, 1), (20, 2)], (
        "10 was known before, and is told at the first position"
    )
    assert limit_rises(found, WINDOW, 1) == [(20, 1)]


@given(MARKS, st.lists(st.just(NOTHING_YET) | st.integers(-50, 50), min_size=2, max_size=2), st.randoms())
def test_watermarks_never_fall_and_no_order_of_reading_matters(marks, floors, random) -> None:
    found = walk(marks, floors)
    shuffled = list(marks)
    random.shuffle(shuffled)
    assert walk(shuffled, floors) == found
    for one, after in pairwise(found):
        assert one.after == after.before
        assert all(early <= late for early, late in zip(one.before, one.after, strict=True))
    for number in (0, 1):
        steps = limit_rises(found, WINDOW, number)
        assert steps == sorted(steps)
        assert len({height for height, _ in steps}) == len(steps)
