"""The forms of a result in which hashes stand for columns: equal for equal rows, whichever way they are made."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from lakehouse.values.compare import plain_schema
from pipelines.joins.meaning import hashed_meaning, hashed_rows, meaning

from .epochs import bound

TABLES = {
    "a": ("k INT, x STRING, y DOUBLE, ref INT", "(1, 'u', 0.0, 1), (2, NULL, NULL, 2), (3, 'w', DOUBLE('NaN'), NULL)"),
    "b": ("k INT, x STRING, y DOUBLE", "(1, 'u', -0.0), (2, NULL, NULL), (4, 'z', 1.5)"),
    "c": ("k INT, m MAP<STRING, INT>, n STRING", "(1, map('p', 1, 'q', NULL), NULL), (2, NULL, NULL)"),
}
STATEMENTS = {
    "swapped": "SELECT a.k, b.x, b.y, a.y AS other, a.x AS another FROM a {} JOIN b ON a.k = b.k",
    "renamed": "SELECT a.k, b.y AS x, b.x AS y, coalesce(a.ref, b.k) AS ref FROM a {} JOIN b ON a.k = b.k",
    "one column": "SELECT a.k, a.x, b.x AS y FROM a {} JOIN b ON a.k = b.k WHERE a.ref > 0",
    "referenced": "SELECT a.*, c.n, c.m, c.n AS again FROM a {} JOIN c ON a.ref = c.k",
    "many": "SELECT a.k, b.k AS b, a.x, a.y, b.x AS u, b.y AS v FROM a {} JOIN b ON a.x = b.x",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_join_of_hashes_is_the_hash_of_the_join(spark: SparkSession, name: str) -> None:
    frames = {
        table: spark.createDataFrame([], columns).unionAll(spark.sql(f"SELECT * FROM VALUES {rows}"))
        for table, (columns, rows) in TABLES.items()
    }
    for how in ("inner", "left"):
        sql = STATEMENTS[name].format(how)
        schemas = {table: frame.schema for table, frame in frames.items() if f"{table}." in sql}
        join = bound(sql, {table: ["k"] for table in schemas}, schemas)
        inputs = [frames[item.source] for item in join.inputs]
        whole = meaning(inputs, join)
        columns = plain_schema(whole.schema.fields)
        made = hashed_meaning(inputs, join, columns)
        expected = hashed_rows(whole, join, columns).select(*made.columns)
        assert Counter(map(str, made.collect())) == Counter(map(str, expected.collect()))
        assert len(made.columns) <= len(columns)
