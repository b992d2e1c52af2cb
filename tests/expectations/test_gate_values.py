"""Values that change on the way are found by the gate, where the joins do not see that they change."""

from typing import Any

import pytest
from pyspark.sql import functions as F

from lakehouse.errors.errors import GateFailed
from lakehouse.session.session import settings
from pipelines.binding.workspace import Feeds
from pipelines.epochs.tables.kind import TablesKind
from tests.exact import held, plain
from tests.lake import Lake, only
from tests.planted import planted

BIG = "map('z', 1, 'y', 2, 'x', 3, 'w', 4, 'v', 5, 'u', 6)"
LEGACY = {"spark.sql.legacy.castComplexTypesToString.enabled": "true"}
STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}


@pytest.mark.deep
def test_char_columns_that_lose_their_padding_are_found(lake: Lake) -> None:
    lake.create("left", "k INT, c CHAR(5)", "(1, 'ab')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    pipeline = lake.pipeline("SELECT l.k, l.c, r.w FROM left l LEFT JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("UPDATE {right} SET w = 'y'")
    unpadded = F.col("after").withField("c", F.expr("rtrim(after.c)"))
    with (
        planted(lambda rows: rows.withColumn("after", unpadded)),
        pytest.raises(GateFailed, match="that the join computes from its sources"),
    ):
        pipeline.run(lake.spark)
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1


@pytest.mark.parametrize("kind", ["table", "stream"])
@pytest.mark.deep
def test_values_that_a_feed_distorts_are_found(lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    lake.create("left", "k INT, m MAP<STRING, INT>", f"(1, {BIG})")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    sql = "SELECT l.k, l.m, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, {**STREAM, "left": {"key": "k", "kind": kind}})
    pipeline.run(lake.spark)
    lake.sql(f"INSERT INTO {{left}} VALUES (2, {BIG})")
    with monkeypatch.context() as patch:
        patch.setattr(Feeds, "refuse_distorted", lambda *_: None)
        with pytest.raises(GateFailed):
            pipeline.run(lake.spark)
    only(pipeline.run(lake.spark))
    assert held(lake, without=("_epoch", "_position")) == plain(lake, sql)


@pytest.mark.deep
def test_a_setting_that_changes_values_of_the_joins_alone_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create("left", "k INT, s STRUCT<a: INT, b: INT>", "(1, NULL)")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    sql = "SELECT l.k, CAST(l.s AS STRING) AS s, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql)
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (2, named_struct('a', NULL, 'b', NULL))")
    compute = TablesKind.compute

    def under_legacy(kind: TablesKind, *args: Any) -> Any:
        with settings(kind.workspace.spark, LEGACY):
            return compute(kind, *args)

    with monkeypatch.context() as patch:
        patch.setattr(TablesKind, "compute", under_legacy)
        with pytest.raises(GateFailed, match="that the join computes from its sources"):
            pipeline.run(lake.spark)
    only(pipeline.run(lake.spark))
    assert held(lake) == plain(lake, sql)
