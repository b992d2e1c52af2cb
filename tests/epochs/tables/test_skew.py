"""Values that very many rows have: what passes through the driver stays bounded, and the result is right."""

from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from tests.lake import Lake, only

pytestmark = pytest.mark.slow

SQL = "SELECT a.aid, b.bid, a.v, b.w FROM a FULL JOIN b ON a.city = b.city AND a.v <> b.w"
HOT = 1_000
"""The rows of either side that have the value."""


class Driver:
    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        frames = type(spark.range(1))
        for name in ("collect", "toArrow"):
            self._watch(monkeypatch, frames, name)
        create = type(spark).createDataFrame

        def created(session: SparkSession, data: Any, *args: Any, **options: Any) -> DataFrame:
            self._see(data)
            return create(session, data, *args, **options)

        monkeypatch.setattr(type(spark), "createDataFrame", created)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, frames: type[DataFrame], name: str) -> None:
        original = getattr(frames, name)

        def watched(frame: DataFrame) -> Any:
            rows = original(frame)
            self._see(rows)
            return rows

        monkeypatch.setattr(frames, name, watched)

    def _see(self, rows: Any) -> None:
        self.most = max(self.most, rows.num_rows if isinstance(rows, pyarrow.Table) else len(rows))


def test_the_pairs_of_a_value_of_very_many_rows_do_not_pass_through_the_driver(spark, tmp_path, monkeypatch):
    """All rows of one side lose the value that they share with the other side: nearly a million pairs go."""
    lake = Lake(spark, tmp_path)
    for name, column, value in (("a", "aid", "v"), ("b", "bid", "w")):
        lake.create(name, f"{column} INT, city STRING, {value} INT")
        hot = f"SELECT CAST(id AS INT), 'hot', CAST(id % 7 AS INT) FROM range({HOT})"
        cold = f"SELECT CAST({HOT} + id AS INT), concat('cold ', id), 1 FROM range(1000)"
        lake.sql(f"INSERT INTO {{{name}}} {hot} UNION ALL {cold}", name)
    pipeline = lake.pipeline(SQL, {"a": "aid", "b": "bid"})
    driver = Driver(spark, monkeypatch)
    pipeline.run(spark)
    lake.sql("UPDATE {b} SET city = 'gone' WHERE city = 'hot'", "b")
    report = only(pipeline.run(spark))
    assert report.strategy == "incremental"
    pairs = HOT * HOT * 6 // 7  # of seven values of w, one is that of v
    assert report.counts["deleted"] == pytest.approx(pairs, rel=0.1)
    assert only(pipeline.verify(spark)).outcome == "done"
    assert limits.CHANGES_VIA_DRIVER < driver.most <= limits.ROWS_ON_DRIVER + 1
