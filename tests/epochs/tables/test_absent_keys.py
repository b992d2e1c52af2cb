"""Joins that read results whose rows may lack a side, through real Delta tables and the driver."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import limits
from lakehouse.errors.errors import DefinitionChanged, DuplicateKey, GateFailed, PipelineFileError
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.published import read_range
from pipelines.commands.validate import validate_joins
from pipelines.epochs.sources import feeds
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.epochs.pairs.test_pairing import Pairs
from tests.lake import Lake, only
from tests.pipeline_files import write

SOURCES = {"a": "aid", "b": "bid", "g": "gid", "f": "fid"}
PARTS = [1, 2, 3, 4, "NULL"]
UPSTREAM = {
    "every": "SELECT a.aid, b.bid, a.v, b.w FROM a FULL JOIN b ON a.city = b.city",
    "some": "SELECT a.aid, b.bid, b.gref FROM a LEFT JOIN b ON a.city = b.city AND a.v <> b.w",
}
READERS = {
    "driving": "SELECT r.*, g.g FROM every r LEFT JOIN g ON r.v = g.gid",
    "looked_up": "SELECT f.fid, f.aid, r.v, r.w FROM f LEFT JOIN every r ON f.aid <=> r.aid AND f.bid <=> r.bid",
    "whole": "SELECT coalesce(d.aid, s.aid) AS aid, coalesce(d.bid, s.bid) AS bid, d.v, d.g, s.gref "
    "FROM driving d FULL JOIN some s ON d.aid <=> s.aid AND d.bid <=> s.bid",
    "many": "SELECT r.aid, r.bid, f.fid, r.gref, f.u FROM whole r LEFT JOIN f ON r.bid = f.u",
}
MORE = {
    "driving_inner": "SELECT r.*, g.g FROM every r JOIN g ON r.w = g.gid WHERE r.w > 0",
    "looked_up_inner": "SELECT f.fid, r.v, r.w FROM f JOIN every r ON f.aid = r.aid AND f.bid = r.bid",
    "looked_up_by_both": "SELECT f.fid, r.v, g.g FROM f LEFT JOIN every r ON f.aid = r.aid AND f.bid <=> r.bid "
    "LEFT JOIN g ON r.w = g.gid",
    "whole_inner": "SELECT r.aid, r.bid, r.v, s.gref FROM every r JOIN some s ON r.aid <=> s.aid AND r.bid <=> s.bid",
    "whole_left": "SELECT r.aid, r.bid, r.v, s.gref FROM every r LEFT JOIN some s ON r.aid = s.aid AND r.bid = s.bid",
    "many_full": "SELECT r.aid, r.bid, s.aid AS sid, s.bid AS tid, r.w, s.gref FROM every r "
    "FULL JOIN some s ON r.bid <=> s.bid AND r.v <> s.gref",
    "many_inner": "SELECT r.aid, r.bid, b.bid AS other, r.v, b.w FROM every r JOIN b ON r.aid = b.w",
}
KEYS = {"looked_up": 1, "looked_up_inner": 1, "looked_up_by_both": 1, "many": 3, "many_inner": 3, "many_full": 4}


class Readers(Pairs):
    """Tables, the results of two joins of them, and what reads these."""

    sources = SOURCES

    def fill(self, script: random.Random) -> None:
        super().fill(script)
        self.create("f", "fid INT, aid INT, bid INT, u INT")
        self.sql(f"INSERT INTO {{f}} VALUES {self._references(script, 9)}", "f")

    def _references(self, script: random.Random, number: int) -> str:
        parts = [[script.choice(range(1, 12)), "NULL"] for _ in range(number)]
        rows = ((*script.choice([(one, other), (other, one), (one, one)]), one) for one, other in parts)
        return ", ".join(f"({fid}, {', '.join(map(str, row))})" for fid, row in enumerate(rows))

    def commit(self, script: random.Random) -> str:
        if script.random() < 0.8:
            return super().commit(script)
        rows = self._references(script, 9)
        statement = f"DELETE FROM {{f}} WHERE fid % 3 = {script.randrange(3)}"
        self.sql(statement, "f")
        merge = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        named = f"SELECT * FROM VALUES {rows} AS s(fid, aid, bid, u)"
        self.sql(f"MERGE INTO {{f}} t USING ({named}) s ON t.fid = s.fid {merge}", "f")
        return f"{statement}, {rows}"


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Readers:
    lake = Readers(spark, tmp_path_factory.mktemp("readers"))
    lake.fill(random.Random(5))
    lake.joins(UPSTREAM | READERS).run(spark)
    return lake


@pytest.mark.slow
@cases(
    "few, small, joins, epochs, seed",
    pytest.param(True, False, READERS, 1, 1, id="through the driver"),
    pytest.param(False, False, {"looked_up": READERS["looked_up"]}, 1, 2, id="through the stage"),
    pytest.param(True, False, READERS | MORE, 5, 3, id="all through the driver"),
    pytest.param(False, False, READERS | MORE, 2, 4, id="all through the stage"),
    pytest.param(True, True, READERS | MORE, 2, 5, id="all of small tables"),
)
def test_results_and_feeds_of_random_histories(filled, tmp_path, monkeypatch, few, small, joins, epochs, seed):
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    for limit in () if small else ("SMALL_BYTES", "LITERAL_BYTES", "WHOLE_BYTES", "BROADCAST_BYTES"):
        monkeypatch.setattr(limits, limit, 0)  # as in large tables
    lake, script = filled.copy(tmp_path / "lake"), random.Random(seed)
    needed = UPSTREAM if "driving" in joins else {"every": UPSTREAM["every"]}
    joins = needed | joins
    pipeline = lake.joins(joins)
    if joins.keys() & MORE.keys():
        pipeline.run(lake.spark)
    before = lake.meanings(joins)
    for epoch in range(epochs):
        told = [lake.commit(script) for _ in range(4)]
        before = lake.follow(pipeline, joins, before, f"seed {seed}, epoch {epoch}, after {told}", KEYS)
        reports = pipeline.verify(lake.spark, quick=epoch % 2 == 1 or not few)
        assert [report.outcome for report in reports] == ["done"] * len(joins)


@pytest.mark.slow
def test_a_backfill_reconciles_rows_that_lack_a_side(filled: Readers, tmp_path: Path) -> None:
    lake = filled.copy(tmp_path / "lake")
    name = "whole"
    expected = Counter(lake.rows(name))
    joins = {key: sql for key, sql in (UPSTREAM | READERS).items() if key not in ("looked_up", "many")}
    for options in ({"slices": 2}, {"where": "aid IS NULL OR bid IS NULL"}):
        lake.sql("DELETE FROM {whole} WHERE bid IS NULL", name)
        lake.sql("UPDATE {whole} SET v = 77, gref = NULL WHERE aid IS NULL", name)
        only(lake.joins(joins).backfill(lake.spark, select=[name], **options))
        assert Counter(lake.rows(name)) == expected, options
    lake.sql("INSERT INTO {whole} VALUES (NULL, NULL, 1, 'g', 1)", name)
    with pytest.raises(DuplicateKey, match="rows without a key"):
        lake.joins(joins).backfill(lake.spark, select=[name])


@pytest.mark.slow
def test_published_rows_meet_their_suites(filled: Readers, tmp_path: Path) -> None:
    """`validate` knows that parts of the keys may be null, also further downstream."""
    lake = filled.copy(tmp_path / "lake")
    workspace = Workspace.open(lake.spark, lake.joins(UPSTREAM | READERS).file, lake.folder)
    reports = validate_joins(workspace, ["driving", "whole", "many"], read_range("", ""))
    assert [(report.outcome, report.error) for report in reports] == [("done", None)] * 3


def as_if_never_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    net = feeds.net
    monkeypatch.setattr(feeds, "net", lambda *given, may_be_absent: net(*given))


@pytest.mark.slow
def test_the_gate_finds_rows_that_were_skipped(filled, tmp_path, monkeypatch):
    lake = filled.copy(tmp_path / "lake")
    lake.sql("INSERT INTO {a} VALUES (90, 'nowhere', 2)", "a")
    joins = {name: (UPSTREAM | READERS)[name] for name in ("every", "driving")}
    lake.joins(joins).run(lake.spark, select=["every"])
    as_if_never_absent(monkeypatch)
    with pytest.raises(GateFailed, match="the result changes wherever"):
        lake.joins(joins).run(lake.spark, select=["driving"])


INNER = {"every": UPSTREAM["every"].replace("FULL", "INNER")}
BOTH = "SELECT coalesce(x.aid, y.aid) AS aid, coalesce(x.bid, y.bid) AS bid, x.v FROM every x FULL JOIN some y ON "
OF_EVERY = "SELECT f.fid, r.v FROM f JOIN every r ON f.aid = r.aid AND f.bid = r.bid"


@cases(
    "sql, told",
    (BOTH + "x.aid <=> y.aid AND x.bid = y.bid", r"two rows for one key.*`x\.bid <=> y\.bid`"),
    (
        "SELECT aid, bid, x.v FROM every x FULL JOIN some y USING (aid, bid)",
        r"two rows for one key.*`x\.aid <=> y\.aid`",
    ),
    ("SELECT f.fid, r.v FROM f FULL JOIN every r ON f.aid <=> r.aid AND f.bid <=> r.bid", r"no key without `r\.aid`"),
)
def test_messages_say_what_to_write(lake: Lake, sql: str, told: str) -> None:
    with pytest.raises(PipelineFileError, match=f"(?s){told}"):
        lake.pipeline(sql, SOURCES, further=UPSTREAM)


@pytest.mark.slow
def test_changelogs_over_rows_that_may_lack_a_side(spark: SparkSession, tmp_path: Path) -> None:
    """The changelog of the join before is kept without being asked for, and its steps lead to those of this one."""
    lake, script = Readers(spark, tmp_path), random.Random(5)
    lake.fill(script)
    further = {"every": UPSTREAM["every"]}
    pipeline = lake.pipeline(READERS["driving"], SOURCES, "driving", further, changelog=True)
    pipeline.run(spark)
    for _ in range(2):
        for _ in range(4):
            lake.commit(script)
        pipeline.run(spark)
        pipeline.verify(spark)
    absent = "SELECT count(*) FROM {driving__changelog} WHERE (aid IS NULL OR bid IS NULL) AND _epoch > 1"
    assert lake.sql(absent, "driving__changelog")[0][0]


@pytest.mark.slow
def test_another_pipeline_says_what_nulls_in_the_key_of_a_result_mean(lake: Lake) -> None:
    """The result says in its table properties that its rows may lack a side; no such row is skipped in silence."""
    spark = lake.spark
    lake.create("a", "aid INT, city STRING, v INT", "(1, 'x', 1), (2, 'y', 2)")
    lake.create("b", "bid INT, city STRING, w INT", "(1, 'x', 1), (3, 'z', 3)")
    lake.create("g", "gid INT, g STRING", "(1, 'one'), (2, 'two')")
    lake.pipeline(INNER["every"], {"a": "aid", "b": "bid"}, "every").run(spark)
    every = lake.pipeline(UPSTREAM["every"], {"a": "aid", "b": "bid"}, "every")
    every.backfill(spark)  # from here on parts of the key may be null

    def reader(storage: str, **options: bool) -> Pipeline:
        every = {"key": ["aid", "bid"], "path": "./lake/every", **options}
        sources = {"every": every, "g": {"key": "gid", "path": "./lake/g"}}
        joins, beside = {"result": READERS["driving"]}, {"pipeline": "reader", "storage": {"path": f"./{storage}"}}
        return Pipeline.load(write(lake.folder / "reader.yaml", sources, joins, **beside))

    def found() -> set[tuple[Any, ...]]:
        return set(map(tuple, spark.sql(f"SELECT * FROM delta.`{lake.folder}/taking/result`").collect()))

    with pytest.raises(PipelineFileError, match=r"(?s)sources\.every.*`nullable_key: true`"):
        reader("taking").run(spark)
    assert only(reader("taking", nullable_key=True).run(spark)).counts["null_keys"] == 0
    assert found() == {(1, 1, 1, 1, "one"), (2, None, 2, None, "two"), (None, 3, None, 3, None)}
    lake.sql("DELETE FROM {b} WHERE bid = 1", "b")
    every.run(spark)
    only(reader("taking", nullable_key=True).run(spark))
    assert found() == {(1, None, 1, None, "one"), (2, None, 2, None, "two"), (None, 3, None, 3, None)}
    with pytest.raises(DefinitionChanged):
        reader("taking", nullable_key=False).run(spark)
    skipping = only(reader("skipping", nullable_key=False).run(spark))
    assert (skipping.counts["null_keys"], skipping.counts["inserted"]) == (3, 0)
