"""Statements that run in another form than they are written in have the rows that Spark gives the written form."""

import pytest

from tests.lake import Lake

SOURCES = {"orders": "id", "customers": "id", "nations": "id", "notes": "id"}
COMMAS = (
    "SELECT o.id, o.total, c.name, n.nation, t.note FROM orders o, customers c CROSS JOIN nations n "
    "LEFT JOIN notes t ON t.id = c.note WHERE o.customer = c.id AND o.total > 5 AND c.nation = n.id"
)


def as_spark(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement over the tables of a lake, sorted by their text."""
    for name in SOURCES:
        lake.spark.read.format("delta").load(lake.path(name)).createOrReplaceTempView(name)
    return sorted((tuple(row) for row in lake.spark.sql(sql).collect()), key=repr)


def filled(lake: Lake) -> Lake:
    lake.create("orders", "id INT, customer INT, total INT", "(1, 1, 9), (2, 1, 3), (3, 2, 8), (4, NULL, 9), (5, 9, 9)")
    lake.create("customers", "id INT, name STRING, nation INT, note INT", "(1, 'a', 1, 1), (2, 'b', 2, NULL)")
    lake.create("nations", "id INT, nation STRING", "(1, 'NO'), (2, 'SE')")
    lake.create("notes", "id INT, note STRING", "(1, 'x')")
    return lake


def changed(lake: Lake) -> None:
    lake.sql("UPDATE {customers} SET nation = 3, note = 1 WHERE id = 2", "customers")
    lake.sql("INSERT INTO {nations} VALUES (3, 'DK')", "nations")
    lake.sql("UPDATE {orders} SET total = 7 WHERE id = 2", "orders")
    lake.sql("DELETE FROM {orders} WHERE id = 1", "orders")


@pytest.mark.deep
def test_commas_are_joined_from_left_to_right_as_spark_does(lake: Lake) -> None:
    """Load, one epoch of changes in each role, and verify; Spark reads the statement as it stands in the file."""
    pipeline = filled(lake).pipeline(COMMAS, SOURCES)
    pipeline.run(lake.spark)
    assert lake.rows() == as_spark(lake, COMMAS)
    assert len(lake.rows()) == 2
    changed(lake)
    (report,) = pipeline.run(lake.spark)
    assert report.strategy == "incremental"
    assert lake.rows() == as_spark(lake, COMMAS)
    assert [row[0] for row in lake.rows()] == [2, 3]
    pipeline.verify(lake.spark)


def test_a_comma_binds_no_weaker_than_a_join_in_spark(lake: Lake) -> None:
    """A RIGHT JOIN after a comma keeps its rows once, not once for each row before the comma."""
    filled(lake)
    right = "SELECT t.id FROM orders o, customers c RIGHT JOIN notes t ON t.id = c.note AND c.id > 5"
    assert as_spark(lake, right) == [(1,)]


@pytest.mark.slow
def test_appended_keys_are_columns_of_the_result(lake: Lake) -> None:
    """Many to many and a foreign key: load, one epoch of changes, and verify, with the columns that nobody wrote."""
    paired = "FROM customers c LEFT JOIN orders o ON o.customer = c.id"
    named = {"sql": "SELECT n.nation FROM customers c JOIN nations n ON c.nation = n.id", "key_columns": "append"}
    sql, options = f"SELECT c.name, o.total {paired}", {"key_columns": "append", "further": {"named": named}}
    pipeline = filled(lake).pipeline(sql, SOURCES, **options)
    pipeline.run(lake.spark)
    for change in (None, changed):
        if change is not None:
            change(lake)
            assert {report.strategy for report in pipeline.run(lake.spark)} == {"incremental"}
        assert lake.rows() == as_spark(lake, f"SELECT c.id, o.id, c.name, o.total {paired}")
        assert lake.rows("named") == as_spark(lake, "SELECT c.id, n.nation " + named["sql"].partition("nation ")[2])
    assert lake.spark.table(lake.at("result")).columns == ["c_id", "o_id", "name", "total"]
    assert lake.spark.table(lake.at("named")).columns == ["id", "nation"]
    pipeline.verify(lake.spark)
