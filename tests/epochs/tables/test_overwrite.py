"""A join without an exact change feed: an epoch in full overwrites its result, and leaves the old table or the new."""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import pytest

from lakehouse.errors.errors import AnotherRun, BrokenEpoch, DefinitionChanged, DuplicateKey, GateFailed, RowFailed
from lakehouse.ledger.entries import ABANDONED, COMMITTED
from pipelines import Pipeline
from pipelines.epochs.publish import publish
from pipelines.epochs.views import overwrite
from pipelines.plan import cost
from tests.killing import Killed, killed, recorded_writes
from tests.lake import JOIN, Lake, only
from tests.recorded import Recorded

PAIRS = "SELECT l.k, r.w, l.v, r.n FROM left l FULL JOIN right r ON l.v = r.n"
RANGE = "expect_column_values_to_be_between"


def overwriting(lake: Lake, **options: Any) -> Pipeline:
    return lake.pipeline(**{"feed": "any", "refresh": "full", **options})


def load_and_change(lake: Lake) -> None:
    lake.create("left", "k INT, v INT", "(1, 1), (2, 2), (3, 3)")
    lake.create("right", "k INT, w INT", "(1, 10), (4, 40)")
    overwriting(lake).run(lake.spark)
    lake.sql("UPDATE {right} SET w = 11 WHERE k = 1")
    lake.sql("INSERT INTO {left} VALUES (4, 4)")


@pytest.fixture
def changed(recorded: Recorded) -> Lake:
    """Give a lake with a result of three rows whose tables have changed since, so that the new result has four."""
    return recorded(load_and_change)


OLD = [(1, 1, 10), (2, 2, None), (3, 3, None)]
NEW = [(1, 1, 11), (2, 2, None), (3, 3, None), (4, 4, 40)]


@pytest.mark.fast
def test_an_epoch_in_full_overwrites_the_result_and_says_so(changed: Lake) -> None:
    pipeline = overwriting(changed)
    base = changed.version()
    report = only(pipeline.run(changed.spark))
    assert changed.rows() == NEW
    assert report.strategy == "overwrite"
    assert report.reason.endswith("; overwrites the result, so that the change feed of this epoch is not exact")
    assert dict(report.counts) == {"null_keys": 0, "deleted": 3, "inserted": 4}
    assert changed.ledger()[-1]["checksum"]["rows"] == 4
    assert report.text().endswith("the change feed of this epoch is not exact")
    assert changed.version() == base + 1, "one commit"
    assert changed.feed_counts("result", base + 1) == {"delete": 3, "insert": 4}
    assert only(pipeline.run(changed.spark)).outcome == "nothing"
    assert (
        only(pipeline.verify(changed.spark, quick=True)).outcome
        == only(pipeline.verify(changed.spark)).outcome
        == "done"
    )


