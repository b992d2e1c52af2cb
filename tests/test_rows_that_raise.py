"""A row for which the statement raises stops its own join with an error about that row, until it is mended."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError, RowFailed
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_joins
from pipelines.report import JoinReport
from tests.cases import cases
from tests.epochs.lookup.clicks import begin, commit_at
from tests.lake import Lake, only

RATE = "SELECT o.id, c.name, 100 DIV o.amount AS rate FROM orders o LEFT JOIN customers c ON o.customer = c.id"
SOURCES = {"orders": "id", "customers": "id"}


def reports(pipeline: Pipeline, spark: SparkSession) -> dict[str, JoinReport]:
    return {report.join: report for report in run_joins(Workspace.open(spark, pipeline.file, pipeline.folder))}


@pytest.fixture
def orders(lake: Lake) -> Lake:
    lake.create("orders", "id INT, customer INT, amount INT, t STRING", "(1, 1, 5, '1'), (2, 2, 4, '2')")
    lake.create("customers", "id INT, name STRING", "(1, 'Ann'), (2, 'Bo')")
    begin(lake)
    return lake


def test_the_row_is_named_other_joins_run_and_a_mended_row_passes(orders: Lake) -> None:
    """In an epoch, with a changelog and in a chain: the next run goes on by itself."""
    spark, further = orders.spark, {"chained": "SELECT r.id, r.rate FROM rates r JOIN orders o ON r.id = o.id"}
    further["others"] = "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    pipeline = orders.pipeline(RATE, SOURCES, "rates", further, changelog=True)
    pipeline.run(spark)
    orders.sql("INSERT INTO {orders} VALUES (3, 1, 0, '3'), (4, 1, 0, '4'), (5, 1, 2, '5')", "orders")
    found = reports(pipeline, spark)
    error = found["rates"].error
    assert isinstance(error, RowFailed)
    assert error.where == "orders"
    assert "`100 DIV" in error.problem
    assert "DIVIDE_BY_ZERO" in error.found
    assert "o.id = 3; o.id = 4" in error.found
    assert "NULLIF" in error.hint
    assert "ansi" not in error.message.lower()
    assert [found[name].outcome for name in ("chained", "others")] == ["skipped", "done"]
    orders.sql("UPDATE {orders} SET amount = 1 WHERE amount = 0", "orders")
    found = reports(pipeline, spark)
    assert {report.outcome for report in found.values()} == {"done"} | {found["others"].outcome}
    assert found["rates"].counts["inserted"] == 3
    assert only(pipeline.verify(spark, ["rates"])).outcome == "done"


@pytest.mark.deep
def test_a_first_load_begins_anew_once_the_row_is_mended(orders: Lake) -> None:
    spark, pipeline = orders.spark, orders.pipeline(RATE.replace("o.amount", "CAST(o.t AS INT)"), SOURCES)
    orders.sql("INSERT INTO {orders} VALUES (3, 1, 1, 'three')", "orders")
    for _ in range(2):
        with pytest.raises(RowFailed, match=r"o\.id = 3") as error:
            pipeline.run(spark)
        assert "CAST_INVALID_INPUT" in error.value.found
    assert not orders.is_there("result")
    orders.sql("UPDATE {orders} SET t = '3' WHERE id = 3", "orders")
    assert only(pipeline.run(spark)).strategy == "load"
    assert only(pipeline.verify(spark)).outcome == "done"


@pytest.mark.slow
def test_verify_and_a_backfill_name_the_row_of_two_inputs(orders: Lake) -> None:
    spark = orders.spark
    orders.create("rates", "id INT, part INT", "(1, 1), (2, 2)")
    sql = "SELECT o.id, o.amount DIV r.part AS n FROM orders o JOIN rates r ON o.customer = r.id"
    pipeline = orders.pipeline(sql, {"orders": "id", "rates": "id"})
    pipeline.run(spark)
    orders.sql("UPDATE {rates} SET part = 0 WHERE id = 2", "rates")
    for command in (pipeline.run, pipeline.backfill, lambda spark: pipeline.backfill(spark, dry_run=True)):
        with pytest.raises(RowFailed, match=r"o\.id = 2, r\.id = 2"):
            command(spark)
    orders.sql("UPDATE {rates} SET part = 2 WHERE id = 2", "rates")
    assert only(pipeline.run(spark)).outcome == "done"
    assert only(pipeline.verify(spark)).outcome == "done"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, pytest.param(200, marks=pytest.mark.deep)])
def test_a_stream_passes_the_row_by_a_changed_statement_without_losing_its_history(orders, rows, monkeypatch):
    """The rows that met the table as it was stay as they are."""
    spark = orders.spark
    if rows > 1:  # the rows of the result are computed where they are appended
        monkeypatch.setattr("lakehouse.limits.CHANGES_VIA_DRIVER", 10)
    sources: dict[str, Any] = {"orders": {"key": "id", "kind": "stream"}, "customers": "id"}
    pipeline = orders.pipeline(RATE, sources)
    pipeline.run(spark)
    orders.sql("UPDATE {customers} SET name = 'Anne' WHERE id = 1", "customers")
    commit_at(orders, "customers", 10)
    news = f"SELECT CAST(id AS INT), 1, IF(id = 100, 0, 1), '' FROM range(100, {100 + rows})"
    orders.sql(f"INSERT INTO {{orders}} {news}", "orders")
    commit_at(orders, "orders", 20)
    for _ in range(2):
        with pytest.raises(RowFailed, match="id = 100") as error:
            pipeline.run(spark)
    assert "backfill --accept" in error.value.hint
    pipeline = orders.pipeline(RATE.replace("o.amount", "NULLIF(o.amount, 0)"), sources)
    with pytest.raises(LakejoinError, match="definition"):
        pipeline.run(spark)
    pipeline.backfill(spark, remedy="accept")
    assert only(pipeline.run(spark)).counts["appended"] == rows
    found = {row[0]: row[1:3] for row in orders.rows()}
    assert (found[1], found[100]) == (("Ann", 20), ("Anne", None))


@pytest.mark.slow
@cases(
    "statement",
    "SELECT o.id, c.name, p.name AS past, 100 DIV o.amount AS n FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id LEFT JOIN past p ON o.id = p.id",
    "SELECT o.id, c.id AS customer, 100 DIV o.amount AS n FROM orders o LEFT JOIN customers c ON o.t = c.name",
    "SELECT o.id, p.id AS other, 100 DIV o.amount AS n FROM orders o FULL JOIN past p ON o.customer = p.id + 1",
    "SELECT o.id, p.name, 100 DIV o.amount AS n FROM orders o JOIN past p USING (id)",
    ids=["star", "many to many", "many to many, outer", "table-table"],
)
def test_the_row_of_every_kind_of_join_is_named_and_a_mended_row_passes(orders: Lake, statement: str) -> None:
    spark = orders.spark
    orders.create("past", "id INT, name STRING", "(1, 'a'), (2, 'b'), (3, 'c')")
    pipeline = orders.pipeline(statement, {**SOURCES, "past": "id"})
    pipeline.run(spark)
    orders.sql("INSERT INTO {orders} VALUES (3, 1, 0, '3')", "orders")
    for command in (pipeline.run, pipeline.backfill):
        with pytest.raises(RowFailed, match=r"o\.id = 3") as error:
            command(spark)
        assert "DIVIDE_BY_ZERO" in error.value.found
    orders.sql("UPDATE {orders} SET amount = 1 WHERE id = 3", "orders")
    assert only(pipeline.run(spark)).outcome == "done"
    assert only(pipeline.verify(spark)).outcome == "done"
