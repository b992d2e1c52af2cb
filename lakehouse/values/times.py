"""Points in time and durations, as Spark returns them and as Delta's table properties write them."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}
"""Delta's default for each property."""

SECONDS = {
    "week": 604_800.0,
    "day": 86_400.0,
    "hour": 3_600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}
"""The units of a retention, in seconds. Delta refuses months and years, whose length varies."""

NUMBER = re.compile(r"\d+(\.\d+)?")


def utc(moment: datetime) -> datetime:
    """Convert a time to UTC; a naive one, as `collect()` returns TIMESTAMP, is in the zone of the driver's process."""
    return moment.astimezone(UTC)


def micros(moment: datetime) -> int:
    """Return an aware point in time in microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def interval_seconds(interval: str) -> float | None:
    """Parse `interval 30 days`, `1 week` or `interval 1 day 12 hours` as seconds; None for any other text."""
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
    Return for how many seconds a change stays readable: as long as Delta retains both removed files and the log. It is
    None if the retention of files has an unknown format.
    """
    files, log = (interval_seconds(properties.get(name, default)) for name, default in DEFAULTS.items())
    if files is None or log is None:
        return files
    return min(files, log)
