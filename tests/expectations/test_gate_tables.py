"""Faults planted into the change sets of joins of tables, their rows before the change left as they are, are found."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.gate import GateSources, InputTable, PlainStatement, Reference
from expectations.gate.affected import touched
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from lakehouse.ledger.entries import Entry
from lakehouse.publish.merge import STAGED_COUNTS
from lakehouse.publish.stage import Stage
from pipelines import Pipeline
from pipelines.binding.bound import BoundJoin
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Prefetched
from pipelines.epochs.tables.kind import TablesKind
from tests.cases import cases
from tests.lake import KEYED, Lake, only
from tests.planted import planted


class Kind(NamedTuple):
    sql: str
    sources: dict[str, str]


TABLE_TABLE = Kind("SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k", KEYED)
KINDS = {
    "table-table": TABLE_TABLE,
    "table-table, inner": Kind("SELECT l.k, l.v, r.w FROM left l JOIN right r ON l.k = r.k", KEYED),
    "table-table, full": Kind("SELECT k, l.v, r.w FROM left l FULL JOIN right r USING (k)", KEYED),
    "foreign-key": Kind("SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.f = r.k", KEYED),
    "foreign-key, inner": Kind("SELECT l.k, l.v, r.w FROM left l JOIN right r ON l.f = r.k", KEYED),
    "star": Kind(
        "SELECT l.k, l.v, r.w, o.w AS other FROM left l JOIN right r ON l.k = r.k LEFT JOIN right o ON l.f = o.k", KEYED
    ),
}
ROW = "k INT, f INT, v STRING"


def _loaded(lake: Lake, kind: Kind, **options: str) -> Pipeline:
    lake.create("left", ROW, "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 4, 'e'), (6, NULL, 'f')")
    lake.create("right", "k INT, w STRING", "(1, 'A'), (2, 'B'), (3, 'C'), (4, 'D'), (5, 'E')")
    pipeline = lake.pipeline(kind.sql, kind.sources, **options)
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'changed' WHERE k IN (1, 2)", "left")
    lake.sql("UPDATE {right} SET w = 'changed' WHERE k = 4", "right")
    lake.sql("DELETE FROM {left} WHERE k = 3", "left")
    return pipeline


def _image(changes: DataFrame, **values: str) -> DataFrame:
    fields = ", ".join(f"'{n}', {values.get(n, f'after.{n}')}" for n in changes.select("after.*").columns)
    return changes.withColumn("after", F.expr(f"IF(after.k = 1, named_struct({fields}), after)"))


def _and(changes: DataFrame, key: int, op: str, before: str, after: str) -> DataFrame:
    image = changes.select("before.*").columns
    other = ", ".join(f"'{n}', {key if n == 'k' else f'before.{n}'}" for n in image)
    added = changes.where("key.k = 1").select(
        F.lit(op).alias("op"),
        F.expr(f"named_struct('k', {key})").alias("key"),
        F.expr(before.format(other=f"named_struct({other})")).cast(changes.schema["before"].dataType).alias("before"),
        F.expr(after.format(other=f"named_struct({other})")).cast(changes.schema["after"].dataType).alias("after"),
    )
    return changes.unionByName(added, allowMissingColumns=True)


FAULTS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "extra tombstone of what is not there": lambda rows: _and(rows, 9, "delete", "{other}", "NULL"),
    "extra tombstone of what is there": lambda rows: rows.withColumns(
        {"op": F.expr("IF(key.k = 1, 'delete', op)"), "after": F.expr("IF(key.k = 1, NULL, after)")}
    ),
    "no-op update": lambda rows: rows.withColumn("after", F.expr("IF(key.k = 1, before, after)")),
    "dropped match": lambda rows: _image(rows, w="NULL"),
    "dropped change": lambda rows: rows.where("key.k <> 2"),
    "no change at all": lambda rows: rows.where("FALSE"),
    "duplicate key": lambda rows: rows.unionAll(rows.where("key.k = 1")),
    "wrong partner": lambda rows: _image(rows, w="'B'"),
    "row of nothing": lambda rows: _and(rows, 9, "insert", "NULL", "{other}"),
}
LEFT_OUT = ["dropped change", "no change at all"]


OFTEN = [("table-table, full", "small"), ("star", "large"), ("star", "whole"), ("table-table, full", "hashed")]
CASES = [(kind, size) for kind in KINDS for size in ("small", "between", "large", "hashed")]
CASES += [("star", "whole"), ("foreign-key", "laid out"), ("foreign-key", "laid out, hashed")]


@pytest.mark.parametrize(
    ("kind", "size"),
    [pytest.param(*case, marks=[] if case in OFTEN else pytest.mark.slow) for case in CASES],
)
def test_each_fault_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, size: str) -> None:
    """
    Small sources are read whole, of others what is needed, ahead or not; what was computed itself passes. Large change
    sets are compared by hashes; a result that is laid out by another column is read by that one.
    """
    pipeline = _loaded(lake, KINDS[kind], **({"cluster_by": "w"} if "laid out" in size else {}))
    if "hashed" in size:
        monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 2)
    if size == "whole":  # a small table among large ones
        monkeypatch.setattr(GateSources, "are_small", False)
    elif size not in ("small", "hashed"):
        monkeypatch.setattr(limits, "SMALL_BYTES", -1)
    if size == "large" or "laid out" in size:
        monkeypatch.setattr(limits, "LITERAL_BYTES", -1)
        monkeypatch.setattr(limits, "BROADCAST_BYTES", -1)
    found: dict[str, tuple[str, ...]] = {}

    gate = TablesKind.gate

    def gate_all(
        kind: TablesKind, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None
    ) -> Verdict:
        assert prefetched is not None
        assert (prefetched.rows is None) == (size == "small" or "hashed" in size)
        for number, (fault, change) in enumerate(FAULTS.items()):
            faulty = Stage(f"{stage.path}-{number}", stage.files)
            counts = faulty.put("result", change(stage.get(lake.spark, "result")), STAGED_COUNTS)
            planted = replace(entry, writes=(*entry.writes[:-1], replace(entry.writes[-1], **counts)))
            found[fault] = gate(kind, epoch, faulty, planted, prefetched).findings
            if prefetched.rows is not None:
                assert set(gate(kind, epoch, faulty, planted, None).findings) == set(found[fault])
        return gate(kind, epoch, stage, entry, prefetched)

    monkeypatch.setattr(TablesKind, "gate", gate_all)
    assert only(pipeline.run(lake.spark)).outcome == "done"
    # Of large sources the touched keys are on the driver, or what a change set leaves out is not searched for.
    unseen = LEFT_OUT if size == "laid out, hashed" else []
    assert [fault for fault in FAULTS if not found[fault]] == unseen


REVERSED = "map_from_entries(reverse(map_entries({})))"
VALUES = "k INT, m MAP<STRING, INT>, d DOUBLE"


@cases("column, value", ("m", REVERSED.format("after.m")), ("d", "-after.d"), ids=["a map", "a zero"])
@pytest.mark.deep
def test_a_staged_value_that_only_an_expression_tells_apart_is_found(lake: Lake, column: str, value: str) -> None:
    """A map in another order and 0.0 for -0.0 compare as equal, and are other values to a cast."""
    lake.create("left", VALUES, "(1, map('a', 1, 'b', 2), 0.0D)")
    lake.create("right", "k INT, w STRING", "(1, 'A')")
    pipeline = lake.pipeline("SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("UPDATE {right} SET w = 'B'", "right")
    with (
        planted(lambda rows: _image(rows, **{column: value})),
        pytest.raises(GateFailed, match="that the join computes from its sources"),
    ):
        pipeline.run(lake.spark)
    assert only(pipeline.run(lake.spark)).outcome == "done"


@pytest.mark.deep
def test_a_published_value_may_differ_from_the_source_by_the_order_of_a_map(lake: Lake) -> None:
    """A change that only reorders a map or signs a zero is none of the result, and the next one of the row passes."""
    lake.create("left", VALUES, "(1, map('a', 1, 'b', 2), 0.0D)")
    lake.create("right", "k INT, w STRING", "(1, 'A')")
    pipeline = lake.pipeline("SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql(f"UPDATE {{left}} SET m = {REVERSED.format('m')}, d = -d", "left")
    assert only(pipeline.run(lake.spark)).outcome == "done"
    lake.sql("UPDATE {right} SET w = 'B'", "right")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    assert lake.rows()[0][-1] == "B"
    only(pipeline.verify(lake.spark))


@pytest.mark.deep
def test_a_source_with_many_changes_does_not_crowd_out_another(spark, monkeypatch):
    """Each changed source has its share of the rows that are looked at for what is left out."""
    monkeypatch.setattr(limits, "SEARCHED_ROWS", 6)
    statement = PlainStatement(("l", "r"), (("left", "l.f = r.k"),), None, (("k", "l.k"),))
    left = spark.range(100).selectExpr("id AS k", "IF(id < 90, 0, 1) AS f")
    right = spark.range(5).selectExpr("CAST(id AS INT) AS k")
    changed = [left.where("k < 50"), right.where("k = 1")]
    keys = [rows.selectExpr("named_struct('k0', k) AS key") for rows in changed]
    inputs = [
        InputTable(rows, ("k",), (rows.schema["k"].dataType,), some)
        for rows, some in zip((left, right), keys, strict=True)
    ]
    affected_keys = touched(GateSources(statement, inputs, (0,), (Reference(1, 0, ("l.f",)),)))
    assert affected_keys is not None
    found = [row.key.k0 for row in affected_keys.collect()]
    assert (sum(k < 50 for k in found), sum(k >= 90 for k in found)) == (3, 3)


@pytest.mark.deep
def test_a_reference_under_a_collation_is_found(spark: SparkSession) -> None:
    """Spark's hashes of equal texts differ there."""
    statement = PlainStatement(("l", "r"), (("left", "l.f = r.k"),), None, (("k", "l.k"),))
    left = spark.range(3).selectExpr("id AS k", "IF(id = 1, 'abc', 'x') COLLATE UTF8_LCASE AS f")
    right = spark.sql("SELECT 'ABC' COLLATE UTF8_LCASE AS k")
    changed = right.selectExpr("named_struct('k0', k) AS key")
    inputs = [
        InputTable(left, ("k",), (left.schema["k"].dataType,)),
        InputTable(right, ("k",), (right.schema["k"].dataType,), changed),
    ]
    affected_keys = touched(GateSources(statement, inputs, (0,), (Reference(1, 0, ("l.f",)),)))
    assert affected_keys is not None
    assert [row.key.k0 for row in affected_keys.collect()] == [1]


@pytest.mark.deep
def test_what_fails_is_not_published(lake: Lake) -> None:
    pipeline = _loaded(lake, KINDS["foreign-key"])
    before = lake.version()
    with planted(FAULTS["wrong partner"]), pytest.raises(GateFailed, match="the row that the join computes"):
        pipeline.run(lake.spark)
    assert lake.ledger()[-1]["step"] == "rejected"
    assert lake.version() == before
    assert only(pipeline.run(lake.spark)).outcome == "done"
