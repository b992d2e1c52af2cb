"""Rows of few keys and feeds of few commits, read without Spark: as Spark reads them, or Spark reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.address import Address
from lakehouse.direct_feed import read_feed_directly
from lakehouse.direct_rows import read_directly, why_spark
from lakehouse.engine import Engine
from lakehouse.pruning import pruning
from lakehouse.session import own_session, settings
from lakehouse.small import DriverRows
from lakehouse.sqltext import quote
from lakehouse.tables import Table, commits_since, find, read, read_changes
from lakehouse.values import PRUNABLE
from tests.exact import exact
from tests.lake import Lake
from tests.test_value_properties import MAPS, POOLS

EARLY = ("0001-01-01", "1582-10-10", "1677-09-21")
"""Days that Spark may shift, or that nanoseconds cannot hold."""
NEVER_DIRECTLY = {"CHAR(4)", "ARRAY<STRING>", *MAPS}
"""Types that Spark reads always."""
COLUMNS = {f"c{number}": kind for number, kind in enumerate(POOLS | MAPS) if "`" not in kind}


def late(kind: str) -> list[str]:
    """Return the values of a type that delta-rs may read, and that literals can express."""
    pool = (POOLS | MAPS)[kind]
    return [
        value
        for value in pool
        if not any(day in value for day in EARLY) and not value.startswith(("CAST(X", "'\ufffd"))
    ]


@pytest.fixture(scope="module")
def ours(spark: SparkSession) -> SparkSession:
    return own_session(spark, "UTC")


@pytest.fixture(scope="module", params=["INT96", "TIMESTAMP_MICROS"])
def typed(ours: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Table:
    """A table with a column of each type, in several files, with deletion vectors, and updated, restored, compacted."""
    lake = Lake(ours, tmp_path_factory.mktemp("typed"))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    lake.create("t", f"n INT, {columns}", enableDeletionVectors="true")

    def insert(first: int) -> None:
        rows = []
        for n in range(first, first + 5):
            pools = map(late, COLUMNS.values())
            values = ("NULL" if n % 7 == 6 or not pool else pool[n % len(pool)] for pool in pools)
            rows.append(f"SELECT {n}, {', '.join(values)}")
        lake.sql(f"INSERT INTO {{t}} {' UNION ALL '.join(rows)}", "t")

    with settings(ours, {"spark.sql.parquet.outputTimestampType": request.param}):
        for first in (0, 5):
            insert(first)
        lake.sql("OPTIMIZE {t}", "t")
        for first in (10, 15):
            insert(first)
    lake.sql("DELETE FROM {t} WHERE n % 5 = 3", "t")
    lake.sql("UPDATE {t} SET c2 = NULL WHERE n % 6 = 1", "t")
    lake.sql("DELETE FROM {t} WHERE n > 1", "t")
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 7", "t")
    return found(lake, "t")


def found(lake: Lake, name: str) -> Table:
    table = find(Engine.of(lake.spark), Address(name, lake.path(name)))
    assert table is not None
    return table


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


READABLE = [name for name, kind in COLUMNS.items() if kind not in NEVER_DIRECTLY]


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
    import pyarrow

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


def test_many_rows_and_large_files_are_left_to_others(
    ours: SparkSession, typed: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 2)
    assert by_both(ours, typed, ["n"], ["n"])[0] is None
    monkeypatch.undo()
    assert by_both(ours, typed, ["n"], ["n"])[0] is not None
    monkeypatch.setattr(limits, "DIRECT_BYTES", 10)
    assert by_both(ours, typed, ["n"], ["n"])[0] is None


def feed_by_both(ours: SparkSession, table: Table, after: int, to: int, *columns: str) -> tuple[Any, Any]:
    """Read the feed of versions (after, to] directly, None if Spark has to read it, and by Spark."""
    names = columns or table.schema.fieldNames()
    direct = read_feed_directly(Engine.of(ours), table, after, to, names)
    return direct and exact(direct), exact(read_changes(ours, table, after, to, names))


def test_the_feed_of_any_readable_value_is_what_spark_reads(ours: SparkSession, typed: Table) -> None:
    for after, to in ((1, 5), (6, 7)):
        direct, by_spark = feed_by_both(ours, typed, after, to, "n", *READABLE)
        assert direct == by_spark
        assert len(by_spark) > 5
    kinds = [field.dataType for field in read_changes(ours, typed, 1, 2, READABLE).schema]
    direct = read_feed_directly(Engine.of(ours), typed, 1, 2, READABLE)
    assert direct is not None
    assert [field.dataType for field in direct.schema] == kinds


COMMITS = {
    "INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (3, 'c'), (4, 'd'), (5, 'e')": "WRITE",
    "UPDATE {t} SET v = 'u' WHERE n = 5": "UPDATE",
    "DELETE FROM {t} WHERE n = 3": "DELETE",
    "MERGE INTO {t} t USING (SELECT 4 AS n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET v = 'm'": "MERGE",
    "MERGE INTO {t} t USING (SELECT 6 AS n, 'i' AS v) s ON t.n = s.n WHEN NOT MATCHED THEN INSERT *": "MERGE",
    "MERGE INTO {t} t USING (SELECT 6 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE": "MERGE",
    "OPTIMIZE {t}": "OPTIMIZE",
    "DELETE FROM {t} WHERE n < 100": "DELETE",
    "INSERT INTO {t} VALUES (7, 'g'), (8, 'h')": "WRITE",
    "ALTER TABLE {t} SET TBLPROPERTIES (note = 'x')": "SET TBLPROPERTIES",
    "UPDATE {t} SET v = 'w' WHERE n = 7": "UPDATE",
    "INSERT OVERWRITE {t} VALUES (9, 'i'), (10, 'j')": "WRITE",
    "RESTORE TABLE {t} TO VERSION AS OF 3": "RESTORE",
}
"""Statements of Spark, with the operations of their commits; OPTIMIZE commits only what it improves."""


@pytest.mark.parametrize("deletion_vectors", [True, False])
def test_the_feed_of_each_kind_of_commit_is_what_spark_reads(
    ours: SparkSession, tmp_path: Path, deletion_vectors: bool
) -> None:
    """Only commits that mark rows as deleted, and do not write the changes as files, are left to Spark."""
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", enableDeletionVectors=str(deletion_vectors).lower())
    for statement in COMMITS:
        lake.sql(statement, "t")
    by_delta_rs = DeltaTable(lake.path("t"))
    import pyarrow

    rows = pyarrow.table({"n": pyarrow.array([11, 12, 13], pyarrow.int32()), "v": ["x", "y", "z"]})
    write_deltalake(by_delta_rs, rows, mode="append")
    if not deletion_vectors:  # delta-rs writes to tables without them only
        by_delta_rs.update(updates={"v": "'q'"}, predicate="n = 11")
        by_delta_rs.delete("n = 12")
    table, seen, left = found(lake, "t"), [], set[str]()
    for commit in commits_since(Engine.of(ours), table, 0):
        direct, by_spark = feed_by_both(ours, table, commit.version - 1, commit.version)
        actions = Path(lake.path("t"), "_delta_log", f"{commit.version:020d}.json").read_text()
        marks = '"deletionVector":{' in actions and '"cdc":{' not in actions
        left |= {commit.operation} if marks else set()
        assert direct == (None if marks else by_spark), commit
        assert by_spark or not commit.changes_data
        seen.append(commit.operation)
    expected = [*COMMITS.values(), "WRITE", *([] if deletion_vectors else ["UPDATE", "DELETE"])]
    assert [operation for operation in expected if operation != "OPTIMIZE" or operation in seen] == seen
    assert left == ({"DELETE", "RESTORE"} if deletion_vectors else set())
    whole, by_spark = feed_by_both(ours, table, seen.index("DELETE") + 1, seen.index("RESTORE"))
    assert whole == by_spark


def test_spark_reads_the_feed_of_a_merge_that_rewrites_files_and_changes_no_row(
    ours: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')", enableDeletionVectors="false")
    matched = "MERGE INTO {t} t USING (SELECT 1 AS n, 'x' AS v) s ON t.n = s.n WHEN MATCHED AND t.v = 'z'"
    lake.sql(f"{matched} THEN UPDATE SET v = 'q' WHEN NOT MATCHED THEN INSERT *", "t")
    table = found(lake, "t")
    assert table.version == 2
    assert feed_by_both(ours, table, 1, 2) == (None, [])


@pytest.mark.parametrize(
    ("alteration", "after"),
    [
        ("ALTER TABLE {t} ADD COLUMNS (w INT)", "INSERT INTO {t} VALUES (2, 'b', 1)"),
        ("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableTypeWidening = true)", "INSERT INTO {t} VALUES (2, 'b')"),
    ],
)
def test_the_feed_across_new_columns_and_new_features(
    ours: SparkSession, tmp_path: Path, alteration: str, after: str
) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')")
    for statement in ("INSERT INTO {t} VALUES (3, 'c')", alteration, after):
        lake.sql(statement, "t")
    direct, by_spark = feed_by_both(ours, found(lake, "t"), 1, 4)
    assert direct == (by_spark if "ADD" in alteration else None)
    assert len(by_spark) == 2


@pytest.mark.parametrize(
    "values", ["2, CAST(X'C328' AS STRING), NULL", "2, 'b', DATE'1582-10-10'", "2, 'b', DATE'1500-01-01'"]
)
def test_spark_reads_the_feed_of_values_that_it_may_show_otherwise(
    ours: SparkSession, tmp_path: Path, values: str
) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING, d DATE", "(1, 'a', NULL)")
    lake.sql(f"INSERT INTO {{t}} SELECT {values}", "t")
    assert read_feed_directly(Engine.of(ours), found(lake, "t"), 1, 2, ["n", "v", "d"]) is None
    assert read_feed_directly(Engine.of(ours), found(lake, "t"), 1, 2, ["n"]) is not None


def test_spark_reads_the_feed_of_partitioned_tables_and_of_files_that_are_gone(
    ours: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(ours, tmp_path)
    lake.spark.sql(f"CREATE TABLE {lake.at('p')} (n INT, v STRING) USING delta PARTITIONED BY (v)")
    lake.create("t", "n INT, v STRING")
    for name in ("p", "t"):
        lake.sql(f"INSERT INTO {{{name}}} VALUES (1, 'a')", name)
    engine = Engine.of(ours)
    assert read_feed_directly(engine, found(lake, "p"), 0, 1, ["n"]) is None
    assert read_feed_directly(engine, found(lake, "t"), 0, 1, ["n"]) is not None
    for file in Path(lake.path("t")).glob("*.parquet"):
        file.unlink()
    assert read_feed_directly(engine, found(lake, "t"), 0, 1, ["n"]) is None


def test_spark_reads_files_whose_columns_differ_from_the_table(ours: SparkSession, tmp_path: Path) -> None:
    """Spark finds a column in any case, and reads a wider type; a file that lacks a column has nulls there."""
    import pyarrow
    import pyarrow.parquet

    lake, engine = Lake(ours, tmp_path), Engine.of(ours)
    lake.create("t", "n INT, v STRING")
    lake.sql("INSERT INTO {t} VALUES (1, 'a')", "t")
    (file,) = Path(lake.path("t")).glob("*.parquet")
    table = found(lake, "t")
    one = pyarrow.array([1], pyarrow.int32())
    for columns, is_direct in (
        ({"N": one, "v": ["a"]}, False),
        ({"n": [1], "v": ["a"]}, False),
        ({"n": pyarrow.array([1], pyarrow.int16()), "v": ["a"]}, False),
        ({"n": one, "v": [b"a"]}, False),
        ({"n": one, "N": one, "v": ["a"]}, False),
        ({"n": one, "v": pyarrow.array(["a"], pyarrow.large_string())}, True),
        ({"n": one}, True),
    ):
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
        direct = read_feed_directly(engine, table, 0, 1, ["n", "v"])
        assert (direct is not None) == is_direct, columns
        if direct is not None:
            assert [tuple(row)[:3] for row in direct.collect()] == [(1, "a" if "v" in columns else None, "insert")]


def test_a_large_feed_is_left_to_spark(ours: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, engine = Lake(ours, tmp_path), Engine.of(ours)
    lake.create("t", "n INT")
    for rows in ("(1), (2)", "(3), (4)"):
        lake.sql(f"INSERT INTO {{t}} VALUES {rows}", "t")
    table = found(lake, "t")
    for name, most in (("ROWS_ON_DRIVER", 3), ("ROWS_ON_DRIVER", 1), ("DIRECT_FEED_BYTES", 10)):
        with monkeypatch.context() as limited:
            limited.setattr(limits, name, most)
            assert read_feed_directly(engine, table, 0, 2, ["n"]) is None
    assert read_feed_directly(engine, table, 0, 2, ["n"]) is not None
