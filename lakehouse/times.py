"""Points in time and lengths of time, as Spark hands them out and as Delta's table properties spell them."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}
"""What Delta takes where the property is not set."""

SECONDS = {
    "week": 604_800.0,
    "day": 86_400.0,
    "hour": 3_600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}
"""The units of a retention. Delta refuses months and years, whose length varies."""

NUMBER = re.compile(r"\d+(\.\d+)?")


def utc(moment: datetime) -> datetime:
    """
    Turn a point in time into an aware one in UTC.

    Args:
        moment: A datetime as `collect()` returns a TIMESTAMP: naive, in the time zone of the driver's process, whatever
            the session's time zone is. An aware one keeps its meaning.

    Returns:
        The same point in time.
    """
    return moment.astimezone(UTC)


def micros(moment: datetime) -> int:
    """Give an aware point in time in microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def interval_seconds(interval: str) -> float | None:
    """
    Read a length of time such as `interval 30 days`, `1 week` or `interval 1 day 12 hours`.

    Returns:
        Seconds; None if it is not such a length.
    """
    words = interval.lower().split()
    if words[:1] == ["interval"]:
        words = words[1:]
    parts = list(zip(words[::2], words[1::2], strict=False))
    readable = all(NUMBER.fullmatch(number) and unit.removesuffix("s") in SECONDS for number, unit in parts)
    if not parts or len(words) % 2 or not readable:
        return None
    total = sum(float(number) * SECONDS[unit.removesuffix("s")] for number, unit in parts)
    return total if math.isfinite(total) else None


def retention_seconds(properties: Mapping[str, str]) -> float | None:
    """
    Say how long a change of a table stays readable.

    Its removed files are kept as long as one property says and its log as long as another; the shorter one counts.

    Args:
        properties: The table's properties.

    Returns:
        Seconds; None if the retention of files is spelled in a way that is not known here.
    """
    files, log = (interval_seconds(properties.get(name, default)) for name, default in DEFAULTS.items())
    if files is None or log is None:
        return files
    return min(files, log)
