"""
Joins in which rows match in any number, over random histories. The histories of one shape and combination of types are
one Spark job.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from pyspark.sql.functions import lit
from pyspark.sql.types import StructType

from pipelines.joins.pairing import change_set_of_pairs

from . import claims
from .claims import Computed
from .epochs import Epochs, bound, key_types
from .pair_shapes import (
    BEFORE,
    BOTH_SIDES,
    CONDITION,
    NULL_SAFE,
    NULL_SAFE_THROUGH,
    ON_LOOKED_UP,
    ON_TOP,
    PAIRS,
    SELF,
    SELF_THROUGH,
    SEVERAL_INPUTS,
    THROUGH,
    THROUGH_STEPS,
    WHERE,
)
from .stars import How, Star, oracle
from .test_stars import compute

IN_FULL_RUNS = {
    CONDITION.name: {("full",)},
    WHERE.name: {("left",), ("right",)},
    NULL_SAFE.name: {("inner",), ("full",)},
    ON_TOP.name: {("left", "inner"), ("full", "left")},
    BEFORE.name: {("left", "full"), ("inner", "full")},
    SELF.name: {("left",), ("full",)},
    BOTH_SIDES.name: {("full", "left")},
    SEVERAL_INPUTS.name: set(),
    ON_LOOKED_UP.name: {("left", "full")},
    THROUGH.name: {("left", "full")},
    NULL_SAFE_THROUGH.name: set(),
    SELF_THROUGH.name: set(),
    THROUGH_STEPS.name: set(),
}
"""Of these shapes the other combinations of types are only tried by `make test-all`."""

KINDS = [
    pytest.param(
        star,
        how,
        id="-".join((star.name, *how)),
        marks=[pytest.mark.slow] if how not in IN_FULL_RUNS.get(star.name, {how}) else [],
    )
    for star in PAIRS
    for how in star.types
]


@pytest.fixture(scope="module")
def computed(spark) -> Callable[[Star, How], Computed]:
    return cache(lambda star, how: compute(spark, star, how))


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_change_sets_are_what_plain_python_finds(computed, star, how):
    """The change sets add up to the join after every epoch, and hold exactly the rows that differ."""
    of = computed(star, how)
    claims.results_follow(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of)
    ops = Counter(change.op for epoch in of.changes.values() for change in epoch.values())
    updates = 0 if star is NULL_SAFE else 3  # all columns that it shows are compared by ON
    assert all(ops[op] >= least for op, least in {"insert": 10, "update": updates, "delete": 10}.items()), ops


def keeps_lone_rows(star: Star, how: How) -> bool:
    """Tell whether the rows of an outer side are in the result without a match."""
    if star in (BOTH_SIDES, SEVERAL_INPUTS):
        return "inner" not in how
    if star is ON_TOP:
        return how in (("left", "left"), ("right", "left"), ("full", "left"), ("right", "inner"), ("full", "inner"))
    return how[-1] != "inner"


@pytest.mark.parametrize(("star", "how"), [kind for kind in KINDS if keeps_lone_rows(*kind.values)])
@pytest.mark.deep
def test_histories_hold_what_outer_joins_should_try(computed, star, how):
    """Rows lose their last match and find a first one: a row with an absent side replaces a pair, and the reverse."""
    of = computed(star, how)
    seen = Counter()
    for epoch in of.changes.values():
        for key, change in epoch.items():
            if None in key:
                present = next(place for place, part in enumerate(key) if part is not None)
                others = [other for other in epoch if None not in other and other[present] == key[present]]
                seen[change.op] += any(epoch[other].op != change.op for other in others)
    assert all(seen[op] >= 3 for op in ("insert", "delete")), seen


@pytest.mark.slow
@pytest.mark.parametrize(("star", "how"), [kind.values for kind in KINDS], ids=[kind.id for kind in KINDS])
def test_three_hundred_histories_of_each_kind(spark, star, how):
    of = compute(spark, star, how, 300)
    claims.results_follow(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of, lambda state: oracle(star, how, state))


class LookingUp(Epochs):
    """Epochs in which only the table that others look up has changes; `asked` holds whose rows were looked up."""

    asked: list[int]

    def changes(self, place):
        return super().changes(place) if self.join.inputs[place].source == "g" else None

    def changed_keys(self, place):
        return super().changed_keys(place) if self.join.inputs[place].source == "g" else None

    def rows(self, wanted):
        self.asked += wanted
        return super().rows(wanted)


@pytest.mark.parametrize(("how", "asked"), [("LEFT", "agb"), ("FULL", "agbag")])
def test_touched_rows_look_up_once(spark, how, asked):
    """Only other rows that may have the same partner look up in addition. This reads nothing."""
    schemas = {name: StructType.fromDDL(f"{name}id INT, n INT, x STRING") for name in "agb"}
    sql = f"SELECT a.aid, b.bid, g.x FROM a LEFT JOIN g ON a.n = g.gid {how} JOIN b ON g.x = b.x"
    join = bound(sql, {name: [f"{name}id"] for name in "agb"}, schemas)
    rows = {name: spark.createDataFrame([], schema) for name, schema in schemas.items()}
    feeds = {name: frame.withColumn("_change_type", lit("insert")) for name, frame in rows.items()}
    sources = LookingUp(join, key_types(join, schemas), feeds, rows)
    sources.asked = []
    change_set_of_pairs(join, sources.types, sources)
    assert [join.inputs[place].alias for place in sources.asked] == list(asked)
