"""Sources that change their shape under a join: columns that come, go, are renamed or widened."""

import shutil
from functools import partial

import pytest

from lakehouse.errors.errors import DefinitionChanged, PipelineFileError, SchemaBroken
from tests.cases import cases
from tests.lake import JOIN, KEYED, Lake, only, planned
from tests.recorded import Recorded

STAR = "SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
ALL = "SELECT * FROM left l LEFT JOIN right r USING (k)"
EVOLVING = {"columnMapping.mode": "name", "enableTypeWidening": "true"}
BY_STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}


@pytest.fixture
def evolving(recorded: Recorded) -> Lake:
    """Give a lake with `left` and `right`, whose columns may be renamed, dropped and widened."""
    return recorded(create_evolving)


def create_evolving(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING, n INT", "(1, 'a', 10), (2, 'b', 20)", **EVOLVING)
    lake.create("right", "k INT, w STRING", "(2, 'x')", **EVOLVING)


@pytest.mark.parametrize("sql", [STAR, ALL], ids=["of one input", "of both"])
@pytest.mark.slow
def test_a_star_stays_what_it_was_at_the_first_run(evolving: Lake, sql: str) -> None:
    """A new column is named by plan and run and changes nothing, until a backfill."""
    lake, pipeline = evolving, evolving.pipeline(sql)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    for report in (planned(lake, pipeline), only(pipeline.run(lake.spark))):
        assert report.strategy == "nothing"
        assert report.details[0].startswith("left gained `more`: `*` still stands for the columns")
        assert "run `lakejoin backfill --select result`, which gives the result the columns" in report.text()
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'm')")
    lake.sql("UPDATE {left} SET more = 'm' WHERE k = 1")
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.changed, len(report.details)) == ("incremental", 1, 1)
    assert lake.rows() == [(1, "a", 10, None), (2, "b", 20, "x"), (3, "c", 30, None)]
    assert only(pipeline.verify(lake.spark)).counts == {"missing": 0, "surplus": 0, "expected": 3}
    report = only(pipeline.backfill(lake.spark))
    assert (report.changed, report.details) == (2, ())
    assert len({row["definition"] for row in lake.ledger()}) == 1
    assert lake.rows() == [(1, "a", 10, "m", None), (2, "b", 20, None, "x"), (3, "c", 30, "m", None)]
    assert planned(lake, pipeline).details == ()


@pytest.mark.slow
def test_a_new_column_called_as_another_output_is_not_taken_for_it(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline(STAR, changelog=True)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (w STRING)")
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'not this')")
    (line,) = only(pipeline.run(lake.spark)).details
    assert line.startswith("left gained `w`")
    assert lake.rows()[-1] == (3, "c", 30, None)
    with pytest.raises(PipelineFileError, match="`w`"):
        pipeline.backfill(lake.spark)


