"""Lakes with clicks, before and after the first run."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epochs.lookup.clicks import Clicks


@pytest.fixture(scope="session")
def _clicks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    return Clicks.new(spark, tmp_path_factory.mktemp("clicks"))


@pytest.fixture
def clicks(_clicks: Clicks, tmp_path: Path) -> Clicks:
    """Give a lake with three clicks and two users and no result yet."""
    return _clicks.copy(tmp_path / "lake")


@pytest.fixture(scope="session")
def _loaded_clicks(_clicks: Clicks, tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    lake = _clicks.copy(tmp_path_factory.mktemp("loaded") / "lake")
    lake.stream().run(lake.spark)
    return lake


@pytest.fixture
def loaded_clicks(_loaded_clicks: Clicks, tmp_path: Path) -> Clicks:
    """Give the same lake after its first run."""
    return _loaded_clicks.copy(tmp_path / "lake")
