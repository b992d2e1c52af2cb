"""What a run tells while it is at work, to whoever shows it; what is shown, and how, is decided elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

STEPS: Mapping[str, tuple[str, ...]] = {
    "incremental": ("plan", "compute", "gate", "ledger", "merge", "ledger"),
    "reconcile": ("plan", "compute", "gate", "ledger", "merge", "ledger"),
    "load": ("plan", "check", "ledger", "load", "gate", "ledger"),
    "replay": ("plan", "compute", "gate", "ledger", "append", "ledger"),
    "accept": ("plan", "compute", "gate", "ledger", "ledger"),
    "reset": ("plan", "compute", "gate", "ledger", "append", "ledger"),
    "flush": ("plan", "compute", "gate", "ledger", "state", "append", "ledger"),
    "resume": ("plan", "load", "gate", "merge", "ledger", "plan"),
}
"""
The steps of an epoch in their order, by strategy.

An epoch whose change set nets to nothing passes over `merge`, and what is resumed is either a load or a MERGE.
"""

ORDER = (
    "plan",
    "check",
    "compute",
    "load",
    "gate",
    "ledger",
    "state",
    "changelog",
    "append",
    "merge",
    "verify",
    "validate",
    "maintain",
)
"""All steps that are timed, in the order in which a reader is told their seconds."""


@dataclass(frozen=True)
class Sliced:
    """
    How far a backfill is that goes slice by slice.

    Args:
        number: The slice that begins, from 0.
        of: How many there are.
        rows: How many rows of the result were in the slices before it.
        of_rows: How many there are in all.
        left: About how many seconds the rest takes; None until a slice of this run is through.
    """

    number: int
    of: int
    rows: int
    of_rows: int
    left: float | None

    def __str__(self) -> str:
        """Write it for a person."""
        left = "" if self.left is None else f", about {timedelta(seconds=round(self.left))} left"
        return f"slice {self.number + 1} of {self.of}, {self.rows:,} of {self.of_rows:,} rows done{left}"


class Progress:
    """The listener of a run; this one hears everything and shows nothing."""

    def begun(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """
        Take note that an epoch begins.

        Args:
            join: The join.
            epoch: Its number.
            strategy: resume, load, incremental or reconcile.
            reason: Why: a stable code, a colon, and words.
        """

    def step(self, join: str, name: str) -> None:
        """Take note that a step begins; `plan` begins before its epoch does."""

    def slice(self, join: str, at: Sliced) -> None:
        """Take note that a slice of a backfill begins."""

    def finished(self, join: str, outcome: str) -> None:
        """Take note that a join is through: done, nothing, failed or skipped."""


SILENT = Progress()
"""For callers that want to hear nothing."""


def position(steps: tuple[str, ...], name: str, after: int) -> int:
    """
    Find the place of a step that begins.

    Args:
        steps: The steps in their order; one may be there twice.
        name: The step that begins.
        after: The place of the step before, -1 if there was none.

    Returns:
        The next place with this name; else, as for an attempt that is made again, the first; else the place it was at.
    """
    later = (place for place in range(after + 1, len(steps)) if steps[place] == name)
    return next(later, steps.index(name) if name in steps else max(after, 0))


class Stopwatch:
    """
    Seconds of the steps of an epoch, to the millisecond.

    Args:
        listener: Called with the name of each step as it begins.
    """

    def __init__(self, listener: Callable[[str], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step; a step taken twice adds up."""
        if self._listener is not None:
            self._listener(name)
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)
