"""Faults planted into a change set after it was computed: what a mistake in the joins would look like to the gate."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from lakehouse.publish.stage import Stage


@contextmanager
def planted(change: Callable[[DataFrame], DataFrame], part: str = "result") -> Iterator[None]:
    """Let every epoch stage something else than it computed; what is counted of the staged rows is counted of these."""
    put = Stage.put

    def faulty(
        self: Stage, name: str, frame: DataFrame, facts: Mapping[str, str] | None = None, **options: bool
    ) -> dict[str, Any]:
        return put(self, name, change(frame) if name == part else frame, facts, **options)

    Stage.put = faulty  # type: ignore[method-assign]
    try:
        yield
    finally:
        Stage.put = put  # type: ignore[method-assign]
