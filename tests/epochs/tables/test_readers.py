"""What an epoch of few changes reads without Spark: the gate detects a reader that is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.direct_feed import read_feed_directly
from lakehouse.direct_rows import Selection, read_directly
from lakehouse.engine import Engine
from lakehouse.errors import GateFailed
from lakehouse.feed import FEED_COLUMNS
from lakehouse.small import DriverRows
from lakehouse.tables import Table
from pipelines.binding import shared_feeds
from pipelines.epochs.tables import gate, lookups
from tests.lake import Lake, only

pytestmark = pytest.mark.gated

Rows = list[dict[str, Any]]
Fault = Callable[[Rows], Rows]

FAULTS: dict[str, Fault] = {
    "a lost row": lambda rows: rows[1:],
    "another value": lambda rows: [{**row, "w": "wrong"} for row in rows],
    "no value": lambda rows: [{**row, "w": None} for row in rows],
}


def misread(fault: Fault, name: str) -> Callable[..., DriverRows | None]:
    """Return a reader of rows that misreads those of one table."""

    def read(
        spark: SparkSession, table: Table, version: int, columns: Sequence[str], selections: Sequence[Selection]
    ) -> DriverRows | None:
        direct = read_directly(spark, table, version, columns, selections)
        if direct is None or table.address.label != name:
            return direct
        rows = pyarrow.Table.from_pylist(fault(direct.rows.to_pylist()), schema=direct.rows.schema)
        return replace(direct, rows=rows, frame=spark.createDataFrame(rows, schema=direct.frame.schema))

    return read


@pytest.fixture
def changed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two tables of thirty rows, all of which change on the left."""
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # the tables stand for larger ones, of which few rows are read
    values = ", ".join(f"({number}, 'a{number}')" for number in range(30))
    for name, column in (("left", "v"), ("right", "w")):
        lake.create(name, f"k INT, {column} STRING", values)
    lake.pipeline().run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'n'", "left")
    return lake


@pytest.mark.parametrize("literal_bytes", [0, 2**30])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_gate_detects_rows_that_the_epoch_has_misread(
    changed: Lake, monkeypatch: pytest.MonkeyPatch, fault: Fault, literal_bytes: int
) -> None:
    monkeypatch.setattr(limits, "LITERAL_BYTES", literal_bytes)
    with monkeypatch.context() as planted:
        planted.setattr(lookups, "read_directly", misread(fault, "right"))
        with pytest.raises(GateFailed, match="the row after the change"):
            changed.pipeline().run(changed.spark)
    only(changed.pipeline().run(changed.spark))
    assert len(changed.rows()) == 30


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_gate_stops_an_epoch_if_it_has_misread_the_result(
    changed: Lake, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(limits, "LITERAL_BYTES", 0)
    with monkeypatch.context() as planted:
        planted.setattr(gate, "read_directly", misread(fault, "result"))
        with pytest.raises(GateFailed, match=r"existing row|published row"):
            changed.pipeline().run(changed.spark)
    only(changed.pipeline().run(changed.spark))
    assert len(changed.rows()) == 30


@pytest.mark.parametrize(
    "misread_feed",
    [
        lambda feed: feed.where("k <> 7"),
        lambda feed: feed.replace("n", "m", ["v"]),
        lambda feed: feed.selectExpr("k", "nullif(v, 'n') AS v", *FEED_COLUMNS),
    ],
    ids=FAULTS,
)
@pytest.mark.parametrize(
    ("small_bytes", "finding"),
    [(0, "two ways to read the change feed of l differ"), (2**20, r"the row after the change|no missing change")],
)
def test_the_gate_detects_a_feed_that_the_epoch_has_misread(
    changed: Lake,
    monkeypatch: pytest.MonkeyPatch,
    misread_feed: Callable[[DataFrame], DataFrame],
    small_bytes: int,
    finding: str,
) -> None:
    """It has Spark read the feed: to compare both, or, if the tables are small, to find the changed keys."""
    monkeypatch.setattr(limits, "SMALL_BYTES", small_bytes)

    def read(engine: Engine, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame | None:
        direct = read_feed_directly(engine, table, after, to, columns)
        assert direct is not None
        return misread_feed(direct)

    with monkeypatch.context() as planted:
        planted.setattr(shared_feeds, "read_feed_directly", read)
        with pytest.raises(GateFailed, match=finding):
            changed.pipeline().run(changed.spark)
    only(changed.pipeline().run(changed.spark))
    assert len(changed.rows()) == 30


def test_a_feed_that_only_the_gate_cannot_read_leads_to_a_reconciliation(
    changed: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark refuses a feed that is older than the retention, also if its files are still there."""

    def refuse(*args: object) -> DataFrame:
        raise RuntimeError("[DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION] too old")

    monkeypatch.setattr(shared_feeds, "read_changes", refuse)
    report = only(changed.pipeline().run(changed.spark))
    assert (report.strategy, report.counts["updated"]) == ("reconcile", 30)
    stages = [path for path in changed.folder.rglob("*.parquet") if "stage" in str(path)]
    assert stages == []
