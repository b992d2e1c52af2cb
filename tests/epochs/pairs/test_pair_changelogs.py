"""`changelog: true` of joins in which rows match in any number, through real Delta tables and the driver."""

import random
import re
from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.published import read_range
from pipelines.commands.validate import validate_joins
from pipelines.joins import segments
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.lake import only

from .test_pairing import JOINS, A, B, G, Pairs

SEED = 5


class Logged(Pairs):
    options = MappingProxyType({"changelog": True})

    def logged(self, name: str, after: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return what the changelog has after an epoch, commit by commit: its cause, and the operations and rows."""
        rows = self.spark.read.format("delta").load(self.path(f"{name}__changelog")).where(F.col("_epoch") > after)
        rows = rows.orderBy("_epoch", "_position", "_op")
        commits: dict[tuple[int, int], list[Any]] = {}
        for row in rows.collect():
            commits.setdefault((row["_epoch"], row["_position"]), []).append(row)
        found = []
        for of in commits.values():
            (cause,) = {row["_cause"] for row in of}
            cells = [(row["_op"], *(row[column] for column in rows.columns if column[0] != "_")) for row in of]
            found.append((cause, sorted(cells, key=repr)))
        return found


def steps(before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return what the changelog has of a commit that leads from one result to another; a key has two parts."""
    old, new = ({row[:2]: row for row in rows} for rows in (before - after, after - before))
    tombstones = [("tombstone", *key, *(None for _ in row[2:])) for key, row in old.items() if key not in new]
    return sorted([*tombstones, *(("upsert", *row) for row in new.values())], key=repr)


@pytest.mark.slow
@cases(
    "few, names, epochs",
    pytest.param(True, ("many_full",), 1, id="through the driver"),
    pytest.param(False, ("many_full",), 1, id="through the stage"),
    pytest.param(True, ("through",), 2, id="by look-ups, through the driver"),
    pytest.param(True, tuple(JOINS), 4, id="all through the driver"),
    pytest.param(False, tuple(JOINS), 3, id="all through the stage"),
)
def test_changelogs_of_random_histories(spark, tmp_path, monkeypatch, few, names, epochs):
    """The changelog has what each commit changes in the statement over the tables, with its cause, in their order."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    lake, script = Logged(spark, tmp_path), random.Random(SEED)
    lake.fill(script)
    joins = {name: JOINS[name] for name in names}
    pipeline = lake.joins(joins)
    held = lake.meanings(joins)
    pipeline.run(spark)
    for name, rows in held.items():
        assert lake.logged(name, 0) == [("backfill", steps(Counter(), rows))]
    for epoch in range(1, epochs + 1):
        start, expected, told = held, {name: [] for name in names}, []
        for _ in range(4):
            told.append(lake.commit(script))
            (cause,) = set(re.findall(r"{(\w)}", told[-1]))
            before, held = held, lake.meanings(joins)
            for name in joins:
                if before[name] != held[name]:
                    expected[name].append((cause, steps(before[name], held[name])))
        story = f"seed {SEED}, epoch {epoch}, after {told}"
        lake.follow(lake.joins(joins), joins, start, story)
        for name in joins:
            assert lake.logged(name, epoch) == expected[name], f"{name}, {story}"
    reports = pipeline.verify(spark)
    assert all("the changelog agrees with them" in report.text() for report in reports)


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """Return customers with their orders: one with none, one with one, one with two."""
    lake = Logged(spark, tmp_path_factory.mktemp("logged"))
    lake.create("a", A)
    lake.create("b", B)
    lake.sql("INSERT INTO {a} VALUES (1, 'none', 1), (2, 'one', 1), (3, 'two', 1)", "a")
    lake.sql("INSERT INTO {b} VALUES (20, 'one', 5, 1), (30, 'two', 5, 1), (31, 'two', 5, 1)", "b")
    customers(lake).run(spark)
    return lake


def customers(lake: Logged) -> Pipeline:
    return lake.joins({"result": "SELECT a.aid, b.bid, a.v, b.w FROM a LEFT JOIN b ON a.city = b.city"})


@pytest.mark.slow
def test_rows_of_an_epoch_of_several_commits(loaded: Logged, tmp_path: Path) -> None:
    """
    A first order replaces the row without one at the same position, and a last one is followed by it. What goes and
    comes back has its rows, although the result does not change.
    """
    lake = loaded.copy(tmp_path / "lake")
    lake.sql("INSERT INTO {b} VALUES (10, 'none', 6, 1)", "b")
    lake.sql("UPDATE {a} SET v = 2 WHERE aid = 3", "a")
    lake.sql("UPDATE {b} SET city = 'two' WHERE bid = 20", "b")
    lake.sql("DELETE FROM {b} WHERE bid = 31", "b")
    report = only(customers(lake).run(lake.spark))
    assert lake.logged("result", 1) == [
        ("b", [("tombstone", 1, None, None, None), ("upsert", 1, 10, 1, 6)]),
        ("a", [("upsert", 3, 30, 2, 5), ("upsert", 3, 31, 2, 5)]),
        ("b", [("tombstone", 2, 20, None, None), ("upsert", 2, None, 1, None), ("upsert", 3, 20, 2, 5)]),
        ("b", [("tombstone", 3, 31, None, None)]),
    ]
    assert (report.changed, report.counts["changelog"]) == (7, 8)
    version = lake.version()
    lake.sql("UPDATE {b} SET city = 'nobody' WHERE bid = 10", "b")
    lake.sql("UPDATE {b} SET city = 'none' WHERE bid = 10", "b")
    customers(lake).run(lake.spark)
    assert lake.logged("result", 2) == [
        ("b", [("tombstone", 1, 10, None, None), ("upsert", 1, None, 1, None)]),
        ("b", [("tombstone", 1, None, None, None), ("upsert", 1, 10, 1, 6)]),
    ]
    assert lake.version() == version
    workspace = Workspace.open(lake.spark, customers(lake).file, lake.folder)
    for epochs in ("", "2..3"):
        (report,) = validate_joins(workspace, None, read_range(epochs, ""))
        assert (report.outcome, report.error) == ("done", None), report.text()


def no_look_up_of_others(patch: pytest.MonkeyPatch) -> None:
    """Let a partner stand alone as soon as it matches no touched row."""
    patch.setattr(segments._Segments, "_without", lambda found, keys, others: keys)


def without_ends(patch: pytest.MonkeyPatch) -> None:
    real = segments._steps
    patch.setattr(segments, "_steps", lambda *given: real(*given).where("new IS NOT NULL"))


def without_keys(patch: pytest.MonkeyPatch) -> None:
    real = segments._steps
    no_key = "IF(new IS NULL, NULL, named_struct('aid', INT(NULL), 'bid', INT(NULL), 'v', new.v, 'w', new.w))"
    patch.setattr(segments, "_steps", lambda *given: real(*given).withColumn("new", F.expr(no_key)))


@cases(
    "fault, told",
    (no_look_up_of_others, "the last changelog row of a key equals the result"),
    (without_ends, "every change of the result has a row in the changelog"),
    (without_keys, "a part of the key is present"),
)
@pytest.mark.slow
def test_the_gate_finds_planted_faults(loaded, tmp_path, monkeypatch, fault, told):
    lake = loaded.copy(tmp_path / "lake")
    lake.sql("DELETE FROM {b} WHERE bid = 31", "b")
    lake.sql("INSERT INTO {b} VALUES (10, 'none', 6, 1)", "b")
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises(GateFailed, match=told):
            customers(lake).run(lake.spark)
    assert lake.logged("result", 1) == []


@pytest.mark.slow
def test_a_backfill_appends_each_real_difference(loaded: Logged, tmp_path: Path) -> None:
    """Whatever the changelog lacks comes as one row for each key, also where parts of a key are null."""
    lake = loaded.copy(tmp_path / "lake")
    lake.sql("DELETE FROM {b} WHERE bid >= 30", "b")
    lake.sql("UPDATE {a} SET v = 3 WHERE aid = 1", "a")
    lake.sql("UPDATE {result} SET v = 9 WHERE bid = 20")
    for options in ({"slices": 2}, {}):
        only(customers(lake).backfill(lake.spark, **options))
        rows = sorted(row for _, of in lake.logged("result", 1) for row in of)
        assert rows == [
            ("tombstone", 3, 30, None, None),
            ("tombstone", 3, 31, None, None),
            ("upsert", 1, None, 3, None),
            ("upsert", 3, None, 1, None),
        ], options
    customers(lake).verify(lake.spark)


@pytest.mark.slow
def test_a_chain_follows_the_changelog_of_pairs(loaded: Logged, tmp_path: Path) -> None:
    """A join that reads an inner join of this kind has a row for each step of its pairs."""
    lake = loaded.copy(tmp_path / "lake")
    lake.create("g", G)
    lake.sql("INSERT INTO {g} VALUES (1, 'p'), (2, 'q')", "g")
    pipeline = lake.joins(
        {
            "pairs": "SELECT a.aid, b.bid, a.v FROM a JOIN b ON a.city = b.city",
            "named": "SELECT p.aid, p.bid, g.g FROM pairs p LEFT JOIN g ON p.v = g.gid",
        }
    )
    pipeline.run(lake.spark)
    lake.sql("UPDATE {a} SET v = 2 WHERE aid = 3", "a")
    lake.sql("UPDATE {g} SET g = 'r' WHERE gid = 2", "g")
    lake.sql("DELETE FROM {b} WHERE bid = 30", "b")
    lake.sql("UPDATE {b} SET city = 'none' WHERE bid = 20", "b")
    pipeline.run(lake.spark)
    assert lake.logged("named", 1) == [
        ("pairs", [("upsert", 3, 30, "q"), ("upsert", 3, 31, "q")]),
        ("g", [("upsert", 3, 30, "r"), ("upsert", 3, 31, "r")]),
        ("pairs", [("tombstone", 3, 30, None)]),
        ("pairs", [("tombstone", 2, 20, None), ("upsert", 1, 20, "p")]),
    ]
    pipeline.verify(lake.spark)
