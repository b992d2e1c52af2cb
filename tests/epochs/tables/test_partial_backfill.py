"""`backfill --where`: the part of a result that meets a condition is mended, and nothing else is touched."""

import shutil

import pytest

from lakehouse.errors.errors import DefinitionChanged, ForeignWriter, LakejoinError, NotLoaded
from pipelines import Pipeline
from pipelines.cli import main
from pipelines.epochs.views.partial_backfill import BadCondition
from tests.killing import killed
from tests.lake import JOIN, Lake, only

FIRST = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
DRIFT = ("DELETE FROM {result} WHERE k = 1", "UPDATE {result} SET v = 'x' WHERE k = 2")


def drift(lake: Lake, *statements: str) -> None:
    """Change rows of what the join keeps so that nobody notices: under the id of its last run, then an epoch."""
    setting = "spark.databricks.delta.commitInfo.userMetadata"
    lake.spark.conf.set(setting, lake.ledger()[-1]["run_id"])
    try:
        for statement in statements:
            lake.sql(statement, "result__changelog")
    finally:
        lake.spark.conf.unset(setting)
    lake.sql("INSERT INTO {left} VALUES (9, 'nine')")
    Pipeline.load(lake.file).run(lake.spark)


@pytest.mark.deep
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
        assert report.reason == f"backfill-where: requested by the user: {where}"
        assert {name: report.counts[name] for name in changed} == changed, where
        expected = sorted([row, *(other for other in expected if other[0] != row[0])])
        assert lake.rows() == expected, where
    assert only(join.run(lake.spark)).strategy == "incremental"
    assert lake.rows() == expected[:-1]
    join.verify(lake.spark)


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_changelog_is_compared_for_the_same_part(loaded: Lake) -> None:
    """Each by itself: one lacks a row that the other has."""
    lake, join = loaded, loaded.pipeline(JOIN, changelog=True)
    join.backfill(lake.spark)
    drift(lake, DRIFT[0], "DELETE FROM {result__changelog} WHERE k > 1")
    for where, inserted, logged in (("k = 1", 1, []), ("k = 2", 0, [(2, "b", "x", "upsert", "backfill")])):
        before = lake.rows("result__changelog")
        report = only(join.backfill(lake.spark, where=where))
        assert (report.counts["inserted"], report.counts["changelog"]) == (inserted, len(logged))
        assert [row[:5] for row in lake.rows("result__changelog") if row not in before] == logged


@pytest.mark.deep
def test_the_command_takes_a_condition(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake, right = loaded, loaded.rows()
    lake.sql(DRIFT[0])
    assert main(["backfill", "--where", "k = 1", "-f", str(lake.file)]) == 0
    assert "backfill-where: requested by the user: k = 1" in capsys.readouterr().err
    assert lake.rows() == right


@pytest.mark.slow
def test_an_epoch_that_was_killed_is_finished_before(loaded: Lake) -> None:
    lake, join = loaded, loaded.pipeline()
    lake.sql("INSERT INTO {left} VALUES (9, 'nine')")
    with killed("load result"):
        join.run(lake.spark)
    assert only(join.backfill(lake.spark, where="k = 1")).changed == 0
    assert (9, "nine", None) in lake.rows()
    assert [row["step"] for row in lake.ledger()][-4:] == ["publishing", "committed"] * 2


@pytest.mark.slow
def test_of_a_chain_one_result_is_mended_at_the_epoch_of_the_other_that_it_read(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    chain = lake.pipeline("SELECT f.k, f.v, r.w FROM first f LEFT JOIN right r ON f.k = r.k", further={"first": FIRST})
    chain.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    chain.run(lake.spark, ["first"])
    lake.sql("DELETE FROM {result} WHERE k = 2")
    chain.backfill(lake.spark, ["result"], where="k > 0")
    assert lake.rows() == [(1, "a", None), (2, "b", "x")]
    chain.run(lake.spark)
    assert lake.rows() == [(1, "a", None), (2, "b", "x"), (3, "c", None)]


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


@pytest.mark.slow
def test_only_a_result_at_known_versions_has_parts(loaded: Lake) -> None:
    lake = loaded
    with pytest.raises(DefinitionChanged):
        lake.pipeline(JOIN.replace("LEFT JOIN", "JOIN")).backfill(lake.spark, where="k = 1")
    shutil.rmtree(lake.path("result"))
    with pytest.raises(NotLoaded):
        lake.pipeline().backfill(lake.spark, where="k = 1")


@pytest.mark.deep
def test_a_join_with_a_stream_has_no_parts_and_a_condition_is_about_one_join(lake: Lake) -> None:
    lake.create("clicks", "id INT, k INT", "(1, 1)")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    sources = {"clicks": {"key": "id", "kind": "stream"}, "right": {"key": "k"}}
    statement = "SELECT c.id, r.w FROM clicks c LEFT JOIN right r ON c.k = r.k"
    join = lake.pipeline(statement, sources)
    join.run(lake.spark)
    with pytest.raises(LakejoinError, match="cannot reconcile a join with a stream"):
        join.backfill(lake.spark, where="id = 1")
    with pytest.raises(BadCondition, match="the joins result, other"):
        lake.pipeline(statement, sources, further={"other": statement}).backfill(lake.spark, where="id = 1")
