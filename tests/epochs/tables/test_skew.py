"""Values that very many rows have: what passes through the driver stays bounded, and the result is right."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits, small
from tests.lake import Lake, only

pytestmark = [pytest.mark.slow, pytest.mark.gated]

SQL = "SELECT a.aid, b.bid, a.v, b.w FROM a FULL JOIN b ON a.city = b.city AND a.v <> b.w"


@pytest.mark.parametrize(("many", "few"), [(100_000, 10), (1_000, 1_000)])
def test_a_value_of_very_many_rows_passes_through_no_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, few: int
) -> None:
    """All rows of one side lose the value that they share with the other side, and get it back: a million pairs."""
    lake = Lake(spark, tmp_path)
    for name, column, value, number in (("a", "aid", "v", many), ("b", "bid", "w", few)):
        lake.create(name, f"{column} INT, city STRING, {value} INT")
        hot = f"SELECT CAST(id AS INT), 'hot', CAST(id % 7 AS INT) FROM range({number})"
        cold = f"SELECT CAST({number} + id AS INT), concat('cold ', id), 1 FROM range(1000)"
        lake.sql(f"INSERT INTO {{{name}}} {hot} UNION ALL {cold}", name)
    pipeline = lake.pipeline(SQL, {"a": "aid", "b": "bid"})
    pipeline.run(spark)
    collected = small.collected
    largest = 0

    def seen(frame: DataFrame) -> Any:
        nonlocal largest
        rows, limited = collected(frame)
        largest = max(largest, rows.num_rows)
        return rows, limited

    monkeypatch.setattr(small, "collected", seen)
    pairs = many * few - many * few // 7
    for before, after in (("hot", "gone"), ("gone", "hot")):
        lake.sql(f"UPDATE {{b}} SET city = '{after}' WHERE city = '{before}'", "b")
        report = only(pipeline.run(spark))
        assert report.strategy == "incremental"
        assert report.counts["touched"] > pairs * 0.9
        assert only(pipeline.verify(spark)).outcome == "done"
    assert largest <= limits.ROWS_ON_DRIVER
