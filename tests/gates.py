"""
Gates that let everything pass, for tests that are not about gates.

The gate of an epoch reads its sources once more, about a quarter of the time of a small epoch. A test whose subject it
is, or that lets many kinds of epochs happen to see whether a gate objects to a right one, has the marker `gated`, as a
module or by itself. Processes that a test starts have their gates always.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from expectations.validation import Verdict
from pipelines.epochs.ktable.kind import KTableKind
from pipelines.epochs.streams.kind import StreamKind
from pipelines.epochs.tables import load
from pipelines.epochs.tables.kind import TablesKind


class Gates:
    """Whether gates judge; they do unless `installed`."""

    def __init__(self) -> None:
        self.judge = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the gates by ones that ask this."""
        with pytest.MonkeyPatch.context() as patch:
            for kind in (TablesKind, StreamKind, KTableKind):
                patch.setattr(kind, "gate", self._unless_judging(kind.gate, Verdict))
            patch.setattr(TablesKind, "prefetch", self._unless_judging(TablesKind.prefetch, lambda: None))
            patch.setattr(load, "gate_loaded", self._unless_judging(load.gate_loaded, Verdict))
            patch.setattr(load, "gate_loaded_pairs", self._unless_judging(load.gate_loaded_pairs, Verdict))
            yield

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Let the gates judge."""
        before, self.judge = self.judge, True
        try:
            yield
        finally:
            self.judge = before

    def _unless_judging(self, gate: Callable[..., Any], otherwise: Callable[[], Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: gate(*args, **kwargs) if self.judge else otherwise()


GATES = Gates()
