"""Groups over random histories: of a whole statement, and as inputs. The histories of one shape are one Spark job."""

from collections import Counter
from functools import cache

import pytest

from . import claims
from .group_shapes import GROUPED
from .stars import oracle
from .test_stars import compute

HISTORIES = 110
IN_EACH_RUN = ("whole", "looked-up-by-value")
"""The other shapes are tried by `make test-deep`."""
SELDOM_UPDATED = ("filtered", "distinct", "of-pairs")
"""Shapes whose rows mostly come and go."""

KINDS = [
    pytest.param(
        star,
        how,
        id="-".join((star.name, *how)),
        marks=[] if star.name in IN_EACH_RUN else [pytest.mark.deep],
    )
    for star in GROUPED
    for how in star.types
]


@pytest.fixture(scope="module")
def computed(spark):
    return cache(lambda star, how: compute(spark, star, how, HISTORIES, filled=8))


@pytest.mark.every_case
@pytest.mark.parametrize(("star", "how"), KINDS)
def test_change_sets_are_what_plain_python_finds(computed, star, how):
    """The change sets add up to the statement over the tables, and hold exactly the rows that differ."""
    of = computed(star, how)
    claims.results_follow(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of, lambda state: oracle(star, how, state))
    ops = Counter(change.op for epoch in of.changes.values() for change in epoch.values())
    assert all(ops[op] >= 10 for op in ("insert", "delete")), ops
    assert ops["update"] >= 10 or star.name in SELDOM_UPDATED, ops
