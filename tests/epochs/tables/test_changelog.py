"""`changelog: true` through real tables: what is appended, exactly once, and what happens when it was not kept."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.errors import (
    CannotContinue,
    Drifted,
    ForeignWriter,
    GateFailed,
    LakejoinError,
    NotLoaded,
    PipelineFileError,
)
from pipelines import Pipeline
from pipelines.plan.values import EpochPlan
from tests.killing import killed
from tests.lake import Lake, only
from tests.recorded import Recorded, create_standard

CHANGELOG = "result__changelog"
LOGGED = [
    (1, "a", None, "upsert", "backfill", 0, 1),
    (2, "b", "x", "upsert", "backfill", 0, 1),
    (3, "c", "y", "upsert", "backfill", 0, 1),
]
"""What the changelog of the standard lake begins with: k, v, w, _op, _cause, _position, _epoch."""


def logged(lake: Lake, after: int = 0) -> list[tuple]:
    """Give the rows of the changelog of the epochs after one, in order, without their times."""
    rows = lake.spark.read.format("delta").load(lake.path(CHANGELOG)).where(F.col("_epoch") > after)
    return [tuple(row) for row in rows.orderBy("_epoch", "_position", "k").drop("_at").collect()]


@pytest.fixture
def kept(recorded: Recorded) -> Lake:
    """Give a loaded lake that keeps a changelog."""
    return recorded(create_standard, begin_changelog)


def begin_changelog(lake: Lake) -> None:
    lake.pipeline(changelog=True).run(lake.spark)


@pytest.mark.deep
def test_a_load_begins_the_changelog(kept: Lake) -> None:
    """The first epoch has an upsert for each row of the result, and verify replays it."""
    assert logged(kept) == LOGGED
    report = only(kept.pipeline(changelog=True).verify(kept.spark))
    assert "the changelog agrees with them" in report.text()


@pytest.mark.parametrize("few", [True, False], ids=["through the driver", "through the stage"])
def test_every_commit_has_its_rows(kept: Lake, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """One epoch of five commits: each change with its cause in the order of time, also what nets to nothing."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    before = kept.version()
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    kept.sql("UPDATE {right} SET w = 'X' WHERE k IN (2, 4)")
    kept.sql("UPDATE {left} SET v = 'b' WHERE k = 2")
    kept.sql("UPDATE {right} SET w = 'x' WHERE k IN (2, 4)")
    kept.sql("DELETE FROM {left} WHERE k = 1")
    report = only(kept.pipeline(changelog=True).run(kept.spark))
    assert logged(kept, after=1) == [
        (2, "B", "x", "upsert", "left", 1, 2),
        (2, "B", "X", "upsert", "right", 2, 2),
        (2, "b", "X", "upsert", "left", 3, 2),
        (2, "b", "x", "upsert", "right", 4, 2),
        (1, None, None, "tombstone", "left", 5, 2),
    ]
    assert kept.feed(before) == [("delete", (1, "a", None))]
    assert report.counts["changelog"] == 5
    assert report.counts["deleted"] == 1
    kept.pipeline(changelog=True).verify(kept.spark)


@pytest.mark.slow
def test_an_epoch_that_nets_to_nothing_is_logged(kept: Lake) -> None:
    """There and back: the result gets no commit, the changelog both steps."""
    before = kept.version()
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    kept.sql("UPDATE {left} SET v = 'b' WHERE k = 2")
    only(kept.pipeline(changelog=True).run(kept.spark))
    assert [row[1] for row in logged(kept, after=1)] == ["B", "b"]
    assert kept.version() == before
    assert kept.ledger()[-1]["step"] == "committed"


@pytest.mark.slow
def test_times_are_those_of_the_commits(kept: Lake) -> None:
    """`_at` is the time of the commit that caused the row."""
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    kept.pipeline(changelog=True).run(kept.spark)
    rows = kept.spark.read.format("delta").load(kept.path(CHANGELOG)).where("_epoch = 2").collect()
    committed = kept.spark.sql(f"DESCRIBE HISTORY {kept.at('left')} LIMIT 1").collect()[0]["timestamp"]
    assert abs(only(rows)["_at"] - committed) < timedelta(milliseconds=1)


