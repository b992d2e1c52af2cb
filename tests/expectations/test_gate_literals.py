"""The gate shares the code that writes literals with the joins: what a mistake there loses is found nevertheless."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from expectations.gate import by_key
from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from lakehouse.values import pruning
from lakehouse.values.pruning import Pruning
from pipelines import Pipeline
from tests.epochs.lookup.clicks import JOIN, Clicks, begin, commit_at
from tests.lake import KEYED, Lake, only

HOLDS = "the literal predicate misses the key"
FINDS = "and a join on the key find different rows"


def _by_literals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMALL_BYTES", "LITERAL_BYTES", "BROADCAST_BYTES"):
        monkeypatch.setattr(limits, name, -1)


def _altered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the empty string for the text `@name`, as Spark does for a variable that is not set."""
    literal = pruning.literal

    def altered(value: Any, data_type: DataType) -> str:
        return literal("" if value == "@name" else value, data_type)

    monkeypatch.setattr(pruning, "literal", altered)


def _blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a predicate with the key `@name` hold for its keys and find no row, as wrong statistics of a file do."""
    predicate = Pruning.predicate

    def blind(self: Pruning, columns: Sequence[str], prefix: str = "") -> str | None:
        written = predicate(self, columns, prefix)
        misses = written is not None and not prefix and any("@name" in item.values for item in self.wanted)
        return "FALSE" if misses else written

    monkeypatch.setattr(Pruning, "predicate", blind)


@pytest.fixture
def tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, Pipeline]:
    """Give a join over a text, one row of which is about to refer to another row."""
    _by_literals(monkeypatch)
    lake.create("left", "k INT, f STRING", "(1, 'x'), (2, 'y')")
    lake.create("right", "k STRING, w STRING", "('@name', 'A'), ('x', 'B'), ('y', 'C')")
    pipeline = lake.pipeline("SELECT l.k, l.f, r.w FROM left l LEFT JOIN right r ON l.f = r.k", KEYED)
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET f = '@name' WHERE k = 1")
    return lake, pipeline


@pytest.mark.parametrize(("fault", "finding"), [(_altered, HOLDS), (_blind, FINDS)])
def test_tables_a_row_that_literals_miss_is_found(tables, monkeypatch, fault, finding):
    lake, pipeline = tables
    before = lake.version()
    with monkeypatch.context() as planted:
        fault(planted)
        with pytest.raises(GateFailed, match=finding) as failed:
            pipeline.run(lake.spark)
    assert "@name" in failed.value.found
    assert lake.version() == before
    assert only(pipeline.run(lake.spark)).outcome == "done"
    assert lake.rows() == [(1, "@name", "A"), (2, "y", "C")]


@pytest.mark.deep
@pytest.mark.parametrize(("fault", "finding"), [(_altered, HOLDS), (_blind, FINDS)])
def test_what_a_gate_without_literals_finds_is_explained_by_them(tables, monkeypatch, fault, finding):
    """Tables that are joined at once show the missed row; only then are the look-ups by literals held against them."""
    lake, pipeline = tables
    monkeypatch.setattr(limits, "BROADCAST_BYTES", 2**20)
    with monkeypatch.context() as planted:
        fault(planted)
        with pytest.raises(GateFailed, match="equals the row that the join computes") as failed:
            pipeline.run(lake.spark)
    assert finding in failed.value.found
    assert "@name" in failed.value.found
    with monkeypatch.context() as patch:
        patch.setattr(by_key, "_differing", lambda *args: pytest.fail("a table is scanned"))
        assert only(pipeline.run(lake.spark)).outcome == "done"


@pytest.mark.deep
def test_a_large_table_is_not_scanned_to_check_literals(tables, monkeypatch):
    """Beyond the limit only the keys themselves are held against the predicate."""
    lake, pipeline = tables
    monkeypatch.setattr(limits, "SCANNED_BYTES", -1)
    monkeypatch.setattr(by_key, "_differing", lambda *args: pytest.fail("a table is scanned"))
    assert only(pipeline.run(lake.spark)).outcome == "done"


@pytest.mark.parametrize(("fault", "finding"), [(_altered, HOLDS), (_blind, FINDS)])
@pytest.mark.deep
def test_a_stream_a_row_that_literals_miss_is_found(spark, tmp_path, monkeypatch, fault, finding):
    _by_literals(monkeypatch)
    lake = Clicks(spark, tmp_path / "lake")
    lake.create("clicks", "id INT, user STRING", "(1, 'x')")
    lake.create("users", "id STRING, name STRING", "('@name', 'ann'), ('x', 'cy')")
    begin(lake)
    pipeline = lake.stream(JOIN)
    pipeline.run(spark)
    lake.sql("INSERT INTO {clicks} VALUES (2, '@name')", "clicks")
    commit_at(lake, "clicks", 10)
    with monkeypatch.context() as planted:
        fault(planted)
        with pytest.raises(GateFailed, match=finding):
            pipeline.run(spark)
    pipeline.run(spark)
    assert lake.found()[-1] == (2, "@name", "ann")


def test_keys_on_the_driver_are_held_against_their_literals_without_a_job(spark: SparkSession) -> None:
    """No file is read, and no task started, to see that a predicate holds for its keys."""
    keys = by_key.driver_copy(spark.range(500).selectExpr("named_struct('k0', id, 'k1', CAST(id AS STRING)) AS key"))
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    spark.sparkContext.setJobGroup("literals", "literals")
    try:
        by_key.trusted(keys)
        assert list(jobs("literals")) == []
        spark.range(500).count()
        assert len(jobs("literals")) > 0, "what starts a job is seen"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_several_frames_are_copied_by_one_job(spark: SparkSession) -> None:
    """A frame that cannot be copied stays as it is, beside the others."""
    frames = [
        spark.range(3).selectExpr("id", "IF(id = 1, NULL, id) AS v"),
        spark.sql("SELECT parse_json('1') AS kept"),
        spark.range(2).selectExpr("id AS v", "CAST(id AS STRING) AS w"),
        spark.range(0).selectExpr("id"),
    ]
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    spark.sparkContext.setJobGroup("copies", "copies")
    try:
        copies = by_key.driver_copies(frames)
        assert len(jobs("copies")) == 1
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert copies[1] is frames[1]
    for copy, frame in zip(copies, frames, strict=True):
        assert copy.columns == frame.columns
        assert [*map(str, copy.collect())] == [*map(str, frame.collect())]


@pytest.mark.deep
def test_the_keys_looked_up_without_literals_are_others_in_each_run(spark: SparkSession) -> None:
    """A fault that a sample misses is found by a later run."""
    keys = by_key.driver_copy(spark.range(1000).selectExpr("named_struct('k0', id) AS key"))
    rows = spark.range(1000)
    known = by_key.trusted(keys)
    seen = list[set[int]]()

    def joined(part: DataFrame, some: DataFrame) -> DataFrame:
        seen.append({row.key.k0 for row in some.collect()})
        return part.join(some.select("key.k0"), on=F.expr("id = k0"), how="left_semi")

    for salt in ("one run", "another run"):
        by_key.check_rows([by_key.Lookup("t", rows, ("id",), keys, known, joined)], salt)
    assert all(limits.SAMPLED_KEYS <= len(sample) < 500 for sample in seen)
    assert seen[0] == seen[1] != seen[2]


def test_literals_of_keys_with_nulls_hold_for_each_of_them(spark, monkeypatch):
    """Keys of which parts are null are found as such, and a pattern of nulls that is left out is noticed."""
    values = "VALUES (1, NULL), (NULL, 2), (3, 4), (5, NULL) AS t(a, b)"
    keys = by_key.driver_copy(spark.sql(f"SELECT named_struct('k0', a, 'k1', b) AS key FROM {values}"))
    predicate = by_key.trusted(keys, may_be_absent=True).predicate(["a", "b"])
    assert predicate is not None
    rows = spark.sql(
        "SELECT * FROM VALUES (1, NULL), (NULL, 2), (3, 4), (5, NULL), (3, NULL), (NULL, 1), (1, 2) AS t(a, b)"
    )
    found = {tuple(row) for row in rows.where(predicate).collect()}
    assert found == {(1, None), (None, 2), (3, 4), (5, None)}
    original = by_key.null_safe_pruning
    monkeypatch.setattr(by_key, "null_safe_pruning", lambda keys: original(keys.where("key.k1 IS NULL")))
    with pytest.raises(by_key.ReadsDiffer, match=HOLDS):
        by_key.trusted(keys, may_be_absent=True)
