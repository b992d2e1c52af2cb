"""Values that very many rows have: what passes through the driver stays bounded, and the result is right."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from tests.lake import Lake, only

pytestmark = [pytest.mark.slow, pytest.mark.gated]

SQL = "SELECT a.aid, b.bid, a.v, b.w FROM a FULL JOIN b ON a.city = b.city AND a.v <> b.w"


class Driver:
    """Counts the rows that pass through the driver, in either direction."""

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


@pytest.mark.parametrize(("many", "few"), [(1_000, 1_000)])
def test_a_value_of_very_many_rows_passes_through_no_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, few: int
) -> None:
    """All rows of one side lose the value that they share with the other side: nearly a million pairs go."""
    lake = Lake(spark, tmp_path)
    for name, column, value, number in (("a", "aid", "v", many), ("b", "bid", "w", few)):
        lake.create(name, f"{column} INT, city STRING, {value} INT")
        hot = f"SELECT CAST(id AS INT), 'hot', CAST(id % 7 AS INT) FROM range({number})"
        cold = f"SELECT CAST({number} + id AS INT), concat('cold ', id), 1 FROM range(1000)"
        lake.sql(f"INSERT INTO {{{name}}} {hot} UNION ALL {cold}", name)
    pipeline = lake.pipeline(SQL, {"a": "aid", "b": "bid"})
    driver = Driver(spark, monkeypatch)
    pipeline.run(spark)
    lake.sql("UPDATE {b} SET city = 'gone' WHERE city = 'hot'", "b")
    report = only(pipeline.run(spark))
    assert report.strategy == "incremental"
    pairs = sum(one % 7 != other % 7 for one in range(7) for other in range(7)) * many * few // 49
    assert report.counts["deleted"] == pytest.approx(pairs, rel=0.1)
    assert only(pipeline.verify(spark)).outcome == "done"
    assert limits.CHANGES_VIA_DRIVER < driver.most <= limits.ROWS_ON_DRIVER + 1
