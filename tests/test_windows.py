"""Joins of two streams through real Delta tables: what is added when, what waits, and what is kept exactly once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines import Pipeline
from tests.lake import Lake, only
from tests.test_streams import commit_at

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCES: dict[str, Any] = {
    "left": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
    "right": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
}
WITHIN = "r.t BETWEEN l.t - INTERVAL 10 MINUTES AND l.t + INTERVAL 20 MINUTES"
JOIN = f"SELECT l.id AS l, r.id AS r FROM left l LEFT JOIN right r ON l.k = r.k AND {WITHIN}"


class Streams(Lake):
    """Two streams of rows with a key and a time, given as minutes after noon."""

    def come(self, name: str, *rows: tuple[int, str | None, int | None], second: float | None = None) -> None:
        """Add rows as one commit, which happened at a time."""
        listed = ", ".join(
            f"({number}, {'NULL' if key is None else repr(key)}, {at(minute)})" for number, key, minute in rows
        )
        self.sql(f"INSERT INTO {{{name}}} VALUES {listed}")
        if second is not None:
            commit_at(self, name, second)

    def join(self, sql: str = JOIN, **options: Any) -> Pipeline:
        given = {name: {**SOURCES[name], **options.pop(name, {})} for name in SOURCES}
        return self.pipeline(sql, given, **options)

    def found(self) -> list[tuple[Any, ...]]:
        """Give the rows of the result without what lakejoin adds."""
        return [row[:-4] for row in self.rows()]

    def waits(self) -> list[int]:
        """Give the ids of the rows that wait, sorted."""
        rows = self.spark.sql(f"SELECT coalesce(left_row, right_row).id FROM {self.at('result__state')}").collect()
        return sorted(row[0] for row in rows)


def at(minute: int | None) -> str:
    """Write a time as SQL."""
    return "NULL" if minute is None else f"TIMESTAMP'{(NOON + timedelta(minutes=minute)).isoformat()}'"


@pytest.fixture(scope="session")
def _streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    lake = Streams(spark, tmp_path_factory.mktemp("streams"))
    lake.create("left", "id INT, k STRING, t TIMESTAMP")
    lake.create("right", "id INT, k STRING, t TIMESTAMP")
    for name in ("left", "right"):
        commit_at(lake, name, 0)
    return lake


@pytest.fixture
def streams(_streams: Streams, tmp_path: Path) -> Streams:
    """Give a lake with two empty streams."""
    return Streams(_streams.spark, _streams.copy(tmp_path / "streams").folder)


def test_rows_meet_wait_and_leave_once(streams: Streams) -> None:
    """A pair across epochs, a row that stands alone once nothing can meet it, and one that is late."""
    spark, join = streams.spark, streams.join()
    streams.come("left", (1, "a", 0), (2, "b", 0), (3, None, 0), second=10)
    first = only(join.run(spark))
    assert (first.strategy, streams.found(), streams.waits()) == ("load", [(3, None)], [1, 2])
    assert (first.counts["null_keys"], first.counts["buffered"], first.counts["appended"]) == (1, 2, 1)
    streams.come("right", (10, "a", 20), second=20)
    second = only(join.run(spark))
    assert (second.counts["appended"], streams.found()) == (1, [(1, 10), (3, None)])
    assert second.counts["buffered_updated"] == 1, "that a row has met another is kept"
    streams.come("left", (4, "a", 60), second=30)
    streams.come("right", (11, "b", 26), (12, "a", 12), second=40)
    third = only(join.run(spark))
    assert (third.counts["late"], third.counts["appended"]) == (1, 1), "12 is below 20 less 5 minutes, and 26 is not"
    assert streams.found() == [(1, 10), (2, None), (3, None)], "alone once the right stream is past 20 by 5 minutes"
    assert streams.waits() == [4], "of the right, 26 leaves as soon as left rows of 55 and more alone can come"
    assert only(join.run(spark)).outcome == "nothing"
    assert only(join.verify(spark)).counts["missing"] == 0
