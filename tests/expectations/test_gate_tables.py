"""Faults planted into the change sets of joins of tables, their rows before the change left as they are, are found."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.errors import GateFailed
from pipelines import Pipeline
from tests.lake import KEYED, Lake, only
from tests.planted import planted


class Kind(NamedTuple):
    """A kind of join, by its statement and the keys of its sources."""

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


@pytest.fixture(params=KINDS)
def loaded(request: pytest.FixtureRequest, lake: Lake) -> Lake:
    """Give a join that was loaded, and has changes of both sources to come."""
    kind = KINDS[request.param]
    lake.create("left", ROW, "(1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 4, 'e'), (6, NULL, 'f')")
    lake.create("right", "k INT, w STRING", "(1, 'A'), (2, 'B'), (3, 'C'), (4, 'D'), (5, 'E')")
    lake.pipeline(kind.sql, kind.sources).run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'changed' WHERE k IN (1, 2)", "left")
    lake.sql("UPDATE {right} SET w = 'changed' WHERE k = 4", "right")
    lake.sql("DELETE FROM {left} WHERE k = 3", "left")
    return lake


def _image(changes: DataFrame, **values: str) -> DataFrame:
    """Alter the row after the change of key 1."""
    fields = ", ".join(f"'{n}', {values.get(n, f'after.{n}')}" for n in changes.select("after.*").columns)
    return changes.withColumn("after", F.expr(f"IF(after.k = 1, named_struct({fields}), after)"))


def _and(changes: DataFrame, key: int, op: str, before: str, after: str) -> DataFrame:
    """Add a row for another key, made from that of key 1."""
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


def test_each_fault_is_found_before_anything_is_published(loaded: Lake) -> None:
    pipeline, before = Pipeline.load(loaded.file), loaded.version()
    for fault, change in FAULTS.items():
        with planted(change), pytest.raises(GateFailed, match="nothing was published"):
            pipeline.run(loaded.spark)
        assert loaded.ledger()[-1]["step"] == "rejected", fault
    assert loaded.version() == before
    assert only(pipeline.run(loaded.spark)).outcome == "done", "what was computed itself passes"
