"""Where a join stands: the judgement on values, and once through a real lake."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from expectations.validation import Verdict
from lakehouse.ledger.entries import ABANDONED, BROKEN, COMMITTED, PUBLISHING, REJECTED, REJECTED_LOAD
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import CHANGE_FEED, Table
from lakehouse.values.recorded import FILE_RETENTION, SourceVersions
from lakehouse.values.sqltext import Address
from pipelines.cli import main
from pipelines.commands.history import last_gate, seconds_between_runs
from pipelines.commands.status import ObservedSource, _observe, judge, retention_warning, source_status
from pipelines.epochs.tables.kind import TablesKind
from pipelines.plan.values import Refresh
from pipelines.report import JoinStatus
from tests.ledgers import HOUR, at, entry, ledger

DAY = 24 * HOUR
RECORDED = SourceVersions("left", "left-id", 5, 6)


def commit(version: int, hours: float) -> Commit:
    return Commit(version, at(hours), "WRITE", "", {})


def sighting(name: str = "left", *commits: Commit, retention: str = "interval 7 days", **fields: Any) -> ObservedSource:
    """See a source that stands at version 9 and was read up to version 6."""
    table = Table(Address(name, path=f"/lake/{name}"), f"{name}-id", 9, StructType([]), {FILE_RETENTION: retention})
    given = {"name": name, "table": table, "recorded": RECORDED, "commits": commits}
    return ObservedSource(**{**given, **fields})


def test_a_source_is_as_far_behind_as_its_oldest_commit_that_the_result_does_not_have() -> None:
    found = source_status(sighting("left", commit(7, 0), commit(9, 1)), None, at(2.1))
    assert (found.version, found.accounted, found.commits_behind) == (9, 6, 2)
    assert found.seconds_behind == pytest.approx(2.1 * HOUR)
    assert (found.retention_seconds, found.readable_until) == (7 * DAY, at(7 * 24))
    assert found.text() == "left: 2 commits behind, the oldest 2 h 6 min old; readable until 2026-11-28 12:00 UTC"


def test_a_source_without_news_says_for_how_long_changes_stay_readable() -> None:
    found = source_status(sighting(), None, at(2))
    assert (found.commits_behind, found.seconds_behind, found.readable_until) == (0, 0.0, None)
    assert found.text() == "left: nothing new since version 6; changes stay readable for 7 days"


def test_a_retention_that_cannot_be_read_or_reaches_beyond_the_calendar_is_unknown_and_no_error() -> None:
    found = source_status(sighting("left", commit(7, 0), retention="for a while"), HOUR, at(1))
    assert (found.retention_seconds, found.readable_until, found.warning) == (None, None, "")
    assert found.text() == "left: 1 commit behind, the oldest 1 h old"
    endless = sighting(
        "left",
        commit(7, 0),
        table=Table(
            Address("left", path="/lake/left"),
            "left-id",
            9,
            StructType([]),
            dict.fromkeys((FILE_RETENTION, "delta.logRetentionDuration"), "interval 99999999 days"),
        ),
    )
    assert source_status(endless, HOUR, at(1)).readable_until is None


@pytest.mark.parametrize(("refresh", "reconciles"), [("full", True), ("auto", False), ("incremental", False)])
def test_a_source_older_than_the_recorded_version_stops_a_run_unless_it_may_reconcile(
    refresh: Refresh, reconciles: bool
) -> None:
    workspace = SimpleNamespace(file=SimpleNamespace(sources={}), engine=None)
    newest = replace(sighting("left").table, version=5, commits=(commit(5, 0),), properties={CHANGE_FEED: "true"})
    found = _observe(workspace, "left", newest, RECORDED, refresh=refresh)
    expected = "its newest version is older than the recorded one (version 5)"
    assert found.problem == ("" if reconciles else expected)
    assert found.changed == (f"{expected}: the next run reconciles the result with it" if reconciles else "")


def test_a_commit_of_a_clock_that_runs_ahead_is_not_younger_than_now() -> None:
    assert source_status(sighting("left", commit(7, 5)), None, at(4)).seconds_behind == 0.0


def test_the_time_between_runs_is_the_median_gap_of_committed_epochs() -> None:
    rows = [entry(1, hours=0), entry(2, REJECTED, 1), entry(2, hours=2), entry(3, hours=2), entry(4, hours=26)]
    assert seconds_between_runs(ledger(*rows[:1])) is None
    assert seconds_between_runs(ledger(*rows[:3])) == 2 * HOUR
    assert seconds_between_runs(ledger(*rows)) == 13 * HOUR, "the gap of zero is none"
    assert seconds_between_runs(ledger()) is None


def test_a_warning_comes_before_changes_are_gone() -> None:
    """Readable for less than two runs; gone before the next run; gone: each is said, the most pressing one alone."""
    now = at(0)

    def warning(retention: float | None, until: datetime | None, between: float | None) -> str:
        return retention_warning(retention, until, between, now)

    assert warning(7 * DAY, at(100), 3.5 * DAY) == ""
    assert warning(None, None, DAY) == ""
    assert warning(HOUR, at(1), None) == "", "nobody knows how often it runs"
    assert "stay readable for 7 days, less than twice the time between runs, 4 days" in warning(7 * DAY, None, 4 * DAY)
    assert "and runs are 1 day apart: run before then" in warning(7 * DAY, at(23), DAY)
    assert "may have been deleted since 2026-11-21 12:00 UTC: run now" in warning(7 * DAY, now, None)


def test_the_last_gate_is_that_of_the_highest_epoch_and_there_of_the_newest_attempt() -> None:
    """A load and an overwrite are published before their gate; everything else has passed it when it is published."""

    def gate(*rows: Any) -> tuple[bool, int, str] | None:
        found = last_gate(ledger(*rows))
        return None if found is None else (found.passed, found.epoch, found.findings)

    assert gate() is None
    assert gate(entry(1, PUBLISHING)) is None
    load = [entry(1, PUBLISHING, 0), entry(1, COMMITTED, 1)]
    assert gate(*load) == (True, 1, "")
    assert gate(entry(1, PUBLISHING), entry(1, ABANDONED, 1, message=REJECTED_LOAD + "two rows")) == (
        False, 1, "two rows",
    )  # fmt: skip
    assert gate(*load, entry(2, REJECTED, 2, message="two rows")) == (False, 2, "two rows")
    assert gate(*load, entry(2, REJECTED, 2), entry(2, PUBLISHING, 3)) == (True, 2, "")
    assert gate(*load, entry(2, REJECTED, 4, message="late"), entry(2, PUBLISHING, 3)) == (False, 2, "late")
    overwriting = entry(2, PUBLISHING, 2, strategy="overwrite")
    assert gate(*load, overwriting) == (True, 1, "")
    assert gate(*load, overwriting, entry(2, COMMITTED, 3, strategy="overwrite")) == (True, 2, "")
    assert gate(*load, entry(2, PUBLISHING, 2), entry(2, BROKEN, 3), entry(2, ABANDONED, 4)) == (True, 2, "")


def test_the_state_is_what_stands_in_the_way_of_the_next_run() -> None:
    def state(*rows: Any, seen: tuple[ObservedSource, ...] = (), redefined: bool = False) -> tuple[str, str]:
        found = judge("result", ledger(*rows), seen, at(9), redefined=redefined)
        return found.state, found.note

    load = [entry(1, PUBLISHING, 0), entry(1, COMMITTED, 1)]
    gone = sighting(table=None, problem="the Delta table does not exist")
    assert state(seen=(sighting(recorded=None),)) == ("not loaded", "")
    assert state(entry(1, PUBLISHING))[0] == "open"
    assert state(*load, seen=(sighting(),)) == ("current", "")
    assert state(*load, seen=(sighting(), sighting("right", commit(7, 0)))) == ("behind", "")
    unreadable, note = state(*load, seen=(gone, sighting("right", commit(7, 0))))
    assert (unreadable, "lakejoin backfill --select result" in note) == ("unreadable", True)
    stopped, note = state(*load, seen=(sighting(),), redefined=True)
    assert (stopped, "definition has changed" in note) == ("stopped", True)
    waiting, note = state(*load, entry(2, PUBLISHING, 2), seen=(gone,))
    assert (waiting, "epoch 2 is not finished" in note) == ("open", True)
    broken, note = state(*load, entry(2, PUBLISHING, 2), entry(2, BROKEN, 3, message="2 for 1"))
    assert (broken, "2 for 1" in note, "backfill" in note) == ("broken", True, True)


def test_the_text_has_a_line_for_each_fact_and_the_warnings_last() -> None:
    seen = (
        sighting("left", commit(7, 0), commit(8, 1), commit(9, 1)),
        sighting("right", problem="it was dropped and created again"),
    )
    rows = [entry(5, PUBLISHING, 0), entry(5, COMMITTED, 0.5), entry(6, REJECTED, 1, message="two rows for a key")]
    assert judge("result", ledger(*rows), seen, at(2.1)).text().splitlines() == [
        "result: unreadable (epoch 5, version 5, committed 2026-11-21 12:30 UTC)",
        "  left: 3 commits behind, the oldest 2 h 6 min old; readable until 2026-11-28 12:00 UTC",
        "  right: at version 9; the result has it up to version 6",
        "  last gate: failed, epoch 6: two rows for a key",
        "  warning: right: it was dropped and created again",
        "  warning: run `lakejoin backfill --select result` to reconcile the result with the sources as they are now",
    ]


@pytest.mark.usefixtures("elsewhere")
def test_a_lake_is_followed_from_not_loaded_to_unreadable(standard, capsys, monkeypatch):
    """
    Status and history, as text and as JSON, say at each station what a reader of the tables would find. The driver is
    in one time zone, the pipeline file names another one, and all times told are UTC.
    """
    lake = standard
    lake.file.write_text(lake.file.read_text() + "timezone: America/St_Johns\n")

    def call(*arguments: str, code: int = 0) -> str:
        assert main([arguments[0], "-f", str(lake.file), *arguments[1:]]) == code
        return capsys.readouterr().out

    def status(code: int = 0) -> tuple[str, dict[str, Any]]:
        (found,) = json.loads(call("status", "--output", "json", code=code))["joins"]
        return JoinStatus.model_validate(found).text(), found

    text, found = status()
    assert (found["state"], found["epoch"], found["last_gate"]) == ("not loaded", 0, None)
    assert [(s["name"], s["version"], s["accounted"]) for s in found["sources"]] == [
        ("left", 1, None),
        ("right", 1, None),
    ]
    assert text.splitlines() == ["result: not loaded", "  left: at version 1", "  right: at version 1"]
    assert "no epochs yet" in call("history")

    call("run")
    text, found = status()
    assert (found["state"], found["epoch"], found["result_version"]) == ("current", 1, 1)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(found["committed_at"])) < timedelta(minutes=5)
    assert found["last_gate"]["passed"]
    assert "  left: nothing new since version 1; changes stay readable for 7 days" in text
    *shown, run = call("status").splitlines()
    assert shown == text.splitlines()
    assert re.fullmatch(r"last run: complete, \d{4}-\d\d-\d\d \d\d:\d\d UTC, [0-9a-f]{8}", run)
    (listed,) = json.loads(call("history", "--runs", "--output", "json"))["runs"]
    assert (listed["step"], listed["cut"], listed["results"]) == ("complete", {"left": 1, "right": 1}, {"result": 1})
    assert f"{listed['run_id'][:8]}  " in call("history", "--runs")

    lake.sql("ALTER TABLE {left} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 12 hours')")
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 1")
    text, found = status()
    left, right = found["sources"]
    assert (found["state"], left["commits_behind"], left["version"], right["commits_behind"]) == ("behind", 1, 3, 0)
    assert 0 < left["seconds_behind"] < 300
    assert left["retention_seconds"] == 12 * HOUR
    until = datetime.fromisoformat(left["readable_until"]) - timedelta(hours=12)
    assert abs(datetime.now(UTC) - until) < timedelta(minutes=5)
    assert "  left: 1 commit behind, the oldest" in text

    with monkeypatch.context() as patched:
        patched.setattr(TablesKind, "gate", lambda *_: Verdict(("two rows for a key",)))
        call("run", code=3)
    shutil.rmtree(lake.path("right"))
    lake.create("right", "k INT, w STRING")
    text, found = status(code=4)
    assert (found["state"], found["epoch"]) == ("unreadable", 1)
    assert found["sources"][1]["warning"] == "it was dropped and created again"
    assert "  last gate: failed, epoch 2: two rows for a key" in text
    assert "lakejoin backfill --select result" in text

    (history,) = json.loads(call("history", "--output", "json"))["joins"]
    assert [(e["epoch"], e["step"], e["strategy"]) for e in history["epochs"]] == [
        (2, "rejected", "incremental"), (1, "committed", "load"),
    ]  # fmt: skip
    assert history["epochs"][1]["counts"]["inserted"] == 3
    assert list(history["epochs"][1]["seconds"])[:2] == ["plan", "check"]
    assert "      two rows for a key" in call("history")
    (newest,) = json.loads(call("history", "--output", "json", "--limit", "1"))["joins"]
    assert (len(newest["epochs"]), newest["more"]) == (1, True)
