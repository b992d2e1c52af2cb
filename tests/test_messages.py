"""Messages name what they are about, and the command that they name leads to a right result."""

import pytest

from lakehouse.errors.conditions import error_text
from lakehouse.errors.errors import DuplicateKey, LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.commands.plan import preview
from pipelines.report import JoinReport
from tests.cases import cases
from tests.lake import Lake, only

FAILED_READ = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times:
org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file f.parquet.
File does not exist. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.fileNotExistError(QueryExecutionErrors.scala:856)
Caused by: java.io.FileNotFoundException: File f.parquet does not exist
"""
FEED_OFF = """[DELTA_MISSING_CHANGE_DATA] Error getting change data for range [3 , 4] as change data was not
recorded for version [3]. If you've enabled change data feed on this table,
use `DESCRIBE HISTORY` to see when it was first enabled."""


@cases(
    "text, told",
    (
        FAILED_READ,
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file f.parquet. File does not exist.",
    ),
    (FEED_OFF, " ".join(FEED_OFF.split())),
    ("java.io.FileNotFoundException: no f.parquet\n\tat java.base/java.io.File.open(File.java)", "no f.parquet"),
    ("nothing that we know", "nothing that we know"),
)
def test_what_spark_says_is_told_whole_and_without_classes_and_stacks(text: str, told: str) -> None:
    assert error_text(RuntimeError(text)) == told


@cases(
    "counts, words",
    ({"null_keys": 1}, "warning: 1 source row with a null key was skipped"),
    ({"null_keys": 2_000}, "warning: 2,000 source rows with a null key were skipped"),
    ({"late": 1}, "1 source row arrived late: it is older than the stored row"),
    ({"null_values": 1, "appended": 1}, "1 row of the stream has a null value and was ignored"),
    ({"buffered": 1, "late": 1}, "1 row is buffered, waiting for matching rows"),
    ({"null_keys": 1, "appended": 1}, "warning: 1 row was skipped: rows of the stream with a null look-up key"),
    ({"null_keys": 2, "appended": 0}, "warning: 2 rows were skipped: rows of the stream with a null look-up key"),
)
def test_skipped_rows_are_counted_in_words_that_fit(counts: dict[str, int], words: str) -> None:
    report = JoinReport(join="j", outcome="done", epoch=1, strategy="incremental", counts=counts)
    assert words in report.text()


@cases(
    "statement, words",
    ("CREATE VIEW {} AS SELECT 1 AS k, 'a' AS v", "it is a view"),
    ("CREATE TABLE {} (k INT, v STRING) USING parquet", "it is not a Delta table"),
    ids=["view", "parquet"],
)
def test_a_source_that_is_no_delta_table_is_named_in_a_sentence(lake: Lake, statement: str, words: str) -> None:
    name, kind = f"of_another_kind_{len(words)}", statement.split()[1]
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    lake.spark.sql(statement.format(name))
    try:
        pipeline = lake.pipeline(sources={"left": {"key": "k", "table": name}, "right": "k"})
        for command in (
            lambda: preview(Workspace.open(lake.spark, pipeline.file, pipeline.folder), "result", ()),
            lambda: pipeline.run(lake.spark),
        ):
            with pytest.raises(LakejoinError, match=f"left: {words}") as stopped:
                command()
            assert name in stopped.value.found
            assert stopped.value.hint
    finally:
        lake.spark.sql(f"DROP {kind} {name}")


@pytest.mark.slow
def test_a_duplicate_key_is_shown_with_its_columns_and_rows(loaded: Lake) -> None:
    """Of keys in the feed, of keys that are looked up, and of whole tables; without the surplus rows all goes on."""
    pipeline = loaded.pipeline()
    loaded.sql("INSERT INTO {right} VALUES (2, 'again'), (3, 'x'), (3, 'y')")
    for command, found in ((pipeline.run, r"found: k=3 \(2 rows or more\)"), (pipeline.backfill, r"k=3 \(3 rows\)")):
        with pytest.raises(DuplicateKey, match=found):
            command(loaded.spark)
    loaded.sql("DELETE FROM {right} WHERE k = 3")
    with pytest.raises(DuplicateKey, match=r"found: k=2 \(2 rows\)") as stopped:
        pipeline.run(loaded.spark)
    assert "remove the surplus rows" in stopped.value.hint
    loaded.sql("DELETE FROM {right} WHERE w = 'again'")
    only(pipeline.run(loaded.spark))
    assert loaded.rows() == [(1, "a", None), (2, "b", "x"), (3, "c", None)]


@pytest.mark.slow
def test_null_safe_equality_with_a_key_joins_as_equality_does(standard: Lake) -> None:
    """A null on either side meets nothing, as rows without a key take no part."""
    lake = standard
    lake.sql("INSERT INTO {left} VALUES (4, NULL)")
    lake.sql("INSERT INTO {right} VALUES (NULL, 'none')")
    pipeline = lake.pipeline(
        "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.v <=> r.w", {"left": "k", "right": "w"}
    )
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {right} VALUES (9, NULL), (9, 'b')")
    lake.sql("INSERT INTO {left} VALUES (5, NULL)")
    only(pipeline.run(lake.spark))
    assert lake.rows() == [(1, "a", None), (2, "b", "b"), (3, "c", None), (4, None, None), (5, None, None)]
    only(pipeline.verify(lake.spark))
