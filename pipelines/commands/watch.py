"""Run joins repeatedly until the caller stops or an error that is not retryable occurs."""

import time
from collections.abc import Collection, Iterator
from threading import Event

from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_joins
from pipelines.report import JoinReport

MAX_FAILED_ROUNDS = 8
"""The number of rounds in a row that may fail; the next failure ends the watch."""
MAX_PAUSE = 300.0
"""The longest pause after a failure, in seconds."""


def watch_joins(
    workspace: Workspace,
    every: float,
    select: Collection[str] | None = None,
    *,
    stop: Event | None = None,
    patience: int = MAX_FAILED_ROUNDS,
) -> Iterator[list[JoinReport]]:
    """
    Update joins in rounds, and yield the reports of each round, including errors.

    Rounds begin at a fixed interval; after a round that takes longer, the next one begins at once. If a join fails with
    a retryable error, the pause doubles with each further failed round. An error that is not retryable ends the watch.
    The pipeline file is not read again.

    Args:
        every: The seconds from the beginning of one round to the beginning of the next.
        stop: Ends the watch after the current round; another thread or a signal handler may set it.
        patience: The number of rounds in a row that may fail.

    Raises:
        LakejoinError: The error that ended the watch, after the reports of its round.
    """
    stop, failures = stop or Event(), 0
    while not stop.is_set():
        began = time.monotonic()
        reports = run_joins(workspace, select)
        yield reports
        errors = sorted((report.error for report in reports if report.error is not None), key=lambda e: e.retryable)
        failures = failures + 1 if errors else 0
        if errors and (not errors[0].retryable or failures > patience):
            raise errors[0]
        pause = min(every * 2**failures, max(every, MAX_PAUSE)) if failures else every - (time.monotonic() - began)
        stop.wait(max(pause, 0.0))
