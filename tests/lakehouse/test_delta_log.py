"""The log of a table as delta-rs reads it: the same facts as Spark's, and the times of a change feed."""

import os
import time
import tomllib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from lakehouse.errors.errors import FeedUnavailable
from lakehouse.session import engine as engines
from lakehouse.session.engine import DELTA_RS_VERSIONS, Engine
from lakehouse.tables.delta_log import open_log
from lakehouse.tables.table import DELTA_RS, Table, commits_since, find, get, has_no_null, history, read_feed, refresh
from lakehouse.values.compare import char_type
from lakehouse.values.recorded import utc
from lakehouse.values.sqltext import Address
from tests.lake import Lake
from tests.log_readers import TOO_OLD, without_delta_rs

TABLES = {
    "many types": (
        "k INT NOT NULL, b BINARY, d DECIMAL(38, 9), n TIMESTAMP_NTZ, t TIMESTAMP, day DATE, f FLOAT, x DOUBLE, "
        "s STRUCT<a: INT, `b.c`: ARRAY<STRING>> NOT NULL COMMENT 'some', m MAP<STRING, DECIMAL(10, 2)>, y TINYINT",
        "",
    ),
    "character types": ("k CHAR(3), v VARCHAR(5), a ARRAY<CHAR(2)>, s STRING", ""),
    "column mapping": ("`k 1` INT, s STRUCT<`a b`: INT>", "'delta.columnMapping.mode' = 'name'"),
    "in-commit times": ("k INT", "'delta.enableInCommitTimestamps' = 'true'"),
    "type widening": ("k INT, w SMALLINT", "'delta.enableTypeWidening' = 'true'"),
    "second checkpoints": ("k INT", "'delta.checkpointPolicy' = 'v2'"),
    "deletion vectors": ("k INT", "'delta.enableDeletionVectors' = 'true'"),
    "defaults": ("k INT, v STRING DEFAULT 'none'", "'delta.feature.allowColumnDefaults' = 'supported'"),
}
"""The columns and the properties of tables, by what is special about them."""


