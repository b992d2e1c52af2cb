"""Sessions and tables that the tests of readers share."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.session import own_session
from lakehouse.tables import Table
from tests.lake import Lake
from tests.lakehouse.typed import typed_table


@pytest.fixture(scope="session")
def ours(spark: SparkSession) -> SparkSession:
    """Give our session beside that of the caller."""
    return own_session(spark, "UTC")


@pytest.fixture(scope="session", params=["INT96", "TIMESTAMP_MICROS"])
def typed(ours: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Table:
    """Give a table with a column of each type, with timestamps of either physical type."""
    return typed_table(Lake(ours, tmp_path_factory.mktemp("typed")), request.param)
