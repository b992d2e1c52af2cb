"""What an epoch wrote, in rows of the ledger: of this version, and of versions that recorded counts alone."""

from dataclasses import replace

import pytest

from lakehouse.errors.address import Address
from lakehouse.ledger.entries import PUBLISHING, Entry
from lakehouse.ledger.ledger_rows import entry_of, row_of
from lakehouse.publish.writes import Append, Merge, Overwrite, TargetVersions, Write
from pipelines.language import names
from tests.ledgers import entry

STORAGE = "/lake"
RESULT, LOG, STATE = (
    TargetVersions(Address(name, path=f"/lake/{name}"), f"{name}-id", 4, 5)
    for name in ("result", "result__changelog", "result__state")
)
CHANGES = {"inserted": 1, "updated": 2, "deleted": 3}
BUFFERED = {f"buffered_{name}": number for name, number in CHANGES.items()}
MATCHED = (names.MATCHED,)
NONE_BUFFERED = dict.fromkeys(BUFFERED, 0)

OLD: dict[str, tuple[str, dict[str, int], tuple[Write, ...]]] = {
    "tables": ("incremental", CHANGES, (Merge(RESULT, "result", 1, 2, 3),)),
    "a changelog": (
        "incremental",
        {**CHANGES, "changelog": 7},
        (Append(LOG, "changelog", 7), Merge(RESULT, "result", 1, 2, 3)),
    ),
    "no change": ("incremental", dict.fromkeys(CHANGES, 0), (Merge(RESULT, "result"),)),
    "a load that has begun": ("load", {"null_keys": 0}, (Merge(replace(RESULT, base_version=-1), "result"),)),
    "look-ups": ("incremental", {"appended": 4, "null_keys": 1}, (Append(RESULT, "result", 4),)),
    "look-ups without a row": ("incremental", {"appended": 0}, (Append(RESULT, "result"),)),
    "a reset": ("reset", {"appended": 4}, (Overwrite(RESULT, "result", 4),)),
    "buffered rows merged": (
        "incremental",
        {"appended": 4, **BUFFERED},
        (Merge(STATE, "state", 1, 2, 3, MATCHED), Append(RESULT, "result", 4)),
    ),
    "buffered rows rewritten": (
        "incremental",
        {"appended": 4, **BUFFERED, "buffered_kept": 10},
        (Overwrite(STATE, "state", 13, 3, has_images=True), Append(RESULT, "result", 4)),
    ),
    "buffered rows unchanged": (
        "incremental",
        {"appended": 4, **NONE_BUFFERED, "buffered_kept": 10},
        (Merge(STATE, "state", 0, 0, 0, MATCHED), Append(RESULT, "result", 4)),
    ),
    "a reset of buffered rows": (
        "reset",
        {"appended": 0, **NONE_BUFFERED, "buffered_kept": 0},
        (Overwrite(STATE, "state", has_images=True), Overwrite(RESULT, "result")),
    ),
    "a replay": (
        "replay",
        {"appended": 2},
        (Merge(STATE, "state", 0, 0, 0, MATCHED), Append(RESULT, "result", 2)),
    ),
}


def of(strategy: str, counts: dict[str, int], writes: tuple[Write, ...]) -> Entry:
    return replace(entry(3, PUBLISHING), strategy=strategy, counts=counts, writes=writes, stage="/lake/stages/one")


@pytest.mark.parametrize("case", OLD)
def test_a_row_of_an_earlier_version_is_read_from_its_counts(case: str) -> None:
    step = of(*OLD[case])
    row = row_of(step, STORAGE)
    assert entry_of({**row, "writes": None}, STORAGE) == step
    del row["writes"]
    assert entry_of(row, STORAGE) == step


@pytest.mark.parametrize("case", OLD)
def test_a_row_says_what_was_written(case: str) -> None:
    """Whatever the counts say."""
    step = replace(of(*OLD[case]), counts={"read": 1})
    assert entry_of(row_of(step, STORAGE), STORAGE) == step


@pytest.mark.parametrize(
    ("writes", "stage", "staged"),
    [
        ((Merge(RESULT, "result"),), "/lake/stages/one", False),
        ((Merge(RESULT, "result", deleted=1),), "/lake/stages/one", True),
        ((Append(LOG, "changelog", 1), Merge(RESULT, "result")), "/lake/stages/one", True),
        ((Overwrite(RESULT, "result"),), "/lake/stages/one", True),
        ((Append(RESULT, "result", 3),), "", False),
    ],
    ids=["nothing", "a delete", "a changelog alone", "no rows replace all", "in place"],
)
def test_an_epoch_is_staged_if_it_has_something_to_write(writes: tuple[Write, ...], stage: str, staged: bool) -> None:
    assert replace(entry(3, PUBLISHING), writes=writes, stage=stage).is_staged == staged


def test_the_tables_of_an_epoch_are_told_apart_by_their_parts() -> None:
    step = of(*OLD["a changelog"])
    assert (step.changelog, step.state, step.result) == (LOG, None, RESULT)
    made = [replace(target, version=9) for target in step.targets]
    assert step.with_versions(made).targets == tuple(made)
    assert [write.rows for write in step.with_versions(made).writes] == [7, 6]
