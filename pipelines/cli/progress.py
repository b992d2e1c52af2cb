"""
What a command shows on stderr while it runs: bars on a terminal, plain lines elsewhere.

`rich` is imported only when a bar is drawn, so that `--help` does not wait for it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell
from pipelines.report.progress import STEPS, Progress, Sliced, position

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import TaskID


class Lines(Progress):
    """Prints a line for each epoch that begins; with JSON logs also one for each join that ends."""

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Print the epoch that begins."""
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy} ({reason})"
        tell(f"{join}: {what}", join=join, epoch=epoch, strategy=strategy, reason=reason)

    def slice(self, join: str, at: Sliced) -> None:
        """Print the slice that begins."""
        tell(f"{join}: {at}", join=join, slice=at.number + 1, slices=at.of, rows=at.rows, of_rows=at.of_rows)

    def finished(self, join: str, outcome: str) -> None:
        """Print how a join ended, with JSON logs only: the report on stdout says it to a user."""
        if is_json():
            tell(f"{join}: {outcome}", join=join, outcome=outcome)


class Bars(Progress):
    """
    A bar for each join, over the steps that its strategy takes.

    Args:
        display: The started display of rich; each task has the fields `what` and `step`.
    """

    def __init__(self, display: "Display") -> None:
        self._display = display
        self._tasks: dict[str, TaskID] = {}
        self._steps: dict[str, tuple[str, ...]] = {}
        self._at: dict[str, int] = {}
        self._sliced: dict[str, Sliced] = {}

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Set the length of the bar. The first step, `plan`, is done: it determined the strategy."""
        self._steps[join], self._at[join] = STEPS[strategy], 0
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy}"
        self._display.update(self._task(join), total=len(STEPS[strategy]), completed=1, what=what)

    def step(self, join: str, name: str) -> None:
        """
        Move the bar to a step.

        Before the epoch is known the bar has no length. During a sliced backfill it counts rows, and only its text
        changes.
        """
        if join in self._sliced:
            self._display.update(self._task(join), step=f"{self._sliced[join]}: {name}")
            return
        steps = self._steps.get(join, ())
        self._at[join] = position(steps, name, self._at.get(join, -1))
        place = f"{self._at[join] + 1}/{len(steps)} " if steps else ""
        self._display.update(self._task(join), completed=self._at[join], step=f"{place}{name}")

    def slice(self, join: str, at: Sliced) -> None:
        """Show how many rows of the result the backfill has processed."""
        self._sliced[join] = at
        self._display.update(self._task(join), total=at.of_rows, completed=at.rows, step=str(at))

    def finished(self, join: str, outcome: str) -> None:
        """Fill the bar, unless the join failed or was skipped, and stop its clock."""
        task = self._task(join)
        if outcome in ("failed", "skipped"):
            self._display.update(task, step=outcome)
        else:
            at = self._sliced.get(join)
            total = at.of_rows if at is not None else len(self._steps.get(join, ())) or 1
            self._display.update(task, total=total, completed=total, step=outcome)
        self._display.stop_task(task)

    def _task(self, join: str) -> "TaskID":
        if join not in self._tasks:
            self._tasks[join] = self._display.add_task(join, total=None, what="", step="")
        return self._tasks[join]


@contextmanager
def shown() -> Iterator[Progress]:
    """Show the progress of joins while the block runs. Bars are removed afterwards; lines stay."""
    if not _on_terminal():
        yield Lines()
        return
    with _display(_stderr()) as display:
        yield Bars(display)


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show a spinner with a text while the block runs; only on a terminal."""
    if not _on_terminal():
        yield
        return
    with _display(_stderr(), bar=False) as display:
        display.add_task(what, total=None)
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
