"""What an epoch is estimated to cost, and which way is chosen by it, without Spark."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.ledger.entries import REJECTED, Entry, JoinHistory
from lakehouse.values.recorded import Estimate, Slice
from pipelines.plan.cost import (
    CHEAPER_IN_FULL,
    FULL,
    INCREMENTAL,
    MARGIN,
    MARGIN_TO_CHANGE,
    OVERWRITE,
    SMALL_EPOCH,
    Changed,
    Choice,
    Volume,
    cheaper_in_full,
    choice,
    estimated,
    fan_out_seen,
)
from tests.cases import cases
from tests.ledgers import entry, ledger

FIELDS = ("sources", "commits", "changed_rows", "touched_rows", "bytes")
MANY = Volume(sources=2, commits=2, changed_rows=SMALL_EPOCH + 1, touched_rows=SMALL_EPOCH + 1, bytes=10**6)
LOADED = ledger(entry(1))


@cases(
    "changed, result_rows, rows, touched",
    ([Changed(10, 1_000)], 1_000, 10, 10),
    ([Changed(2, 100), Changed(5, 2_000)], 2_000, 7, 45),
    ([Changed(50, 100)], 10, 50, 50),
    ([Changed(10, None)], 1_000, 10, 30),
    ([Changed(10, 100)], None, 10, 30),
    ([Changed(9, 10), Changed(9, 10)], 1_000, 18, 1_018),
    ([], 1_000, 0, 0),
    ids=[
        "one to one",
        "a fact and a dimension",
        "few match",
        "unknown rows",
        "no result",
        "all",
        "none",
    ],
)
def test_a_changed_row_touches_as_many_rows_as_depend_on_it_on_average(
    changed: list[Changed], result_rows: int | None, rows: int, touched: int
) -> None:
    volume = Volume.of(changed, result_rows, 3.0, sources=2, commits=1, size=7)
    assert volume == Volume(sources=2, commits=1, changed_rows=rows, touched_rows=touched, bytes=7)


def test_without_any_number_nothing_is_estimated() -> None:
    for rows in (None, 5_000_000):
        unsaid = [Changed(3, 100), Changed(None, rows)]
        assert Volume.of(unsaid, 1_000, 1.0, sources=2, commits=1, size=7) is None
    assert choice(None, LOADED) == Choice()


@given(st.builds(Volume, **{name: st.integers(0, 10**9) for name in FIELDS}))
def test_more_work_is_never_estimated_to_take_less(volume: Volume) -> None:
    taken = estimated(volume, LOADED)
    for name in FIELDS:
        more = estimated(replace(volume, **{name: getattr(volume, name) + 10**7}), LOADED)
        assert all(more[way].seconds >= taken[way].seconds > 0 for way in taken), name


@pytest.mark.parametrize(("way", "is_of_few"), [(FULL, False), (OVERWRITE, True)])
def test_few_changes_are_never_reconciled_whatever_is_estimated(way: str, is_of_few: bool) -> None:
    dear = {INCREMENTAL: Estimate(1_000), way: Estimate(1)}
    assert cheaper_in_full(MANY, dear, LOADED) != ""
    assert bool(cheaper_in_full(replace(MANY, changed_rows=SMALL_EPOCH), dear, LOADED)) == is_of_few


def test_an_overwrite_is_estimated_by_the_size_of_the_tables_alone() -> None:
    """So that it is the cheaper way for small tables and few changes, and the feeds are for large tables."""
    few = replace(MANY, changed_rows=10, touched_rows=10)
    assert choice(few, LOADED, OVERWRITE).estimates.keys() == {INCREMENTAL, OVERWRITE}
    assert choice(few, LOADED, OVERWRITE).in_full.startswith(CHEAPER_IN_FULL)
    assert choice(replace(few, bytes=10**9), LOADED, OVERWRITE).in_full == ""
    more = replace(few, changed_rows=10**6, touched_rows=10**7)
    assert estimated(more, LOADED, OVERWRITE)[OVERWRITE] == estimated(few, LOADED, OVERWRITE)[OVERWRITE]
    assert estimated(more, LOADED)[FULL] != estimated(few, LOADED)[FULL]


@cases(
    "rows, row_bytes, changed, is_full",
    (2_000_000, 250, 20_000, False),
    (2_000_000, 250, 1_000_000, False),
    (1_000_000, 50, 1_000_000, True),
)
def test_by_the_constants_only_the_larger_part_of_narrow_tables_costs_less_in_full(
    rows: int, row_bytes: int, changed: int, is_full: bool
) -> None:
    volume = replace(MANY, bytes=rows * row_bytes, changed_rows=changed, touched_rows=changed)
    assert bool(cheaper_in_full(volume, estimated(volume, LOADED), LOADED)) == is_full


def epoch_of(number: int, strategy: str, took: float, estimate: float, pace: float = 1.0, **fields: Any) -> Entry:
    estimates = {strategy: Estimate(estimate, pace)}
    fields = {"counts": {"read": SMALL_EPOCH + 1}, **fields}
    seconds = {"compute": took / 2, "merge": took / 2}
    return entry(number, strategy=strategy, seconds=seconds, estimates=estimates, **fields)


@cases(
    "history, paces",
    (ledger(), (1, 1)),
    (ledger(epoch_of(1, INCREMENTAL, 30, 10)), (1, 1)),
    (ledger(entry(1), epoch_of(2, INCREMENTAL, 8, 4)), (2, 2)),
    (ledger(entry(1), epoch_of(2, INCREMENTAL, 8, 4), epoch_of(3, FULL, 12, 10)), (2, 1.2)),
    (ledger(entry(1), epoch_of(2, FULL, 12, 10)), (1.2, 1.2)),
    (ledger(entry(1), epoch_of(2, INCREMENTAL, 8, 4, counts={"read": SMALL_EPOCH})), (1, 1)),
    (ledger(entry(1), *(epoch_of(n, INCREMENTAL, took, 4) for n, took in ((2, 8), (3, 400), (4, 8)))), (2, 2)),
    (ledger(entry(1), epoch_of(2, INCREMENTAL, 8, 8, 2), epoch_of(3, INCREMENTAL, 20, 8, 2)), (3.5, 3.5)),
    (ledger(entry(1), entry(2), epoch_of(3, INCREMENTAL, 99, 4, step=REJECTED)), (1, 1)),
    (ledger(entry(1), *(epoch_of(n, INCREMENTAL, 4 if n > 3 else 400, 4) for n in range(2, 9))), (1, 1)),
    (ledger(entry(1), replace(epoch_of(2, INCREMENTAL, 1, 8), seconds={"merge": 1.0})), (1, 1)),
    (ledger(entry(1), epoch_of(2, FULL, 1, 8, slices=(Slice("k < 1", 3),))), (1, 1)),
    ids=[
        *("new", "one", "both", "each its own", "only full", "small", "median", "over its own pace"),
        *("published only", "newest", "finished by another run", "slice by slice"),
    ],
)
def test_from_the_third_epoch_on_estimates_are_fitted_to_the_ledger(
    history: JoinHistory, paces: tuple[float, float]
) -> None:
    taken, by_constants = estimated(MANY, history), estimated(MANY, ledger())
    for way, pace in zip((INCREMENTAL, FULL), paces, strict=True):
        assert taken[way].pace == pytest.approx(pace)
        assert taken[way].seconds == pytest.approx(by_constants[way].seconds * pace, abs=0.2)


def test_few_changes_of_a_very_large_table_fit_too() -> None:
    """By the constants its feeds take days; the ledger says seconds, from one epoch to the next."""
    history, large = LOADED, replace(MANY, bytes=10**14)
    for number in range(2, 5):
        estimates = estimated(large, history)
        counts = {"read": SMALL_EPOCH + 1}
        history = ledger(*history.entries, entry(number, seconds={"compute": 2.0}, estimates=estimates, counts=counts))
    assert estimated(large, history)[INCREMENTAL].seconds == pytest.approx(2.0)


@cases(
    "reason, margin",
    ("changes: the feeds hold all changes", MARGIN_TO_CHANGE),
    ("backfill: requested by the user", MARGIN_TO_CHANGE),
    (f"{CHEAPER_IN_FULL}: about 30 s from the feeds", MARGIN),
)
def test_a_way_is_left_only_if_the_other_is_clearly_cheaper(reason: str, margin: float) -> None:
    history = ledger(entry(1), replace(entry(2), reason=reason))
    near, beyond = ({INCREMENTAL: Estimate(100 * margin + more), FULL: Estimate(100)} for more in (-1, 1))
    assert cheaper_in_full(MANY, near, history) == ""
    assert cheaper_in_full(MANY, beyond, history).endswith("s from the feeds, about 100 s in full")


def test_a_row_of_the_feeds_touches_as_many_rows_as_in_earlier_epochs() -> None:
    assert fan_out_seen(LOADED) == 1
    counts = ({"read": 10, "touched": 50}, {"read": 2, "touched": 40}, {"read": 0, "touched": 0})
    assert fan_out_seen(ledger(*(entry(n, counts=of) for n, of in enumerate(counts, 2)))) == 12.5