@pytest.mark.slow
def test_the_epochs_around_an_overwrite_go_on_from_it(changed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little has changed, and an overwrite is cheaper all the same; feeds and a backfill go on from it."""
    pipeline = overwriting(changed, refresh="auto")
    monkeypatch.setattr(cost, "MARGIN_TO_CHANGE", 1000)
    assert only(pipeline.run(changed.spark)).strategy == "incremental"
    changed.sql("DELETE FROM {left} WHERE k = 4")
    monkeypatch.setattr(cost, "MARGIN_TO_CHANGE", 0)
    report = only(pipeline.run(changed.spark))
    assert (report.strategy, report.reason.partition(":")[0]) == ("overwrite", cost.CHEAPER_IN_FULL)
    assert report.estimates.keys() == {"incremental", "overwrite"}
    monkeypatch.setattr(cost, "MARGIN", 1000)
    changed.sql("UPDATE {left} SET v = 20 WHERE k = 2")
    base = changed.version()
    assert only(pipeline.run(changed.spark)).strategy == "incremental"
    assert [change for change, _ in changed.feed(base)] == ["update_postimage", "update_preimage"]
    changed.sql("DELETE FROM {right}")
    base = changed.version()
    assert only(pipeline.backfill(changed.spark)).strategy == "reconcile"
    assert [change for change, _ in changed.feed(base)] == ["update_postimage", "update_preimage"]
    assert changed.rows() == [(1, 1, None), (2, 20, None), (3, 3, None)]


def test_a_feed_with_a_gap_leads_to_an_overwrite(changed: Lake) -> None:
    pipeline = overwriting(changed, refresh="auto")
    changed.sql("ALTER TABLE {left} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    changed.sql("DELETE FROM {left} WHERE k = 3")
    changed.sql("ALTER TABLE {left} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    report = only(pipeline.run(changed.spark))
    assert (report.strategy, report.reason.partition(":")[0]) == ("overwrite", "feed-gap")
    assert changed.rows() == [row for row in NEW if row[0] != 3]


@pytest.mark.deep
@pytest.mark.parametrize("rows", [("(7, 5)", "(5, 5)"), ("(1, 5), (2, 5), (3, 6)", "(1, 5), (2, 5), (3, 7)")])
def test_pairs_are_overwritten_too(lake: Lake, rows: tuple[str, str]) -> None:
    """Rows that match many rows, or none, whose part of the key is then null."""
    lake.create("left", "k INT, v INT", rows[0])
    lake.create("right", "w INT, n INT", rows[1])
    pipeline = lake.pipeline(PAIRS, {"left": "k", "right": "w"}, feed="any", refresh="full")
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {right} VALUES (9, 5), (8, 9)")
    assert only(pipeline.run(lake.spark)).strategy == "overwrite"
    assert lake.rows() == sorted(
        map(tuple, lake.sql(PAIRS.replace("left l", "{left} l").replace("right r", "{right} r"))), key=repr
    )
    assert only(pipeline.verify(lake.spark)).outcome == "done"


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_the_old_table_or_the_new(changed: Lake) -> None:
    """At every write, before and after it; the next run finishes the epoch, or computes it again if it is not there."""
    with recorded_writes() as writes:
        copied(changed, "whole").run(changed.spark)
    of_epoch = ["ledger: publishing epoch 2 of result", "load result", "ledger: committed epoch 2 of result"]
    assert [write for write in writes if write in of_epoch] == of_epoch
    for write in (*of_epoch, "delete stage"):
        for moment in ("before", "after"):
            left = changed.copy(changed.folder.with_name(f"{changed.folder.name}-{write.split()[1]}-{moment}"))
            pipeline = Pipeline.load(left.file)
            with killed(write, moment):
                pipeline.run(changed.spark)
            is_written = write not in of_epoch[:2] or (write, moment) == (of_epoch[1], "after")
            assert left.rows() == (NEW if is_written else OLD), (write, moment)
            pipeline.run(changed.spark)
            assert left.rows() == NEW
            steps = [row["step"] for row in left.ledger()]
            begun = (write, moment) != (of_epoch[0], "before")
            assert (steps.count(COMMITTED), steps.count(ABANDONED)) == (2, int(begun and not is_written))
            assert only(pipeline.run(changed.spark)).outcome == "nothing"
            assert only(pipeline.verify(changed.spark, quick=True)).outcome == "done"


def copied(lake: Lake, name: str) -> Pipeline:
    return Pipeline.load(lake.copy(lake.folder.with_name(f"{lake.folder.name}-{name}")).file)


def test_a_source_that_holds_a_key_twice_stops_the_epoch_before_it_writes(changed: Lake) -> None:
    pipeline = overwriting(changed)
    base = changed.version()
    changed.sql("INSERT INTO {left} VALUES (1, 100)")
    with pytest.raises(DuplicateKey, match="left"):
        pipeline.run(changed.spark)
    assert changed.rows() == OLD
    assert changed.version() == base
    assert [row["step"] for row in changed.ledger()].count(COMMITTED) == 1


@pytest.mark.deep
def test_a_key_that_occurs_twice_all_the_same_breaks_the_epoch(changed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run goes on from it; a backfill abandons it, and reconciles once the surplus row is removed."""
    pipeline = overwriting(changed)
    changed.sql("INSERT INTO {left} VALUES (1, 100)")
    monkeypatch.setattr(overwrite, "check_sources", lambda *_: 0)
    for _ in range(2):
        with pytest.raises(BrokenEpoch):
            pipeline.run(changed.spark)
        assert changed.ledger()[-1]["message"].endswith("found: one change per key: k (2 rows)")
    monkeypatch.undo()
    changed.sql("DELETE FROM {left} WHERE v = 100")
    with pytest.raises(DuplicateKey, match="the result holds a key more than once"):
        pipeline.backfill(changed.spark)
    changed.sql("DELETE FROM {result} WHERE v = 100")
    assert only(pipeline.backfill(changed.spark)).strategy == "reconcile"
    assert changed.rows() == NEW


@pytest.mark.deep
def test_a_row_that_raises_leaves_the_old_table(lake: Lake) -> None:
    lake.create("left", "k INT, v INT", "(1, 1), (2, 2)")
    lake.create("right", "k INT, w INT", "(1, 10)")
    divided = "SELECT l.k, 10 DIV l.v AS v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(divided, feed="any", refresh="full")
    pipeline.run(lake.spark)
    base = lake.rows()
    lake.sql("UPDATE {left} SET v = 0 WHERE k = 2")
    for _ in range(2):
        with pytest.raises(RowFailed, match="left"):
            pipeline.run(lake.spark)
        assert lake.rows() == base
    lake.sql("UPDATE {left} SET v = 1 WHERE k = 2")
    assert only(pipeline.run(lake.spark)).strategy == "overwrite"
    assert lake.rows() == [(1, 10, 10), (2, 10, None)]


@pytest.mark.slow
@pytest.mark.parametrize("is_written", [False, True])
def test_a_source_is_needed_only_before_the_overwrite(changed: Lake, is_written: bool) -> None:
    """A killed overwrite whose source was replaced is finished if its rows are written, else it is abandoned."""
    pipeline = overwriting(changed)
    with killed("load result", "after" if is_written else "before"):
        pipeline.run(changed.spark)
    shutil.rmtree(changed.path("right"))
    changed.create("right", "k INT, w INT", "(1, 12)")
    report = only(pipeline.run(changed.spark))
    assert (report.strategy, report.reason.partition(":")[0]) == ("overwrite", "source-recreated")
    assert changed.rows() == [(1, 1, 12), *NEW[1:3], (4, 4, None)]
    assert [row["step"] for row in changed.ledger()].count(ABANDONED) == (not is_written)


def test_rows_with_expectations_of_yours_are_staged(changed: Lake) -> None:
    """They are judged before they are published, so that the result is reconciled."""
    pipeline = overwriting(changed, expectations=[{RANGE: {"column": "w", "max_value": 30}}])
    with pytest.raises(GateFailed):
        pipeline.run(changed.spark)
    assert changed.rows() == OLD
    changed.sql("DELETE FROM {right} WHERE k = 4")
    assert only(pipeline.run(changed.spark)).strategy == "reconcile"
    assert changed.rows() == [*NEW[:3], (4, 4, None)]


def test_a_run_that_wakes_up_late_overwrites_nothing(changed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with another definition abandons the open overwrite, and uses up the transaction of the one that sleeps."""
    pipeline = overwriting(changed)
    sleeping: list[Callable[[], object]] = []

    append_rows = publish.append_rows

    def asleep(*given: Any, **options: Any) -> NoReturn:
        sleeping.append(partial(append_rows, *given, **options))
        raise Killed

    monkeypatch.setattr(publish, "append_rows", asleep)
    with pytest.raises(Killed):
        pipeline.run(changed.spark)
    monkeypatch.undo()
    with pytest.raises(DefinitionChanged):
        changed.pipeline(f"{JOIN} WHERE l.k > 1", feed="any", refresh="full").run(changed.spark)
    assert changed.ledger()[-1]["step"] == ABANDONED
    monkeypatch.setattr(publish, "is_open", lambda *_: True)
    with pytest.raises(AnotherRun):
        sleeping[0]()
    assert changed.rows() == OLD
    monkeypatch.undo()
    assert only(pipeline.run(changed.spark)).strategy == "overwrite"
    assert changed.rows() == NEW
