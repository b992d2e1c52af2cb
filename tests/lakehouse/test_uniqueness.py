"""Keys that a table has more than once are found, whatever their type, and none where every key occurs once."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehouse.values.net_changes import has_repeated_keys

NUMBERS = st.integers(-130, 130) | st.sampled_from([-(2**63), 2**63 - 1, -(2**63) + 64, 0, -1, 63, 64])
KEYS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "a BIGINT": st.tuples(NUMBERS | st.none()),
    "a BIGINT, b STRING": st.tuples(st.integers(0, 3) | st.none(), st.sampled_from(["x", "y", None])),
    "a STRING, b BIGINT": st.tuples(st.sampled_from(["x", "y"]), NUMBERS | st.none()),
    "a BIGINT, b BIGINT": st.tuples(st.integers(0, 3), st.integers(62, 65)),
    "a TINYINT": st.tuples(st.integers(-128, 127)),
    "a STRING": st.tuples(st.sampled_from(["x", "y", "X", "", None])),
    "a DOUBLE": st.tuples(st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])),
}


@pytest.mark.parametrize("schema", KEYS)
def test_a_table_with_some_keys_has_repeated_keys_if_python_counts_them_twice(ours: SparkSession, schema: str) -> None:
    names = [column.split(" ")[0] for column in schema.split(", ")]

    @settings(max_examples=5, suppress_health_check=list(HealthCheck))
    @given(st.lists(KEYS[schema], max_size=8))
    def holds(keys: list[tuple[Any, ...]]) -> None:
        counted = Counter(tuple("nan" if part != part else part for part in key) for key in keys if None not in key)
        rows = ours.createDataFrame(keys, schema)
        assert has_repeated_keys(rows, names) == (max(counted.values(), default=0) > 1)
        if schema == "a BIGINT, b STRING":
            present = Counter(key for key in keys if key != (None, None))
            assert has_repeated_keys(rows, names, may_be_absent=True) == (max(present.values(), default=0) > 1)

    if schema == "a BIGINT":
        for edge in ([(5,), (5,)], [(-1,), (63,)], [(0,), (64,)], [(-(2**63),), (2**63 - 1,)]):
            holds = example(edge)(holds)
    holds()
