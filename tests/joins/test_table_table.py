"""
Table-table joins over random histories. `oracle_*` compares with an evaluation in plain Python; `differential_*`
compares the incremental step with the product's own plain query. 210 or more histories of each type; those of one shape
and type are one Spark job.
"""

from collections.abc import Callable
from functools import cache

import pytest

from . import claims
from .claims import Computed
from .stars import How, Star, oracle
from .table_shapes import SHAPES
from .test_stars import compute

HISTORIES = 210

KINDS = [pytest.param(star, (how,), id=f"{how}-{star.name}") for how, stars in SHAPES.items() for star in stars]


@pytest.fixture(scope="module")
def computed(spark) -> Callable[[Star, How], Computed]:
    return cache(lambda star, how: compute(spark, star, how, -(-HISTORIES // len(SHAPES[how[0]])), filled=4))


@pytest.mark.parametrize(("star", "how"), KINDS)
@pytest.mark.every_case
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
    """Each shape sees inserts, updates and deletes, and epochs with changes that net to nothing."""
    claims.enough_is_tried(computed(star, how))
