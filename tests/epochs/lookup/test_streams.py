"""Joins with a stream through real Delta tables: what a row meets, what is added, and what is counted."""

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.errors.errors import (
    CannotContinue,
    DefinitionChanged,
    Drifted,
    DuplicateKey,
    ForeignWriter,
    PipelineFileError,
    SchemaBroken,
    SourceRecreated,
)
from pipelines import Pipeline
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.cli import cli
from pipelines.commands.status import status_of
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.lookup.kind import LookupKind
from pipelines.epochs.sources.scratch import Scratch
from tests.damaged import put_back
from tests.epochs.lookup.clicks import JOIN, SOURCES, START, Clicks, begin, commit_at
from tests.killing import killed, observed
from tests.lake import only


@pytest.mark.fast
def test_rows_meet_the_table_as_it_was_and_its_changes_add_nothing(clicks: Clicks) -> None:
    """The first run takes the snapshot; from there each row meets what there was at its time, in one epoch."""
    pipeline = clicks.stream()
    loaded = only(pipeline.run(clicks.spark))
    assert (loaded.strategy, loaded.counts["appended"]) == ("load", 3)
    assert clicks.rows() == [(1, 1, "ann", 1, 0), (2, 2, None, 1, 0), (3, None, None, 1, 0)]
    start = clicks.version()

    clicks.click("(4, 1, NULL)", 10)
    clicks.rename(1, "Ann", 20)
    clicks.click("(5, 1, NULL), (6, 2, NULL)", 30)
    clicks.rename(2, "bo", 40)
    clicks.sql("DELETE FROM {users} WHERE id = 1", "users")
    commit_at(clicks, "users", 50)
    clicks.click("(7, 1, NULL), (8, 2, NULL)", 60)
    report = only(pipeline.run(clicks.spark))
    assert report.counts["appended"] == 5
    assert clicks.found()[3:] == [(4, 1, "ann"), (5, 1, "Ann"), (6, 2, None), (7, 1, None), (8, 2, "bo")]
    assert clicks.version() == start + 1, "an epoch is one commit"
    assert {row[-2] for row in clicks.rows()[3:]} == {2}
    moments = [datetime.fromtimestamp(row[-1] / 1e6, UTC).timestamp() - START for row in clicks.rows()[3:]]
    assert moments == [10, 30, 30, 60, 60], "rows are ordered by the times of their commits"

    clicks.rename(2, "Bo", 70)
    after = clicks.version()
    assert only(pipeline.run(clicks.spark)).counts["appended"] == 0
    assert clicks.version() == after, "changes of the table emit nothing"
    assert only(pipeline.run(clicks.spark)).outcome == "nothing"
    verified = only(pipeline.verify(clicks.spark))
    assert verified.counts == {"missing": 0, "surplus": 0, "expected": 8, "epochs": 3}
    earlier = only(pipeline.verify(clicks.spark, version=start))
    assert (earlier.epoch, earlier.counts["expected"], earlier.counts["epochs"]) == (1, 3, 1)


def test_an_inner_join_drops_what_meets_nothing_and_counts_null_keys(clicks: Clicks) -> None:
    pipeline = clicks.stream(JOIN.replace("LEFT JOIN", "JOIN"))
    report = only(pipeline.run(clicks.spark))
    assert (report.counts["appended"], report.counts["null_keys"]) == (1, 1)
    clicks.click("(4, NULL, NULL), (5, 3, NULL)")
    report = only(pipeline.run(clicks.spark))
    assert (report.counts["appended"], report.counts["null_keys"]) == (1, 1)
    assert clicks.found() == [(1, 1, "ann"), (5, 3, "cy")]