@pytest.mark.slow
def test_switched_on_later(loaded: Lake) -> None:
    """A result without a changelog is not simply continued with one; a backfill begins it."""
    with pytest.raises(NotLoaded, match="backfill"):
        loaded.pipeline(changelog=True).run(loaded.spark)
    before = loaded.version()
    loaded.pipeline(changelog=True).backfill(loaded.spark)
    assert [row[:6] for row in logged(loaded)] == [row[:6] for row in LOGGED]
    assert loaded.version() == before
    loaded.sql("DELETE FROM {left} WHERE k = 1")
    loaded.pipeline(changelog=True).run(loaded.spark)
    assert logged(loaded)[-1][:5] == (1, None, None, "tombstone", "left")


@pytest.mark.slow
def test_backfill_appends_each_real_difference(kept: Lake) -> None:
    """What changed while the changelog was off comes as one row for each key, and nothing for what came back."""
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    kept.pipeline().run(kept.spark)
    kept.sql("UPDATE {left} SET v = 'C' WHERE k = 3")
    kept.sql("DELETE FROM {left} WHERE k = 1")
    kept.pipeline(changelog=True).backfill(kept.spark)
    assert sorted(row[:6] for row in logged(kept, after=1)) == [
        (1, None, None, "tombstone", "backfill", 0),
        (2, "B", "x", "upsert", "backfill", 0),
        (3, "C", "y", "upsert", "backfill", 0),
    ]
    kept.pipeline(changelog=True).verify(kept.spark)
    number = len(logged(kept))
    kept.pipeline(changelog=True).backfill(kept.spark)
    assert len(logged(kept)) == number, "on a correct result it changes nothing"


@pytest.mark.slow
def test_a_foreign_row_is_noticed(kept: Lake) -> None:
    """Rows that somebody else appends stop the next epoch; a backfill mends what they say."""
    kept.sql(f"INSERT INTO {kept.at(CHANGELOG)} VALUES (1, 'z', NULL, 'upsert', 'left', 1, 1, current_timestamp())")
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    with pytest.raises(ForeignWriter, match="backfill --select result`"):
        kept.pipeline(changelog=True).run(kept.spark)
    kept.pipeline(changelog=True).backfill(kept.spark)
    assert [row[:3] for row in logged(kept, after=1)] == [(1, "a", None), (2, "B", "x")]
    kept.pipeline(changelog=True).verify(kept.spark)


@pytest.mark.slow
def test_rows_of_epochs_to_come_are_refused(kept: Lake) -> None:
    """A changelog with epochs that the ledger does not know cannot be continued; dropped, it is begun anew."""
    kept.sql(f"INSERT INTO {kept.at(CHANGELOG)} VALUES (1, 'z', NULL, 'upsert', 'left', 1, 9, current_timestamp())")
    with pytest.raises(CannotContinue, match="drop the changelog"):
        kept.pipeline(changelog=True).backfill(kept.spark)
    shutil.rmtree(kept.path(CHANGELOG))
    kept.pipeline(changelog=True).backfill(kept.spark)
    kept.pipeline(changelog=True).verify(kept.spark)


@pytest.mark.slow
def test_an_open_epoch_without_its_changelog_is_let_go_by_a_backfill(kept: Lake) -> None:
    """Killed before its rows were appended, and the changelog dropped: run says so, a backfill begins it anew."""
    kept.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    with killed(f"load {CHANGELOG}"):
        kept.pipeline(changelog=True).run(kept.spark)
    shutil.rmtree(kept.path(CHANGELOG))
    with pytest.raises(LakejoinError, match="the Delta table does not exist"):
        kept.pipeline(changelog=True).run(kept.spark)
    kept.pipeline(changelog=True).backfill(kept.spark)
    kept.pipeline(changelog=True).verify(kept.spark)


@pytest.mark.slow
def test_verify_replays_the_changelog(kept: Lake) -> None:
    """A changelog that leads elsewhere than to the result has drifted."""
    kept.sql(f"DELETE FROM {kept.at(CHANGELOG)} WHERE k = 1")
    kept.spark.sql(
        f"UPDATE {kept.at('lakejoin_ledger')} SET targets = transform(targets, t -> "
        f"IF(t.name = '{CHANGELOG}' AND t.version IS NOT NULL, named_struct('name', t.name, 'path', t.path, "
        "'table_name', t.table_name, 'id', t.id, 'base_version', t.base_version, 'version', t.version + 1), t))"
    ).collect()
    with pytest.raises(Drifted, match="last changelog rows differ from the result"):
        kept.pipeline(changelog=True).verify(kept.spark)


