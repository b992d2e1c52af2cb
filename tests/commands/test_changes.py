"""`changes`: what an epoch changed is what the feed of its result holds, and each form of it says the same."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lakehouse.errors.errors import FeedUnavailable, NotLoaded
from pipelines import Pipeline
from pipelines.cli import main
from pipelines.commands.changes import BadKey
from pipelines.commands.published import BadRange
from pipelines.language import UnknownJoin
from pipelines.report import ChangesReport, Report, RowChange, report_schema
from tests.cases import cases
from tests.epochs.ktable.test_changelog_sources import land_twice, run
from tests.epochs.tables.test_changelog import begin_changelog
from tests.lake import Lake
from tests.pipeline_files import write
from tests.recorded import Recorded, create_standard

INSERT = RowChange(
    change="insert", epoch=2, version=1, cause=("left",), key={"k": 6}, old=None, new={"v": "f", "w": None}
)
UPDATE = RowChange(
    change="update", epoch=2, version=1, cause=(), key={"k": 2}, old={"w": "x", "n": 1}, new={"w": None, "n": [2]}
)
DELETE = RowChange(change="delete", epoch=3, version=2, cause=(), key={"k": 1}, old={"v": "a\x1b"}, new=None)


def test_an_update_shows_both_values_of_the_columns_that_differ() -> None:
    report = ChangesReport(
        join="result", range="epoch 2", counts={"insert": 1, "update": 1, "delete": 3}, rows=(INSERT, UPDATE)
    )
    assert report.text().splitlines() == [
        "result, epoch 2: 1 inserted, 1 updated, 3 deleted",
        "  + k=6  v=f  w=NULL  (left)",
        "  ~ k=2",
        "      w  x → NULL",
        "      n  1 → [2]",
        "  3 more changes; --limit N shows more",
    ]


def test_changes_of_several_epochs_stand_below_theirs_and_nothing_of_a_value_reaches_the_terminal() -> None:
    report = ChangesReport(join="r", range="epochs 2 to 3", counts={"insert": 1, "delete": 1}, rows=(INSERT, DELETE))
    assert report.text().splitlines()[1:] == [
        "  epoch 2, version 1",
        "  + k=6  v=f  w=NULL  (left)",
        "  epoch 3, version 2",
        "  - k=1  v=a\\x1b",
    ]
    assert ChangesReport(join="r", range="no epoch has changed a row").text() == "r: no epoch has changed a row"


def test_colours_are_for_a_terminal_and_json_has_the_same_facts() -> None:
    """The text is the coloured one without colours."""
    report = Report(command="changes", pipeline="p", joins=(ChangesReport(join="r", range="epoch 2", rows=(UPDATE,)),))
    styled = report.styled()
    assert styled is not None
    assert {"yellow", "red", "green"} <= {str(part.style) for part in styled.spans}
    assert styled.plain == report.text()
    machine = json.loads(json.dumps(report.machine()))
    jsonschema.validate(machine, json.loads(report_schema()))
    assert machine["joins"][0]["rows"][0]["old"] == {"w": "x", "n": 1}


@cases(
    "arguments, problem",
    (["--epochs", "9..7"], "`9..7` is not a range of epochs"),
    (["--epochs", "7", "--versions", "3"], "--epochs and --versions exclude each other"),
    (["--key", "k"], "`k` is not COLUMN=VALUE"),
    (["--key", "k=1", "--key", "k=2"], "`k` is set twice"),
    (["--limit", "0"], "0 is not in the range"),
)
def test_wrong_use_starts_no_spark(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["changes", "result", *arguments]) == 2
    assert problem in capsys.readouterr().err


def images(rows: list[Any], columns: list[str]) -> list[tuple[str, tuple[Any, ...]]]:
    """Give the rows of a frame of changes as a feed has them."""
    feed = []
    for row in rows:
        kinds = {"update": ("update_preimage", "update_postimage")}.get(row["change"], (row["change"],) * 2)
        for kind, image in zip(kinds, (row["old"], row["new"]), strict=True):
            feed += [] if image is None else [(kind, tuple(image[column] for column in columns))]
    return sorted(feed, key=repr)


def test_the_changes_of_an_epoch_are_those_of_the_feed_with_their_causes(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default of the newest epoch that changed something; one key of them, the first of them, as JSON."""
    lake: Lake = recorded(create_standard, begin_changelog)
    pipeline, before = Pipeline.load(lake.file), lake.version()
    lake.sql("UPDATE {left} SET v = 'B' WHERE k = 2")
    lake.sql("UPDATE {right} SET w = 'X' WHERE k IN (2, 4)")
    lake.sql("DELETE FROM {left} WHERE k = 1")
    lake.sql("INSERT INTO {left} VALUES (4, 'd')")
    pipeline.run(lake.spark)

    changes = pipeline.changes(lake.spark, "result").collect()
    assert images(changes, ["k", "v", "w"]) == lake.feed(before)
    assert [(row["change"], row["key"]["k"], row["cause"], row["differing"], row["epoch"]) for row in changes] == [
        ("delete", 1, ["left"], [], 2),
        ("update", 2, ["left", "right"], ["v", "w"], 2),
        ("insert", 4, ["left"], [], 2),
    ]
    one = pipeline.changes(lake.spark, "result", versions="0..", key={"K": "2"}).collect()
    assert [(row["change"], row["epoch"], row["cause"]) for row in one] == [
        ("insert", 1, ["backfill"]),
        ("update", 2, ["left", "right"]),
    ]

    capsys.readouterr()
    options = ["changes", "result", "-f", str(lake.file), "--limit", "1", "--epochs", "1..", "--output", "json"]
    assert main(options) == 0
    (report,) = json.loads(capsys.readouterr().out)["joins"]
    assert report["counts"] == {"insert": 4, "update": 1, "delete": 1}
    assert [(row["key"], row["epoch"]) for row in report["rows"]] == [({"k": 1}, 1)]

    for wrong, error in (
        ({"name": "reslut"}, UnknownJoin),
        ({"epochs": "7"}, BadRange),
        ({"key": {"v": "B"}}, BadKey),
        ({"key": {"k": "two"}}, BadKey),
    ):
        with pytest.raises(error) as raised:
            pipeline.changes(lake.spark, **{"name": "result", **wrong})
        assert raised.value.exit_code == 2


