"""Results held against plain Spark SQL over the same tables: bytes of texts, order of entries and signs count."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.session import session as sessions
from lakehouse.session.session import own_session
from lakehouse.values.sqltext import quote
from tests.lake import Lake


def exact(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as hexadecimal texts, sorted, so that only identical values are equal."""
    columns = (F.expr(f"hex(CAST(CAST({quote(name)} AS STRING) AS BINARY))") for name in frame.columns)
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)


def plain(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    """Return what plain Spark SQL makes of a statement, under lakejoin's settings."""
    over_paths = re.sub(r"\b(FROM|JOIN) (\w+)", lambda found: f"{found[1]} {lake.at(found[2])}", sql)
    return exact(own_session(lake.spark, "UTC").sql(over_paths))


def held(lake: Lake, name: str = "result", without: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    rows = own_session(lake.spark, "UTC").sql(f"SELECT * FROM {lake.at(name)}")
    return exact(rows.drop(*without))


def by_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let epochs take the paths of large tables and of many changes, whatever the size."""
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", -1)
    monkeypatch.setattr(limits, "SMALL_BYTES", -1)
    monkeypatch.setattr(limits, "LITERAL_BYTES", -1)
    monkeypatch.setattr(limits, "BROADCAST_BYTES", -1)


def by_literals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let epochs of few changes look rows up by literals, as in large tables."""
    monkeypatch.setattr(limits, "SMALL_BYTES", -1)
    monkeypatch.setattr(limits, "LITERAL_BYTES", -1)
    monkeypatch.setattr(limits, "BROADCAST_BYTES", -1)


WAYS: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    "small": lambda _: None,
    "literals": by_literals,
    "many": by_many_rows,
}
"""The ways that an epoch takes, by the size of tables and changes."""


@contextmanager
def application(settings: Mapping[str, str]) -> Iterator[None]:
    """Let sessions inherit settings, as from the configuration of a Spark application."""
    new_session = SparkSession.newSession

    def inheriting(self: SparkSession) -> SparkSession:
        session = new_session(self)
        for name, value in settings.items():
            session.conf.set(name, value)
        return session

    SparkSession.newSession = inheriting  # type: ignore[method-assign]
    sessions._released.clear()  # those have the settings of the application before
    try:
        yield
    finally:
        SparkSession.newSession = new_session  # type: ignore[method-assign]
        sessions._released.clear()
