"""Lakes with clicks, before and after the first run."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.epochs.lookup.clicks import Clicks, begin


@pytest.fixture(scope="session")
def _clicks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    lake = Clicks(spark, tmp_path_factory.mktemp("clicks"))
    lake.create("clicks", "id INT, user INT, at TIMESTAMP", "(1, 1, NULL), (2, 2, NULL), (3, NULL, NULL)")
    lake.create("users", "id INT, name STRING, country STRING", "(1, 'ann', 'no'), (3, 'cy', 'se')")
    lake.create("countries", "code STRING, country STRING", "('no', 'Norway')")
    begin(lake)
    return lake


@pytest.fixture
def clicks(_clicks: Clicks, tmp_path: Path) -> Clicks:
    """Give a lake with three clicks and two users and no result yet."""
    copy = _clicks.copy(tmp_path / "lake")
    begin(copy)
    return Clicks(copy.spark, copy.folder)


@pytest.fixture(scope="session")
def _loaded_clicks(_clicks: Clicks, tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    copy = _clicks.copy(tmp_path_factory.mktemp("loaded") / "lake")
    begin(copy)
    lake = Clicks(copy.spark, copy.folder)
    lake.stream().run(lake.spark)
    return lake


@pytest.fixture
def loaded_clicks(_loaded_clicks: Clicks, tmp_path: Path) -> Clicks:
    """Give the same lake after its first run."""
    copy = _loaded_clicks.copy(tmp_path / "lake")
    begin(copy)
    return Clicks(copy.spark, copy.folder)
