"""A result laid out by other columns than its key: look-ups and MERGE prune by them, and no row is missed."""

from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import changes
from lakehouse import limits
from lakehouse.errors.errors import ForeignWriter, GateFailed, PipelineFileError
from lakehouse.publish import merge
from pipelines import Pipeline
from pipelines.binding.bind import layout_faults
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.exact import WAYS
from tests.killing import killed, recorded_writes
from tests.lake import JOIN, Lake, only
from tests.planted import planted

REFERENCE = "SELECT l.k, l.f, l.v, r.w FROM left l LEFT JOIN right r ON l.f = r.k"
INNER = REFERENCE.replace("LEFT JOIN", "JOIN")
PAIRS = "SELECT l.k, r.k AS m, l.f, l.v, r.w FROM left l LEFT JOIN right r ON l.f = r.g"
CHANGES = (
    "UPDATE {right} SET w = 'changed' WHERE k = 1; UPDATE {left} SET f = 3 WHERE k IN (2, 3)",
    "UPDATE {left} SET f = NULL WHERE k = 3; UPDATE {left} SET f = 1 WHERE k = 6; DELETE FROM {right} WHERE k = 3",
    "DELETE FROM {left} WHERE k = 4; INSERT INTO {left} VALUES (7, 2, 'g'), (8, NULL, 'h'), (9, 9, 'i')",
    "INSERT INTO {right} VALUES (9, 1, 'I'), (3, 1, 'again'); UPDATE {left} SET v = 'other' WHERE f IS NULL",
)


def loaded(lake: Lake, sql: str = REFERENCE, **options: Any) -> Pipeline:
    lake.create("left", "k INT, f INT, v STRING", "(1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'), (4, 2, 'd'), (6, NULL, 'f')")
    lake.create("right", "k INT, g INT, w STRING", "(1, 1, 'A'), (2, 2, 'B'), (3, 2, 'C')")
    pipeline = lake.pipeline(sql, cluster_by="f", **options)
    pipeline.run(lake.spark)
    return pipeline


def note(lake: Lake, pipeline: Pipeline) -> str:
    return status_of(Workspace.open(lake.spark, pipeline.file, pipeline.folder), "result").note


def clustering(lake: Lake) -> list[str]:
    return list(lake.sql("DESCRIBE DETAIL {result}")[0]["clusteringColumns"])


@pytest.mark.slow
@cases("sql", REFERENCE, INNER, PAIRS, ids=["left", "inner", "many to many"])
@pytest.mark.parametrize("way", WAYS)
def test_the_result_stays_the_join_of_its_sources(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, sql: str, way: str
) -> None:
    """Rows that move to another value, to and from null, that enter and leave; each epoch has its changes alone."""
    pipeline = loaded(lake, sql)
    WAYS[way](monkeypatch)
    assert clustering(lake) == ["f"]
    for change in CHANGES:
        for statement in change.split("; "):
            lake.sql(statement)
        before, base = lake.rows(), lake.version()
        assert only(pipeline.run(lake.spark)).outcome == "done"
        expected = set(map(tuple, lake.sql(sql.replace("left l", "{left} l").replace("right r", "{right} r"))))
        after, feed = lake.rows(), lake.feed(base)
        assert (len(after), set(after)) == (len(expected), expected), change
        assert {row for kind, row in feed if kind in ("delete", "update_preimage")} == set(before) - expected, change
        assert {row for kind, row in feed if kind in ("insert", "update_postimage")} == expected - set(before), change
    assert only(pipeline.verify(lake.spark)).outcome == "done"