def test_several_tables_and_a_global_one_in_one_statement(clicks: Clicks) -> None:
    """A global table is looked up as it is when the epoch is planned, by what another look-up found."""
    sql = (
        "SELECT c.id, u.name, g.country AS land FROM clicks c LEFT JOIN users u ON c.user = u.id "
        "LEFT JOIN countries g ON u.country = g.code AND g.country <> 'Nowhere' WHERE c.id <> 2"
    )
    pipeline = clicks.stream(sql)
    pipeline.run(clicks.spark)
    assert clicks.found() == [(1, "ann", "Norway"), (3, None, None)]
    clicks.click("(4, 3, NULL)", 10)
    clicks.sql("INSERT INTO {countries} VALUES ('se', 'Sweden')", "countries")
    commit_at(clicks, "countries", 90)
    report = only(pipeline.run(clicks.spark))
    assert report.counts["appended"] == 1
    assert clicks.found()[-1] == (4, "cy", "Sweden")
    versions = {source["name"]: source["to_version"] for source in clicks.ledger()[-1]["sources"]}
    assert versions["countries"] == 2, "the run record names the version"
    clicks.sql("INSERT INTO {countries} VALUES ('dk', 'Denmark')", "countries")
    assert only(pipeline.run(clicks.spark)).outcome == "nothing", "a global table triggers nothing"


def _state(lake: Clicks, pipeline: Pipeline) -> str:
    return status_of(Workspace.open(lake.spark, pipeline.file, pipeline.folder), "result").state


@pytest.mark.deep
def test_status_says_of_a_global_table_what_the_next_run_does(clicks: Clicks, tmp_path: Path) -> None:
    """It is read as it is: one put back at an older version is no obstacle, another table is."""
    pipeline = clicks.stream(
        "SELECT c.id, g.country FROM clicks c LEFT JOIN countries g ON CAST(c.id AS STRING) = g.code"
    )
    copy = clicks.copy(tmp_path / "copy").folder
    clicks.sql("INSERT INTO {countries} VALUES ('1', 'Sweden')", "countries")
    pipeline.run(clicks.spark)
    put_back(clicks, "countries", copy)
    assert _state(clicks, pipeline) == "current"
    assert only(pipeline.run(clicks.spark)).outcome == "nothing"
    shutil.rmtree(clicks.path("countries"))
    clicks.create("countries", "code STRING, country STRING", "('no', 'Norway')")
    assert _state(clicks, pipeline) == "unreadable"
    with pytest.raises(SourceRecreated):
        pipeline.run(clicks.spark)


