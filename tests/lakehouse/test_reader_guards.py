"""
Each guard of the readers beside Spark is needed: without it they read something other than Spark, or fail.

Guards on sizes are not among them: they save memory and change no row. Some others are a precaution, as their
docstrings say: the list of features, column mapping for rows, times without a time zone, VARIANT and collated text.
"""

import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse import direct_feed, direct_rows, limits
from lakehouse.engine import Engine
from lakehouse.pruning import pruning
from lakehouse.session import settings
from lakehouse.tables import Table, read, read_changes
from tests.exact import exact
from tests.lake import Lake
from tests.lakehouse.typed import found

LEGACY = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
}
"""Settings under which Spark writes days before 1582-10-15 in the calendar of that time."""


def without(module: ModuleType, guard: str, instead: str = "if False:") -> Any:
    """Return a copy of a module in which a guard, given by its source, is replaced."""
    source = inspect.getsource(module)
    assert source.count(guard) == 1, guard
    copy = ModuleType(module.__name__)
    copy.__file__ = module.__file__
    with pytest.MonkeyPatch.context() as patched:  # dataclasses look their module up
        patched.setitem(sys.modules, module.__name__, copy)
        exec(source.replace(guard, instead), copy.__dict__)
    return copy


@pytest.fixture(scope="module")
def lake(ours: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Tables that a reader without one of its guards misreads."""
    lake = Lake(ours, tmp_path_factory.mktemp("guards"))
    lake.create("plain", "n INT, s STRING, c CHAR(4)", "(1, '1', 'ab'), (2, '2', 'cd')")
    lake.create("early", "n INT, d DATE, t TIMESTAMP, a ARRAY<DATE>")
    lake.create("late", "n INT, t TIMESTAMP")
    day = "DATE'1500-01-01'"
    with settings(ours, LEGACY):
        lake.sql(f"INSERT INTO {{early}} VALUES (1, {day}, TIMESTAMP'1500-01-01 00:00:00', array({day}))", "early")
        lake.sql("INSERT INTO {late} VALUES (1, TIMESTAMP'2600-01-01 00:00:00')", "late")
    return lake


def by_keys(reader: Any, ours: SparkSession, table: Table, key: str, column: str, read_too: str) -> list[Any] | None:
    """Read a column of the rows with one key by a reader."""
    known = pruning(ours.sql(f"SELECT named_struct('k0', {key}) AS key"))
    direct = reader.read_directly(ours, table, table.version, [read_too], [(known, [column])])
    return None if direct is None else exact(direct.frame)


ROWS = {
    "some rows do not exist": ("if table.where:", "if False:", "plain", "1", "n", "s"),
    "early dates in arrays": (" and not is_nested", "", "early", "1", "n", "a"),
    "CHAR": (" and char_type(field) is None", "", "plain", "'ab  '", "c", "n"),
    "early dates": ("if has_early(rows):", "if False:", "early", "1", "n", "d"),
    "early keys": ("if _is_early(item.ranges[0][0], kind):", "if False:", "early", "TIMESTAMP'1500-01-01'", "t", "n"),
    "INT96": ('    "datafusion.execution.parquet.coerce_int96": "us",\n', "", "late", "1", "n", "t"),
}
"""For each guard its source, what replaces it, a table, a key, the column of the key and a column to read."""


@pytest.mark.parametrize(("guard", "instead", "name", "key", "column", "read_too"), ROWS.values(), ids=ROWS)
def test_a_reader_of_rows_without_a_guard_reads_other_rows_than_spark(
    ours: SparkSession, lake: Lake, guard: str, instead: str, name: str, key: str, column: str, read_too: str
) -> None:
    table = found(lake, name)
    if "where" in guard:
        table = replace(table, where="n > 1")
    existing = read(ours, table.address, table.version).where(table.where or "true")
    by_spark = exact(existing.where(f"{column} = {key}").select(read_too))
    assert by_keys(direct_rows, ours, table, key, column, read_too) in (None, by_spark)
    misread = by_keys(without(direct_rows, guard, instead), ours, table, key, column, read_too)
    assert misread is not None
    assert misread != by_spark


def test_keys_of_another_type_need_a_guard(ours: SparkSession, lake: Lake) -> None:
    """Statistics of the files cannot be compared with them."""
    table = found(lake, "plain")
    guard = "if kind != item.kind and not (isinstance(kind, INTEGRAL) and isinstance(item.kind, INTEGRAL)):"
    assert by_keys(direct_rows, ours, table, "1", "s", "n") is None
    with pytest.raises(TypeError):
        by_keys(without(direct_rows, guard), ours, table, "1", "s", "n")


LONG_LIST = """
import sys
from deltalake import DeltaTable, QueryBuilder
listed = ", ".join(map(str, range(int(sys.argv[2]))))
query = QueryBuilder().register("t", DeltaTable(sys.argv[1]))
print(len(list(query.execute(f"SELECT n FROM t WHERE n IN ({listed})"))))
"""


def test_long_lists_of_values_crash_the_process(lake: Lake) -> None:
    for number, is_safe in ((limits.LISTED_KEYS, True), (100_000, False)):
        command = [sys.executable, "-c", LONG_LIST, lake.path("plain"), str(number)]
        assert (subprocess.run(command, capture_output=True, check=False).returncode == 0) == is_safe


def feeds(reader: Any, ours: SparkSession, table: Table, after: int, columns: Sequence[str]) -> tuple[Any, Any]:
    """Return the feed of the version after one by a reader, and by Spark, None if Spark refuses to read it."""
    direct = reader.read_feed_directly(Engine.of(ours), table, after, after + 1, columns)
    try:
        by_spark = exact(read_changes(ours, table, after, after + 1, columns))
    except (PySparkException, Py4JJavaError):
        by_spark = None
    return direct and exact(direct), by_spark


def assert_needed(
    ours: SparkSession, guard: str, table: Table, after: int, *columns: str, instead: str = "if False:"
) -> None:
    """Check that the reader leaves a feed to Spark, and that without a guard it reads another than Spark."""
    assert feeds(direct_feed, ours, table, after, columns)[0] is None
    misread, by_spark = feeds(without(direct_feed, guard, instead), ours, table, after, columns)
    assert misread is not None
    assert misread != by_spark


def test_a_feed_of_early_dates_needs_a_guard(ours: SparkSession, lake: Lake) -> None:
    assert_needed(ours, "if has_early(rows):", found(lake, "early"), 0, "n", "d")


def test_a_feed_of_text_that_is_not_valid_needs_a_guard(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING")
    lake.sql("INSERT INTO {t} SELECT 1, CAST(X'C328' AS STRING)", "t")
    guard = "        rows.validate(full=True)  # text that is not valid UTF-8\n"
    assert_needed(ours, guard, found(lake, "t"), 0, "n", "v", instead="")


def test_a_merge_that_rewrites_files_and_changes_no_row_needs_a_guard(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')", enableDeletionVectors="false")
    matched = "MERGE INTO {t} t USING (SELECT 1 AS n, 'x' AS v) s ON t.n = s.n WHEN MATCHED AND t.v = 'z'"
    lake.sql(f"{matched} THEN UPDATE SET v = 'q' WHEN NOT MATCHED THEN INSERT *", "t")
    guard = 'if commit.operation == "MERGE" and any(kind == "remove" for kind, _ in whole):'
    assert_needed(ours, guard, found(lake, "t"), 1, "n", "v")


def test_deletion_vectors_need_a_guard(ours: SparkSession, tmp_path: Path) -> None:
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT", enableDeletionVectors="true")
    lake.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2), (3)", "t")
    lake.sql("DELETE FROM {t} WHERE n = 1", "t")
    lake.sql("DELETE FROM {t} WHERE n < 100", "t")  # removes the file, of which two rows are left
    guard = 'if any(action.get("deletionVector") for _, action in whole):'
    assert_needed(ours, guard, found(lake, "t"), 2, "n")


def test_new_columns_need_a_guard(ours: SparkSession, tmp_path: Path) -> None:
    """Spark refuses to read a feed over them."""
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING", "(1, 'a')")
    for value in ("5", "'b'"):
        other = lake.spark.sql(f"SELECT 2 AS n, {value} AS v").write.format("delta").mode("overwrite")
        other.option("overwriteSchema", "true").save(lake.path("t"))
    guard = "if any(found.simpleString() != schema.simpleString() for found in columns):"
    assert_needed(ours, guard, found(lake, "t"), 1, "n")


def test_column_mapping_needs_a_guard(ours: SparkSession, tmp_path: Path) -> None:
    """The files have the former names of renamed columns."""
    lake = Lake(ours, tmp_path)
    lake.create("t", "n INT, v STRING, w STRING", "(1, 'a', 'b')")
    mapped = "SET TBLPROPERTIES (delta.columnMapping.mode = 'name')"
    for change in (mapped, "RENAME COLUMN v TO u", "RENAME COLUMN w TO v"):
        lake.sql(f"ALTER TABLE {{t}} {change}", "t")
    lake.sql("INSERT INTO {t} VALUES (2, 'c', 'd')", "t")
    table = found(lake, "t")
    assert feeds(direct_feed, ours, table, 4, ["n", "v"])[0] is None
    misread, by_spark = feeds(direct_feed, ours, replace(table, properties={}), 4, ["n", "v"])
    assert misread is not None
    assert misread != by_spark


def table_over(lake: Lake, file: pyarrow.Table, partition: str = "") -> Table:
    """Create a table of an INT `n` and a STRING `v` with the row (1, 'a'), and put another file in place of its own."""
    changes = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    lake.spark.sql(f"CREATE TABLE {lake.at('t')} (n INT, v STRING) USING delta {partition} {changes}")
    lake.sql("INSERT INTO {t} VALUES (1, 'a')", "t")
    (path,) = (path for path in Path(lake.path("t")).rglob("*.parquet") if "_delta_log" not in path.parts)
    pyarrow.parquet.write_table(file, path)
    log = Path(lake.path("t"), "_delta_log", f"{1:020d}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in (action["add"] for action in actions if "add" in action):
        action.update(size=path.stat().st_size, stats=None)
    log.write_text("\n".join(map(json.dumps, actions)))
    for checksum in (*path.parent.glob(".*.crc"), *log.parent.glob(f"*{1:020d}.*crc")):
        checksum.unlink()
    return found(lake, "t")


ONE = pyarrow.array([1], pyarrow.int32())
OF_FILES = {
    "another type": ("if not (is_same or is_text or is_bytes):", "if False:", {"n": [1], "v": ["a"]}, ""),
    "names in two cases": (
        "        _check_columns(source, [*kinds, *([] if file.kind else [TYPE])])\n",
        "",
        {"n": ONE, "N": ONE, "v": ["a"]},
        "",
    ),
    "a partition": (
        'if action.get("partitionValues"):',
        "if False:",
        {"n": ONE, "v": ["other"]},
        "PARTITIONED BY (v)",
    ),
}
"""For each guard its source, what replaces it, the columns of a file, and how the table is partitioned."""


@pytest.mark.parametrize(("guard", "instead", "columns", "partition"), OF_FILES.values(), ids=OF_FILES)
def test_unusual_files_need_a_guard(
    ours: SparkSession, tmp_path: Path, guard: str, instead: str, columns: dict[str, Any], partition: str
) -> None:
    table = table_over(Lake(ours, tmp_path), pyarrow.table(columns), partition)
    assert_needed(ours, guard, table, 0, "n", "v", instead=instead)