def test_merge_prunes_by_the_values_before_the_change(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    statements, build = list[str](), merge.merge_statement

    def recorded(*args: Any, **options: Any) -> str:
        statements.append(build(*args, **options))
        return statements[-1]

    monkeypatch.setattr(merge, "merge_statement", recorded)
    pipeline = loaded(lake)
    lake.sql("UPDATE {left} SET f = 3 WHERE k IN (1, 6)")
    pipeline.run(lake.spark)
    (statement,) = statements
    assert ("t.`f` IS NULL" in statement, "t.`f` = 1" in statement, "t.`f` = 3" in statement) == (True, True, False)


def test_a_row_that_is_not_where_the_change_set_says_stops_the_epoch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MERGE would not find it."""
    pipeline = loaded(lake)
    WAYS["literals"](monkeypatch)
    lake.sql("UPDATE {left} SET v = 'changed' WHERE k = 1")
    elsewhere = F.expr("named_struct('k', before.k, 'f', 2, 'v', before.v, 'w', before.w)")
    with (
        planted(lambda rows: rows.withColumn("before", elsewhere)),
        pytest.raises(GateFailed, match="an update changes an existing row"),
    ):
        pipeline.run(lake.spark)
    assert only(pipeline.run(lake.spark)).outcome == "done"


@pytest.mark.deep
def test_a_second_merge_of_a_change_set_changes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the rows that the first one has inserted, and those that it has moved."""
    versions, build = list[int](), merge.merge_statement

    def twice(*args: Any, **options: Any) -> str:
        statement = build(*args, **options)
        for _ in range(2):
            lake.sql(statement)
            versions.append(lake.version())
        return statement

    pipeline = loaded(lake)
    lake.sql("UPDATE {left} SET f = 3 WHERE k = 1")
    lake.sql("INSERT INTO {left} VALUES (7, 7, 'g')")
    lake.sql("DELETE FROM {left} WHERE k = 2")
    base = lake.version()
    monkeypatch.setattr(merge, "merge_statement", twice)
    with pytest.raises(ForeignWriter):  # the statements of this test
        pipeline.run(lake.spark)
    assert versions == [base + 1, base + 1]
    assert [(row[0], row[1]) for row in lake.rows()] == [(1, 3), (3, 2), (4, 2), (6, None), (7, 7)]


@pytest.mark.slow
@cases(
    "rows, values",
    pytest.param(60, 60, id="more values than ranges"),
    pytest.param(120_000, 11_000, id="more than are listed", marks=pytest.mark.deep),
)
def test_many_values_before_the_change(lake: Lake, rows: int, values: int) -> None:
    lake.create("left", "k INT, f INT, v STRING")
    lake.sql(f"INSERT INTO {{left}} SELECT id, nullif(pmod(id * 7, {values}) * 3, 0), 'a' FROM range({rows})")
    lake.create("right", "k INT, w STRING")
    lake.sql(f"INSERT INTO {{right}} SELECT id * 3, 'A' FROM range(1, {values})")
    pipeline = lake.pipeline(REFERENCE, cluster_by=["f", "w"])
    pipeline.run(lake.spark)
    lake.sql("UPDATE {right} SET w = 'B' WHERE k % 2 = 0")
    lake.sql("UPDATE {left} SET f = f + 3 WHERE k % 3 = 0")
    lake.sql("INSERT INTO {left} VALUES (-1, NULL, 'new'), (-2, 3, 'new')")
    pipeline.run(lake.spark)
    assert only(pipeline.verify(lake.spark)).outcome == "done"
    lake.sql("DELETE FROM {right} WHERE k % 5 = 0")
    pipeline.run(lake.spark)
    assert only(pipeline.verify(lake.spark)).outcome == "done"


def test_a_change_of_few_parents_reads_few_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A first load is sorted by the columns, so that files have separate ranges of the reference, not of the key: MERGE
    and the gate read at most a quarter of them.
    """
    WAYS["literals"](monkeypatch)
    monkeypatch.setattr(limits, "BYTES_PER_FILE", 5_000)
    lake.create("left", "k INT, f INT, v STRING")
    lake.sql("INSERT INTO {left} SELECT id, pmod(id * 7919, 500), 'a' FROM range(20000)")
    lake.create("right", "k INT, w STRING")
    lake.sql("INSERT INTO {right} SELECT id, 'A' FROM range(500)")
    pipeline = lake.pipeline(REFERENCE, cluster_by="f")
    pipeline.run(lake.spark)
    ranges = sorted(map(tuple, lake.sql("SELECT min(f), max(f) FROM {result} GROUP BY input_file_name()")))
    assert len(ranges) > 12
    assert all(high <= low for (_, high), (low, _) in pairwise(ranges))
    read, build, locate = dict[str, int](), merge.merge_statement, changes._Staged._located

    def merged(*args: Any, **options: Any) -> str:
        statement = build(*args, **options)
        of_key, _, of_target = statement.partition("\nON ")[2].partition("\n")[0].partition(" AND ")
        assert of_key == "t.`k` = s.key.`k`"
        read["MERGE"] = len(lake.spark.sql(f"SELECT * FROM {lake.at('result')} t WHERE {of_target}").inputFiles())
        return statement

    def located(self: changes._Staged, lines: DataFrame, published: DataFrame) -> DataFrame:
        rows = locate(self, lines, published)
        read["gate"] = len(rows.inputFiles())
        return rows

    monkeypatch.setattr(merge, "merge_statement", merged)
    monkeypatch.setattr(changes._Staged, "_located", located)
    lake.sql("UPDATE {right} SET w = 'B' WHERE k BETWEEN 490 AND 495 OR k = 7")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 280
    assert 0 < read["MERGE"] == read["gate"] <= len(ranges) // 4


@pytest.mark.slow
def test_parts_and_kills_know_the_layout(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill slice by slice, one of a part, and a run that finishes the epoch of another that was killed."""
    WAYS["literals"](monkeypatch)
    pipeline = loaded(lake)
    lake.sql("DELETE FROM {left} WHERE k = 2")
    lake.sql("UPDATE {right} SET w = 'changed'")
    with killed("merge into result", "before"):
        pipeline.run(lake.spark)
    lake.pipeline(REFERENCE).run(lake.spark)
    assert only(pipeline.verify(lake.spark)).outcome == "done"
    lake.sql("UPDATE {left} SET f = 1")
    pipeline = lake.pipeline(REFERENCE, cluster_by="v")  # the result is not laid out by it yet
    assert only(pipeline.backfill(lake.spark, slices=3)).outcome == "done"
    assert only(pipeline.verify(lake.spark)).outcome == "done"
    monkeypatch.setattr(EpochPlan, "via_driver", False)
    lake.sql("UPDATE {left} SET v = 'z' WHERE k > 3")
    pipeline.run(lake.spark)
    assert only(pipeline.verify(lake.spark)).outcome == "done"
    assert clustering(lake) == ["f"]


@pytest.mark.deep
@cases("step", "set properties of result", "cluster result", "optimize result")
def test_maintain_lays_out_a_result_anew(lake: Lake, step: str) -> None:
    """After `cluster_by` is added, changed or taken out; killed anywhere it begins again, also for an older layout."""
    lake.create("left", "k INT, v INT", "(1, 1), (2, 2), (3, 3)")
    lake.create("right", "k INT, w INT", "(1, 10), (4, 40)")
    lake.pipeline(JOIN).run(lake.spark)
    assert clustering(lake) == ["k"]
    rows = lake.rows()
    for columns in ["v"], None:
        with killed(step, "after"):
            lake.pipeline(JOIN, cluster_by=["v", "w"]).maintain(lake.spark)
        pipeline = lake.pipeline(JOIN, **({} if columns is None else {"cluster_by": columns}))
        assert "run `lakejoin maintain --select result`" in note(lake, pipeline)
        assert pipeline.maintain(lake.spark)[0].outcome == "done"
        assert (clustering(lake), lake.rows()) == (columns or ["k"], rows)
        assert note(lake, pipeline) == ""
    lake.sql("UPDATE {right} SET w = w + 1")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    with recorded_writes() as writes:
        pipeline.maintain(lake.spark)
    assert "cluster result" not in writes


@pytest.mark.slow
def test_a_result_whose_key_cannot_be_clustered_by_is_laid_out_and_back(lake: Lake) -> None:
    lake.create("left", "k BOOLEAN, v INT", "(true, 1), (false, 2)")
    lake.create("right", "k BOOLEAN, w INT", "(true, 10)")
    lake.pipeline(JOIN, cluster_by="v").run(lake.spark)
    for columns in None, "v", None:
        pipeline = lake.pipeline(JOIN, **({} if columns is None else {"cluster_by": columns}))
        assert pipeline.maintain(lake.spark)[0].outcome == "done"
        assert clustering(lake) == [*(columns or "")]
    pipeline = lake.pipeline(JOIN.replace("l.k, l.v", "l.*"), cluster_by="x")
    with pytest.raises(PipelineFileError, match="`x` is not a column of the result"):
        pipeline.maintain(lake.spark)


def test_a_column_that_skips_no_file_is_refused(lake: Lake) -> None:
    """One that is not in the result, or whose type has no ranges; all at once, before anything is created."""
    lake.create("left", "k INT, d DOUBLE, v INT", "(1, 1.0, 1)")
    lake.create("right", "k INT, w INT", "(1, 10)")
    sql = "SELECT l.* EXCEPT (v), r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    with pytest.raises(PipelineFileError) as refused:
        lake.pipeline(sql, cluster_by=["v", "d", "w"]).run(lake.spark)
    assert [fault.problem for fault in refused.value.faults] == [
        "`v` is not a column of the result",
        "`d` is double, by which no file is skipped",
    ]
    assert not lake.is_there("result")


def test_text_under_a_collation_is_refused() -> None:
    """It is in another order than the bytes that file statistics compare."""
    columns = StructType([StructField("t", StringType()), StructField("c", StringType("UTF8_LCASE"))])
    (fault,) = layout_faults("result", ["t", "c"], columns)
    assert fault.problem == "`c` is string collate UTF8_LCASE, by which no file is skipped"
