"""Recorded joins of two streams through the product: what the files beside the repository have no case of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import window_conformance
from tests.cases import cases
from tests.joins import hazelcast
from tests.joins.oracle import Bound
from tests.joins.window_vectors import MERGES_APART, NOT_IN_ON, reading
from tests.joins.windows import Made, unlike
from tests.window_conformance import Compared, compared

TWO = ("l.t >= r.t - 2 AND r.t >= l.t - 2", (Bound("l.t", "r.t", 2), Bound("r.t", "l.t", 2)))
THREE = (f"{TWO[0]} AND l.t >= r.u", (*TWO[1], Bound("l.t", "r.u", 0)))


def made_up(*steps: dict[str, Any], how: str = "left", on: str = TWO[0], bounds: Any = TWO[1], **more: Any) -> Any:
    """Make a case of which the record is what the oracle does with all rules of the engine."""
    case = hazelcast.Case(
        id=f"made up, {how}",
        type=how,
        columns={"l": ("id", "t"), "r": ("id", "t", "u")},
        times={"l": ("t",), "r": ("t", "u")},
        bounds=bounds,
        equi=(),
        on=on,
        max_records=more.get("max_records"),
        steps=tuple({"seq": seq, **step} for seq, step in enumerate(steps, 1)),
        recorded=hazelcast.Outcome(),
    )
    return replace(case, recorded=hazelcast.replay(case, hazelcast.ENGINE))


def left(id: int, t: int | None) -> dict[str, Any]:
    return {"side": "left", "row": {"id": id, "t": t}}


def right(id: int, t: int | None, u: int | None = 9) -> dict[str, Any]:
    return {"side": "right", "row": {"id": id, "t": t, "u": u}}


def mark(column: str, value: int) -> dict[str, Any]:
    return {"watermark": {"column": column, "value": value}}


def ran(spark: SparkSession, case: hazelcast.Case) -> Compared:
    definition = window_conformance.definition_of(case)
    return compared(case, window_conformance.run(spark, definition, [case])[0])


@pytest.mark.deep
def test_a_full_join_and_null_times_are_run_where_the_engine_fails(spark: SparkSession) -> None:
    case = made_up(left(1, 5), right(1, None), right(2, 6, None), right(3, 9), mark("l.t", 20), how="full")
    problems, differences, expected, _ = ran(spark, case)
    assert problems == []
    assert set(differences) == {"full_is_taken"}
    assert [seq for seq, _ in expected] == [2, 3, 5]
    problems, differences, _, _ = ran(spark, made_up(left(1, 5), right(1, None), left(2, None), mark("r.t", 20)))
    assert problems == []
    assert set(differences) == {"null_times"}


@pytest.mark.deep
def test_the_record_limit_is_met_at_the_recorded_step(spark: SparkSession) -> None:
    steps = (left(1, 5), left(2, 6), mark("r.t", 8), right(1, 8), left(3, 7), left(4, 8), left(5, 8))
    case = made_up(*steps, how="inner", max_records=2)
    assert hazelcast.expected(case).error == (5, "limit")
    assert ran(spark, case).problems == []


@pytest.mark.deep
def test_merged_states_go_on(spark: SparkSession) -> None:
    other = [left(7, 9), mark("l.t", 9), right(7, 12)]
    merge = {"action": "restore_merged", "other_steps": [{"seq": seq, **step} for seq, step in enumerate(other, 1)]}
    steps = (left(1, 5), mark("l.t", 5), {"action": "save"}, left(2, 6), merge, right(1, 6), mark("r.t", 30))
    case = made_up(*steps)
    assert reading(case).definition is not None
    assert ran(spark, case).problems == []


@cases(
    "case, error",
    (made_up(left(1, 5), how="semi"), "type"),
    (made_up(left(1, 5), on="TRUE", bounds=()), "bounds"),
    (made_up(left(1, 5), on="l.t >= r.t", bounds=TWO[1][:1]), "bounds"),
    (made_up(left(1, 5), on="r.t >= r.u", bounds=(Bound("r.t", "r.u", 0),)), "bounds"),
)
def test_what_the_engine_does_not_construct_is_refused(spark: SparkSession, case: hazelcast.Case, error: str) -> None:
    assert case.recorded.error == (0, error)
    assert reading(case).refused == error
    assert ran(spark, case).problems == []


def test_what_the_product_cannot_be_told_is_skipped() -> None:
    assert window_conformance.why_skipped(made_up(on="l.id = r.id AND l.t >= r.t - 2")) == NOT_IN_ON
    assert window_conformance.why_skipped(made_up(on="l.t >= r.t - 3 AND r.t >= l.t - 2")) == NOT_IN_ON
    assert window_conformance.why_skipped(made_up(on="l.t >= r.t AND r.t >= l.t - 2")) is None
    merge = {"action": "restore_merged", "other_steps": [{"seq": 1, **mark("r.u", 20)}]}
    case = made_up(mark("r.t", 5), merge, on=THREE[0], bounds=THREE[1])
    assert window_conformance.why_skipped(case) == MERGES_APART


@cases(
    "damaged",
    lambda made: made.emitted.clear(),
    lambda made: made.held.update({(0, (1, 5), False): 1}),
    lambda made: made.watermarks.update({1: 9}),
    lambda made: made.results.update({1: {0: 7}}),
    lambda made: setattr(made, "most", 3),
)
def test_each_thing_that_an_epoch_comes_to_is_compared(damaged: Callable[[Made], None]) -> None:
    def made() -> Made:
        found = Made(watermarks={0: 5}, results={1: {0: 3}}, most=1)
        found.emitted[1, (1, 5), None] = 1
        found.held[0, (1, 5), True] = 1
        return found

    definition = reading(made_up()).definition
    assert definition is not None
    other = made()
    damaged(other)
    assert unlike(definition, made(), made()) == []
    assert len(unlike(definition, made(), other)) == 1
