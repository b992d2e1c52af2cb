"""A full path of every kind of join whose tables are in a schema of a catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.damaged import Everything
from tests.lake import only

SCHEMA = "every_kind"


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    spark.sql(f"CREATE SCHEMA {SCHEMA} LOCATION '{tmp_path / 'schema'}'")
    yield SCHEMA
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.mark.deep
def test_every_kind_loads_follows_and_is_recreated(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """A recreated result is the same table, with its clustering."""
    (tmp_path / "lake").mkdir()
    lake = Everything.new(spark, tmp_path)
    pipeline = lake.joins(schema)
    assert {report.strategy for report in pipeline.run(spark)} == {"load"}
    for join in ("seen", "met"):
        before = table(spark, join)
        assert only(pipeline.backfill(spark, [join], remedy="reset")).strategy == "reset"
        assert table(spark, join) == before
    lake.change(1)
    assert {report.outcome for report in pipeline.run(spark)} == {"done"}
    assert {report.outcome for report in pipeline.verify(spark)} == {"done"}


def table(spark: SparkSession, name: str) -> tuple[object, ...]:
    return tuple(spark.sql(f"DESCRIBE DETAIL {SCHEMA}.{name}").select("id", "clusteringColumns").collect()[0])
