"""Tables of another Delta writer as sources, and what lakejoin keeps read by other readers: delta-rs and DuckDB."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from tests.lake import JOIN, Lake, only


@pytest.fixture
def written(lake: Lake) -> Lake:
    for name, column in (("left", "v"), ("right", "w")):
        rows = pa.table({"k": pa.array([1, 2, 3], pa.int32()), column: [f"{column}1", f"{column}2", f"{column}3"]})
        write_deltalake(lake.path(name), rows, configuration={"delta.enableChangeDataFeed": "true"})
    return lake


def other(lake: Lake, name: str) -> DeltaTable:
    return DeltaTable(lake.path(name))


def read_elsewhere(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """Read a table with delta-rs and hand its rows to DuckDB."""
    found = QueryBuilder().register("t", other(lake, name)).execute("SELECT * FROM t")
    return in_order(duckdb.from_arrow(pa.table(found.read_all())).to_arrow_table())


def in_order(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Give rows as tuples, their times with their zones: DuckDB's own ones need another library for that."""
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=str)


def feed_elsewhere(lake: Lake, name: str, after: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Read a change feed with delta-rs, as `Lake.feed` does with Spark."""
    rows = pa.table(other(lake, name).load_cdf(starting_version=after + 1).read_all())
    columns = [column for column in rows.column_names if not column.startswith("_")]
    return sorted(((row["_change_type"], tuple(row[c] for c in columns)) for row in rows.to_pylist()), key=repr)


@pytest.mark.deep
def test_what_delta_rs_does_to_a_source_reaches_the_result(written: Lake) -> None:
    """Append, update, delete, merge, overwrite, restore, and upkeep, one run after each."""
    lake, join = written, written.pipeline()
    more = pa.table({"k": pa.array([3, 4], pa.int32()), "v": ["m3", "m4"]})

    def merge() -> None:
        merged = other(lake, "left").merge(more, "t.k = s.k", source_alias="s", target_alias="t")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()

    steps = {
        "nothing": lambda: None,
        "append": lambda: write_deltalake(
            lake.path("right"), pa.table({"k": pa.array([4], pa.int32()), "w": ["w4"]}), mode="append"
        ),
        "update": lambda: other(lake, "left").update(updates={"v": "'u'"}, predicate="k = 2"),
        "delete": lambda: other(lake, "right").delete("k = 1"),
        "merge": merge,
        "compact": lambda: other(lake, "left").optimize.compact(),
        "overwrite": lambda: write_deltalake(lake.path("left"), more, mode="overwrite"),
        "restore": lambda: other(lake, "left").restore(1),
    }
    for what, step in steps.items():
        step()
        outcome = only(join.run(lake.spark)).outcome
        assert outcome == ("nothing" if what == "compact" else "done"), what
        assert lake.rows() == meaning(lake.spark, lake), what


@pytest.mark.slow
def test_results_and_feeds_are_the_same_for_other_readers(loaded: Lake) -> None:
    """With deletion vectors, and of a changelog too."""
    lake, join = loaded, loaded.pipeline(JOIN, changelog=True)
    join.backfill(lake.spark)
    since = lake.version()
    for statement in (
        "UPDATE {left} SET v = 'n' WHERE k = 2",
        "DELETE FROM {right} WHERE k = 3",
        "INSERT INTO {left} VALUES (7, 'seven')",
    ):
        lake.sql(statement)
        join.run(lake.spark)
    for name in ("result", "result__changelog"):
        assert read_elsewhere(lake, name) == in_order(lake.spark.table(lake.at(name)).toArrow()), name
    assert feed_elsewhere(lake, "result", since) == lake.feed(since)
    ledger = other(lake, "lakejoin_ledger")
    steps = QueryBuilder().register("ledger", ledger).execute("SELECT DISTINCT step FROM ledger ORDER BY step")
    assert pa.table(steps.read_all()).column("step").to_pylist() == ["committed", "publishing"]


def meaning(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    statement = JOIN
    for name in ("left", "right"):
        statement = statement.replace(f" {name} ", f" {lake.at(name)} ")
    return sorted((tuple(row) for row in spark.sql(statement).collect()), key=repr)
