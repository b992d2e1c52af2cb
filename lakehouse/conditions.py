"""What Delta and Spark say when a table cannot be read or written, and which of our errors that is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from lakehouse.errors import CannotContinue, FeedUnavailable, LakejoinError, SchemaBroken, reconcile_hint

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

CONFLICTS = ("DELTA_CONCURRENT", "ConcurrentModification", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")

_KNOWN = {*GONE, *MISSING, *FEED_OFF, *FEED_SCHEMA}

STACK = re.compile(r"\n\s*(?:at [\w.$/]+\(|Driver stacktrace|JVM stacktrace|Caused by|\n)")
"""Where the text of a condition ends."""

CLASSES = re.compile(r"^(?:Caused by)?[:\s]*(?:[a-z_$][\w$]*\.)+[A-Z][\w$.]*(?:Exception|Error)?:?\s*")
"""The class of Java that a text begins with."""


@contextmanager
def reading(join: str, source: str = "") -> Iterator[None]:
    """
    Turn what Delta and Spark say about unreadable versions into our errors.

    Args:
        join: The join, or the changelog source, that reads; the command in a hint selects it.
        source: The source whose feed is read, which the error then names; empty where several tables are read.

    Raises:
        FeedUnavailable: Files or commits are gone, or the feed was off for a version of the range.
        SchemaBroken: A change of columns inside the range that the feed cannot be read across.
    """
    where = source or join
    try:
        yield
    except LakejoinError as error:
        if error.hint == reconcile_hint():
            error.hint = reconcile_hint(join)
            error.args = (error.message,)
        raise
    except Exception as error:  # a failed job reaches Python as an error of its own kind, without a condition
        conditions = _conditions(error)
        hint = reconcile_hint(join)
        if conditions.intersection(FEED_OFF):
            problem = "the change feed was off for versions that are needed"
            raise FeedUnavailable(where, problem, found=said(error), hint=hint) from error
        if conditions.intersection(FEED_SCHEMA):
            raise SchemaBroken(where, "its columns changed inside the range", found=said(error), hint=hint) from error
        if conditions.intersection(GONE):
            problem = "versions that are needed are no longer readable"
            raise FeedUnavailable(where, problem, found=said(error), hint=hint) from error
        raise


@contextmanager
def reading_whole(join: str, source: str) -> Iterator[None]:
    """
    Turn what Delta and Spark say about a source that cannot be read at its newest version into our error.

    Args:
        join: The join that reads it.
        source: The source.

    Raises:
        CannotContinue: Files of the newest version are gone, so that a backfill cannot read it either.
    """
    try:
        yield
    except LakejoinError:
        raise
    except Exception as error:  # see `reading`
        if not _conditions(error).intersection(GONE):
            raise
        raise CannotContinue(
            source,
            "the table itself cannot be read at its newest version: files of it are gone",
            expected="all its files, and those of the table that it is a shallow clone of",
            found=said(error),
            hint=f"bring the files back, or create the table anew from its origin; then {reconcile_hint(join)}",
        ) from error


def _conditions(error: Exception) -> set[str]:
    """Give the error conditions that the error or its text names, sub-conditions on their own too."""
    named = re.findall(r"\[([A-Z][A-Z_.]+)\]|\b(FileNotFoundException)\b", str(error))
    own = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    return {part for name in (own, *map("".join, named)) for part in (name, *name.split("."))}


def said(error: Exception) -> str:
    """
    Return what an error of Spark or Delta says, for a message of ours.

    Args:
        error: The error; a failed job has its cause in its text, below the classes of Java that it went through.

    Returns:
        The paragraph that names the condition, in one line of 500 characters at most: no classes, stack, SQLSTATE.
    """
    message = str(error).strip()
    start = min((message.index(name) for name in _conditions(error) & _KNOWN if name in message), default=0)
    begin = message.rfind("\n", 0, start) + 1
    text = STACK.split(message[begin:], maxsplit=1)[0]
    text = re.sub(r"\s*SQLSTATE: \w+", "", " ".join(text.split()))
    return CLASSES.sub("", text)[:500]


def is_missing(error: PySparkException) -> bool:
    """Tell whether an error says that there is no Delta table."""
    return bool(_conditions(error) & MISSING)


def is_of_spark(error: Exception) -> bool:
    """Tell whether Spark, or what it runs in, raised an error."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def is_view(error: PySparkException) -> bool:
    """Tell whether an error says that a view stands where a table belongs."""
    return "EXPECT_TABLE_NOT_VIEW" in _conditions(error)


def first_line(error: Exception) -> str:
    """Give the first line of what an error says, or its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_conflict(error: Exception) -> bool:
    """Tell whether another writer's commit came in between; such an error has no class of its own everywhere."""
    return any(name in str(error) for name in CONFLICTS)
