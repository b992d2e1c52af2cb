"""Watching: rounds at their times, back-off, what ends it, and what it leaves behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import AnotherRun, GateFailed, LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.cli import main
from pipelines.commands import run as running
from pipelines.commands.run import watch_joins
from pipelines.report import JoinReport
from tests.conftest import SHORT_LIVED
from tests.lake import Lake, only

BUSY, FINAL = AnotherRun("result", "busy"), GateFailed("result", "two rows for a key")


class Clock(Event):
    """A stop that never waits, and takes note of the pauses; after so many rounds it is set."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._rounds = rounds

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(round(timeout))
        if len(self.pauses) == self._rounds:
            self.set()
        return self.is_set()


def rounds(monkeypatch: pytest.MonkeyPatch, *errors: LakejoinError | None) -> None:
    coming = iter(errors)

    def run(*_: Any, **__: Any) -> list[JoinReport]:
        error = next(coming)
        return [JoinReport(join="result", outcome="failed" if error else "nothing", error=error)]

    monkeypatch.setattr(running, "run_joins", run)


def test_the_pause_doubles_with_each_failure_and_is_the_old_one_after_a_success(monkeypatch):
    rounds(monkeypatch, None, BUSY, BUSY, BUSY, None, BUSY)
    stop = Clock(6)
    assert len([*watch_joins(None, 100, stop=stop)]) == 6  # type: ignore[arg-type]
    assert stop.pauses == [100, 200, 300, 300, 100, 200], "300 s is the longest"


def test_a_final_error_ends_the_watch_after_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, None, FINAL)
    seen: list[list[JoinReport]] = []
    with pytest.raises(GateFailed, match="two rows"):
        seen.extend(watch_joins(None, 1, stop=Clock(9)))  # type: ignore[arg-type]
    assert [report.outcome for (report,) in seen] == ["nothing", "failed"]


def test_a_final_error_of_any_join_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [JoinReport(join=name, outcome="failed", error=error) for name, error in (("a", BUSY), ("b", FINAL))]
    monkeypatch.setattr(running, "run_joins", lambda *_, **__: both)
    with pytest.raises(GateFailed):
        list(watch_joins(None, 1, stop=Clock(9)))  # type: ignore[arg-type]


def test_failures_that_may_pass_end_it_when_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, BUSY, None, BUSY, BUSY, BUSY)
    seen: list[list[JoinReport]] = []
    with pytest.raises(AnotherRun):
        seen.extend(watch_joins(None, 1, stop=Clock(99), patience=2))  # type: ignore[arg-type]
    assert len(seen) == 5


def test_a_round_that_takes_longer_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds(monkeypatch, None, None)
    times = iter([0.0, 130.0, 130.0, 150.0])
    monkeypatch.setattr(running.time, "monotonic", lambda: next(times))
    stop = Clock(2)
    list(watch_joins(None, 60, stop=stop))  # type: ignore[arg-type]
    assert stop.pauses == [0, 40]


@pytest.mark.parametrize("given", ["", "0s", "soon", "30 days", "-5s"])
def test_what_is_no_length_of_time_is_wrong_use(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--watch", given]) == 2
    assert "is not a duration" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_grows_from_round_to_round(loaded: Lake) -> None:
    """Views, cached frames and settings are as many after many rounds as after the first."""
    lake, left_behind, stop = loaded, [], Event()
    workspace = Workspace.open(lake.spark, lake.pipeline().file, lake.folder)
    for number, (report,) in enumerate(watch_joins(workspace, 0.01, stop=stop)):
        assert report.outcome == ("done" if number else "nothing")
        left_behind.append(kept(workspace.spark))
        lake.sql(f"UPDATE {{left}} SET v = 'n{number}' WHERE k = 2")
        if number == 4:
            stop.set()
    assert len(left_behind) == 5
    assert len(set(left_behind)) == 1
    assert (2, "n3", "x") in lake.rows()


def test_a_pipeline_is_watched_from_python(loaded: Lake) -> None:
    stop = Event()
    for reports in loaded.pipeline().watch(loaded.spark, 60, stop=stop):
        assert only(reports).outcome == "nothing"
        stop.set()


@pytest.mark.slow
def test_a_watch_on_the_command_line_says_a_line_a_run_and_stops_clean(loaded: Lake, tmp_path: Path) -> None:
    """SIGTERM lets the run at work finish; the exit code is 0 then."""
    lake, log = loaded, tmp_path / "log"
    command = [Path(sys.executable).with_name("lakejoin"), "run", "--watch", "500ms", "-f", lake.file]
    environment = {**os.environ, **SHORT_LIVED}
    with (
        log.open("w") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            wait_for(log, "result nothing to do")
            lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
            wait_for(log, "1 updated")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert "SIGTERM: stopping after this run" in log.read_text()
    assert (2, "n", "x") in lake.rows()


def wait_for(log: Path, text: str) -> None:
    until = time.monotonic() + 120
    while text not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)


def kept(session: SparkSession) -> tuple[object, ...]:
    cached = session._jsparkSession.sharedState().cacheManager().numCachedEntries()
    views = [row["viewName"] for row in session.sql("SHOW VIEWS").collect()]
    # Delta notes the version of its last commit there.
    settings = [
        (row["key"], row["value"]) for row in session.sql("SET").where("key NOT LIKE '%lastCommitVersion%'").collect()
    ]
    return cached, *views, *sorted(settings)
