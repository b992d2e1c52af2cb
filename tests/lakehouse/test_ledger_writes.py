"""What an epoch wrote, in rows of the ledger."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.entries import PUBLISHING, Entry
from lakehouse.ledger.rows import entry_of, row_of
from lakehouse.publish.writes import Append, AppendInPlace, Merge, Overwrite, TargetVersions, Write
from lakehouse.values.recorded import SourceVersions
from lakehouse.values.sqltext import Address
from pipelines.language import names
from tests.cases import cases
from tests.ledgers import entry

STORAGE = "/lake"
RESULT, LOG, STATE = (
    TargetVersions(Address(name, path=f"/lake/{name}"), f"{name}-id", 4, 5)
    for name in ("result", "result__changelog", "result__state")
)
MATCHED = (names.MATCHED,)

WRITES: dict[str, tuple[Write, ...]] = {
    "tables": (Merge(RESULT, "result", 1, 2, 3),),
    "a changelog": (Append(LOG, "changelog", 7), Merge(RESULT, "result", 1, 2, 3)),
    "no change": (Merge(RESULT, "result"),),
    "a load that has begun": (Merge(replace(RESULT, base_version=-1), "result"),),
    "look-ups": (Append(RESULT, "result", 4),),
    "look-ups in place": (AppendInPlace(RESULT, "result", 4),),
    "a reset": (Overwrite(RESULT, "result", 4),),
    "buffered rows merged": (Merge(STATE, "state", 1, 2, 3, MATCHED), Append(RESULT, "result", 4)),
    "buffered rows rewritten": (Overwrite(STATE, "state", 13, 3, has_images=True), Append(RESULT, "result", 4)),
    "a reset of buffered rows": (Overwrite(STATE, "state", has_images=True), Overwrite(RESULT, "result")),
}


def of(writes: tuple[Write, ...]) -> Entry:
    return replace(entry(3, PUBLISHING), writes=writes, stage="/lake/stages/one")


@pytest.mark.parametrize("case", WRITES)
def test_a_row_says_what_was_written(case: str) -> None:
    step = of(WRITES[case])
    assert entry_of(row_of(step, STORAGE), STORAGE) == step


@cases(
    "change",
    {"checksum": None, "sources": [{"name": "left", "commit": {"time": None, "transaction": None}}]},
    {"writes": [{"mode": "replace", "part": "result", "rows": 1}]},
    {"writes": None},
)
def test_a_row_of_another_version_is_an_error_that_names_it(change: dict[str, Any]) -> None:
    row = row_of(of(WRITES["tables"]), STORAGE) | change
    with pytest.raises(LakejoinError, match="another version of lakejoin") as raised:
        entry_of(row, STORAGE)
    assert raised.value.found.startswith("epoch ")


def test_fields_that_a_later_version_adds_are_left_alone() -> None:
    row = row_of(replace(of(WRITES["tables"]), sources=(SourceVersions("left", "id", 1, 2),)), STORAGE)
    later = [{**source, "weather": "fine"} for source in row["sources"]]
    assert entry_of({**row, "sources": later}, STORAGE).sources == (SourceVersions("left", "id", 1, 2),)


@cases(
    "writes, stage, staged",
    ((Merge(RESULT, "result"),), "/lake/stages/one", False),
    ((Merge(RESULT, "result", deleted=1),), "/lake/stages/one", True),
    ((Append(LOG, "changelog", 1), Merge(RESULT, "result")), "/lake/stages/one", True),
    ((Overwrite(RESULT, "result"),), "/lake/stages/one", True),
    ((Append(RESULT, "result", 3),), "", False),
    ids=["nothing", "a delete", "a changelog alone", "no rows replace all", "in place"],
)
def test_an_epoch_is_staged_if_it_has_something_to_write(writes: tuple[Write, ...], stage: str, staged: bool) -> None:
    assert replace(entry(3, PUBLISHING), writes=writes, stage=stage).is_staged == staged


def test_the_tables_of_an_epoch_are_told_apart_by_their_parts() -> None:
    step = of(WRITES["a changelog"])
    assert (step.changelog, step.state, step.result) == (LOG, None, RESULT)
    made = [replace(target, version=9) for target in step.targets]
    assert step.with_versions(made).targets == tuple(made)
    assert [write.rows for write in step.with_versions(made).writes] == [7, 6]
