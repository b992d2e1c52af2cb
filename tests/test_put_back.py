"""Tables of lakejoin that were put back from a copy of their files are refused, and the command named mends them."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import ForeignWriter, LakejoinError
from pipelines import Pipeline
from tests.damaged import LEDGER, Everything, after_two_epochs, put_back
from tests.lake import Lake, only


@pytest.fixture(scope="module")
def _after(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Everything, Path]:
    """Give a lake after two epochs of each join, and a copy of its folder after the first one."""
    copy = tmp_path_factory.mktemp("copies") / "first"
    return after_two_epochs(spark, tmp_path_factory.mktemp("everything"), copy), copy


@pytest.fixture
def after(_after: tuple[Everything, Path], tmp_path: Path) -> tuple[Everything, Path]:
    lake, copy = _after
    return lake.copy(tmp_path / "lake"), copy


def is_refused(lake: Lake, pipeline: Pipeline, join: str, name: str) -> None:
    """Let `run` and `maintain` refuse a table that has its id and the recorded version, which is another commit."""
    for refused in (pipeline.run, pipeline.maintain):
        with pytest.raises(ForeignWriter, match="put back from a copy") as error:
            refused(lake.spark, [join])
        assert error.value.where == name
        assert "lakejoin backfill" in error.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("on_top", ["ALTER TABLE {result} SET TBLPROPERTIES (a = 'b')", "DELETE FROM {result}"])
def test_a_result_that_was_put_back_is_refused_and_mended_by_a_backfill(loaded, tmp_path, on_top):
    spark, pipeline = loaded.spark, loaded.pipeline()
    copy = loaded.copy(tmp_path / "copy").folder
    loaded.sql("INSERT INTO {left} VALUES (7, 'g')")
    pipeline.run(spark)
    put_back(loaded, "result", copy)
    loaded.sql(on_top)
    is_refused(loaded, pipeline, "result", "result")
    pipeline.backfill(spark)
    loaded.sql("INSERT INTO {left} VALUES (8, 'h')")
    assert only(pipeline.run(spark)).counts["inserted"] == 1
    assert only(pipeline.verify(spark)).counts["expected"] == 5


@pytest.mark.slow
def test_every_table_of_ours_that_was_put_back_is_refused(after: tuple[Everything, Path], tmp_path: Path) -> None:
    """Changelogs, results of streams, buffered rows and KTables, each in a lake of its own."""
    whole, copy = after
    for name in ("result__changelog", "seen", "met", "met__state", "moves__state"):
        lake = whole.copy(tmp_path / name)
        pipeline, join = lake.joins(), lake.JOIN_OF[name]
        put_back(lake, name, copy)
        lake.sql(f"ALTER TABLE {{{name}}} SET TBLPROPERTIES (a = 'b')", name)
        is_refused(lake, pipeline, join, name)
        pipeline.backfill(lake.spark, [join], remedy="reset" if name == "met__state" else "")
        lake.change(2)
        assert [report.outcome for report in pipeline.run(lake.spark, [join])][-1] == "done"
        assert only(pipeline.verify(lake.spark, [join])).outcome == "done"


@pytest.mark.deep
def test_a_ledger_that_was_put_back_gives_no_number_twice(loaded: Lake, tmp_path: Path) -> None:
    """The result remembers the epochs that the ledger has forgotten."""
    spark, pipeline = loaded.spark, loaded.pipeline()
    copy = loaded.copy(tmp_path / "copy").folder
    for number in (7, 8):
        loaded.sql(f"INSERT INTO {{left}} VALUES ({number}, 'g')")
        assert only(pipeline.run(spark)).epoch == number - 5
    put_back(loaded, LEDGER, copy)
    with pytest.raises(ForeignWriter):
        pipeline.run(spark)
    assert only(pipeline.backfill(spark)).epoch == 4
    loaded.sql("INSERT INTO {left} VALUES (9, 'h')")
    assert only(pipeline.run(spark)).counts["inserted"] == 1
    assert only(pipeline.verify(spark)).outcome == "done"


@pytest.mark.slow
@pytest.mark.parametrize("join", ["result", "seen", "met", "kept"])
def test_a_ledger_that_was_put_back_stops_no_kind_of_join(after: tuple[Everything, Path], join: str) -> None:
    (lake, copy), spark = after, after[0].spark
    pipeline = lake.joins()
    put_back(lake, LEDGER, copy)
    with pytest.raises(ForeignWriter):
        pipeline.run(spark, [join])
    if join == "seen":
        with pytest.raises(LakejoinError, match="--accept"):
            pipeline.backfill(spark, [join])
    pipeline.backfill(spark, [join], remedy={"seen": "accept", "met": "reset"}.get(join, ""))
    for number in (2, 3):
        lake.change(number)
        assert pipeline.run(spark, [join])[-1].outcome == "done"
    assert only(pipeline.verify(spark, [join])).outcome == "done"
