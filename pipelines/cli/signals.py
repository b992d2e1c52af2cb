"""A clean stop: what a service manager or Ctrl+C asks for is done once the work at hand is through."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from pipelines.cli.logs import tell


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """
    Take SIGTERM and SIGINT as the wish to stop, as long as the block runs; a second SIGINT stops at once.

    Yields:
        An event that is set as soon as one came.
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
