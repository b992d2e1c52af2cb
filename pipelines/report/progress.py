"""The progress events of a run. Listeners decide what to show and how."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

STEPS: Mapping[str, tuple[str, ...]] = {
    "incremental": ("plan", "compute", "gate", "ledger", "merge", "ledger"),
    "reconcile": ("plan", "compute", "gate", "ledger", "merge", "ledger"),
    "overwrite": ("plan", "compute", "gate", "ledger", "overwrite", "gate", "ledger"),
    "load": ("plan", "check", "ledger", "load", "gate", "ledger"),
    "replay": ("plan", "compute", "gate", "ledger", "append", "ledger"),
    "accept": ("plan", "compute", "gate", "ledger", "ledger"),
    "reset": ("plan", "compute", "gate", "ledger", "append", "ledger"),
    "flush": ("plan", "compute", "gate", "ledger", "state", "append", "ledger"),
    "resume": ("plan", "load", "gate", "merge", "ledger", "plan"),
}
"""
The steps of an epoch in order, for each strategy.

An epoch without a net change skips `merge`. A resumed epoch is either a load or a MERGE.
"""

ORDER = (
    "plan", "check", "compute", "load", "overwrite", "gate", "ledger", "state", "changelog", "append", "merge",
    "verify", "validate", "maintain",
)  # fmt: skip
"""All timed steps, in the order in which reports list their seconds."""


@dataclass(frozen=True, kw_only=True)
class SliceProgress:
    """
    The progress of a backfill that runs slice by slice: slice `number`, from 0, begins.

    Args:
        rows: The rows of the result in the slices before this one; `of_rows` are those in all slices.
        left: The estimated seconds until the end; None until this run has finished a slice.
    """

    number: int
    of: int
    rows: int
    of_rows: int
    left: float | None

    def __str__(self) -> str:
        """Return the progress as text."""
        left = "" if self.left is None else f", about {timedelta(seconds=round(self.left))} left"
        return f"slice {self.number + 1} of {self.of}, {self.rows:,} of {self.of_rows:,} rows done{left}"


@dataclass(frozen=True)
class Tasks:
    """
    How far the running Spark jobs are: finished tasks, and all of them, from 1.

    The estimated seconds until the last of them ends are `left`, None until one was seen to end.
    """

    done: int
    total: int
    left: float | None

    def __str__(self) -> str:
        """Return the progress as text."""
        left = "" if self.left is None else f", about {timedelta(seconds=round(self.left))} left"
        return f"{self.done:,} of {self.total:,} tasks, {self.done / self.total:.0%}{left}"


class Pace:
    """Estimates how long running tasks still take, from the time that the finished ones took."""

    def __init__(self) -> None:
        self._total, self._first, self._since = 0, 0, 0.0

    def at(self, done: int, total: int, now: float) -> Tasks | None:
        """Return how far the tasks are at a time in seconds; None if none runs. Other tasks begin a new estimate."""
        if total != self._total:
            self._total, self._first, self._since = total, done, now
        if not total:
            return None
        finished = done - self._first
        return Tasks(done, total, (now - self._since) / finished * (total - done) if finished > 0 else None)


class Progress:
    """The listener of a run. This base class ignores all events."""

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Handle the start of an epoch; the reason for its strategy is a stable code, a colon, and a description."""

    def step(self, join: str, name: str) -> None:
        """Handle the start of a step; `plan` starts before its epoch does."""

    def rows(self, join: str, number: int) -> None:
        """Handle about how many rows of the sources the epoch reads."""

    def tasks(self, at: Tasks) -> None:
        """Handle how far the running Spark jobs of the current step are; called now and then."""

    def slice(self, join: str, at: SliceProgress) -> None:
        """Handle the start of a slice of a backfill."""

    def finished(self, join: str, outcome: str) -> None:
        """Handle the end of a join; the outcome is done, nothing, failed or skipped."""


SILENT = Progress()
"""A listener for callers that show no progress."""


def position(steps: tuple[str, ...], name: str, after: int) -> int:
    """
    Return the index of a step that begins and may occur twice: the first one after `after`, -1 before the first step.

    A repeated attempt has the first index with this name, an unknown name `after`, at least 0.
    """
    later = (index for index in range(after + 1, len(steps)) if steps[index] == name)
    return next(later, steps.index(name) if name in steps else max(after, 0))


class Stopwatch:
    """A stopwatch for the steps of an epoch, in seconds to the millisecond; it calls `listener` as each step begins."""

    def __init__(self, listener: Callable[[str], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step; the times of a repeated step add up."""
        if self._listener is not None:
            self._listener(name)
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)
