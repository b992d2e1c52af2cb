"""A lake whose join has published something worth validating."""

import pytest

from tests.lake import Lake
from tests.recorded import Recorded, create_standard

NOT_NULL = {"expect_column_values_to_not_be_null": {"column": "w"}}
UNIQUE = {"expect_column_values_to_be_unique": {"column": "v"}}


@pytest.fixture
def logged(recorded: Recorded) -> Lake:
    """Give a lake with a result and its changelog after three epochs: the load, an update and a delete, an insert."""
    return recorded(create_standard, follow)


def follow(lake: Lake) -> None:
    join = lake.pipeline(changelog=True, expectations=[NOT_NULL, UNIQUE], on_failed_gate="warn")
    join.run(lake.spark)
    lake.sql("UPDATE {left} SET v = '<b>' WHERE k = 2")
    lake.sql("DELETE FROM {left} WHERE k = 1")
    join.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (4, 'd')")
    join.run(lake.spark)
