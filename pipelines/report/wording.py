"""Format numbers, durations, timestamps and tables for readers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich.cells import cell_len

from lakehouse.errors.errors import printable
from pipelines.report.progress import ORDER

UNITS = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"), (1, "s", "s"))
LONGEST, LONGEST_LAST = 80, 1000
"""The numbers of characters beyond which a text is truncated: in any column, and in the last, which nothing follows."""


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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """
    Format rows of text as a table with aligned columns: one line each for the header, the rule below it, and each row.

    Long texts are truncated, and control characters are escaped. `right` says which columns are aligned to the right.
    """
    longest = [LONGEST] * (len(header) - 1) + [LONGEST_LAST]
    lines = [[*map(_shown, line, longest)] for line in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    rule = ["─" * min(width, LONGEST) for width in widths]
    return ["  ".join(map(_padded, line, widths, right)).rstrip() for line in (lines[0], rule, *lines[1:])]


def _shown(text: str, longest: int) -> str:
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return printable(cut)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
