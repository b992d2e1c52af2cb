"""Joins that run together and read the same versions of a source read its feed once; results never depend on that."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse.tables.table import Table, read_changes
from pipelines import Pipeline
from tests.lake import Lake

SOURCES: dict[str, Any] = {"clicks": {"key": "id", "kind": "stream"}, "users": "u", "teams": "t"}
JOINS = {
    "named": "SELECT c.id, u.name FROM clicks c LEFT JOIN users u ON c.u = u.u",
    "priced": "SELECT c.id, c.price, u.t FROM clicks c JOIN users u ON c.u = u.u",
    "members": "SELECT u.*, t.title FROM users u LEFT JOIN teams t ON u.t = t.t",
}


class Clicks(Lake):
    def joins(self, optimizations: str) -> Pipeline:
        first, *others = JOINS
        further = {name: JOINS[name] for name in others}
        return self.pipeline(JOINS[first], SOURCES, first, further, {"optimizations": optimizations})


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> Clicks:
    lake = Clicks(spark, tmp_path)
    lake.create("clicks", "id INT, u INT, price INT, note STRING")
    lake.create("users", "u INT, name STRING, t INT", "(1, 'a', 1), (2, 'b', 2)")
    lake.create("teams", "t INT, title STRING", "(1, 'x'), (2, 'y')")
    return lake


@pytest.mark.slow
def test_a_feed_is_read_once_for_all_joins_of_a_run(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the columns that any of them uses; what was kept is let go with the run."""
    spark, read, kept = clicks.spark, Counter[str](), []

    def reading(spark: SparkSession, table: Table, after: int, to: int, names: Sequence[str]) -> DataFrame:
        read[table.address.label] += 1
        frame = read_changes(spark, table, after, to, names)
        if table.address.label == "clicks":
            kept.append((set(names), frame))
        return frame

    clicks.joins("all").run(spark)
    clicks.sql("INSERT INTO {clicks} VALUES (1, 1, 10, 'n'), (2, 3, 20, 'n')", "clicks")
    clicks.sql("UPDATE {users} SET name = 'A' WHERE u = 1", "users")
    before = clicks.copy(clicks.folder.parent / "plain")
    plain = Clicks(spark, before.folder)
    monkeypatch.setattr("pipelines.binding.workspace.read_changes", reading)
    plain.joins("none").run(spark)
    apart = dict(read)
    read.clear()
    kept.clear()
    clicks.joins("all").run(spark)
    assert (apart["clicks"], apart["users"]) == (2 * 2, 3 * 2), "each join reads it, and its gate"
    assert (read["clicks"], read["users"]) == (1, 1)
    ((names, frame),) = kept
    assert names == {"id", "u", "price"}, "and not the note, which no join names"
    assert not frame.is_cached
    for name in JOINS:
        assert clicks.rows(name) == plain.rows(name)
