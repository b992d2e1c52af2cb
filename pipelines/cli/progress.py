"""
What a command shows on stderr while it runs: bars on a terminal, plain lines elsewhere.

`rich` and the reports are imported only when a command shows progress, so that `--help` does not wait for them.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.progress import Progress as Display

    from pipelines.report.progress import Progress, Tasks

BAR_SECONDS, LINE_SECONDS = 1.0, 30.0
"""How often a bar is moved, and a line is logged, while a step runs."""


@contextmanager
def shown(spark: "SparkSession") -> Iterator["Progress"]:
    """Show the progress of joins while the block runs. Bars are removed afterwards; lines stay."""
    from pipelines.cli.bars import Bars, Lines

    if not _on_terminal():
        lines = Lines()
        with _followed(spark, lines.tasks, LINE_SECONDS):
            yield lines
        return
    with _display(_stderr()) as display:
        bars = Bars(display)
        with _followed(spark, bars.tasks, BAR_SECONDS):
            yield bars


@contextmanager
def _followed(spark: "SparkSession", on_tasks: Callable[["Tasks"], None], every: float) -> Iterator[None]:
    """Call a function at an interval in seconds with how far Spark's tasks are, while the block runs."""
    from lakehouse.session.engine import RunningTasks
    from pipelines.report.progress import Pace

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


@contextmanager
def spinner(what: str, spark: "SparkSession | None" = None) -> Iterator[None]:
    """
    Show a spinner with a text while the block runs; only on a terminal.

    A block that may run for long has a session: how far its tasks are is then shown, or else logged, too.
    """
    if not _on_terminal():
        with nullcontext() if spark is None else _followed(spark, lambda at: tell(f"{what}: {at}"), LINE_SECONDS):
            yield
        return
    with _display(_stderr(), bar=False) as display:
        task = display.add_task(what, total=None)

        def show(at: "Tasks") -> None:
            display.update(task, description=f"{what}: {at}")

        with nullcontext() if spark is None else _followed(spark, show, BAR_SECONDS):
            yield


def announce(what: str) -> None:
    """
    Print a line about what the command waits for; only on a terminal.

    It is used for the start of Spark instead of a spinner: the JVM writes to the terminal directly and would garble
    an animated display.
    """
    if _on_terminal():
        tell(what)


def _on_terminal() -> bool:
    return not is_json() and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def _stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def _display(console: "Console", *, bar: bool = True) -> "Display":
    """
    Create a display that is removed when it ends; output to `sys.stderr` appears above it meanwhile.

    stdout is not redirected: it carries the report and may go elsewhere.
    """
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    details = [
        BarColumn(bar_width=24),
        TextColumn("{task.fields[what]}", markup=False),
        TextColumn("{task.fields[step]}", markup=False),
    ]
    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), *(details if bar else [])]
    return Display(*columns, TimeElapsedColumn(), console=console, transient=True, redirect_stdout=False)
