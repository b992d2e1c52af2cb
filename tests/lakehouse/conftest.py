"""The session that the tests of tables share."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.session.session import own_session


@pytest.fixture(scope="session")
def ours(spark: SparkSession) -> SparkSession:
    """Give our session beside that of the caller."""
    return own_session(spark, "UTC")
