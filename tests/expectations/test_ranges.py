"""`validate` over a range looks at what was published in it, and at nothing else."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import FeedUnavailable, ForeignWriter, GateFailed
from pipelines import Pipeline
from pipelines.cli import main
from pipelines.commands.published import BadRange, RequestedRange, read_range
from tests.cases import cases
from tests.expectations.conftest import NOT_NULL
from tests.lake import Lake, only


@cases(
    "given, span",
    (("3..7", ""), RequestedRange("epochs", 3, 7)),
    (("3..", ""), RequestedRange("epochs", 3, None)),
    (("", "0"), RequestedRange("versions", 0, 0)),
    (("", ""), None),
)
def test_a_range_is_read(given: tuple[str, str], span: RequestedRange | None) -> None:
    assert read_range(*given) == span


@pytest.mark.parametrize("given", [("7..3", ""), ("", "x"), ("..3", ""), ("-1..3", ""), ("1", "1"), ("", " ")])
def test_what_is_no_range_is_refused(given: tuple[str, str]) -> None:
    with pytest.raises(BadRange):
        read_range(*given)


@pytest.mark.slow
def test_a_range_of_epochs_is_that_of_their_versions(logged: Lake) -> None:
    """Each change once; of the file's expectations those that judge a row judge the rows that were written."""
    lake, join = logged, Pipeline.load(logged.file)
    report = only(join.validate(lake.spark, epochs="2..3"))
    assert report.counts == {"rows": 3, "expectations": 4 + 1 + 5}
    first, last = lake.ledger()[-3]["targets"], lake.version()
    assert f"epochs 2 to 3: result, changes of versions 2 to {last}" in report.reason, first
    assert "result__changelog, rows of epochs 2 to 3" in report.reason
    assert report.details[-1].startswith("1 expectation about the whole result was left out")
    assert only(join.validate(lake.spark, versions=f"2..{last}")).counts == report.counts
    assert only(join.validate(lake.spark, epochs="3..")).counts["rows"] == 1
    with pytest.raises(GateFailed, match=r"epoch 1: .*rows written in") as caught:
        join.validate(lake.spark, epochs="1")
    assert caught.value.found.startswith("result: expect_column_values_to_not_be_null(column: w): 1 of 3 rows")


@pytest.mark.deep
def test_what_somebody_else_wrote_is_found_in_its_version(logged: Lake) -> None:
    """A key that one commit adds twice, and an update that changes nothing."""
    lake, join = logged, Pipeline.load(logged.file)
    lake.sql("INSERT INTO {result} VALUES (7, 'x', 'w'), (7, 'y', 'w')")
    lake.sql("UPDATE {result} SET v = v WHERE k = 3")
    last = lake.version()
    with pytest.raises(GateFailed) as caught:
        join.validate(lake.spark, versions=f"{last - 1}")
    assert "expect_one_change_per_key(key_columns: ['k', '_commit_version']): 2 of 2 rows" in caught.value.found
    with pytest.raises(GateFailed) as caught:
        join.validate(lake.spark, versions=f"{last}")
    assert caught.value.found.startswith("result: expect_no_repeated_value(")
    assert ": 1 of 1 rows" in caught.value.found
    assert only(join.validate(lake.spark, epochs="2..")).counts["rows"] == 3, "it is in no epoch"


@pytest.mark.deep
def test_a_restore_lists_rows_that_it_does_not_change(logged: Lake) -> None:
    lake, join = logged, Pipeline.load(logged.file)
    before = lake.version()
    lake.sql("INSERT INTO {result} VALUES (9, 'x', 'w')")
    lake.sql(f"RESTORE TABLE {{result}} TO VERSION AS OF {before}")
    lake.sql("INSERT OVERWRITE {result} SELECT * FROM {result}")
    assert only(join.validate(lake.spark, versions=f"{before + 1}..")).counts["rows"] == 2


