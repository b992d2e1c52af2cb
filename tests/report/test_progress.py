"""What a command shows while it is at work: bars on a terminal, lines elsewhere."""

import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from lakehouse.session.engine import RunningTasks
from pipelines.cli.logs import ToStderr
from pipelines.cli.progress import Bars, Lines, _display, announce, shown, spinner
from pipelines.report.progress import ORDER, SILENT, STEPS, Pace, Progress, Stopwatch, Tasks, position


def epoch(progress: Progress, join: str, strategy: str, *, outcome: str = "done") -> None:
    """Tell of an epoch as the driver does: it plans before it knows what the epoch is."""
    progress.step(join, "plan")
    progress.started(join, 5, strategy, "changes: the feeds hold all changes since the last epoch")
    for step in STEPS[strategy][1:]:
        progress.step(join, step)
    progress.finished(join, outcome)


def terminal() -> Console:
    return Console(file=StringIO(), force_terminal=True, width=100, color_system=None, legacy_windows=False)


def test_a_step_that_comes_twice_has_two_places() -> None:
    steps = STEPS["incremental"]
    places = [-1]
    for name in steps:
        places.append(position(steps, name, places[-1]))
    assert places[1:] == list(range(len(steps)))
    assert position(steps, "ledger", 3) == 5, "an empty change set is not merged"
    assert position(steps, "compute", 2) == 1, "an attempt is made again"
    assert position(steps, "unheard-of", 2) == 2
    assert position((), "plan", -1) == 0


def test_every_step_that_a_bar_shows_has_its_place_in_the_order_of_seconds() -> None:
    assert {step for steps in STEPS.values() for step in steps} <= set(ORDER)


def test_a_bar_shows_join_epoch_and_the_place_of_the_step_and_is_full_at_the_end() -> None:
    console = terminal()
    with _display(console) as display:
        bars = Bars(display)
        epoch(bars, "[flight]_status", "incremental")
        shown_now = "".join(segment.text for segment in console.render(display.get_renderable()))
        assert "[flight]_status" in shown_now
        assert "epoch 5, incremental" in shown_now
        assert display.tasks[0].finished
        bars.step("other", "plan")
        bars.started("other", 2, "load", "first-load: the result does not exist yet")
        bars.step("other", "check")
        bars.step("other", "ledger")
        bars.step("other", "load")
        assert (display.tasks[1].completed, display.tasks[1].total) == (3, 6)
        assert display.tasks[1].fields["step"] == "4/6 load"
        bars.finished("other", "failed")
        assert display.tasks[1].fields["step"] == "failed"
        assert display.tasks[1].completed == 3


def test_a_long_step_shows_rows_share_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    pace = Pace()
    assert pace.at(0, 0, 1.0) is None
    assert str(pace.at(0, 40, 10.0)) == "0 of 40 tasks, 0%"
    at = pace.at(10, 40, 20.0)
    assert at == Tasks(10, 40, 30.0)
    assert pace.at(1, 7, 21.0) == Tasks(1, 7, None), "other tasks: another estimate, without those that ended before"
    assert pace.at(3, 7, 25.0) == Tasks(3, 7, 8.0)
    with _display(terminal()) as display:
        bars, lines = Bars(display), Lines()
        for listener in (bars, lines):
            listener.step("orders", "plan")
            listener.started("orders", 1, "load", "first-load: the result does not exist yet")
            listener.rows("orders", 4_000_000)
            listener.step("orders", "load")
            listener.tasks(at)
        told = "load (4,000,000 rows): 10 of 40 tasks, 25%, about 0:00:30 left"
        assert display.tasks[0].fields["step"] == f"4/6 {told}"
        assert f"orders: {told}" in capsys.readouterr().err
        bars.step("orders", "gate")
        assert display.tasks[0].fields["step"] == "5/6 gate"


def test_the_tasks_of_a_running_job_are_counted(spark: SparkSession) -> None:
    running, seen = RunningTasks(spark), set()
    with ThreadPoolExecutor(max_workers=1) as executor:
        job = executor.submit(spark.range(0, 1_200_000, 1, 12).selectExpr("sum(hash(id))").collect)
        while not job.done():
            seen.add(running.now())
            time.sleep(0.02)
    running.stop()
    assert any(total == 12 and 0 < done < 12 for done, total in seen)
    assert running.now() == (0, 0)


def test_a_join_without_news_and_one_that_is_resumed_first_fill_their_bars_too() -> None:
    with _display(terminal()) as display:
        bars = Bars(display)
        bars.step("calm", "plan")
        bars.finished("calm", "nothing")
        epoch(bars, "resumed", "resume", outcome="done")
        for step in ("merge", "ledger"):
            bars.step("resumed", step)
        assert all(task.finished for task in display.tasks)
        assert display.tasks[0].fields["step"] == "nothing"


def test_log_lines_go_above_the_bars_and_the_bars_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line stands by itself: nothing of a bar is before or behind it."""
    screen = StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    console = Console(stderr=True, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    logger = logging.Logger("pipelines.test")
    logger.addHandler(ToStderr())
    with _display(console) as display:
        epoch(Bars(display), "flight_status", "load")
        display.refresh()
        logger.warning("computing in full")
    written = screen.getvalue()
    assert any(line.rpartition("\x1b[2K")[2] == "computing in full" for line in written.split("\n"))
    assert "flight_status" in written
    assert written.endswith("\x1b[1A\x1b[2K"), "the bar is wiped out"


def test_off_a_terminal_there_are_plain_lines_without_control_characters(spark, capsys):
    announce("Starting Spark takes some seconds ...")
    with spinner("looking at a"):
        pass
    with shown(spark) as progress:
        epoch(progress, "a", "resume")
        epoch(progress, "b", "incremental")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "a: finishing epoch 5",
        "b: epoch 5, incremental (changes: the feeds hold all changes since the last epoch)",
    ]
    assert all(character.isprintable() for line in captured.err.splitlines() for character in line)


def test_a_stopwatch_tells_its_listener_of_each_step_as_it_begins() -> None:
    heard: list[str] = []
    watch = Stopwatch(heard.append)
    with watch.step("ledger"):
        assert heard == ["ledger"]
    with watch.step("ledger"):
        pass
    assert heard == ["ledger", "ledger"]
    assert list(watch.seconds) == ["ledger"]


def test_the_silent_listener_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    epoch(SILENT, "a", "load")
    assert capsys.readouterr() == ("", "")
