"""Joins run again and again, until somebody stops it or an error needs a person."""

import time
from collections.abc import Collection, Iterator
from threading import Event

from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_joins
from pipelines.report import JoinReport
from pipelines.report.progress import SILENT, Progress

PATIENCE = 8
"""So many rounds in a row may fail; the next failure ends the watch."""
LONGEST = 300.0
"""The longest pause after a failure, in seconds."""


def watch_joins(
    workspace: Workspace,
    every: float,
    select: Collection[str] | None = None,
    *,
    stop: Event | None = None,
    patience: int = PATIENCE,
    progress: Progress = SILENT,
) -> Iterator[list[JoinReport]]:
    """
    Bring joins up to date in rounds.

    Rounds begin a fixed time apart; one that takes longer is followed at once. After a round in which a join failed
    and may be tried again, the pause doubles with each further failure. Another error ends the watch.

    Args:
        workspace: Where to work; the pipeline file is not read again.
        every: Seconds from the beginning of a round to that of the next.
        select: Names of joins; all of the file if None.
        stop: Ends the watch once the round at work is through; it may be set by another thread or a signal.
        patience: How many rounds in a row may fail.
        progress: Hears of each epoch and step as it begins, and of each join that is through.

    Yields:
        The reports of each round, with its errors.

    Raises:
        LakejoinError: The error that ended the watch, after the reports of its round.
    """
    stop, failures = stop or Event(), 0
    while not stop.is_set():
        began = time.monotonic()
        reports = run_joins(workspace, select, progress=progress)
        yield reports
        errors = sorted((report.error for report in reports if report.error is not None), key=lambda e: e.retryable)
        failures = failures + 1 if errors else 0
        if errors and (not errors[0].retryable or failures > patience):
            raise errors[0]
        pause = min(every * 2**failures, max(every, LONGEST)) if failures else every - (time.monotonic() - began)
        stop.wait(max(pause, 0.0))
