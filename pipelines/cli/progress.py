"""
What a command shows on stderr while it runs: bars on a terminal, plain lines elsewhere.

`rich` and the reports are imported only when a command shows progress, so that `--help` does not wait for them.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Display

    from pipelines.report.progress import Progress


@contextmanager
def shown() -> Iterator["Progress"]:
    """Show the progress of joins while the block runs. Bars are removed afterwards; lines stay."""
    from pipelines.cli.bars import Bars, Lines

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
