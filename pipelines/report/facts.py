"""The base class of all parts of a report, the JSON form of an error, and the format of numbers, times and tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer
from rich.cells import cell_len

from lakehouse.errors.errors import LakejoinError, printable
from lakehouse.values.recorded import Estimate
from pipelines.report.progress import ORDER


class Facts(BaseModel):
    """A value that a command reports. The docstrings of its fields are the descriptions in the published schema."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, use_attribute_docstrings=True)


class FaultReport(Facts):
    """One error in a pipeline file."""

    path: str
    """The place in the file, as dotted keys: `joins.flight_status.sql`."""
    line: int | None
    """The line of the file, counted from 1; null if it is not known."""
    problem: str
    """What is wrong."""
    hint: str
    """How to correct it; may be empty."""
    excerpt: str
    """The line of the statement, with the clause underlined in the next line; empty if the error is not in a
    statement."""


class ErrorReport(Facts):
    """An error of a command or of a join."""

    code: str
    """The stable code of the kind of error; the documentation lists the codes."""
    exit_code: int
    """The exit code of the command for this kind of error."""
    where: str
    """The pipeline file, join or table that the error is about."""
    problem: str
    """What is wrong."""
    expected: str
    """What was expected; may be empty."""
    found: str
    """What was found instead; may be empty."""
    hint: str
    """What to do next; may be empty."""
    retryable: bool
    """Whether the same command may succeed later without any change by the user."""
    faults: tuple[FaultReport, ...] = ()
    """All errors in the pipeline file; only for the code BAD_PIPELINE_FILE."""

    @staticmethod
    def of(error: LakejoinError) -> "ErrorReport":
        """Build the report of an error from its fields."""
        return ErrorReport.model_validate(error, from_attributes=True)


Failure = Annotated[LakejoinError, PlainSerializer(ErrorReport.of, return_type=ErrorReport)]
"""An error inside a report: the exception itself in Python, its fields in JSON."""

UNITS = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"), (1, "s", "s"))
LONGEST, LONGEST_LAST = 80, 1000
"""The numbers of characters beyond which a text is truncated: in any column, and in the last, which nothing follows."""


def duration(seconds: float) -> str:
    """Format seconds, a negative number as 0, by the two largest units: `2 h 5 min`, `3 days`, `40 s`."""
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


def estimated(seconds: Mapping[str, float]) -> str:
    """Format estimated seconds by strategy: `incremental about 4 s, reconcile about 11 s`."""
    return ", ".join(f"{way} about {seconds[way]:.0f} s" for way in sorted(seconds))


def in_seconds(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the seconds of estimates, by strategy."""
    return {way: estimate.seconds for way, estimate in estimates.items()}


def steps(seconds: Mapping[str, float]) -> str:
    """Format the seconds of steps: `plan 2.1  compute 3.0  gate 0.4`."""
    return "  ".join(f"{name} {took:.1f}" for name, took in in_order(seconds))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """
    Format rows as a table: the header, the rule below it, and each row; `right` says which columns are aligned right.

    Long texts are truncated, and control characters are escaped.
    """
    longest = [LONGEST] * (len(header) - 1) + [LONGEST_LAST]
    lines = [[*map(shortened, line, longest)] for line in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    rule = ["─" * min(width, LONGEST) for width in widths]
    return ["  ".join(map(_padded, line, widths, right)).rstrip() for line in (lines[0], rule, *lines[1:])]


def cell(value: Any) -> str:
    """Format a value of JSON for a table: a string as it is, null as NULL."""
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shortened(text: str, longest: int = LONGEST_LAST) -> str:
    """Truncate a text, and escape its control characters."""
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return printable(cut)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
