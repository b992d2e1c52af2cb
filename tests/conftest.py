"""One Spark for the whole session, and lakes that live as long as a test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from lakehouse import writing
from lakehouse.session import local_session
from tests.lake import Lake

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
settings.register_profile("lakejoin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lakejoin")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session({"spark.sql.warehouse.dir": "/tmp/lakejoin-test-warehouse"})
    yield session
    session.stop()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Give an empty lake with a pipeline file that joins `left` with `right` on `k`."""
    return Lake(spark, tmp_path)


@pytest.fixture(autouse=True)
def _no_observers() -> Iterator[None]:
    yield
    writing.observers.clear()
