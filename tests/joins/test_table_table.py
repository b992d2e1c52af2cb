"""
Table-table joins over random histories.

`oracle_*` compares with an evaluation in plain Python; `differential_*` compares the incremental step with the
product's own plain query. 210 or more histories of each type; those of one shape and type are one Spark job.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipelines.joins.meaning import meaning

from . import claims
from .claims import CHANGE_TYPE, EPOCH, HISTORY, SCOPE, Change, Computed, literal
from .epochs import bound, change_sets, key_types
from .histories import SHAPES, Row, Shape, history, oracle, plain

HISTORIES = 210

KINDS = [
    pytest.param(shape, how, id=f"{how}-{shape.name}")
    for how in ("inner", "left", "right", "full")
    for shape in SHAPES
    if how in shape.types
]


@pytest.fixture(scope="module")
def computed(spark) -> Callable[[Shape, str], Computed]:
    return cache(lambda shape, how: compute(spark, shape, how))


def compute(spark: SparkSession, shape: Shape, how: str) -> Computed:
    shapes = sum(how in other.types for other in SHAPES)
    histories = [history(shape, f"{shape.name} {how} {number}") for number in range(-(-HISTORIES // shapes))]
    feeds, rows = ([], []), ([], [])
    for number, one in enumerate(histories):
        for side in (0, 1):
            for at, state in enumerate(one.states()):
                rows[side].extend((*row, number, at) for row in state[side])
            for at, epoch in enumerate(one.epochs, start=1):
                feeds[side].extend((*change.row, number, at, change.change_type) for change in epoch.feeds[side])

    def frame(data, side, *more):
        schema = StructType([*shape.schemas[side], HISTORY, EPOCH, *more])
        return literal(spark, data[side], schema)

    names = ("left", "right")
    schemas = dict(zip(names, shape.schemas, strict=True))
    join = bound(shape.statement(how), dict(zip(names, shape.keys, strict=True)), schemas)
    states = {name: frame(rows, side) for side, name in enumerate(names)}
    changes_of = {name: frame(feeds, side, CHANGE_TYPE) for side, name in enumerate(names)}
    changed = change_sets(join, key_types(join, schemas), changes_of, states, SCOPE)
    changes, meanings = {}, {}
    for row in changed.collect():
        assert row["copies"] == 1, row
        key = tuple(row["key"])
        before, after = (cells_of(shape, join.key, row[image]) for image in ("before", "after"))
        epoch = changes.setdefault((row["_history"], row["_epoch"]), {})
        assert key not in epoch, row
        epoch[key] = Change(row["op"], before, after)
    for row in meaning(list(states.values()), join, SCOPE).collect():
        state = meanings.setdefault((row["_history"], row["_epoch"]), {})
        key = tuple(row[name] for name in join.key)
        assert key not in state, row
        state[key] = cells_of(shape, join.key, row)
    return Computed(histories, changes, meanings)


def cells_of(shape: Shape, key, row) -> Row | None:
    """Give the columns of a result row that are not its key; the key must be there."""
    if row is None:
        return None
    assert None not in [row[name] for name in key], row
    return tuple(plain(row[name]) for name in shape.outputs)


@pytest.mark.parametrize(("shape", "how"), KINDS)
@pytest.mark.every_case
def test_oracle_result_after_every_epoch(computed, shape, how):
    """The change sets, applied one after the other, add up to the join as plain Python evaluates it."""
    claims.results_follow(computed(shape, how), lambda state: oracle(shape, how, *state))


@pytest.mark.parametrize(("shape", "how"), KINDS)
def test_oracle_change_set_is_the_difference(computed, shape, how):
    """A change set holds exactly the rows that differ, as they were and as they are, by a plain Python evaluation."""
    claims.changes_are_differences(computed(shape, how), lambda state: oracle(shape, how, *state))


@pytest.mark.parametrize(("shape", "how"), KINDS)
@pytest.mark.deep
def test_differential_change_set_is_the_difference_of_meanings(computed, shape, how):
    """A change set is the difference of the plain query over the tables before and after: no row more, no row less."""
    claims.changes_are_differences(computed(shape, how))


@pytest.mark.parametrize(("shape", "how"), KINDS)
@pytest.mark.deep
def test_histories_hold_what_they_should_try(computed, shape, how):
    """Each shape sees inserts, updates and deletes, and epochs with changes that net to nothing."""
    claims.enough_is_tried(computed(shape, how))


@given(st.integers(min_value=0, max_value=2**32), st.sampled_from(SHAPES))
def test_histories_are_consistent(seed, shape):
    """The feed of an epoch, read as a bag, leads from one state to the next; and a key is there at most once."""
    one = history(shape, str(seed))
    for side in (0, 1):
        states = [state[side] for state in one.states()]
        for before, epoch, after in zip(states, one.epochs, states[1:], strict=False):
            bag = Counter(map(repr, before))
            for change in epoch.feeds[side]:
                bag[repr(change.row)] += 1 if change.change_type in ("insert", "update_postimage") else -1
            assert +bag == Counter(map(repr, after))
            assert min(bag.values(), default=0) >= 0
        names = shape.schemas[side].fieldNames()
        for state in states:
            keys = Counter(tuple(row[names.index(name)] for name in shape.keys[side]) for row in state)
            assert max(keys.values(), default=1) == 1


@given(st.integers(), st.sampled_from(SHAPES), st.sampled_from(["inner", "left", "right", "full"]))
def test_oracle_does_not_depend_on_the_order_of_rows(seed, shape, how):
    """A join is one of bags: the oracle gives the same result whatever the order of its rows."""
    chance = random.Random(seed)
    left, right = history(shape, str(seed)).states()[-1]
    mixed = [chance.sample(rows, len(rows)) for rows in (left, right)]
    assert oracle(shape, how, left, right) == oracle(shape, how, *mixed)