@pytest.mark.slow
def test_of_a_changelog_source_they_are_those_of_its_ktable(recorded: Recorded) -> None:
    """Rows that a tombstone hides are none."""
    lake: Lake = recorded(land_twice, run)
    changes = Pipeline.load(lake.file).changes(lake.spark, "orders_raw").collect()
    assert [(row["change"], row["key"]["order_id"], row["new"]["amount"]) for row in changes] == [
        ("insert", 10, 5),
        ("insert", 11, 8),
    ]


def test_versions_that_are_gone_and_a_join_that_has_not_run_are_errors_with_a_next_step(
    loaded: Lake, standard: Lake
) -> None:
    for log in Path(loaded.path("result"), "_delta_log").glob("*0.json"):
        log.unlink()
    with pytest.raises((FeedUnavailable, NotLoaded)) as gone:
        Pipeline.load(loaded.file).changes(loaded.spark, "result").collect()
    assert gone.value.exit_code == 4
    with pytest.raises(NotLoaded) as never:
        Pipeline.load(standard.file).changes(standard.spark, "result")
    assert "lakejoin run --select result" in never.value.hint


@pytest.mark.deep
def test_of_pairs_and_of_streams_they_are_those_of_the_feed(lake: Lake) -> None:
    """Pairs have the keys of both sides; the rows of a stream have none, and are only inserted."""
    lake.create("a", "a INT, g INT", "(1, 1), (2, 1)")
    lake.create("b", "b INT, g INT", "(5, 1)")
    lake.create("clicks", "id INT, a INT", "(1, 1)")
    joins = {
        "pairs": "SELECT a.a, b.b, a.g FROM a FULL JOIN b ON a.g = b.g",
        "seen": "SELECT c.id, a.g FROM clicks c LEFT JOIN a ON c.a = a.a",
    }
    sources = {"a": "a", "b": "b", "clicks": {"key": "id", "kind": "stream"}}
    pipeline = Pipeline.load(write(lake.file, sources, joins))
    pipeline.run(lake.spark)
    before = {name: lake.version(name) for name in joins}
    lake.sql("INSERT INTO {b} VALUES (6, 1), (7, 9)", "b")
    lake.sql("INSERT INTO {clicks} VALUES (2, 2), (3, NULL)", "clicks")
    pipeline.run(lake.spark)
    for name, columns in (("pairs", ["a", "b", "g"]), ("seen", ["id", "g"])):
        feed = sorted(((change, row[: len(columns)]) for change, row in lake.feed(before[name], name)), key=repr)
        changes = pipeline.changes(lake.spark, name)
        assert images(changes.collect(), columns) == feed
        assert len(feed) == (3 if name == "pairs" else 2)
    assert "key" not in changes.columns
    (one,) = pipeline.changes(lake.spark, "seen", key={"id": 2}).collect()
    assert (one["new"]["id"], one["new"]["g"], one["epoch"]) == (2, 1, 2)
