"""Joins of two streams: every epoch of random histories of random joins is what the oracle says."""

from random import Random

import pytest
from pyspark.sql import SparkSession

from pipelines.language import Semantics
from tests.joins.window_histories import Joined, epochs, history, joined
from tests.joins.windows import evaluate, unlike

HISTORIES = 75
"""Of each join; with the joins below more than 500 in all."""


def _check(spark: SparkSession, of: Joined, random: Random, *, is_counted: bool = False) -> None:
    """Whole, cut at random, and with one position an epoch: what each epoch emits, and what waits after it."""
    given, expected, names = [], [], []
    for number in range(HISTORIES):
        positions = history(random, of)
        every = list(range(1, len(positions) + 1))
        cuts = {"whole": every[-1:], "random": sorted({*random.sample(every, 3), every[-1]}), "each": every}
        for cut, ends in cuts.items():
            epoch, made = epochs(of, positions, ends)
            given += epoch
            expected += made
            names += [f"history {number}, {cut}, epoch {n}" for n in range(len(ends))]
    assert any(made.emitted for made in expected)
    computed = evaluate(spark, of.definition, given, is_counted=is_counted)
    for name, epoch, made, found in zip(names, given, expected, computed, strict=True):
        about = f"{of.definition.how} ON {of.definition.on}\n{of.definition.window}\n{name}: {epoch}"
        assert unlike(of.definition, made, found) == [], about


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(3, 10)))])
def test_what_an_epoch_makes_is_what_the_oracle_says(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    _check(spark, joined(random), random, is_counted=seed % 3 == 0)


@pytest.mark.deep
@pytest.mark.parametrize("semantics", ["kafka", "kafka-0.10.2", "kafka-0.10.0"])
def test_so_it_is_under_the_rules_of_kafka_streams(spark: SparkSession, semantics: Semantics) -> None:
    random = Random(semantics)
    _check(spark, joined(random, semantics), random)
