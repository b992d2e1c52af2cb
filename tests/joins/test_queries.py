"""
Joins of subqueries over random histories, more than 2,000 of all kinds. The histories of one shape and combination of
types are one Spark job.
"""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import claims
from .histories import FeedRow, history
from .query_shapes import QUERIES
from .stars import oracle
from .test_stars import bag, compute

HISTORIES = 100

KINDS = [pytest.param(star, how, id="-".join((star.name, *how))) for star in QUERIES for how in star.types]


@pytest.fixture(scope="module")
def computed(spark):
    return cache(lambda star, how: compute(spark, star, how, HISTORIES, filled=8))


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_change_sets_are_what_plain_python_finds(computed, star, how):
    """The change sets add up to the join of the filtered tables, and hold exactly the rows that differ."""
    of = computed(star, how)
    claims.results_follow(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of, lambda state: oracle(star, how, state))
    ops = Counter(change.op for epoch in of.changes.values() for change in epoch.values())
    updates = 0 if "inner" in how else 10  # two rows that meet seldom change and go on to meet
    assert all(ops[op] >= least for op, least in {"insert": 10, "delete": 10, "update": updates}.items()), ops


def test_enough_histories_are_tried():
    assert HISTORIES * len(KINDS) >= 2000


@settings(max_examples=300)
@given(st.integers(min_value=0, max_value=2**32), st.sampled_from(QUERIES))
def test_a_filtered_feed_leads_from_one_filtered_table_to_the_next(seed, star):
    """Read as bags: the images of a feed that the filter takes, and no key is twice among the rows that it takes."""
    one = history(star, str(seed))
    for place, name in enumerate(star.inputs):
        side = star.names.index(name)
        states = [star.input_rows(place, state[side]) for state in one.states()]
        for before, epoch, after in zip(states, one.epochs, states[1:], strict=False):
            images = [
                FeedRow(change.change_type, row)
                for change in epoch.feeds[side]
                for row in star.input_rows(place, [change.row])
            ]
            assert bag(before, images) == bag(after, [])
        for state in states if name in star.declared else ():
            assert max(Counter(row[0] for row in state).values(), default=1) == 1
