"""Tables of lakejoin that were put back from a copy of their files are refused, and the command named mends them."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors import ForeignWriter, LakejoinError
from tests.damaged import LEDGER, Everything
from tests.lake import only


@pytest.fixture(scope="module")
def _after(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Everything, Path]:
    """Give a lake after two epochs of each join, and a copy of its folder after the first one."""
    lake = Everything.new(spark, tmp_path_factory.mktemp("everything"))
    lake.joins().run(spark)
    copy = tmp_path_factory.mktemp("copies") / "first"
    shutil.copytree(lake.folder, copy)
    lake.change(1)
    lake.joins().run(spark)
    return lake, copy


@pytest.fixture
def after(_after: tuple[Everything, Path], tmp_path: Path) -> tuple[Everything, Path]:
    lake, copy = _after
    return Everything(lake.spark, lake.copy(tmp_path / "lake").folder), copy


@pytest.mark.parametrize("by_hand", ["SET TBLPROPERTIES (a = 'b')", pytest.param("DELETE", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["result", "result__changelog", "seen", "met", "met__state", "moves__state"])
def test_a_table_of_ours_that_was_put_back_is_refused(after: tuple[Everything, Path], name: str, by_hand: str) -> None:
    """It has its id and the recorded version, but this version is another commit."""
    (lake, copy), spark = after, after[0].spark
    pipeline, join, recorded = lake.joins(), lake.JOIN_OF[name], lake.version(name)
    lake.put_back(name, copy)
    assert lake.version(name) == recorded - 1
    if by_hand == "DELETE":
        lake.sql(f"DELETE FROM {{{name}}}", name)
    else:
        lake.sql(f"ALTER TABLE {{{name}}} {by_hand}", name)
    for refused in (pipeline.run, pipeline.maintain):
        with pytest.raises(ForeignWriter, match="put back from a copy") as error:
            refused(spark, [join])
        assert error.value.where == name
        assert "lakejoin backfill" in error.value.hint
    pipeline.backfill(spark, [join], remedy="reset" if name == "met__state" else "")
    lake.change(2)
    assert [report.outcome for report in pipeline.run(spark, [join])][-1] == "done"
    assert only(pipeline.verify(spark, [join])).outcome == "done"


@pytest.mark.parametrize("join", ["result", "seen", "met", "kept"])
def test_a_ledger_that_was_put_back_gives_no_number_twice(after: tuple[Everything, Path], join: str) -> None:
    """Results and what stands beside them remember the epochs that it has forgotten."""
    (lake, copy), spark = after, after[0].spark
    pipeline = lake.joins()
    lake.put_back(LEDGER, copy)
    with pytest.raises(ForeignWriter):
        pipeline.run(spark, [join])
    if join in ("seen", "met"):
        with pytest.raises(LakejoinError, match="--accept"):
            pipeline.backfill(spark, [join])
        pipeline.backfill(spark, [join], remedy="accept" if join == "seen" else "reset")
    else:
        pipeline.backfill(spark, [join])
    lake.change(2)
    assert pipeline.run(spark, [join])[-1].outcome == "done"
    lake.change(3)
    assert pipeline.run(spark, [join])[-1].outcome == "done"
    assert only(pipeline.verify(spark, [join])).outcome == "done"
