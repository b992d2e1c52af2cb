"""How numbers, lengths of time and points in time are put to a person."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pipelines.report.progress import ORDER

UNITS = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"), (1, "s", "s"))


def duration(seconds: float) -> str:
    """
    Put a length of time into words: `2 h 5 min`, `3 days`, `40 s`.

    Args:
        seconds: Its seconds; less than none is none.

    Returns:
        Its largest unit and the one below, cut off there; the smaller one is left out where it is zero.
    """
    left = max(int(seconds), 0)
    parts: list[tuple[int, str]] = []
    for size, one, many in UNITS:
        number, left = divmod(left, size)
        if parts or number:
            parts.append((number, number_of(number, one, many)))
    return " ".join(words for number, words in parts[:2] if number) or "0 s"


def moment(at: datetime) -> str:
    """Put a point in time into words, to the minute: `2026-11-21 18:20 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def number_of(things: int, one: str, many: str) -> str:
    """Count things: `1 commit`, `3 commits`."""
    return f"{things:,} {one if things == 1 else many}"


def in_order(seconds: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    """Sort the seconds of steps as the steps come; the ledger's map has no order."""
    return [(name, seconds[name]) for name in steps_in_order(seconds)]


def steps_in_order(names: Iterable[str]) -> list[str]:
    """Give each step once, as they come; those that are not known last."""
    there = set(names)
    return [name for name in ORDER if name in there] + sorted(there - set(ORDER))


def steps(seconds: Mapping[str, float]) -> str:
    """Put the seconds of steps into words: `plan 2.1  compute 3.0  gate 0.4`."""
    return "  ".join(f"{name} {took:.1f}" for name, took in in_order(seconds))
