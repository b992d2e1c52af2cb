"""The ledger's table: few files, however many steps, and a look at a join reads few of them."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse import limits
from lakehouse.errors.errors import AnotherRun
from lakehouse.ledger import ledger
from lakehouse.ledger.entries import ABANDONED, BROKEN, COMMITTED, PUBLISHING, REJECTED, SLICE, Entry, JoinHistory
from lakehouse.ledger.ledger import NAME, Ledger
from lakehouse.session.engine import Engine
from lakehouse.session.session import own_session
from lakehouse.values.sqltext import Address
from tests.lake import Lake
from tests.ledgers import entry
from tests.log_readers import without_delta_rs


@pytest.mark.usefixtures("reader")
def test_its_files_stay_few_and_every_step_is_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = own_session(lake.spark, "UTC")
    monkeypatch.setattr(limits, "LEDGER_FILES", 3)
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")  # of 50
    kept = Ledger(Engine.of(spark), Address(NAME, lake.path(NAME)))
    for epoch in range(1, 4):
        for step in (PUBLISHING, "committed"):
            kept.append(entry(epoch, step))
    assert lake.sql(f"DESCRIBE DETAIL {lake.at(NAME)}")[0]["numFiles"] <= 4
    assert sorted((e.epoch, e.step) for e in kept.of("result").entries) == sorted(
        (epoch, step) for epoch in range(1, 4) for step in (PUBLISHING, "committed")
    )


def answers(history: JoinHistory, numbers: Iterable[int]) -> list[Any]:
    asked = [history.committed, history.open, history.broken, history.next_epoch, history.entries]
    for number in numbers:
        asked += [
            history.clocks_before(number),
            history.between(number, number + 3),
            history.watermarks_at(number),
            history.at_result(number),
            history.epoch_of_changelog(number),
            history.since(number)[-1],
        ]
    return asked


@given(
    steps=st.lists(st.sampled_from([(COMMITTED,), (ABANDONED,), (REJECTED, COMMITTED)]), min_size=1, max_size=8),
    last=st.sampled_from([(), (PUBLISHING,), (PUBLISHING, BROKEN), (REJECTED,)]),
    cut=st.integers(0, 8),
)
def test_a_history_that_begins_with_its_newest_rows_answers_as_a_whole_one(steps, last, cut):
    epochs = [(COMMITTED,), *steps, last]
    entries = [entry(n, step, n) for n, made in enumerate(epochs, 1) for step in made]
    newest = [n for n, made in enumerate(epochs, 1) if COMMITTED in made][-1]
    oldest = min(cut, newest - 1)
    older = tuple(one for one in entries if one.epoch <= oldest)
    split = JoinHistory(tuple(one for one in entries if one.epoch > oldest), lambda: older)
    assert answers(split, range(len(epochs) + 1)) == answers(JoinHistory(tuple(entries)), range(len(epochs) + 1))


def test_a_look_at_a_join_reads_its_newest_rows_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are read when somebody asks for them; a join that was never committed is read whole."""
    kept = Ledger(Engine.of(own_session(lake.spark, "UTC")), Address(NAME, lake.path(NAME)))
    for row in chain.from_iterable((entry(n, PUBLISHING, n), entry(n, COMMITTED, n)) for n in range(1, 5)):
        kept.append(row)
    kept.append(entry(5, SLICE, 5, slice=0))
    read: list[int] = []
    rows = Ledger._rows

    def counted(self: Ledger, *wanted: Any, **newest: Any) -> list[Entry]:
        found = rows(self, *wanted, **newest)
        read.append(len(found))
        return found

    monkeypatch.setattr(Ledger, "_rows", counted)
    monkeypatch.setattr(limits, "LEDGER_ROWS", 3)
    history = kept.of("result")
    assert (history.next_epoch, history.committed, history.open) == (5, history.recent[-1], None)
    assert read == [4]
    assert [one.epoch for one in history.between(0, 9)] == [1, 2, 3, 4]
    assert read == [4, 6]
    assert kept.of_all()["result"].recent == history.recent
    lake.sql(f"DELETE FROM {{{NAME}}} WHERE step = 'committed'", NAME)
    assert kept.of("result").older is None
    assert [one.epoch for one in kept.of("result").recent] == [1, 2, 3, 4]


@pytest.mark.usefixtures("reader")
def test_pitfall_63_a_step_under_a_used_transaction_is_not_written_again(lake: Lake) -> None:
    """Neither by the run that took it, which may resume, nor by another one, which is told so."""
    kept = Ledger(Engine.of(own_session(lake.spark, "UTC")), Address(NAME, lake.path(NAME)))
    for _ in range(2):
        kept.append(entry(1, PUBLISHING))
    with pytest.raises(AnotherRun):
        kept.append(replace(entry(1, PUBLISHING), run_id="another"))
    assert [(one.epoch, one.step, one.run_id) for one in kept.of("result").entries] == [(1, PUBLISHING, "run1")]


def test_a_row_that_meets_a_conflict_each_time_is_an_error_and_uses_up_no_number(lake, monkeypatch):
    """Spark gives up after its attempts, as delta-rs does; it does not go on as if the row were there."""
    without_delta_rs(monkeypatch, lake.folder)
    kept = Ledger(Engine.of(own_session(lake.spark, "UTC")), Address(NAME, lake.path(NAME)))
    kept.append(entry(1, PUBLISHING))

    def conflict(*_: Any) -> bool:
        raise RuntimeError("[DELTA_CONCURRENT_APPEND] others are faster")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write", conflict)
        with pytest.raises(RuntimeError, match="DELTA_CONCURRENT_APPEND"):
            kept.append(entry(1, COMMITTED))
    kept.append(entry(1, COMMITTED))
    assert [(one.epoch, one.step) for one in kept.of("result").entries] == [(1, PUBLISHING), (1, COMMITTED)]
