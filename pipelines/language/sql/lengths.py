"""The lengths of intervals in SQL and in the pipeline file."""

import re
from typing import Literal

from sqlglot import exp

from pipelines.language.sql.syntax import read_expression

Unit = Literal["", "number", "interval"]
"""The unit of a constant next to a time: a whole number, or an interval in microseconds; a plain 0 can be either."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
UNITS = {
    "week": 7 * DAY, "day": DAY, "hour": 3600 * SECOND, "minute": 60 * SECOND, "second": SECOND, "millisecond": 1000,
    "microsecond": 1,
}  # fmt: skip
FIELDS = ("year", "month", "day", "hour", "minute", "second")
LENGTHS_VARY = {"month", "year"}

QUANTITY = re.compile(r"\s*([+-]?)\s*(\d{1,18})(?:\.(\d{1,9}))?\s+([a-z]+)(?=\s|$)", re.IGNORECASE)


class NoLength(Exception):
    """An interval has no fixed length; the text says why."""


def lateness(written: str) -> tuple[int, Unit]:
    """
    Parse the allowed lateness of a watermarked column to microseconds, or a number, and its unit; a 0 has no unit.

    The text is an interval without the keyword, such as `15 minutes`, or a whole number for an integer column; a
    `ValueError` says that it is neither, or negative.
    """
    text = written.strip()
    if text.isdigit() and len(text) <= 18:
        return int(text), "number" if int(text) else ""
    interval, objections = read_expression(f"INTERVAL '{text}'") if re.fullmatch(r"[\w\s.]+", text) else (None, [])
    try:
        length = None if objections or not isinstance(interval, exp.Interval) else microseconds(interval)
    except NoLength as error:
        raise ValueError(f"`{written}`: {error}") from error
    if length is None or length < 0:
        raise ValueError(f"`{written}` is not a length of time")
    return length, "interval"


def spelled_out(length: int) -> str:
    """Format a length in microseconds for users, for example `1 hour 30 minutes`."""
    parts = []
    for name, unit in UNITS.items():
        if name != "week" and length >= unit:
            parts.append(f"{length // unit} {name}{'s' if length // unit > 1 else ''}")
            length %= unit
    return " ".join(parts)


def microseconds(interval: exp.Interval) -> int | None:
    """
    Compute the length of an interval in microseconds; None if Spark does not accept it, `NoLength` with months or
    years.
    """
    text, unit = interval.name.strip(), interval.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        text = _spelled_out(text, unit.this.name.lower(), unit.expression.name.lower())
    elif unit:
        text = f"{text} {unit.name}"
    total = 0
    for sign, whole, fraction, name in QUANTITY.findall(text):
        name = name.lower().removesuffix("s")
        if name in LENGTHS_VARY:
            raise NoLength("months and years have no fixed length")
        if name not in UNITS or (fraction and name != "second"):
            return None
        amount = int(whole) * UNITS[name] + int(fraction[:6].ljust(6, "0"))
        total += -amount if sign == "-" else amount
    return None if QUANTITY.sub("", text) or not text else total


def _spelled_out(text: str, first: str, last: str) -> str:
    """Convert `1 02:03` DAY TO MINUTE to `1 day 02 hour 03 minute`; return nothing if the fields do not match."""
    sign, amounts = text[:1].strip("0123456789"), re.split("[ :-]", text.lstrip("+-"))
    names = FIELDS[FIELDS.index(first) : FIELDS.index(last) + 1] if {first, last} <= set(FIELDS) else ()
    if len(amounts) != len(names):
        return ""
    return " ".join(f"{sign}{amount} {name}" for amount, name in zip(amounts, names, strict=True))
