"""`backfill --where`: the part of a result that meets a condition is mended, and nothing else is touched."""

import shutil

import pytest

from lakehouse.errors import DefinitionChanged, ForeignWriter, LakejoinError, NotLoaded
from pipelines.subset import BadCondition
from tests.lake import JOIN, Lake, only

DRIFT = ("DELETE FROM {result} WHERE k = 1", "UPDATE {result} SET v = 'x' WHERE k = 2")


def drift(lake: Lake, *statements: str) -> None:
    """Change rows of the result so that nobody notices: under the id of the run that wrote it, then an epoch."""
    setting = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(setting, lake.ledger()[-1]["run_id"])
    try:
        for statement in statements:
            lake.sql(statement)
    finally:
        lake.spark.conf.unset(setting)
    lake.sql("INSERT INTO {left} VALUES (9, 'nine')")
    lake.pipeline().run(lake.spark)


def test_rows_that_meet_the_condition_are_mended_and_no_others(loaded: Lake) -> None:
    """As they are, or as they are to be; what has come to the sources since is left to the next run."""
    lake, join = loaded, loaded.pipeline()
    drift(lake, *DRIFT, "UPDATE {result} SET v = 'z' WHERE k = 3")
    lake.sql("DELETE FROM {left} WHERE k = 9")
    expected = [(2, "x", "x"), (3, "z", "y"), (9, "nine", None)]
    assert lake.rows() == expected
    told = only(join.backfill(lake.spark, where="k = 1", dry_run=True))
    assert (told.counts["inserted"], told.changed, lake.rows()) == (1, 1, expected)
    for where, op, row in (
        ("k = 1", "inserted", (1, "a", None)),
        ("v = 'b' AND w IS NOT NULL", "updated", (2, "b", "x")),
        ("result.V = 'z'", "updated", (3, "c", "y")),
    ):
        changed = {name: int(name == op) for name in ("inserted", "updated", "deleted")}
        report = only(join.backfill(lake.spark, where=where))
        assert report.reason == f"backfill-where: asked for by a person: {where}"
        assert {name: report.counts[name] for name in changed} == changed, where
        expected = sorted([row, *(other for other in expected if other[0] != row[0])])
        assert lake.rows() == expected, where
    assert only(join.run(lake.spark)).strategy == "incremental"
    assert lake.rows() == expected[:-1]
    join.verify(lake.spark)


def test_what_somebody_else_wrote_is_mended_where_all_of_it_meets_the_condition(loaded: Lake) -> None:
    lake, join = loaded, loaded.pipeline()
    right = lake.rows()
    for statement in DRIFT:
        lake.sql(statement)
    with pytest.raises(ForeignWriter, match="2 rows in its change feed"):  # the update of k = 2, before and after
        join.backfill(lake.spark, where="k = 1")
    with pytest.raises(ForeignWriter):
        join.run(lake.spark)
    join.backfill(lake.spark, where="k <= 2")
    assert lake.rows() == right
    assert only(join.run(lake.spark)).outcome == "nothing"


def test_the_changelog_is_compared_for_the_same_part(loaded: Lake) -> None:
    """It gets a row where its last one differs, which here it does not."""
    lake, join = loaded, loaded.pipeline(JOIN, changelog=True)
    join.backfill(lake.spark)
    lake.sql(DRIFT[0])
    before = lake.rows("result__changelog")
    report = only(join.backfill(lake.spark, where="k = 1"))
    assert (report.counts["inserted"], report.counts["changelog"]) == (1, 0)
    assert lake.rows("result__changelog") == before


def test_what_is_no_condition_on_the_result_is_refused(loaded: Lake) -> None:
    join, version = loaded.pipeline(), loaded.version()
    for where, why in {
        "kk = 1": "has no column `kk`",
        "k +": "condition",
        "k + 1": "condition",
        "k > 1 AND rand() > 0.5": "rand",
        "k IN (SELECT 1)": "condition",
        "k = 1; DROP TABLE result": "condition",
        "sum(k) > 1": "aggregate",
    }.items():
        with pytest.raises(BadCondition, match=why) as refused:
            join.backfill(loaded.spark, where=where)
        assert (refused.value.exit_code, refused.value.where) == (2, "result")
    assert loaded.version() == version


def test_only_a_result_at_known_versions_has_parts(loaded: Lake) -> None:
    lake = loaded
    with pytest.raises(DefinitionChanged):
        lake.pipeline(JOIN.replace("LEFT JOIN", "JOIN")).backfill(lake.spark, where="k = 1")
    shutil.rmtree(lake.path("result"))
    with pytest.raises(NotLoaded):
        lake.pipeline().backfill(lake.spark, where="k = 1")


def test_a_join_with_a_stream_has_no_parts_and_a_condition_is_about_one_join(lake: Lake) -> None:
    lake.create("clicks", "id INT, k INT", "(1, 1)")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    sources = {"clicks": {"key": "id", "kind": "stream"}, "right": {"key": "k"}}
    statement = "SELECT c.id, r.w FROM clicks c LEFT JOIN right r ON c.k = r.k"
    join = lake.pipeline(statement, sources)
    join.run(lake.spark)
    with pytest.raises(LakejoinError, match="of a join with a stream no part can be reconciled"):
        join.backfill(lake.spark, where="id = 1")
    with pytest.raises(BadCondition, match="the joins result, other"):
        lake.pipeline(statement, sources, further={"other": statement}).backfill(lake.spark, where="id = 1")
