"""A lake whose join has published something worth validating."""

from pathlib import Path

import pytest

from tests.lake import Lake

NOT_NULL = {"expect_column_values_to_not_be_null": {"column": "w"}}
UNIQUE = {"expect_column_values_to_be_unique": {"column": "v"}}


@pytest.fixture(scope="session")
def _logged(_standard: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = _standard.copy(tmp_path_factory.mktemp("logged") / "lake")
    join = lake.pipeline(changelog=True, expectations=[NOT_NULL, UNIQUE], on_failed_gate="warn")
    join.run(lake.spark)
    lake.sql("UPDATE {left} SET v = '<b>' WHERE k = 2")
    lake.sql("DELETE FROM {left} WHERE k = 1")
    join.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (4, 'd')")
    join.run(lake.spark)
    return lake


@pytest.fixture
def logged(_logged: Lake, tmp_path: Path) -> Lake:
    """Give a lake with a result and its changelog after three epochs: the load, an update and a delete, an insert."""
    return _logged.copy(tmp_path / "logged")
