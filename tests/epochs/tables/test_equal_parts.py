"""A backfill of a large result leaves out what has equal checksums; it stages and refuses what it would otherwise."""

import pytest

from lakehouse import limits
from lakehouse.errors.errors import DuplicateKey
from tests.exact import held, plain
from tests.lake import JOIN, Lake, only


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)


@pytest.mark.deep
def test_a_backfill_finds_what_differs_and_no_more(loaded: Lake) -> None:
    before = loaded.version()
    report = only(loaded.pipeline().backfill(loaded.spark))
    assert [report.counts[kind] for kind in ("inserted", "updated", "deleted")] == [0, 0, 0]
    assert loaded.version() == before
    for statement in (
        "UPDATE {left} SET v = NULL WHERE k = 1",
        "INSERT INTO {left} VALUES (9, 'n')",
        "DELETE FROM {left} WHERE k = 3",
    ):
        loaded.sql(statement)
    report = only(loaded.pipeline().backfill(loaded.spark))
    assert [report.counts[kind] for kind in ("inserted", "updated", "deleted")] == [1, 1, 1]
    assert held(loaded) == plain(loaded, JOIN)


@pytest.mark.deep
def test_a_key_that_the_result_has_twice_with_equal_rows_shows(loaded: Lake) -> None:
    loaded.sql("INSERT INTO {result} SELECT * FROM {result} WHERE k = 2")
    with pytest.raises(DuplicateKey, match="the result holds a key more than once"):
        loaded.pipeline().backfill(loaded.spark)
