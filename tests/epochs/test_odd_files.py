"""Sources whose files or columns are written in unusual ways are read as Spark reads them."""

from pathlib import Path

import pytest

from tests.lake import Lake, only

STAFF, UPDATED = 12_000, 9_950
"""Rows of a table that refers to itself, and rows that one commit updates: nearly as many as literals can list."""


@pytest.mark.slow
def test_an_epoch_looks_up_many_keys_and_references_of_one_table_at_once(lake: Lake) -> None:
    """Two lists of 9,950 values each, on different columns, once overflowed the stack of a parser."""
    lake.create("staff", "id INT, boss INT, name STRING")
    rows = f"SELECT CAST(id AS INT), CAST(id + 1 AS INT), concat('n', id) FROM range({STAFF})"
    lake.sql(f"INSERT INTO {{staff}} {rows}", "staff")
    sql = "SELECT s.id, s.name, b.name AS boss FROM staff s LEFT JOIN staff b ON s.boss = b.id"
    pipeline = lake.pipeline(sql, {"staff": "id"})
    pipeline.run(lake.spark)
    lake.sql(f"UPDATE {{staff}} SET name = concat('m', id) WHERE id < {UPDATED}", "staff")
    assert only(pipeline.run(lake.spark)).counts["updated"] == UPDATED
    assert only(pipeline.verify(lake.spark)).outcome == "done"


@pytest.fixture
def by_local_time(lake: Lake) -> Lake:
    """Give tables of which one is partitioned by times that its log holds as local ones."""
    lake.create("left", "k INT, v STRING", "(1, 'a')")
    lake.create("clicks", "id INT, at TIMESTAMP")
    session = lake.spark.newSession()
    session.conf.set("spark.databricks.delta.write.utcTimestampPartitionValues", "false")
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    given = "USING delta PARTITIONED BY (t) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    session.sql(f"CREATE TABLE {lake.at('right')} (k INT, t TIMESTAMP, w STRING) {given}")
    rows = "(1, TIMESTAMP'2024-07-01 12:00:00', 'x'), (2, TIMESTAMP'2024-07-02', 'y')"
    session.sql(f"INSERT INTO {lake.at('right')} VALUES {rows}")
    return lake


NEW_YORK = {"timezone": "America/New_York"}


@pytest.mark.slow
def test_partition_values_that_are_local_times_are_read_in_the_time_zone_of_the_file(by_local_time: Lake) -> None:
    lake = by_local_time
    sql = "SELECT l.k, l.v, r.t, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, beside=NEW_YORK)
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (2, 'b')")
    assert only(pipeline.run(lake.spark)).counts["inserted"] == 1
    lake.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        shown = lake.sql("SELECT v, CAST(t AS STRING) FROM {result} ORDER BY k")
    finally:
        lake.spark.conf.unset("spark.sql.session.timeZone")
    assert [tuple(row) for row in shown] == [("a", "2024-07-01 12:00:00"), ("b", "2024-07-02 00:00:00")]


@pytest.mark.slow
def test_a_stream_looks_up_partition_values_that_are_local_times(by_local_time: Lake) -> None:
    lake = by_local_time
    sql = "SELECT c.id, r.w FROM clicks c LEFT JOIN right r ON c.at = r.t"
    sources = {"clicks": {"key": "id", "kind": "stream"}, "right": "t"}
    pipeline = lake.pipeline(sql, sources, beside=NEW_YORK)
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {clicks} VALUES (1, TIMESTAMP'2024-07-01 16:00:00Z')", "clicks")
    lake.sql("UPDATE {right} SET w = 'z' WHERE k = 2")
    pipeline.run(lake.spark)
    assert [tuple(row) for row in lake.sql("SELECT id, w FROM {result}")] == [(1, "x")]


@pytest.mark.deep
def test_files_whose_columns_differ_from_the_table_in_their_case_have_their_values(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING")
    for number, names in enumerate((("k", "name"), ("K", "Name")), start=1):
        rows = lake.spark.sql(f"SELECT {number} AS {names[0]}, 'n{number}' AS {names[1]}").coalesce(1)
        rows.write.mode("append").parquet(lake.path("right"))
    lake.spark.sql(f"CONVERT TO DELTA parquet.`{lake.path('right')}`")
    lake.sql("ALTER TABLE {right} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    pipeline = lake.pipeline("SELECT l.k, l.v, r.name FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (1, 'a'), (2, 'b')")
    assert only(pipeline.run(lake.spark)).counts["inserted"] == 2
    assert lake.rows() == [(1, "a", "n1"), (2, "b", "n2")]
    assert len(list(Path(lake.path("right")).glob("*.parquet"))) == 2


@pytest.mark.deep
def test_a_column_that_is_renamed_in_its_case_only_is_the_same_column(loaded: Lake) -> None:
    """In a source, and as an output of the statement, where the result keeps the name that it has."""
    loaded.sql("ALTER TABLE {left} CHANGE COLUMN v V STRING")
    pipeline = loaded.pipeline("SELECT l.k, l.v, r.W FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.backfill(loaded.spark)
    loaded.sql("UPDATE {left} SET V = 'd' WHERE k = 2")
    assert only(pipeline.run(loaded.spark)).counts["updated"] == 1
    loaded.sql("UPDATE {right} SET w = 'u' WHERE k = 3")
    assert only(pipeline.run(loaded.spark)).counts["updated"] == 1
    assert loaded.rows() == [(1, "a", None), (2, "d", "x"), (3, "c", "u")]