def as_spark_sees_it(engine: Engine, address: Address, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Look a table up by Spark alone."""
    with monkeypatch.context() as patch:
        without_delta_rs(patch, Path(address.path).parent)
        found = find(Engine.of(engine.spark), address)
    assert found is not None
    assert found.reader == f"spark (deltalake {TOO_OLD} is not {DELTA_RS_VERSIONS})"
    return found


def facts(table: Table) -> dict[str, Any]:
    columns = [(field.name, field.dataType.jsonValue(), field.nullable, char_type(field)) for field in table.schema]
    commits = [
        (c.version, c.operation, c.metadata, c.mode, dict(c.metrics), {**c.parameters}, c.at) for c in table.commits
    ]
    return {
        "id": table.id,
        "version": table.version,
        "columns": columns,
        "properties": dict(table.properties),
        "commits": commits,
        "size": table.size,
        "location": table.location,
    }


def test_the_statistics_say_which_columns_have_no_null(lake: Lake) -> None:
    """Unless they lack a column, have it under another name, or are those of a later version."""
    engine = Engine.of(lake.spark)

    def without_nulls(name: str, *columns: str) -> list[str]:
        table = get(engine, Address(name, lake.path(name)))
        return [column for column in columns if has_no_null(engine, table, [column])]

    lake.create("t", "k INT, v INT, `a.b` INT, s STRUCT<k: INT>", "(1, 1, 1, struct(1))")
    assert without_nulls("t", "k", "v", "a.b", "s") == ["k", "v"]
    lake.sql("INSERT INTO {t} VALUES (2, NULL, 2, NULL)", "t")
    assert without_nulls("t", "k", "v") == ["k"]
    with_null = get(engine, Address("t", lake.path("t")))
    assert not has_no_null(engine, with_null, ["k", "v"])
    lake.sql("DELETE FROM {t} WHERE k = 2", "t")
    assert without_nulls("t", "k", "v") == ["k", "v"]
    assert not has_no_null(engine, with_null, ["v"])
    lake.create("few", "k INT, v INT", "(1, 1)", **{"dataSkippingNumIndexedCols": "1"})
    assert without_nulls("few", "k", "v") == ["k"]
    lake.create("mapped", "k INT", "(1)", **{"columnMapping.mode": "name"})
    assert without_nulls("mapped", "k") == []


@pytest.mark.parametrize("kind", TABLES)
def test_delta_rs_and_spark_find_the_same_table(lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    columns, properties = TABLES[kind]
    given = f"TBLPROPERTIES ({properties})" if properties else ""
    lake.spark.sql(f"CREATE TABLE {lake.at('t')} ({columns}) USING delta {given}")
    change_in_many_ways(lake, lake.spark.table(lake.at("t")).columns[0], kind)
    engine, address = Engine.of(lake.spark), Address("t", lake.path("t"))
    table = find(engine, address)
    assert table is not None
    assert table.reader == DELTA_RS
    assert facts(table) == facts(as_spark_sees_it(engine, address, monkeypatch))
    assert facts(refresh(engine, table)) == facts(table)


def change_in_many_ways(lake: Lake, first: str, kind: str) -> None:
    """Make a commit of every operation whose parameters or metrics somebody reads."""
    lake.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "a 'note'")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'x' = 'é')", "t")
    lake.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    lake.sql("ALTER TABLE {t} ADD COLUMNS (`new one` INT)" if kind == "column mapping" else ADDED, "t")
    if kind != "many types":  # which has columns that must be given
        values = "'a'" if kind == "character types" else "1"
        lake.sql(f"INSERT INTO {{t}} (`{first}`) VALUES ({values})", "t")
        lake.sql(f"UPDATE {{t}} SET `{first}` = {values}", "t")
        lake.sql("DELETE FROM {t}", "t")
        if kind != "character types":
            source = f"(SELECT {values} AS x) ON `{first}` = x"
            lake.sql(f"MERGE INTO {{t}} USING {source} WHEN NOT MATCHED THEN INSERT (`{first}`) VALUES (x)", "t")
        lake.sql("RESTORE TABLE {t} TO VERSION AS OF 3", "t")
        lake.sql("OPTIMIZE {t}", "t")
    if kind == "type widening":
        lake.sql("ALTER TABLE {t} ALTER COLUMN w TYPE INT", "t")
    if kind == "column mapping":
        lake.sql("ALTER TABLE {t} RENAME COLUMN `new one` TO `new.two`", "t")
        lake.sql("ALTER TABLE {t} DROP COLUMN `new.two`", "t")


ADDED = "ALTER TABLE {t} ADD COLUMNS (added INT)"


def test_the_times_of_commits_are_those_of_the_change_feed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are copied, restored or written by another clock have times that do not grow."""
    lake.create("t", "k INT")
    for k in range(12):
        lake.sql(f"INSERT INTO {{t}} VALUES ({k})", "t")
    start = int(time.time()) - 3_600
    odd = [0, 5, 5, 4.0015, 9, 1, 1, 1, 30, 9.9999, 30.0004, 29, 31]
    for version, seconds in enumerate(odd):
        moment = int((start + seconds) * 1_000_000_000)
        os.utime(Path(lake.path("t"), "_delta_log", f"{version:020d}.json"), ns=(moment, moment))
    assert times(lake) == feed_times(lake, 13)
    assert times(lake)[1] == datetime.fromtimestamp(start + 5, UTC)
    for reader in (DELTA_RS, "spark"):  # whoever reads, and from whichever commit on
        if reader == "spark":
            without_delta_rs(monkeypatch, lake.folder)
        assert times(lake, 7) == {version: at for version, at in feed_times(lake, 13).items() if version > 5}


def test_times_in_the_commit_go_before_those_of_its_file(lake: Lake) -> None:
    lake.create("t", "k INT")
    lake.sql("INSERT INTO {t} VALUES (1)", "t")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')", "t")
    lake.sql("INSERT INTO {t} VALUES (2)", "t")
    before = int(time.time()) - 3_600
    for version in range(4):
        os.utime(Path(lake.path("t"), "_delta_log", f"{version:020d}.json"), (before, before))
    assert times(lake) == feed_times(lake, 4)
    assert times(lake)[3] > datetime.fromtimestamp(before + 3_000, UTC) > times(lake)[1]


def times(lake: Lake, limit: int = 100) -> dict[int, datetime]:
    """Give the time of each commit that changed rows, among the newest."""
    commits = history(Engine.of(lake.spark), Address("t", lake.path("t")), limit)
    return {commit.version: commit.at for commit in commits if commit.operation == "WRITE"}


def feed_times(lake: Lake, until: int) -> dict[int, datetime]:
    feed = read_feed(lake.spark, Address("t", lake.path("t")), 0, until - 1, [])
    return {row[0]: utc(row[1]) for row in feed.select("_commit_version", "_commit_timestamp").distinct().collect()}


def test_a_commit_that_is_missing_is_seen_by_delta_rs_too(lake: Lake) -> None:
    lake.create("t", "k INT")
    for k in range(6):
        lake.sql(f"INSERT INTO {{t}} VALUES ({k})", "t")
    engine, address = Engine.of(lake.spark), Address("t", lake.path("t"))
    DeltaTable(lake.path("t")).create_checkpoint()
    for version in (0, 1, 3):
        Path(lake.path("t"), "_delta_log", f"{version:020d}.json").unlink()
    table = find(engine, address)
    assert table is not None
    assert table.version == 6
    assert [commit.version for commit in commits_since(engine, table, 3)] == [4, 5, 6]
    with pytest.raises(FeedUnavailable, match="version 3"):
        commits_since(engine, table, 1)


def test_a_table_with_a_feature_that_is_not_known_is_read_by_spark(lake: Lake) -> None:
    lake.create("t", "k INT, v VARIANT")
    table = find(Engine.of(lake.spark), Address("t", lake.path("t")))
    assert table is not None
    assert table.version == 0
    assert table.reader == "spark (feature variantType)"


def never() -> SparkSession:
    raise AssertionError("Spark was started")


def test_a_folder_that_is_no_table_is_missing_for_an_embedded_engine_and_a_question_for_spark(lake, tmp_path):
    assert open_log(Engine(never, is_embedded=True), Address("t", str(tmp_path / "none"))) == (None, "")
    assert find(Engine.of(lake.spark), Address("t", str(tmp_path / "none"))) is None


def test_tables_that_delta_rs_does_not_reach_say_why() -> None:
    engine = Engine(never, is_embedded=True)
    assert engine.why_spark(Address.by_name("t", "main.sales.t")) == "catalog table"
    assert engine.why_spark(Address("t", "abfss://c@account/t")) == "neither on this machine nor on S3"
    assert engine.why_spark(Address("t", "s3a://bucket/t")) == ""
    assert engine.why_spark(Address("t", "file:///lake/t")) == ""


@pytest.mark.parametrize(("installed", "says"), [("1.6.3", 1), ("1.6.6", 0), ("1.6.9", 0), ("1.7.0", 1)])
def test_a_deltalake_outside_the_range_is_as_if_it_were_absent_with_a_note(monkeypatch, caplog, installed, says):
    monkeypatch.setattr(engines, "version", lambda _: installed)
    why = Engine(never, is_embedded=True).why_spark(Address("t", "/lake/t"))
    assert why == (f"deltalake {installed} is not {DELTA_RS_VERSIONS}" if says else "")
    assert len(caplog.records) == says


def test_the_range_of_deltalake_is_the_one_of_the_project() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in ("local", "fast"):
        (named,) = (Requirement(line) for line in extras[extra] if line.startswith("deltalake"))
        assert named.specifier == DELTA_RS_VERSIONS


def test_without_deltalake_spark_reads_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(engines, "version", missing)
    assert Engine(never, is_embedded=True).why_spark(Address("t", "/lake/t")) == "deltalake is not installed"


@pytest.mark.slow
def test_a_table_that_spark_and_delta_rs_write_in_turn_reads_alike(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 commits, with checkpoints of both between them."""
    import pyarrow

    lake.create("t", "k INT, v STRING")
    engine, address = Engine.of(lake.spark), Address("t", lake.path("t"))
    for number in range(150):
        lake.sql(f"INSERT INTO {{t}} VALUES ({number}, 'spark')", "t")
        rows = pyarrow.table({"k": pyarrow.array([number], pyarrow.int32()), "v": ["delta-rs"]})
        write_deltalake(lake.path("t"), rows, mode="append")
        if number in (40, 97):
            DeltaTable(lake.path("t")).create_checkpoint()
    table = find(engine, address)
    assert table is not None
    assert table.version == 300
    spark = as_spark_sees_it(engine, address, monkeypatch)
    assert facts(table) == facts(spark)
    assert [commit.version for commit in history(engine, address, 1_000)] == list(range(300, -1, -1))
    assert lake.rows("t") == sorted(((n, by) for n in range(150) for by in ("spark", "delta-rs")), key=repr)
