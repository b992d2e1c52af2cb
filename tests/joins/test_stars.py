"""
Foreign-key joins, stars and chains over random histories. The histories of one shape and combination of types are one
Spark job.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipelines.binding.bound import as_input
from pipelines.joins.meaning import meaning

from . import claims
from . import star_shapes as shapes
from .claims import CHANGE_TYPE, EPOCH, HISTORY, SCOPE, Change, Computed, literal
from .epochs import bound, change_sets, key_types
from .histories import FeedRow, Row, history, plain
from .scoped import scoped
from .star_chains import ASIDE, CHAINS, REFERRED_BY_BOTH, REFERRED_IN_STEPS, REFERS_TO_BOTH
from .star_events import by_key, fans_out, happened
from .stars import How, Star, oracle
from .table_shapes import SHAPES

HISTORIES = 60
STARS = (
    shapes.FOREIGN_KEY,
    shapes.OTHER_WAY_ROUND,
    shapes.EXPRESSION,
    shapes.COMPOSITE,
    shapes.SELF,
    shapes.SELF_TWICE,
    shapes.TWO_STEPS,
    shapes.ROUTES,
    shapes.MIXED,
    shapes.MIXED_FULL,
    shapes.REROOTED,
    *CHAINS,
    ASIDE,
    REFERS_TO_BOTH,
    REFERRED_BY_BOTH,
    REFERRED_IN_STEPS,
)
IN_FULL_RUNS = {REFERRED_BY_BOTH.name: ("full", "left"), REFERRED_IN_STEPS.name: ("left", "left")}
"""Of these shapes the other combinations of types are only tried by `make test-all`."""

KINDS = [
    pytest.param(
        star,
        how,
        id="-".join((star.name, *how)),
        marks=[] if IN_FULL_RUNS.get(star.name, how) == how else [pytest.mark.slow],
    )
    for star in STARS
    for how in star.types
]
REFERRING = [kind for kind in KINDS if kind.values[0].references]


@pytest.fixture(scope="module")
def computed(spark) -> Callable[[Star, How], Computed]:
    return cache(lambda star, how: compute(spark, star, how))


FILLED = 10
"""Tables are mostly full at the start of a history, so that rows meet and many refer to one."""


def compute(spark: SparkSession, star: Star, how: How, number: int = HISTORIES, filled: int = FILLED) -> Computed:
    histories = [history(star, f"{star.name} {' '.join(how)} {seed}", filled=filled) for seed in range(number)]
    rows, feeds = ({name: [] for name in star.names} for _ in range(2))
    for number, one in enumerate(histories):
        for at, state in enumerate(one.states()):
            for name, held in zip(star.names, state, strict=True):
                rows[name].extend((*row, number, at) for row in held)
        for at, epoch in enumerate(one.epochs, start=1):
            for name, feed in zip(star.names, epoch.feeds, strict=True):
                feeds[name].extend((*change.row, number, at, change.change_type) for change in feed)

    def frames(data, *more):
        schemas = {name: StructType([*table.schema, HISTORY, EPOCH, *more]) for name, table in star.tables.items()}
        return {name: literal(spark, data[name], schema) for name, schema in schemas.items()}

    schemas = dict(zip(star.names, star.schemas, strict=True))
    keys = dict(zip(star.names, star.keys, strict=True)) | star.declared
    join = bound(star.statement(how), keys, schemas, results=star.results)
    assert sorted(join.key) == sorted(star.key_outputs)
    assert (join.pairing is not None or join.has_absent_keys) == star.may_be_absent
    states = frames(rows)
    changed = change_sets(join, key_types(join, schemas), frames(feeds, CHANGE_TYPE), states, SCOPE)
    whole = scoped(join, SCOPE)
    meant = meaning([as_input(states[item.source], item) for item in whole.inputs], join, SCOPE)
    return Computed(histories, changes_of(star, changed.collect()), meanings_of(star, meant.collect()))


def changes_of(star: Star, rows: list[SparkRow]) -> dict[tuple[int, int], dict[Row, Change]]:
    changes: dict[tuple[int, int], dict[Row, Change]] = {}
    for row in rows:
        assert row["copies"] == 1, row
        key = cells(row["key"], star.key_outputs)
        for image in filter(None, (row["before"], row["after"])):
            assert cells(image, star.key_outputs) == key, row
        epoch = changes.setdefault((row["_history"], row["_epoch"]), {})
        assert key not in epoch, row
        before, after = (row[image] and cells(row[image], star.outputs) for image in ("before", "after"))
        epoch[key] = Change(row["op"], before, after)
    return changes


def meanings_of(star: Star, rows: list[SparkRow]) -> dict[tuple[int, int], dict[Row, Row]]:
    meanings: dict[tuple[int, int], dict[Row, Row]] = {}
    for row in rows:
        state = meanings.setdefault((row["_history"], row["_epoch"]), {})
        key = cells(row, star.key_outputs)
        assert star.is_key(key), row
        assert key not in state, row
        state[key] = cells(row, star.outputs)
    return meanings


def cells(row: SparkRow, names: tuple[str, ...]) -> Row:
    return tuple(plain(row[name]) for name in names)


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_oracle_result_after_every_epoch(computed, star, how):
    """The change sets, applied one after the other, add up to the join as plain Python evaluates it."""
    claims.results_follow(computed(star, how), lambda state: oracle(star, how, state))


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_oracle_change_set_is_the_difference(computed, star, how):
    """A change set holds exactly the rows that differ, as they were and as they are, by a plain Python evaluation."""
    claims.changes_are_differences(computed(star, how), lambda state: oracle(star, how, state))


@pytest.mark.parametrize(("star", "how"), KINDS)
@pytest.mark.deep
def test_differential_change_set_is_the_difference_of_meanings(computed, star, how):
    """A change set is the difference of the plain query over the tables before and after: no row more, no row less."""
    claims.changes_are_differences(computed(star, how))


@pytest.mark.parametrize(("star", "how"), KINDS)
@pytest.mark.deep
def test_histories_hold_what_they_should_try(computed, star, how):
    """Each combination sees inserts, updates and deletes, and epochs with changes that net to nothing."""
    claims.enough_is_tried(computed(star, how))


@pytest.mark.parametrize(("star", "how"), REFERRING)
@pytest.mark.deep
def test_histories_hold_what_foreign_keys_should_try(computed, star, how):
    """
    Each combination sees rows that move to another parent, refer to nothing or to what is not there, and parents that
    appear, change and disappear while rows refer to them; and a changed row of a table that alters three of the result.
    """
    of = computed(star, how)
    seen = Counter()
    for number, one in enumerate(of.histories):
        states = one.states()
        for at, (before, after) in enumerate(pairwise(states), start=1):
            tables = [by_key(star, state) for state in (before, after)]
            for reference in star.references:
                seen.update(happened(reference, *tables))
            seen["fan-out"] += fans_out(star, of.changes.get((number, at), {}).keys(), *tables)
    rare = {"moved": 10, "null": 50, "dangling": 50, "appeared": 5, "changed": 5, "disappeared": 5, "fan-out": 1}
    assert all(seen[what] >= least for what, least in rare.items()), seen


OF_EVERY = [
    *((*kind.values, FILLED) for kind in KINDS),
    *((star, star.types[0], 4) for stars in SHAPES.values() for star in stars),
]
"""All joins of tables by their keys, with how full their histories begin."""


@settings(max_examples=300)
@given(st.integers(min_value=0, max_value=2**32), st.sampled_from(OF_EVERY))
def test_histories_are_consistent(seed, of):
    """The feed of an epoch, read as a bag, leads from one state to the next; and a key is there at most once."""
    star, _, filled = of
    one = history(star, str(seed), filled=filled)
    for side, name in enumerate(star.names):
        states = [state[side] for state in one.states()]
        for before, epoch, after in zip(states, one.epochs, states[1:], strict=False):
            assert bag(before, epoch.feeds[side]) == bag(after, [])
        for state in states:
            keys = Counter(star.key_of(name, row) for row in star.rows(name, state))
            assert max(keys.values(), default=1) == 1


def bag(rows: list[Row], feed: list[FeedRow]) -> Counter:
    """Count the rows of a table after what a feed brings."""
    counts = Counter(map(repr, rows))
    for change in feed:
        counts[repr(change.row)] += 1 if change.change_type in ("insert", "update_postimage") else -1
    assert min(counts.values(), default=0) >= 0
    return +counts


@settings(max_examples=300)
@given(st.integers(), st.sampled_from(OF_EVERY))
def test_oracle_does_not_depend_on_the_order_of_rows(seed, of):
    """A join is one of bags: the oracle gives the same result whatever the order of its rows."""
    chance = random.Random(seed)
    star, how, filled = of
    state = history(star, str(seed), filled=filled).states()[-1]
    mixed = [chance.sample(rows, len(rows)) for rows in state]
    assert oracle(star, how, state) == oracle(star, how, mixed)
