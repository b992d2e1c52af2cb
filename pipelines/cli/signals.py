"""A clean stop on SIGTERM or Ctrl+C: the current run finishes first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from pipelines.cli.logs import tell


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