@pytest.mark.slow
def test_a_new_column_that_the_select_list_does_not_name_is_nothing_to_talk_about(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline("SELECT l.k, l.v FROM left l JOIN right r ON l.k = r.k")
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    assert planned(lake, pipeline).details == ()


@pytest.mark.slow
def test_a_star_over_a_stream_stays_what_it_was_too(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline(STAR, BY_STREAM)
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ADD COLUMNS (more STRING)")
    lake.sql("INSERT INTO {left} VALUES (3, 'c', 30, 'm')")
    assert len(planned(lake, pipeline).details) == 1
    report = only(pipeline.run(lake.spark))
    assert (report.counts["appended"], len(report.details)) == (1, 1)
    assert [row[:4] for row in lake.rows()] == [(1, "a", 10, None), (2, "b", 20, "x"), (3, "c", 30, None)]
    only(pipeline.verify(lake.spark))
    assert only(pipeline.backfill(lake.spark)).changed == 0
    shutil.rmtree(lake.path("result"))
    assert only(pipeline.backfill(lake.spark)).strategy == "load"
    assert lake.rows()[-1][:5] == (3, "c", 30, "m", None)


@cases(
    "change, found, hint",
    ("DROP COLUMN n", "unexpected column `n` int", "returns the existing columns, or "),
    ("RENAME COLUMN n TO m", "unexpected column `n` int", "(new in the sources: left.`m`), or "),
    ("ALTER COLUMN n TYPE BIGINT", "column `n` int should be bigint", "or "),
    ids=["dropped", "renamed", "widened"],
)
@pytest.mark.parametrize("sources", [KEYED, BY_STREAM], ids=["tables", "stream"])
@pytest.mark.slow
def test_a_column_of_a_star_that_is_another_waits_for_a_person(evolving, sources, change, found, hint):
    """Commands name it and what helps, before anything is written; what helps does."""
    lake, pipeline, is_stream = evolving, evolving.pipeline(STAR, sources), sources is BY_STREAM
    pipeline.run(lake.spark)
    lake.sql(f"ALTER TABLE {{left}} {change}")
    versions = lake.versions()
    plan, refused = partial(planned, lake, pipeline), [pipeline.run, pipeline.verify]
    helps = f"drop {lake.path('result')} and run `lakejoin backfill" if is_stream else "run `lakejoin backfill"
    for command in (plan, *(partial(each, lake.spark) for each in [*refused, *[pipeline.backfill] * is_stream])):
        with pytest.raises(SchemaBroken) as broken:
            command()
        assert (broken.value.exit_code, broken.value.found) == (4, found)
        assert hint + helps in broken.value.hint
    assert lake.versions() == versions
    if is_stream:
        shutil.rmtree(lake.path("result"))
    assert only(pipeline.backfill(lake.spark)).strategy == ("load" if is_stream else "overwrite")
    assert only(pipeline.verify(lake.spark)).outcome == "done"


@cases(
    "change, items, new",
    ("RENAME COLUMN n TO m", "l.* EXCEPT (m), l.m AS n", "m"),
    ("ALTER COLUMN n TYPE BIGINT", "l.* EXCEPT (n), CAST(l.n AS INT) AS n", "n"),
    ids=["renamed", "widened"],
)
@pytest.mark.slow
def test_a_select_list_that_makes_the_columns_as_they_are_keeps_the_result(evolving, change, items, new):
    lake = evolving
    lake.pipeline(STAR).run(lake.spark)
    lake.sql(f"ALTER TABLE {{left}} {change}")
    pipeline = lake.pipeline(STAR.replace("l.*", items))
    assert only(pipeline.backfill(lake.spark)).changed == 0
    lake.sql(f"UPDATE {{left}} SET {new} = 11 WHERE k = 1")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1


@pytest.mark.slow
def test_a_column_that_the_statement_names_is_a_fault_of_the_file_once_it_is_gone(evolving: Lake) -> None:
    lake, pipeline = evolving, evolving.pipeline(STAR.replace("l.*", "l.k, l.n"))
    pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} DROP COLUMN v")
    assert only(pipeline.run(lake.spark)).outcome == "nothing", "nobody reads it"
    lake.sql("ALTER TABLE {left} DROP COLUMN n")
    with pytest.raises(PipelineFileError, match="left has no column `n`"):
        pipeline.run(lake.spark)


@cases(
    "sql, found, rewritten",
    (JOIN.replace("r.w", "upper(r.w) AS w"), f"- {JOIN}; + SELECT l.k, l.v, upper(r.w) AS w", 2),
    (JOIN.replace("right r", "more r"), "it now reads more; it no longer reads right", 2),
    (JOIN.replace(", r.w", ""), "unexpected column `w` string", 6),
    (JOIN.replace("l.v", "l.k AS v, r.w AS x"), "`v` string should be int; missing column `x` string", 6),
    ids=["expression", "source", "fewer", "others"],
)
def test_a_changed_definition_says_what_shows_of_it_and_what_a_backfill_would_rewrite(loaded, sql, found, rewritten):
    lake = loaded
    lake.create("more", "k INT, w STRING", "(2, 'y')")
    pipeline = lake.pipeline(sql, {**KEYED, "more": "k"})
    with pytest.raises(DefinitionChanged) as changed:
        planned(lake, pipeline)
    assert changed.value.exit_code == 4
    assert found in changed.value.found
    is_in_place = rewritten == 2
    counts = "`lakejoin backfill --dry-run --select result` counts the rows"
    gives = "or run `lakejoin backfill --select result`, which gives the result the columns of the statement"
    assert (counts if is_in_place else gives) in changed.value.hint
    assert only(pipeline.backfill(lake.spark, dry_run=True)).changed == rewritten
