"""What Delta and Spark say when a table cannot be read or written, and which of our errors that is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from lakehouse.errors import FeedUnavailable, LakejoinError, SchemaBroken
from lakehouse.feed import CHANGE_FEED

GONE = (
    "FileNotFoundException",
    "FILE_NOT_EXIST",
    "FILE_NOT_FOUND",
    "FILE_NOT_FOUND_DETAILED",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
)
MISSING = {
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
}
FEED_OFF = ("DELTA_MISSING_CHANGE_DATA",)
FEED_SCHEMA = (
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
)


@contextmanager
def reading(label: str) -> Iterator[None]:
    """
    Turn what Delta and Spark say about unreadable versions into our errors.

    Raises:
        FeedUnavailable: Files or commits are gone, or the feed was off for a version of the range.
        SchemaBroken: A change of columns inside the range that the feed cannot be read across.
    """
    try:
        yield
    except LakejoinError:
        raise
    except Exception as error:  # a failed job reaches Python as an error of its own kind, without a condition
        conditions = _conditions(error)
        found = _telling_line(str(error), conditions)
        backfill = "run `lakejoin backfill` to reconcile the result with the sources as they are now"
        if conditions.intersection(FEED_OFF):
            raise FeedUnavailable(
                label,
                "the change feed was off for versions that are needed",
                found=found,
                hint=f"ALTER TABLE … SET TBLPROPERTIES ({CHANGE_FEED} = true), then {backfill}",
            ) from error
        if conditions.intersection(FEED_SCHEMA):
            raise SchemaBroken(label, "its columns changed inside the range", found=found, hint=backfill) from error
        if conditions.intersection(GONE):
            raise FeedUnavailable(
                label, "versions that are needed are no longer readable", found=found, hint=backfill
            ) from error
        raise


def _conditions(error: Exception) -> set[str]:
    """Give the error conditions that the error or its text names, sub-conditions on their own too."""
    named = re.findall(r"\[([A-Z][A-Z_.]+)\]|\b(FileNotFoundException)\b", str(error))
    own = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    return {part for name in (own, *map("".join, named)) for part in (name, *name.split("."))}


def _telling_line(message: str, conditions: set[str]) -> str:
    lines = [line.strip() for line in message.strip().splitlines()] or [""]
    return next((line for line in lines if any(name and name in line for name in conditions)), lines[0])[:500]


def is_missing(error: PySparkException) -> bool:
    """Tell whether an error says that there is no Delta table."""
    return bool(_conditions(error) & MISSING)


def is_of_spark(error: Exception) -> bool:
    """Tell whether Spark, or what it runs in, raised an error."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def is_conflict(error: Exception) -> bool:
    """Tell whether another writer's commit came in between; such an error has no class of its own everywhere."""
    return "DELTA_CONCURRENT" in str(error) or "ConcurrentModification" in str(error)
