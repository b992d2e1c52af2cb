"""How the commands run joins, and report on each of them."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import click

from lakehouse.errors.errors import LakejoinError
from pipelines.cli.logs import tell
from pipelines.cli.options import FileOptions, in_one_line, names
from pipelines.cli.progress import shown, spinner

if TYPE_CHECKING:
    from pipelines.binding.workspace import Workspace
    from pipelines.cli.options import Answer
    from pipelines.plan.request import Backfill
    from pipelines.report import Command, Part


def run_command(chosen: FileOptions, select: str | None, backfill: "Backfill | None" = None) -> "Answer":
    """Run joins, or backfill them."""
    workspace = chosen.open()
    from pipelines.commands.run import run_joins

    with shown(workspace.spark) as progress:
        return run_joins(workspace, names(select), backfill=backfill, progress=progress)


def rehearse_command(chosen: FileOptions, select: str | None, asked: "Backfill") -> "Answer":
    """Count what a backfill would change."""
    workspace = chosen.open()
    from pipelines.commands.dry_run import dry_run_joins

    with spinner("computing what would change"):
        return dry_run_joins(workspace, names(select), asked.where)


def watch_command(chosen: FileOptions, select: str | None, every: float) -> "Answer":
    """Run joins repeatedly until a signal or an error, and print a line for each run."""
    workspace, context = chosen.open(), click.get_current_context()
    from pipelines.commands.watch import watch_joins
    from pipelines.report import Report

    rounds, code = 0, 0
    with stopped_by_signals() as stop:
        try:
            for reports in watch_joins(workspace, every, names(select), stop=stop):
                rounds += 1
                report = Report(command="run", pipeline=workspace.file.pipeline, joins=tuple(reports))
                click.echo(in_one_line(report, context.params["output"]))
        except LakejoinError as error:
            if not rounds:
                raise
            tell(error.message, logging.ERROR, code=error.code, exit_code=error.exit_code)
            code = error.exit_code
    context.exit(code)


def report_on_each(
    command: "Command", chosen: FileOptions, select: str | None, report: Callable[["Workspace", str], "Part"]
) -> "Answer":
    """Report on each join and KTable; an error of one goes into its report, and the others follow."""
    workspace = chosen.open_without_spark() if command in ("status", "history") else chosen.open()
    from lakehouse.errors.conditions import as_known
    from pipelines.report import JoinReport

    parts: list[Part] = []
    for name in workspace.joins(names(select)) if command == "verify" else workspace.nodes(names(select)):
        try:
            with spinner(f"reading {name}", workspace.spark if command == "verify" else None):
                parts.append(report(workspace, name))
        except Exception as error:  # whatever it is, the other joins follow
            parts.append(JoinReport(join=name, outcome="failed", error=as_known(error, name)))
    return parts


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """
    Handle SIGTERM and SIGINT as a request to stop while the block runs.

    A second SIGINT raises KeyboardInterrupt at once.

    Yields:
        An event that the first signal sets.
    """
    stop = Event()

    def asked(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        tell(f"{signal.Signals(number).name}: stopping after this run")

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
