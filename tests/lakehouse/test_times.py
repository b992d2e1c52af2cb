"""Time zones of what Spark hands out, and retentions as table properties spell them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakehouse.values.recorded import FILE_RETENTION, LOG_RETENTION, interval_seconds, retention_seconds, utc
from tests.cases import cases

DAY = 86_400


@pytest.mark.usefixtures("elsewhere")
def test_a_naive_time_is_the_drivers_and_an_aware_one_keeps_its_meaning() -> None:
    """PySpark makes a TIMESTAMP a naive datetime of the driver's time zone, and knows the hour that comes twice."""
    seconds = 1_700_000_000
    collected = datetime.fromtimestamp(seconds)
    assert utc(collected) == datetime.fromtimestamp(seconds, UTC)
    assert utc(collected).utcoffset() == timedelta(0)
    assert utc(datetime(2026, 11, 21, 12, tzinfo=timezone(timedelta(hours=2)))) == datetime(
        2026, 11, 21, 10, tzinfo=UTC
    )
    summer_ends = datetime(2026, 4, 4, 14, 30, tzinfo=UTC).timestamp()
    for twice in (summer_ends - 3600, summer_ends):
        assert utc(datetime.fromtimestamp(twice)).timestamp() == twice


@cases(
    "spelled, seconds",
    ("interval 1 week", 7 * DAY),
    ("1 week", 7 * DAY),
    ("INTERVAL 30 Days", 30 * DAY),
    ("interval 12 hours", DAY / 2),
    ("interval 1 day 12 hours", 1.5 * DAY),
    ("interval 0 seconds", 0),
    ("interval 1.5 minutes", 90),
    ("interval 250 milliseconds", 0.25),
)
def test_a_retention_is_read_as_delta_reads_it(spelled: str, seconds: float) -> None:
    assert interval_seconds(spelled) == seconds


@cases(
    "spelled",
    "",
    "interval",
    "a while",
    "interval 1",
    "interval one week",
    "1 month",
    "nan days",
    "-1 days",
    "7",
    "9" * 400,
)
def test_what_is_no_retention_is_none_and_no_error(spelled: str) -> None:
    assert interval_seconds(spelled) is None
    assert retention_seconds({FILE_RETENTION: spelled}) is None


def test_the_shorter_of_the_two_retentions_counts() -> None:
    assert retention_seconds({}) == 7 * DAY
    assert retention_seconds({FILE_RETENTION: "interval 90 days"}) == 30 * DAY
    assert retention_seconds({FILE_RETENTION: "interval 90 days", LOG_RETENTION: "interval 60 days"}) == 60 * DAY
    assert retention_seconds({LOG_RETENTION: "interval 2 days"}) == 2 * DAY
    assert retention_seconds({LOG_RETENTION: "a while"}) == 7 * DAY
