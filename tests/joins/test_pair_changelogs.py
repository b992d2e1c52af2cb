"""
The changelog of joins in which rows match in any number, and of joins that read them, over random histories. Plain
Python evaluates the join after every single commit and takes the differences. Each history is read three times: cut
into epochs at random, as one epoch, and commit by commit.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from pyspark.sql import SparkSession

from .absent_shapes import DRIVING, READING
from .histories import Row
from .pair_shapes import BEFORE, MANY, NAMED_AS_COLUMN, ON_TOP, PAIRS
from .stars import How, Star
from .test_changelogs import AS_MADE, EACH, WHOLE, Found, Step, compute, expected_steps, nets_to_change_sets, of_star

HISTORIES = 20
CUTS = (AS_MADE, WHOLE, EACH)
QUICK = {
    (MANY, ("full",)),
    (NAMED_AS_COLUMN, ("full",)),
    (ON_TOP, ("full", "inner")),
    (BEFORE, ("inner", "full")),
    (DRIVING, ("left",)),
}
"""The other kinds are only tried by `make test-all`."""

KINDS = [
    pytest.param(star, how, id="-".join((star.name, *how)), marks=[] if (star, how) in QUICK else [pytest.mark.slow])
    for star in (*PAIRS, *READING)
    for how in star.types
]


def of_pairs(star: Star, how: How) -> bool:
    """Return whether rows of both sides may stand alone, in a join in which rows match in any number."""
    return star in PAIRS and how[-1] == "full"


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> Callable[[Star, How], Found]:
    return cache(lambda star, how: compute(spark, of_star(star, how), HISTORIES, CUTS))


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_oracle_a_row_for_every_commit_that_changes_the_result(computed, star, how):
    """The changelog has exactly the differences that every commit makes, in order, with their cause, however cut."""
    histories, found = computed(star, how)
    for number, one in enumerate(histories):
        expected = expected_steps(of_star(star, how), one)
        every = [step for steps in expected.values() for step in steps]
        of_commits = {commit: [step for step in every if step.commit == commit] for commit in {s.commit for s in every}}
        for cut, steps in ((AS_MADE, expected), (WHOLE, {0: every}), (EACH, of_commits)):
            logged = {at: of for (scope, at), of in found.items() if scope == len(CUTS) * number + cut}
            assert logged == {at: of for at, of in steps.items() if of}, f"{one.seed!r}, cut {cut}: {one.script}"


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_the_changelog_of_an_epoch_nets_to_its_change_set(computed, star, how):
    """The last row of each key, where it differs from the result before the epoch, is what the epoch changes."""
    nets_to_change_sets(of_star(star, how), *computed(star, how), len(CUTS))


@pytest.mark.parametrize(("star", "how"), [kind for kind in KINDS if of_pairs(*kind.values)])
@pytest.mark.deep
def test_histories_hold_what_changelogs_should_try(computed, star, how):
    """Rows find a first match and lose a last one, at one position each; and rows go and come back within an epoch."""
    histories, found = computed(star, how)
    seen: Counter[str] = Counter()
    for number in range(len(histories)):
        at_once: dict[int, list[Step]] = {}
        of_key: dict[Row, list[Step]] = {}
        for step in found.get((len(CUTS) * number + WHOLE, 0), []):
            at_once.setdefault(step.commit, []).append(step)
            of_key.setdefault(step.key, []).append(step)
        for steps in at_once.values():
            alone = {step.key for step in steps if None in step.key and step.row is None}
            back = {step.key for step in steps if None in step.key and step.row is not None}
            matched = {step.key: step.row for step in steps if None not in step.key}
            seen["first match"] += any(row is not None and beside(key, alone) for key, row in matched.items())
            seen["last match"] += any(row is None and beside(key, back) for key, row in matched.items())
        rows = ([step.row for step in steps] for steps in of_key.values())
        seen["there and back"] += any(None in of[:-1] for of in rows)
    assert all(seen[what] >= 3 for what in ("first match", "last match", "there and back")), seen


def beside(key: Row, alone: set[Row]) -> bool:
    """Return whether a row of the pair of a key is among the rows without a match."""
    return (key[0], None) in alone or (None, key[1]) in alone
