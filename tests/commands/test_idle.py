"""A run with nothing to do: found without Spark, and only where a run with Spark finds nothing either."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.session.engine import Engine
from pipelines.binding.workspace import Workspace
from pipelines.commands.idle import reports_of_idle
from pipelines.language import load
from pipelines.report import JoinReport
from tests.lake import Lake

SOURCES = {
    "left": "k",
    "right": "k",
    "log": {"kind": "changelog", "key": "id", "order_by": "nr", "tombstone": "v IS NULL"},
    "clicks": {"kind": "stream", "key": "nr"},
}
FURTHER = {
    "chained": "SELECT a.*, b.v AS logged FROM result a LEFT JOIN log b ON a.k = b.id",
    "clicked": "SELECT c.nr, c.k, r.w FROM clicks c LEFT JOIN right r ON c.k = r.k",
}
STAR = "SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k"


def never() -> SparkSession:
    pytest.fail("Spark starts")


def of_idle(lake: Lake) -> list[JoinReport] | None:
    return reports_of_idle(Workspace(Engine(never, is_embedded=True), load(lake.file), lake.folder))


def write(lake: Lake, **options: Any) -> None:
    options = {"sql": STAR, "sources": SOURCES, "further": FURTHER, **options}
    lake.pipeline(**options)


@pytest.fixture(scope="module")
def _current(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("idle"))
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    lake.create("log", "id INT, nr INT, v STRING", "(1, 1, 'm')")
    lake.create("clicks", "nr INT, k INT", "(1, 1)")
    write(lake)
    lake.pipeline(STAR, SOURCES, further=FURTHER).run(spark)
    return lake


@pytest.fixture
def current(_current: Lake, tmp_path: Path) -> Lake:
    return _current.copy(tmp_path / "lake")


def test_a_run_with_nothing_to_do_needs_no_spark(current: Lake) -> None:
    """Joins of tables, chained joins, KTables and look-ups of streams; the reports are those of a run with Spark."""
    idle = of_idle(current)
    assert idle is not None
    found = current.pipeline(STAR, SOURCES, further=FURTHER).run(current.spark)
    assert [(r.join, r.outcome, r.epoch, r.strategy, r.reason) for r in idle] == [
        (r.join, r.outcome, r.epoch, r.strategy, r.reason) for r in found
    ]
    assert {report.outcome for report in found} == {"nothing"}


@pytest.mark.every_case
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lake: lake.sql("INSERT INTO {left} VALUES (3, 'c')"), id="a commit of a table"),
        pytest.param(lambda lake: lake.sql("INSERT INTO {log} VALUES (1, 2, 'n')", "log"), id="of a changelog"),
        pytest.param(lambda lake: lake.sql("INSERT INTO {clicks} VALUES (2, 2)", "clicks"), id="of a stream"),
        pytest.param(lambda lake: lake.sql("DELETE FROM {result} WHERE k = 1"), id="a foreign commit"),
        pytest.param(
            lambda lake: lake.sql("ALTER TABLE {result} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)"),
            id="a result without a feed",
        ),
        pytest.param(
            lambda lake: lake.sql(
                "ALTER TABLE {result} SET TBLPROPERTIES (delta.setTransactionRetentionDuration = 'interval 1 day')"
            ),
            id="a result that forgets its transactions",
        ),
        pytest.param(lambda lake: write(lake, changelog=True), id="a changelog that the join has yet to keep"),
        pytest.param(lambda lake: lake.sql("ALTER TABLE {left} ADD COLUMN n INT"), id="a column that * leaves out"),
        pytest.param(lambda lake: write(lake, sql=f"{STAR} WHERE l.k > 1"), id="another statement"),
        pytest.param(
            lambda lake: write(lake, expectations=[{"expect_column_values_to_not_be_null": {"column": "z"}}]),
            id="an expectation of a column that does not exist",
        ),
        pytest.param(lambda lake: write(lake, further={**FURTHER, "more": STAR}), id="a join that is not loaded"),
    ],
)
def test_a_run_starts_spark_for_whatever_it_has_to_do_or_to_report(
    current: Lake, change: Callable[[Lake], Any]
) -> None:
    change(current)
    assert of_idle(current) is None