@pytest.mark.slow
def test_a_key_twice_for_a_moment_is_refused(kept: Lake) -> None:
    """A key that two commits held twice makes no timeline: the gate stops the epoch, and a backfill goes on."""
    kept.sql("INSERT INTO {left} VALUES (1, 'again')")
    kept.sql("DELETE FROM {left} WHERE v = 'a'")
    with pytest.raises(GateFailed, match="the last changelog row of a key equals the result"):
        kept.pipeline(changelog=True).run(kept.spark)
    assert logged(kept, after=1) == []
    kept.pipeline(changelog=True).backfill(kept.spark)
    kept.pipeline(changelog=True).verify(kept.spark)


def test_names_of_the_changelog_are_taken(standard: Lake) -> None:
    """An output that is called as a column of the changelog is a fault of the file, if there is a changelog."""
    sql = "SELECT l.k, l.v AS _op FROM left l JOIN right r ON l.k = r.k"
    with pytest.raises(PipelineFileError, match="column of the changelog"):
        standard.pipeline(sql, changelog=True).run(standard.spark)
    standard.pipeline(sql).run(standard.spark)


@pytest.mark.slow
def test_a_foreign_key_and_a_star(lake: Lake) -> None:
    """A parent's change has a row for each child; a star follows all its sources, in the order of their commits."""
    lake.create("flights", "id INT, tail STRING", "(1, 't1'), (2, 't1'), (3, NULL)")
    lake.create("planes", "tail STRING, maker STRING", "('t1', 'm1'), ('t2', 'm2')")
    lake.create("makers", "maker STRING, city STRING", "('m1', 'Oslo')")
    sql = (
        "SELECT f.id, f.tail, p.maker, m.city FROM flights f LEFT JOIN planes p ON f.tail = p.tail "
        "LEFT JOIN makers m ON p.maker = m.maker"
    )
    keys = {"flights": "id", "planes": "tail", "makers": "maker"}
    pipeline = lake.pipeline(sql, keys, changelog=True)
    pipeline.run(lake.spark)
    lake.sql("UPDATE {planes} SET maker = 'm2' WHERE tail = 't1'", "planes")
    lake.sql("INSERT INTO {makers} VALUES ('m2', 'Bergen')", "makers")
    lake.sql("UPDATE {flights} SET tail = 't2' WHERE id = 3", "flights")
    pipeline.run(lake.spark)
    rows = lake.spark.read.format("delta").load(lake.path(CHANGELOG)).where("_epoch = 2")
    found = rows.orderBy("_position", "id").select("id", "maker", "city", "_cause", "_position").collect()
    assert [tuple(row) for row in found] == [
        (1, "m2", None, "planes", 1),
        (2, "m2", None, "planes", 1),
        (1, "m2", "Bergen", "makers", 2),
        (2, "m2", "Bergen", "makers", 2),
        (3, "m2", "Bergen", "flights", 3),
    ]
    pipeline.verify(lake.spark)