@pytest.mark.slow
@cases(
    "row, finding",
    ("2, '<b>', 'x', 'upsert', 'left', 9, 3", "expect_no_repeated_value"),
    ("1, NULL, NULL, 'tombstone', 'left', 9, 3", "expect_no_unnecessary_tombstone"),
)
def test_the_first_row_of_a_key_in_a_range_is_compared_with_what_was_before(logged, row, finding):
    """The row before lies in an epoch that is not looked at."""
    lake, join = logged, Pipeline.load(logged.file)
    assert only(join.validate(lake.spark, epochs="3")).outcome == "done"
    lake.sql(f"INSERT INTO {{result__changelog}} VALUES ({row}, current_timestamp())", "result__changelog")
    with pytest.raises(GateFailed) as caught:
        join.validate(lake.spark, epochs="3")
    assert caught.value.found.startswith(f"result__changelog: {finding}(")
    assert only(join.validate(lake.spark, epochs="2")).outcome == "done"


@pytest.mark.slow
def test_the_rows_of_a_stream_are_those_of_the_epochs(lake: Lake) -> None:
    lake.create("clicks", "id INT, k INT", "(1, 1)")
    lake.create("names", "k INT, w STRING", "(1, 'a')")
    sources: dict[str, Any] = {"clicks": {"key": "id", "kind": "stream"}, "names": {"key": "k"}}
    sql = "SELECT c.id, n.w FROM clicks c LEFT JOIN names n ON c.k = n.k"
    join = lake.pipeline(sql, sources, expectations=[NOT_NULL], on_failed_gate="warn")
    join.run(lake.spark)
    lake.sql("INSERT INTO {clicks} VALUES (2, 9), (3, 1)", "clicks")
    join.run(lake.spark)
    assert only(join.validate(lake.spark, epochs="1")).counts == {"rows": 1, "expectations": 2}
    with pytest.raises(GateFailed, match="result, rows of epoch 2") as caught:
        join.validate(lake.spark, versions=f"{lake.version()}")
    assert "1 of 2 rows" in caught.value.found


@pytest.mark.deep
def test_ranges_that_are_not_there(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 where there is no such range, exit 4 where what was published is no longer readable."""
    join = loaded.pipeline()
    for wrong in ({"epochs": "2"}, {"epochs": "0..1"}, {"epochs": "1..2"}, {"versions": "99"}, {"versions": "0..99"}):
        with pytest.raises(BadRange, match="the range does not exist") as caught:
            join.validate(loaded.spark, **wrong)
        assert caught.value.exit_code == 2
    loaded.sql("ALTER TABLE {result} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    loaded.sql("DELETE FROM {result} WHERE k = 1")
    assert main(["validate", "-f", str(loaded.file), "--versions", f"{loaded.version()}"]) == 4
    told = capsys.readouterr().out
    assert "the change feed was off" in told
    assert "choose a later range" in told
    with pytest.raises(ForeignWriter, match="DELETE in version"):
        join.validate(loaded.spark)
    shutil.rmtree(loaded.path("result"))
    loaded.create("result", "k INT, v STRING, w STRING")
    with pytest.raises(FeedUnavailable, match="dropped and created again"):
        join.validate(loaded.spark, epochs="1")
    assert main(["validate", "-f", str(loaded.file), "--epochs", "3..1"]) == 2
    assert "`3..1` is not a range of epochs" in capsys.readouterr().err


@pytest.mark.slow
def test_a_change_of_a_map_alone_is_no_repeated_value(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    lake.create("maps", "k INT, m MAP<STRING, INT>, n STRING", "(1, map('a', 1), 'n')")
    lake.create("right", "k INT, w STRING", "(1, 'w')")
    sql = "SELECT t.k, t.m, t.n, r.w FROM maps t LEFT JOIN right r ON t.k = r.k"
    join = lake.pipeline(sql, {"maps": "k", "right": "k"}, changelog=True)
    join.run(lake.spark)
    lake.sql("UPDATE {maps} SET m = map('a', 2) WHERE k = 1", "maps")
    assert only(join.run(lake.spark)).counts["updated"] == 1
    assert only(join.validate(lake.spark, epochs="2")).outcome == "done"
    assert only(join.validate(lake.spark)).outcome == "done"
