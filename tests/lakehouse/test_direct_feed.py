"""Change feeds that are read from the files of their commits: as Spark reads them, or Spark reads them."""

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakehouse import limits
from lakehouse.appended_files import read_appended
from lakehouse.direct_feed import read_feed_directly
from lakehouse.engine import Engine
from lakehouse.tables import Table, commits_since, read_changes
from tests.exact import exact
from tests.lake import Lake
from tests.lakehouse.typed import READABLE, found


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
        appended = read_appended(Engine.of(ours), table, commit.version - 1, commit.version, table.schema.fieldNames())
        only_appends = commit.changes_data and {bytes.fromhex(row[2]) for row in by_spark} == {b"insert"}
        assert (appended and exact(appended)) == (by_spark if only_appends else None), commit
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


def test_spark_reads_the_feed_across_new_columns_and_new_features(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')")
    for statement in (
        "INSERT INTO {t} VALUES (3, 'c')",
        "ALTER TABLE {t} ADD COLUMNS (w INT)",
        "INSERT INTO {t} VALUES (2, 'b', 1)",
    ):
        lake.sql(statement, "t")
    table = found(lake, "t")
    direct, by_spark = feed_by_both(ours, table, 1, 4, "n", "v")  # both files have these columns
    assert direct == by_spark
    assert len(by_spark) == 2
    assert feed_by_both(ours, table, 1, 4)[0] is None
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableTypeWidening = true)", "t")
    assert feed_by_both(ours, found(lake, "t"), 1, 4, "n")[0] is None


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
    """Spark finds a column in any case, reads a wider type, and has nulls for a column that a file lacks."""
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
        ({"n": one}, False),
    ):
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
        direct = read_feed_directly(engine, table, 0, 1, ["n", "v"])
        assert (direct is not None) == is_direct, columns
        if direct is not None:
            assert [tuple(row)[:3] for row in direct.collect()] == [(1, "a", "insert")]


def test_a_large_feed_is_left_to_spark(ours: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, engine = Lake(ours, tmp_path), Engine.of(ours)
    lake.create("t", "n INT")
    for rows in ("(1), (2)", "(3), (4)"):
        lake.sql(f"INSERT INTO {{t}} VALUES {rows}", "t")
    table = found(lake, "t")
    for name, most in (
        ("ROWS_ON_DRIVER", 3),
        ("ROWS_ON_DRIVER", 1),
        ("DIRECT_FEED_BYTES", 10),
        ("DIRECT_COMMIT_BYTES", 10),
        ("BYTES_ON_DRIVER", 10),
    ):
        with monkeypatch.context() as limited:
            limited.setattr(limits, name, most)
            assert read_feed_directly(engine, table, 0, 2, ["n"]) is None
    assert read_feed_directly(engine, table, 0, 2, ["n"]) is not None