@pytest.mark.slow
def test_a_chain_follows_the_changelog_of_what_it_reads(lake: Lake) -> None:
    """
    Two joins: every step of the first is a step of the second, in order with the steps of the second's own table. The
    first keeps its changelog without being asked, and epochs of it that net to nothing have their rows too.
    """
    lake.create("a", "k INT, v STRING", "(1, 'a1'), (2, 'a2')")
    lake.create("b", "k INT, w STRING", "(1, 'b1')")
    lake.create("c", "k INT, x STRING", "(1, 'c1')")
    first = "SELECT a.k, a.v, b.w FROM a LEFT JOIN b ON a.k = b.k"
    second = "SELECT ab.k, ab.v, ab.w, c.x FROM ab LEFT JOIN c ON ab.k = c.k"
    keys = {"a": "k", "b": "k", "c": "k"}
    pipeline = lake.pipeline(second, keys, changelog=True, further={"ab": first})
    pipeline.run(lake.spark)
    assert Path(lake.path("ab__changelog")).exists()
    for statement in (
        "UPDATE {a} SET v = 'A1' WHERE k = 1",
        "UPDATE {c} SET x = 'C1' WHERE k = 1",
        "INSERT INTO {b} VALUES (2, 'b2')",
        "UPDATE {a} SET v = 'a1' WHERE k = 1",
        "DELETE FROM {b} WHERE k = 2",
    ):
        lake.sql(statement, "a", "b", "c")
    before = lake.version("ab")
    pipeline.run(lake.spark)
    assert lake.version("ab") == before, "what happened to its rows nets to nothing"
    rows = lake.spark.read.format("delta").load(lake.path(CHANGELOG)).where("_epoch = 2")
    assert [tuple(row) for row in rows.orderBy("_position").drop("_epoch", "_at").collect()] == [
        (1, "A1", "b1", "c1", "upsert", "ab", 1),
        (1, "A1", "b1", "C1", "upsert", "c", 2),
        (2, "a2", "b2", None, "upsert", "ab", 3),
        (1, "a1", "b1", "C1", "upsert", "ab", 4),
        (2, "a2", None, None, "upsert", "ab", 5),
    ]
    pipeline.verify(lake.spark)
    assert {report.outcome for report in pipeline.run(lake.spark)} == {"nothing"}


@pytest.mark.slow
@pytest.mark.parametrize("semantics", ["kafka", "kafka-0.10.0"])
def test_semantics_through_delta(lake: Lake, semantics: str) -> None:
    """Rows that meet nothing come and go: 0.10.0 sends a tombstone each time, kafka only where a row goes."""
    lake.create("left", "k INT, v STRING")
    lake.create("right", "k INT, w STRING", "(1, 'a')")
    sql = "SELECT l.k, l.v, r.w FROM left l JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, changelog=True, semantics=semantics)
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (2, 'B')")
    lake.sql("INSERT INTO {left} VALUES (1, 'A')")
    lake.sql("DELETE FROM {right} WHERE k = 1")
    lake.sql("DELETE FROM {left} WHERE k = 1")
    report = only(pipeline.run(lake.spark))
    found = [(row[0], row[3], row[4]) for row in logged(lake, after=1)]
    needed = [(1, "upsert", "left"), (1, "tombstone", "right")]
    needless = {"kafka": [], "kafka-0.10.0": [(2, "tombstone", "left"), (1, "tombstone", "left")]}[semantics]
    assert sorted(found) == sorted(needed + needless)
    assert report.counts["changelog"] == len(found)
    pipeline.verify(lake.spark)


@pytest.mark.slow
@pytest.mark.parametrize("semantics", ["kafka", "strict"])
def test_rows_of_a_changelog_source(lake: Lake, semantics: str) -> None:
    """
    Strict semantics follow the KTable, which an epoch changes once; those of Kafka Streams every row that came. A
    tombstone of an absent key, an equal value and a step in between have rows; a row that came too late has none.
    """
    lake.create("raw", "k INT, v STRING, seq INT", "(1, 'a', 1)")
    lake.create("right", "k INT, w STRING", "(1, 'x'), (2, 'y')")
    raw = {"key": "k", "kind": "changelog", "order_by": "seq", "tombstone": "v IS NULL"}
    sql = "SELECT raw.k, raw.v, right.w FROM raw JOIN right ON raw.k = right.k"
    lake.pipeline(sql, {"raw": raw, "right": "k"}, changelog=True, semantics=semantics)
    pipeline = Pipeline.load(lake.file)
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {raw} VALUES (1, 'b', 2), (1, 'c', 3), (2, NULL, 4)", "raw")
    lake.sql("INSERT INTO {raw} VALUES (1, 'late', 2), (1, 'c', 5), (2, 'd', 6)", "raw")
    pipeline.run(lake.spark)
    found = [(row[0], row[1], row[3], row[4]) for row in logged(lake, after=1)]
    if semantics == "strict":
        assert sorted(found) == [(1, "c", "upsert", "raw"), (2, "d", "upsert", "raw")]
    else:
        assert found == [
            (1, "b", "upsert", "raw"),
            (1, "c", "upsert", "raw"),
            (2, None, "tombstone", "raw"),
            (1, "c", "upsert", "raw"),
            (2, "d", "upsert", "raw"),
        ]
    pipeline.verify(lake.spark)
