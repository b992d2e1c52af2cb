"""
Table-table joins over random histories.

`oracle_*` compares with an evaluation in plain Python; `differential_*` compares the incremental step with the
product's own plain query. 210 or more histories of each type; those of one shape and type are one Spark job.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pipelines.joins.meaning import meaning

from .epochs import bound, change_sets, key_types
from .histories import SHAPES, History, Row, Shape, history, oracle, plain

HISTORIES = 210
HISTORY, EPOCH = StructField("_history", IntegerType()), StructField("_epoch", IntegerType())
CHANGE_TYPE = StructField("_change_type", StringType())
SCOPE = [HISTORY.name, EPOCH.name]

KINDS = [
    pytest.param(shape, how, id=f"{how}-{shape.name}")
    for how in ("inner", "left", "right", "full")
    for shape in SHAPES
    if how in shape.types
]


@dataclass(frozen=True)
class Change:
    """A changed row of the result: what it was and what it is, without the key; None where it was or is absent."""

    op: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Computed:
    """What the product made of all histories of a shape: by history and epoch, the changes and the meaning by key."""

    histories: list[History]
    changes: dict[tuple[int, int], dict[Row, Change]]
    meanings: dict[tuple[int, int], dict[Row, Row]]


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
        return spark.createDataFrame(data[side], schema)

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


def difference_of(before: dict[Row, Row], after: dict[Row, Row]) -> dict[Row, Change]:
    """Compare two states in plain Python."""
    changes = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            changes[key] = Change("insert" if old is None else "delete" if new is None else "update", old, new)
    return changes


def check(of: Computed, claim: Callable[[int, History, int], tuple[object, object]]) -> None:
    """See that a claim's two sides are equal in each epoch of each history, or show the script of the first failure."""
    for number, one in enumerate(of.histories):
        for at in range(len(one.epochs) + 1):
            expected, found = claim(number, one, at)
            if expected != found:
                script = "\n  ".join(one.script)
                pytest.fail(f"seed {one.seed!r}, epoch {at}\n  {script}\nexpected {expected}\nfound    {found}")


@pytest.mark.parametrize(("shape", "how"), KINDS)
def test_oracle_result_after_every_epoch(computed, shape, how):
    """The change sets, applied one after the other, add up to the join as plain Python evaluates it."""
    of = computed(shape, how)
    results = {}

    def claim(number, one, at):
        result = dict(of.meanings.get((number, 0), {})) if at == 0 else results[number]
        for key, change in of.changes.get((number, at), {}).items():
            result.pop(key, None)
            if change.after is not None:
                result[key] = change.after
        results[number] = result
        return oracle(shape, how, *one.states()[at]), result

    check(of, claim)


@pytest.mark.parametrize(("shape", "how"), KINDS)
def test_oracle_change_set_is_the_difference(computed, shape, how):
    """A change set holds exactly the rows that differ, as they were and as they are, by a plain Python evaluation."""
    of = computed(shape, how)

    def claim(number, one, at):
        states = [oracle(shape, how, *one.states()[max(version, 0)]) for version in (at - 1, at)]
        return difference_of(*states) if at else {}, of.changes.get((number, at), {})

    check(of, claim)


@pytest.mark.parametrize(("shape", "how"), KINDS)
def test_differential_change_set_is_the_difference_of_meanings(computed, shape, how):
    """A change set is the difference of the plain query over the tables before and after: no row more, no row less."""
    of = computed(shape, how)

    def claim(number, one, at):
        before, after = (of.meanings.get((number, version), {}) for version in (at - 1, at))
        return difference_of(before, after) if at else {}, of.changes.get((number, at), {})

    check(of, claim)


@pytest.mark.parametrize(("shape", "how"), KINDS)
def test_histories_hold_what_they_should_try(computed, shape, how):
    """Each shape sees inserts, updates and deletes, and epochs with changes that net to nothing."""
    of = computed(shape, how)
    ops = Counter(change.op for epoch in of.changes.values() for change in epoch.values())
    assert all(ops[op] >= 10 for op in ("insert", "update", "delete")), ops
    quiet = [
        (number, at)
        for number, one in enumerate(of.histories)
        for at, epoch in enumerate(one.epochs, start=1)
        if any(epoch.feeds) and (number, at) not in of.changes
    ]
    assert len(quiet) > 5


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
