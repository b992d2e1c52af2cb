"""Rows that delta-rs reads by keys: the values that Spark reads, or Spark reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.direct_rows import read_directly, why_spark
from lakehouse.pruning import pruning
from lakehouse.small import DriverRows
from lakehouse.sqltext import quote
from lakehouse.tables import Table, read
from lakehouse.values import PRUNABLE
from tests.exact import exact
from tests.lake import Lake
from tests.lakehouse.typed import COLUMNS, READABLE, found


def keys_of(frame: DataFrame, *columns: str) -> DataFrame:
    """Return the distinct values of columns as keys, without every third."""
    named = (F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(columns))
    whole = frame.where(" AND ".join(["pmod(n, 3) <> 0", *(f"{quote(name)} IS NOT NULL" for name in columns)]))
    return whole.select(F.struct(*named).alias("key")).distinct()


def by_both(
    ours: SparkSession, table: Table, key: Sequence[str], columns: Sequence[str]
) -> tuple[DriverRows | None, list[Any]]:
    """Read the rows with some keys by delta-rs and by Spark."""
    rows = read(ours, table.address, table.version)
    known = pruning(keys_of(rows, *key))
    predicate = known.predicate(key)
    direct = read_directly(ours, table, table.version, columns, [(known, key)])
    return direct, exact(rows.where(predicate or "false").select(*map(quote, columns)))


def test_delta_rs_reads_any_readable_value_as_spark_does(ours: SparkSession, typed: Table) -> None:
    direct, by_spark = by_both(ours, typed, ["n"], ["n", *READABLE])
    assert direct is not None
    assert len(by_spark) > 5
    assert exact(direct.frame) == by_spark
    kinds = [field.dataType for field in read(ours, typed.address, 1).select("n", *READABLE).schema]
    assert [field.dataType for field in direct.frame.schema] == kinds
    for name in READABLE:
        number = direct.distinct([name])
        assert number is None or number == direct.frame.select(name).distinct().count()


def test_keys_of_any_type_find_the_same_rows(ours: SparkSession, typed: Table) -> None:
    sought = [name for name in READABLE if isinstance(typed.schema[name].dataType, PRUNABLE)]
    for name in sought:
        direct, by_spark = by_both(ours, typed, [name], ["n", name])
        assert direct is not None, COLUMNS[name]
        assert by_spark, COLUMNS[name]
        assert exact(direct.frame) == by_spark, COLUMNS[name]
    direct, by_spark = by_both(ours, typed, sought, ["n"])
    assert direct is not None
    assert exact(direct.frame) == by_spark


def test_spark_reads_what_delta_rs_may_read_otherwise(ours: SparkSession, typed: Table) -> None:
    for name in set(COLUMNS) - set(READABLE):
        assert why_spark(typed, ["n", name]).startswith(f"column {name} is of type ")
        assert by_both(ours, typed, ["n"], ["n", name])[0] is None


def test_spark_finds_keys_in_padded_text_that_is_not_read(ours: SparkSession, tmp_path: Path) -> None:
    """Where delta-rs would compare keys with such a column, it would miss rows, also if it reads only others."""
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, c CHAR(4)", "(1, 'ab'), (2, 'cd')")
    assert by_both(ours, found(lake, "t"), ["c"], ["n"])[0] is None


@pytest.mark.parametrize("value", ["DATE'1582-10-10'", "TIMESTAMP'1850-01-01'", "TIMESTAMP_NTZ'1850-01-01'"])
def test_spark_reads_dates_and_times_of_other_calendars(ours: SparkSession, tmp_path: Path, value: str) -> None:
    lake = Lake(ours, tmp_path)
    lake.spark.sql(f"CREATE TABLE {lake.at('t')} USING delta AS SELECT 1 AS n, {value} AS c")
    for key in ("n", "c"):
        assert by_both(ours, found(lake, "t"), [key], ["n", "c"])[0] is None


def test_spark_reads_text_that_is_not_valid(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.spark.sql(f"CREATE TABLE {lake.at('t')} USING delta AS SELECT 1 AS n, CAST(X'C328' AS STRING) AS c")
    assert by_both(ours, found(lake, "t"), ["n"], ["n", "c"])[0] is None


@pytest.mark.parametrize("name", ["a.b", 'a"b', "Big", "a'b", "é😀", "a`b", "$", "--"])
def test_names_of_any_characters_are_read(ours: SparkSession, tmp_path: Path, name: str) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", f"n INT, {quote(name)} STRING", "(1, 'it''s'), (2, 'b'), (3, NULL)")
    for key in ([name], ["n", name]):
        direct, by_spark = by_both(ours, found(lake, "t"), key, ["n", name])
        assert direct is not None
        assert exact(direct.frame) == by_spark
        assert by_spark


@pytest.fixture(params=["columnMapping.mode", "enableTypeWidening"])
def special(ours: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    value = "name" if request.param == "columnMapping.mode" else "true"
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')", **{request.param: value})
    return found(lake, "t")


def test_spark_reads_tables_whose_features_are_not_shown_to_read_alike(ours: SparkSession, special: Table) -> None:
    assert why_spark(special, ["n"]) in ("column mapping", "feature typeWidening")
    assert by_both(ours, special, ["n"], ["n"])[0] is None


def test_tables_written_by_delta_rs_partitioned_and_of_older_versions_read_alike(
    ours: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(ours, tmp_path)
    rows = pyarrow.table({"n": pyarrow.array(range(20), pyarrow.int32()), "p": [f"p {n % 3}" for n in range(20)]})
    write_deltalake(lake.path("t"), rows, partition_by=["p"])
    lake.sql("DELETE FROM {t} WHERE n > 10", "t")
    DeltaTable(lake.path("t")).optimize.compact()
    table = found(lake, "t")
    direct, by_spark = by_both(ours, table, ["n"], ["n", "p"])
    assert direct is not None
    assert exact(direct.frame) == by_spark
    known = pruning(keys_of(read(ours, table.address, 0), "p", "n"))
    before = read_directly(ours, table, 0, ["n"], [(known, ("p", "n"))])
    assert before is not None
    assert before.rows.num_rows == 13


def test_only_files_that_may_hold_a_key_count(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, s STRING", "(1, 'a'), (2, 'b')")
    lake.sql("INSERT INTO {t} VALUES (7, 'x'), (8, 'y')", "t")
    table = found(lake, "t")
    for column, sought in (("n", "7"), ("s", "'x'")):
        known = pruning(ours.sql(f"SELECT named_struct('k0', {sought}) AS key"))
        direct = read_directly(ours, table, table.version, ["n"], [(known, [column])])
        assert direct is not None
        assert direct.rows.to_pydict() == {"n": [7]}
        (file,) = direct.files
        assert Path(file.removeprefix("file://")).is_file()


def test_all_rows_with_a_key_are_read(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, s STRING", "(1, 'a'), (2, NULL), (NULL, 'c')")
    table = found(lake, "t")
    for columns, rows in ((["n"], [1, 2]), (["n", "s"], [1])):
        direct = read_directly(ours, table, table.version, ["n"], [(None, columns)])
        assert direct is not None
        assert sorted(direct.rows.to_pydict()["n"]) == rows


def test_long_lists_of_values_are_left_to_spark(
    ours: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would crash the process, also if they belong to two selections by the same column."""
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, m INT", "(1, 3), (2, 4)")
    table = found(lake, "t")
    known = pruning(ours.sql("SELECT explode(array(1, 2, 3)) AS n").selectExpr("named_struct('k0', n) AS key"))
    monkeypatch.setattr(limits, "LISTED_KEYS", 5)
    assert read_directly(ours, table, table.version, ["n"], [(known, ["n"]), (known, ["m"])]) is not None
    assert read_directly(ours, table, table.version, ["n"], [(known, ["n"]), (known, ["n"])]) is None


def test_many_rows_and_large_files_are_left_to_others(
    ours: SparkSession, typed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 2)
    assert by_both(ours, typed, ["n"], ["n"])[0] is None
    monkeypatch.undo()
    assert by_both(ours, typed, ["n"], ["n"])[0] is not None
    monkeypatch.setattr(limits, "DIRECT_BYTES", 10)
    assert by_both(ours, typed, ["n"], ["n"])[0] is None
