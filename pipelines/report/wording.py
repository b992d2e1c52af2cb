"""Format numbers, durations and timestamps for readers."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pipelines.report.progress import ORDER

UNITS = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"), (1, "s", "s"))


def duration(seconds: float) -> str:
    """
    Format seconds: `2 h 5 min`, `3 days`, `40 s`. A negative number counts as 0.

    The text has the largest unit and the next smaller one, rounded down; the smaller one is left out if it is zero.
    """
    left = max(int(seconds), 0)
    parts: list[tuple[int, str]] = []
    for size, one, many in UNITS:
        number, left = divmod(left, size)
        if parts or number:
            parts.append((number, number_of(number, one, many)))
    return " ".join(words for number, words in parts[:2] if number) or "0 s"


def moment(at: datetime) -> str:
    """Format a timestamp to the minute, in UTC: `2026-11-21 18:20 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def number_of(things: int, one: str, many: str) -> str:
    """Format a number with its noun in the singular or plural: `1 commit`, `3 commits`."""
    return f"{things:,} {one if things == 1 else many}"


def in_order(seconds: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    """Sort the seconds of steps by the order of the steps, because the map in the ledger has no order."""
    return [(name, seconds[name]) for name in steps_in_order(seconds)]


def steps_in_order(names: Iterable[str]) -> list[str]:
    """Return each step once, in the order of `ORDER`; unknown steps come last."""
    found = set(names)
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def steps(seconds: Mapping[str, float]) -> str:
    """Format the seconds of steps: `plan 2.1  compute 3.0  gate 0.4`."""
    return "  ".join(f"{name} {took:.1f}" for name, took in in_order(seconds))
