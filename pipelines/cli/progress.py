"""Progress on stderr, bars on a terminal and lines elsewhere; imported only to show it: `--help` does not wait."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell
from pipelines.report.progress import STEPS, Pace, Progress, SliceProgress, Tasks, position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import TaskID

BAR_SECONDS, LINE_SECONDS = 1.0, 30.0
"""How often a bar is moved, and a line is logged, while a step runs."""


@contextmanager
def shown(spark: "SparkSession") -> Iterator[Progress]:
    """Show the progress of joins while the block runs. Bars are removed afterwards; lines stay."""
    if not _on_terminal():
        lines = Lines()
        with _followed(spark, lines.tasks, LINE_SECONDS):
            yield lines
        return
    with _display() as display:
        bars = Bars(display)
        with _followed(spark, bars.tasks, BAR_SECONDS):
            yield bars


@contextmanager
def spinner(what: str, spark: "SparkSession | None" = None) -> Iterator[None]:
    """Show a spinner with a text while the block runs, only on a terminal; of a session also how far its tasks are."""
    if not _on_terminal():
        with _followed(spark, lambda at: tell(f"{what}: {at}"), LINE_SECONDS):
            yield
        return
    with _display(bar=False) as display:
        task = display.add_task(what, total=None)
        with _followed(spark, lambda at: display.update(task, description=f"{what}: {at}"), BAR_SECONDS):
            yield


def announce(what: str) -> None:
    """Print a line, only on a terminal: the JVM that starts would garble a spinner, because it writes there too."""
    if _on_terminal():
        tell(what)


class _Steps(Progress):
    """Remembers the step of each join that runs, and about how many rows its epoch reads."""

    def __init__(self) -> None:
        self._steps: dict[str, str] = {}
        self._rows: dict[str, int] = {}

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        self._rows.pop(join, None)

    def step(self, join: str, name: str) -> None:
        self._steps[join] = name

    def rows(self, join: str, number: int) -> None:
        self._rows[join] = number

    def finished(self, join: str, outcome: str) -> None:
        self._steps.pop(join, None)
        self._rows.pop(join, None)

    def _at(self, join: str) -> str:
        rows = self._rows.get(join)
        return self._steps.get(join, "") + ("" if rows is None else f" ({rows:,} rows)")


class Lines(_Steps):
    """Prints a line for each epoch that begins and for long steps; with JSON logs also one for each join that ends."""

    def tasks(self, at: Tasks) -> None:
        """Print how far the steps of the joins that run are: Spark counts their tasks together."""
        joins = [*self._steps]
        if len(joins) == 1:
            tell(f"{joins[0]}: {self._at(joins[0])}: {at}", join=joins[0], step=self._steps.get(joins[0], ""))
        elif joins:
            tell(f"{', '.join(f'{join} {self._at(join)}' for join in joins)}: {at}")

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Print the epoch that begins."""
        super().started(join, epoch, strategy, reason)
        why = "" if strategy == "resume" else f" ({reason})"
        tell(f"{join}: {_epoch(epoch, strategy)}{why}", join=join, epoch=epoch, strategy=strategy, reason=reason)

    def slice(self, join: str, at: SliceProgress) -> None:
        """Print the slice that begins."""
        tell(f"{join}: {at}", join=join)

    def finished(self, join: str, outcome: str) -> None:
        """Print how a join ended, with JSON logs only: the report on stdout says it to a user."""
        super().finished(join, outcome)
        if is_json():
            level = logging.ERROR if outcome == "failed" else logging.INFO
            tell(f"{join}: {outcome}", level, join=join, outcome=outcome)


@dataclass
class _Bar:
    task: "TaskID"
    steps: tuple[str, ...] = ()
    at: int = -1
    sliced: SliceProgress | None = None

    @property
    def position(self) -> str:
        return f"{self.at + 1}/{len(self.steps)} " if self.steps else ""


class Bars(_Steps):
    """A bar for each join, over the steps of its strategy; tasks of `display` have the fields `what` and `step`."""

    def __init__(self, display: "Display") -> None:
        super().__init__()
        self._display = display
        self._bars: dict[str, _Bar] = {}
        self._adding = Lock()

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Set the length of the bar. The first step, `plan`, is done: it determined the strategy."""
        super().started(join, epoch, strategy, reason)
        bar = self._bar(join)
        bar.steps, bar.at = STEPS[strategy], 0
        self._display.update(bar.task, total=len(bar.steps), completed=1, what=_epoch(epoch, strategy))

    def step(self, join: str, name: str) -> None:
        """Move the bar, which has no length before the epoch is known and counts rows in a sliced backfill."""
        super().step(join, name)
        bar = self._bar(join)
        if bar.sliced is not None:
            self._display.update(bar.task, step=f"{bar.sliced}: {name}")
            return
        bar.at = position(bar.steps, name, bar.at)
        self._display.update(bar.task, completed=bar.at, step=f"{bar.position}{name}")

    def tasks(self, at: Tasks) -> None:
        """Show how far the steps of the joins that run are: Spark counts their tasks together."""
        for join in [*self._steps]:
            bar = self._bar(join)
            if bar.sliced is None:
                self._display.update(bar.task, step=f"{bar.position}{self._at(join)}: {at}")

    def slice(self, join: str, at: SliceProgress) -> None:
        """Show how many rows of the result the backfill has processed."""
        bar = self._bar(join)
        bar.sliced = at
        self._display.update(bar.task, total=at.of_rows, completed=at.rows, step=str(at))

    def finished(self, join: str, outcome: str) -> None:
        """Fill the bar, unless the join failed or was skipped, and stop its clock."""
        super().finished(join, outcome)
        bar = self._bar(join)
        if outcome in ("failed", "skipped"):
            self._display.update(bar.task, step=outcome)
        else:
            total = bar.sliced.of_rows if bar.sliced is not None else len(bar.steps) or 1
            self._display.update(bar.task, total=total, completed=total, step=outcome)
        self._display.stop_task(bar.task)

    def _bar(self, join: str) -> _Bar:
        with self._adding:  # joins and the thread that follows tasks ask for it
            if join not in self._bars:
                self._bars[join] = _Bar(self._display.add_task(join, total=None, what="", step=""))
            return self._bars[join]


def _epoch(epoch: int, strategy: str) -> str:
    return f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy}"


@contextmanager
def _followed(spark: "SparkSession | None", on_tasks: Callable[[Tasks], None], every: float) -> Iterator[None]:
    """Call a function at an interval in seconds with how far Spark's tasks are, while the block runs."""
    if spark is None:
        yield
        return
    from lakehouse.session.engine import RunningTasks

    running, pace, stop = RunningTasks(spark), Pace(), Event()

    def follow() -> None:
        while not stop.wait(every):
            at = pace.at(*running.now(), time.monotonic())
            if at is not None:
                on_tasks(at)

    thread = Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        running.stop()


def _on_terminal() -> bool:
    return not is_json() and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def _display(console: "Console | None" = None, *, bar: bool = True) -> "Display":
    """Create a display that vanishes when it ends; stderr appears above it, stdout, with the report, as it is."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    texts = ["{task.fields[what]}", "{task.fields[step]}"]
    details = [BarColumn(bar_width=24), *(TextColumn(text, markup=False) for text in texts)] if bar else []
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), *details, TimeElapsedColumn()]
    return Display(*columns, console=console or Console(stderr=True), transient=True, redirect_stdout=False)