@pytest.mark.parametrize("first", ["clicks", pytest.param("users", marks=pytest.mark.slow)])
@pytest.mark.parametrize("epochs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_row_and_a_change_of_the_same_instant(loaded_clicks: Clicks, first: str, epochs: int) -> None:
    """At the same time the table's change comes first; an epoch that ended before it came has not seen it."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    steps = {"clicks": lambda: lake.click("(4, 1, NULL)", 10), "users": lambda: lake.rename(1, "Ann", 10)}
    for number, name in enumerate(sorted(steps, key=lambda name: name != first)):
        if number and epochs == 2:
            pipeline.run(lake.spark)
        steps[name]()
    report = only(pipeline.run(lake.spark))
    behind = epochs == 2 and first == "clicks"
    assert lake.found()[-1] == (4, 1, "ann" if behind else "Ann")
    assert report.counts["behind_cut"] == (1 if behind else 0)
    assert only(pipeline.verify(lake.spark)).counts["surplus"] == 0


@pytest.mark.slow
def test_what_comes_behind_a_cut_is_counted_and_the_replay_still_gives_the_result(loaded_clicks: Clicks) -> None:
    """Clocks apart: a row older than a change that an epoch has read, and a change older than a row."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.rename(1, "Ann", 50)
    pipeline.run(lake.spark)
    lake.click("(4, 1, NULL)", 40)
    assert only(pipeline.run(lake.spark)).counts["behind_cut"] == 1
    assert lake.found()[-1] == (4, 1, "Ann")
    lake.click("(5, 1, NULL)", 80)
    pipeline.run(lake.spark)
    lake.rename(1, "ANN", 70)
    lake.click("(6, 1, NULL)", 75)
    report = only(pipeline.run(lake.spark))
    assert report.counts["behind_cut"] == 1
    assert "arrived after an earlier epoch" in report.text()
    assert lake.found()[-1] == (6, 1, "ANN")
    assert only(pipeline.verify(lake.spark)).counts == {"missing": 0, "surplus": 0, "expected": 6, "epochs": 5}


@pytest.mark.slow
def test_a_tables_clock_that_goes_back_keeps_the_order_of_its_versions(loaded_clicks: Clicks) -> None:
    """A change has at least the time of the version before: Delta raises the times of one table, and so do we."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.rename(1, "b", 50)
    lake.rename(1, "c", 20)
    lake.click("(4, 1, NULL)", 30)
    lake.click("(5, 1, NULL)", 60)
    pipeline.run(lake.spark)
    assert lake.found()[-2:] == [(4, 1, "ann"), (5, 1, "c")]
    lake.rename(1, "d", 40)
    lake.click("(6, 1, NULL)", 45)
    assert only(pipeline.run(lake.spark)).counts["behind_cut"] == 1, "the change is older than the row of 60"
    assert lake.found()[-1] == (6, 1, "d")


def test_null_values_take_no_part(clicks: Clicks) -> None:
    pipeline = clicks.stream(clicks={**SOURCES["clicks"], "null_value": "user = 2"})
    assert only(pipeline.run(clicks.spark)).counts["null_values"] == 1
    clicks.click("(4, 2, NULL), (5, 1, NULL)")
    report = only(pipeline.run(clicks.spark))
    assert (report.counts["null_values"], report.counts["appended"]) == (1, 1)
    assert [row[0] for row in clicks.found()] == [1, 3, 5]


@pytest.mark.slow
def test_a_stream_that_changes_is_refused_with_version_and_operation(loaded_clicks: Clicks) -> None:
    """OPTIMIZE is no change. `ignore_changes` passes over what was updated or deleted, and counts it."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.sql("OPTIMIZE {clicks}", "clicks")
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
    lake.sql("DELETE FROM {clicks} WHERE id = 1", "clicks")
    lake.click("(4, 1, NULL)")
    version = lake.version("clicks") - 1
    before = lake.versions()
    with pytest.raises(CannotContinue, match="changed or deleted rows") as caught:
        pipeline.run(lake.spark)
    assert caught.value.found == f"DELETE in version {version}"
    assert lake.versions() == before, "nothing was written"
    patient = lake.stream(clicks={**SOURCES["clicks"], "ignore_changes": True})
    with pytest.raises(CannotContinue):
        patient.run(lake.spark)  # the definition is another one
    patient.backfill(lake.spark, remedy="reset")
    assert lake.found() == [(2, 2, None), (3, None, None), (4, 1, "ann")]
    lake.sql("UPDATE {clicks} SET user = 3 WHERE id = 2", "clicks")
    lake.sql("INSERT OVERWRITE {clicks} SELECT * FROM {clicks}", "clicks")
    lake.sql(
        "MERGE INTO {clicks} t USING (SELECT 3 AS id UNION SELECT 9) s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, user) VALUES (s.id, 1)",
        "clicks",
    )
    report = only(patient.run(lake.spark))
    assert (report.counts["appended"], report.counts["ignored_changes"]) == (1, 1 + 6 + 1)
    assert lake.found()[-1] == (9, 1, "ann")
    assert only(patient.verify(lake.spark)).counts["missing"] == 0


@pytest.mark.slow
def test_order_by_orders_rows_and_changes_by_their_own_time(clicks: Clicks) -> None:
    """Where all inputs declare it; of one type, and never null."""
    clicks.create("visits", "id INT, user INT, seq INT", "(1, 1, 5)")
    clicks.create("people", "id INT, name STRING, seq INT", "(1, 'a', 1)")
    sources = {"visits": {"key": "id", "kind": "stream", "order_by": "seq"}, "people": {"key": "id", "order_by": "seq"}}
    sql = "SELECT v.id, p.name FROM visits v LEFT JOIN people p ON v.user = p.id"
    pipeline = clicks.pipeline(sql, sources)
    pipeline.run(clicks.spark)
    assert clicks.rows() == [(1, "a", 1, 5)]
    clicks.sql("UPDATE {people} SET name = 'b', seq = 10", "people")
    clicks.sql("INSERT INTO {visits} VALUES (3, 1, 10), (2, 1, 9), (4, 1, 30)", "visits")
    clicks.sql("UPDATE {people} SET name = 'c', seq = 20", "people")
    pipeline.run(clicks.spark)
    assert clicks.rows()[1:] == [(2, "a", 2, 9), (3, "b", 2, 10), (4, "c", 2, 30)]
    clicks.sql("INSERT INTO {visits} VALUES (5, 1, NULL)", "visits")
    with pytest.raises(CannotContinue, match="`seq` is null"):
        pipeline.run(clicks.spark)
    with pytest.raises(PipelineFileError, match="order_by"):
        clicks.pipeline(sql, {**sources, "people": "id"})


@pytest.mark.slow
def test_bounded_epochs_go_on_until_the_sources_are_reached(loaded_clicks: Clicks) -> None:
    """No epoch reads a source beyond what another one was cut short of; the rows are those of one epoch."""
    straight = loaded_clicks.copy(loaded_clicks.folder.parent / "straight")
    for lake in (loaded_clicks, straight):
        for step in range(5):
            lake.click(f"({10 + step}, 1, NULL)", 10 * step + 10)
            lake.rename(1, f"name {step}", 10 * step + 15)
    straight.stream().run(straight.spark)
    report = only(loaded_clicks.stream(max_versions=2).run(loaded_clicks.spark))
    assert report.counts["appended"] == 5
    assert "epochs" in report.text()
    assert loaded_clicks.found() == straight.found()
    assert len({row[-2] for row in loaded_clicks.rows()}) > 2
    assert report.counts["behind_cut"] == 0


@pytest.mark.slow
def test_a_backfill_appends_what_is_missing_and_leaves_the_rest_to_a_person(loaded_clicks: Clicks) -> None:
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.click("(4, 1, NULL), (4, 1, NULL)", 10)
    pipeline.run(lake.spark)
    whole = lake.rows()
    lake.sql("DELETE FROM {result} WHERE id IN (1, 4)")
    with pytest.raises(ForeignWriter):
        pipeline.run(lake.spark)
    report = only(pipeline.backfill(lake.spark))
    assert (report.strategy, report.counts["appended"]) == ("replay", 3)
    assert lake.rows() == whole
    assert only(pipeline.backfill(lake.spark)).counts["appended"] == 0
    assert lake.rows() == whole

    lake.sql("INSERT INTO {result} VALUES (77, 7, 'x', 2, 3)")
    with pytest.raises(CannotContinue, match="rows that no epoch made") as caught:
        pipeline.backfill(lake.spark)
    assert "--accept" in caught.value.hint
    assert "--reset" in caught.value.hint
    assert only(pipeline.backfill(lake.spark, remedy="accept")).strategy == "accept"
    with pytest.raises(CannotContinue, match="no epoch can be replayed"):
        pipeline.verify(lake.spark)
    lake.click("(5, 3, NULL)", 20)
    pipeline.run(lake.spark)
    assert len(lake.rows()) == len(whole) + 2
    assert only(pipeline.verify(lake.spark)).counts == {"missing": 0, "surplus": 0, "expected": 1, "epochs": 1}
    assert only(pipeline.backfill(lake.spark, remedy="reset")).strategy == "reset"
    assert lake.found() == [(1, 1, "ann"), (2, 2, None), (3, None, None), (4, 1, "ann"), (4, 1, "ann"), (5, 3, "cy")]
    assert only(pipeline.verify(lake.spark)).counts["expected"] == 6


@pytest.mark.parametrize(("column", "value"), [("name", "planted"), ("_epoch", 2)])
@pytest.mark.slow
def test_a_replay_that_differs_is_drift(loaded_clicks: Clicks, column: str, value: str | int) -> None:
    """`verify` looks at the recorded version, so that a row is planted in the stage of an epoch, before its gate."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.click("(4, 1, NULL)", 10)
    pipeline.run(lake.spark)
    lake.click("(5, 1, NULL)", 20)

    def plant(when: str, what: str) -> None:
        if when == "before" and what.startswith("ledger: publishing"):
            (stage,) = (lake.folder / "lake" / "lakejoin_stage").glob("*/result/*")
            rows = lake.spark.read.parquet(f"{stage}/result")
            schema = rows.schema
            rows = rows.withColumn(column, F.lit(value).cast(schema[column].dataType))
            planted = lake.spark.createDataFrame(rows.toArrow(), schema)
            planted.write.mode("overwrite").parquet(f"{stage}/result")

    with observed(plant):
        pipeline.run(lake.spark)
    with pytest.raises(Drifted, match="1 rows are missing, 1 do not belong there"):
        pipeline.verify(lake.spark)


@pytest.mark.slow
def test_epochs_are_replayed_as_one_where_their_cuts_allow_it(loaded_clicks, monkeypatch):
    """The load and an epoch in which something came behind the cut are replayed alone."""
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    for number, (row, at) in enumerate({"(4, 1, NULL)": 10, "(5, 3, NULL)": 30, "(6, 1, NULL)": 50}.items()):
        lake.click(row, at)
        pipeline.run(lake.spark)
        lake.rename(1, f"ann {number}", at + (10 if number < 2 else -5))
    assert only(pipeline.run(lake.spark)).counts["behind_cut"] == 1
    assert [row[2] for row in lake.found()[3:]] == ["ann", "cy", "ann 1"]
    replayed = []

    def rows(kind: LookupKind, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        replayed.append(epoch.plan.epoch)
        return original(kind, epoch, scratch)

    original = LookupKind.epoch_rows
    monkeypatch.setattr(LookupKind, "epoch_rows", rows)
    assert only(pipeline.verify(lake.spark)).counts == {"missing": 0, "surplus": 0, "expected": 6, "epochs": 5}
    assert replayed == [5, 4, 1]


@pytest.mark.deep
def test_a_duplicate_key_of_a_table_stops_the_epoch(loaded_clicks: Clicks) -> None:
    lake, pipeline = loaded_clicks, loaded_clicks.stream()
    lake.sql("INSERT INTO {users} VALUES (1, 'other', 'no')", "users")
    lake.click("(4, 1, NULL)")
    before = lake.versions()
    with pytest.raises(DuplicateKey, match="more than once"):
        pipeline.run(lake.spark)
    assert lake.versions() == before


@pytest.mark.slow
def test_a_table_may_be_another_join_with_its_changes_one_by_one(clicks: Clicks) -> None:
    """Its changelog is kept without being asked for, and has the times of what changed below it."""
    clicks.create("plans", "user INT, plan STRING", "(1, 'free')")
    begin(clicks)
    profiles = "SELECT u.id, u.name, p.plan FROM users u LEFT JOIN plans p ON u.id = p.user"
    sql = "SELECT c.id, f.name, f.plan FROM clicks c LEFT JOIN profiles f ON c.user = f.id"
    pipeline = clicks.pipeline(sql, {**SOURCES, "plans": "user"}, further={"profiles": profiles})
    pipeline.run(clicks.spark)
    clicks.click("(4, 1, NULL)", 10)
    clicks.sql("UPDATE {plans} SET plan = 'paid'", "plans")
    commit_at(clicks, "plans", 20)
    clicks.click("(5, 1, NULL)", 30)
    clicks.rename(1, "Ann", 40)
    clicks.click("(6, 1, NULL)", 50)
    report = pipeline.run(clicks.spark)[-1]
    assert (report.join, report.counts["appended"], report.counts["behind_cut"]) == ("result", 3, 0)
    assert clicks.found()[3:] == [(4, "ann", "free"), (5, "ann", "paid"), (6, "Ann", "paid")]
    assert all(report.counts["surplus"] == report.counts["missing"] == 0 for report in pipeline.verify(clicks.spark))


@pytest.mark.slow
def test_a_table_may_be_a_changelog_source_read_row_by_row(clicks: Clicks) -> None:
    """What counts is when its rows came, not when an epoch of its KTable took them in."""
    clicks.create("raw", "id INT, name STRING, seq INT, op STRING", "(1, 'a', 1, 'u')")
    begin(clicks)
    raw = {"key": "id", "kind": "changelog", "order_by": "seq", "tombstone": "op = 'd'"}
    sql = "SELECT c.id, r.name FROM clicks c LEFT JOIN raw r ON c.user = r.id"
    pipeline = clicks.pipeline(sql, {**SOURCES, "raw": raw})
    pipeline.run(clicks.spark)
    for number, row in enumerate(("(1, 'b', 2, 'u')", "(1, 'c', 3, 'u')", "(1, NULL, 4, 'd')", "(1, 'd', 5, 'u')")):
        clicks.click(f"({4 + number}, 1, NULL)", 10 + 10 * number)
        clicks.sql(f"INSERT INTO {{raw}} VALUES {row}", "raw")
        commit_at(clicks, "raw", 15 + 10 * number)
    clicks.click("(8, 1, NULL)", 60)
    pipeline.run(clicks.spark)
    assert clicks.found()[3:] == [(4, "a"), (5, "b"), (6, "c"), (7, None), (8, "d")]
    assert pipeline.verify(clicks.spark)[-1].counts["missing"] == 0


@pytest.mark.slow
def test_commands_know_streams(clicks: Clicks) -> None:
    """`plan`, `status` and `history` tell of a join with a stream what they tell of others."""
    file = ["-f", str(clicks.stream().folder / "lakejoin.yml")]

    def said(command: str) -> str:
        done = CliRunner().invoke(cli, [command, *file])
        assert done.exit_code == 0, done.output
        return done.output

    assert "load, epoch 1" in said("plan")
    assert "epoch 1 (load): 3 appended" in said("run")
    assert "current" in said("status")
    clicks.click("(4, 1, NULL)")
    clicks.sql("INSERT INTO {countries} VALUES ('dk', 'Denmark')", "countries")
    assert "changes of versions 2 to 2" in said("plan")
    assert "behind" in said("status")
    assert "epoch 2 (incremental): 1 appended" in said("run")
    assert re.search(r"2 .* committed +incremental +1 ", said("history"))
    assert "replay of epochs 1 to 2" in said("verify")


@pytest.mark.deep
def test_a_result_that_was_created_and_not_loaded_is_loaded(clicks: Clicks) -> None:
    """A run that was killed after it made the empty table leaves nothing that the next one minds."""
    pipeline = clicks.stream()
    with killed("stage result"):
        pipeline.run(clicks.spark)
    assert only(pipeline.run(clicks.spark)).counts["appended"] == 3
    assert len(clicks.rows()) == 3


@pytest.mark.slow
def test_names_of_the_users_are_the_users(clicks: Clicks) -> None:
    """Columns and aliases may be called as what a look-up works with."""
    clicks.create("events", "id INT, position STRING, version INT", "(1, 'top', 1)")
    clicks.create("places", "position STRING, row INT", "('top', 5)")
    sql = "SELECT start.*, end.row AS null_key FROM events start LEFT JOIN places end ON start.position = end.position"
    pipeline = clicks.pipeline(sql, {"events": {"key": "id", "kind": "stream"}, "places": "position"})
    pipeline.run(clicks.spark)
    clicks.sql("UPDATE {places} SET row = 6", "places")
    clicks.sql("INSERT INTO {events} VALUES (2, 'top', 2), (3, NULL, 3)", "events")
    pipeline.run(clicks.spark)
    assert clicks.found() == [(1, "top", 1, 5), (2, "top", 2, 6), (3, None, 3, None)]


@pytest.mark.deep
def test_another_select_list_needs_another_table(loaded_clicks: Clicks) -> None:
    """Nothing is written, and no epoch is left open; without the table a backfill loads it again."""
    other = loaded_clicks.stream(JOIN.replace("u.name", "u.name, u.country"))
    before = loaded_clicks.versions()
    with pytest.raises(DefinitionChanged, match="definition") as caught:
        other.run(loaded_clicks.spark)
    assert "run `lakejoin backfill --select result`, which loads the join again" in caught.value.hint
    with pytest.raises(SchemaBroken):
        other.backfill(loaded_clicks.spark, remedy="reset")
    assert loaded_clicks.versions() == before
    shutil.rmtree(loaded_clicks.path("result"))
    assert only(other.backfill(loaded_clicks.spark)).strategy == "load"
