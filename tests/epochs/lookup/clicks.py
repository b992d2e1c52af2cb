"""A stream of clicks, and the tables that it looks up."""

import os
import time
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from pipelines import Pipeline
from tests.lake import Lake

SOURCES: dict[str, Any] = {
    "clicks": {"key": "id", "kind": "stream"},
    "users": "id",
    "countries": {"key": "code", "kind": "global_table"},
}
JOIN = "SELECT c.id, c.user, u.name FROM clicks c LEFT JOIN users u ON c.user = u.id"
START = int(time.time()) - 7_200
"""Seconds since 1970 at which the tests' commits begin: lately, for Delta refuses to read what is older."""


def commit_at(lake: Lake, name: str, second: float) -> None:
    """Let the newest commit of a table have happened at a time, which is that of its file."""
    _, newest = max((int(path.stem), path) for path in (Path(lake.path(name)) / "_delta_log").glob("*.json"))
    os.utime(newest, (START + second, START + second))


def begin(lake: Lake) -> None:
    """Let all commits so far have happened at the beginning, a second apart."""
    for log in (lake.folder / "lake").glob("*/_delta_log"):
        for number, path in enumerate(sorted(log.glob("*.json"))):
            os.utime(path, (START - 10 + number, START - 10 + number))


class Clicks(Lake):
    @classmethod
    def new(cls, spark: SparkSession, folder: Path) -> Self:
        """Give a lake with three clicks and two users and no result yet."""
        lake = cls(spark, folder)
        lake.create("clicks", "id INT, user INT, at TIMESTAMP", "(1, 1, NULL), (2, 2, NULL), (3, NULL, NULL)")
        lake.create("users", "id INT, name STRING, country STRING", "(1, 'ann', 'no'), (3, 'cy', 'se')")
        lake.create("countries", "code STRING, country STRING", "('no', 'Norway')")
        begin(lake)
        return lake

    def copy(self, folder: Path) -> Self:
        lake = super().copy(folder)
        begin(lake)
        return lake

    def click(self, rows: str, second: float | None = None) -> None:
        self.sql(f"INSERT INTO {{clicks}} VALUES {rows}", "clicks")
        if second is not None:
            commit_at(self, "clicks", second)

    def rename(self, user: int, name: str, second: float | None = None) -> None:
        self.sql(
            f"MERGE INTO {{users}} t USING (SELECT {user} AS id, '{name}' AS name) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
            "users",
        )
        if second is not None:
            commit_at(self, "users", second)

    def stream(self, sql: str = JOIN, **options: Any) -> Pipeline:
        given = {name: options.pop(name) for name in tuple(options) if name in SOURCES}
        return self.pipeline(sql, {**SOURCES, **given}, **options)

    def found(self) -> list[tuple[Any, ...]]:
        return [row[:-2] for row in self.rows()]
