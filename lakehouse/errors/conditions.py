"""Error conditions of Delta and Spark for tables that cannot be read or written, and the lakejoin errors for them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from lakehouse.errors.errors import CannotContinue, FeedUnavailable, LakejoinError, SchemaBroken, Unexpected
from lakehouse.errors.remedies import Remedy

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

CONFLICTS = (
    "DELTA_CONCURRENT",
    "ConcurrentModification",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "A conflicting metadata domain",  # the error of two overwrites of a clustered table; it names no condition
)

DATA_EXCEPTION = re.compile(r"SQLSTATE: 22\w{3}")
"""The class of SQLSTATE of conditions about a value: a division by zero, a failing cast, an overflow."""

_FRAGMENT = re.compile(r"== SQL .*?position \d+\) ==\n(.*?)\n( *)(\^+)", re.DOTALL)
"""The text of an expression in a condition, with the carets below the part that raised."""

_KNOWN = {*GONE, *MISSING, *FEED_OFF, *FEED_SCHEMA}

STACK = re.compile(r"\n\s*(?:at [\w.$/]+\(|Driver stacktrace|JVM stacktrace|Caused by|\n)")
"""The end of the text of a condition."""

CLASSES = re.compile(r"^(?:Caused by)?[:\s]*(?:[a-z_$][\w$]*\.)+[A-Z][\w$.]*(?:Exception|Error)?:?\s*")
"""The Java class name at the start of a text."""


@contextmanager
def reading(join: str, source: str = "") -> Iterator[None]:
    """
    Convert errors of Delta and Spark about unreadable versions to lakejoin errors.

    Args:
        join: The join, or the changelog source, that the command in the hint selects.
        source: The source whose feed is read and which the error names; empty if several tables are read.

    Raises:
        FeedUnavailable: Files or commits are gone, or the feed was off for a version of the range.
        SchemaBroken: Columns changed inside the range, and the feed cannot be read across this change.
    """
    where = source or join
    try:
        yield
    except LakejoinError as error:
        error.name_commands(join)
        raise
    except Exception as error:  # a failed job raises an error of another class, without a condition
        conditions = _conditions(error)
        hint = Remedy("{reconcile}", join)
        if conditions.intersection(FEED_OFF):
            problem = "the change feed was off for some of the required versions"
            raise FeedUnavailable(where, problem, found=error_text(error), hint=hint) from error
        if conditions.intersection(FEED_SCHEMA):
            raise SchemaBroken(
                where, "its columns changed inside the range", found=error_text(error), hint=hint
            ) from error
        if conditions.intersection(GONE):
            problem = "some of the required versions are no longer readable"
            raise FeedUnavailable(where, problem, found=error_text(error), hint=hint) from error
        raise


@contextmanager
def reading_whole(join: str, source: str) -> Iterator[None]:
    """Raise CannotContinue if files of a source's newest version are gone, so that a backfill cannot read it either."""
    try:
        yield
    except LakejoinError:
        raise
    except Exception as error:  # see `reading`
        if not _conditions(error).intersection(GONE):
            raise
        raise CannotContinue(
            source,
            "the table itself cannot be read at its newest version: some of its files are gone",
            expected="all its files and, for a shallow clone, the files of the original table",
            found=error_text(error),
            hint=Remedy("restore the files, or recreate the table from its origin; then {reconcile}", join),
        ) from error


def _conditions(error: Exception) -> set[str]:
    """Return the error conditions that an error or its text names, and each part of a name such as `A.B`."""
    named = re.findall(r"\[([A-Z][A-Z_.]+)\]|\b(FileNotFoundException)\b", str(error))
    own = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    return {part for name in (own, *map("".join, named)) for part in (name, *name.split("."))}


def error_text(error: Exception) -> str:
    """
    Return the paragraph of an error that names the condition, without classes, stack and SQLSTATE.

    The text of a failed job contains its cause, below the Java classes that passed it on. The result is one line of at
    most 500 characters.
    """
    message = str(error).strip()
    start = min((message.index(name) for name in _conditions(error) & _KNOWN if name in message), default=0)
    begin = message.rfind("\n", 0, start) + 1
    text = STACK.split(message[begin:], maxsplit=1)[0]
    text = re.sub(r"\s*SQLSTATE: \w+", "", " ".join(text.split()))
    return CLASSES.sub("", text)[:500]


def is_missing(error: PySparkException) -> bool:
    """Return whether an error means that the Delta table does not exist."""
    return bool(_conditions(error) & MISSING)


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark, or the Py4J gateway to it, raised an error."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def is_about_a_row(error: Exception) -> bool:
    """Return whether an expression raised for a row: for its values, not for the statement, a table or a version."""
    text = str(error)
    return is_of_spark(error) and "[DELTA_" not in text and DATA_EXCEPTION.search(text) is not None


def failed_expression(error: Exception) -> str:
    """Return the expression that raised for a row, as Spark SQL; empty if the condition does not say."""
    found = _FRAGMENT.search(str(error))
    if found is None or "\n" in found[1]:
        return ""
    return found[1][len(found[2]) : len(found[2]) + len(found[3])]


def value_error(error: Exception) -> str:
    """Return what is wrong with a value, in one sentence: without the expression, and without advice to ignore it."""
    return re.split(r"\s*(?:If necessary|== SQL)", error_text(error), maxsplit=1)[0]


def last_cause(error: BaseException) -> str:
    """Return what caused an error in the end, in one line: the last cause in a Java stack trace, or its text."""
    text = str(error).strip()
    causes = re.findall(r"^(?:Caused by)?: (.+)$", text, re.MULTILINE)
    line = causes[-1] if causes else next(iter(text.splitlines()), "")
    return CLASSES.sub("", line)[:500] or line[:500] or type(error).__name__


def as_known(error: BaseException, where: str) -> LakejoinError:
    """Return an error as one of lakejoin: itself, or an `Unexpected` with its last cause."""
    if isinstance(error, LakejoinError):
        return error
    return Unexpected(
        where,
        last_cause(error),
        found=f"an unexpected {type(error).__name__}",
        hint="run `lakejoin -v COMMAND ...` to print the traceback",
    )


def is_view(error: PySparkException) -> bool:
    """Return whether an error means that a name refers to a view instead of a table."""
    return "EXPECT_TABLE_NOT_VIEW" in _conditions(error)


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its class name if the text is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_conflict(error: Exception) -> bool:
    """Return whether an error is a conflict with another writer, by its text: not every runtime has a class for it."""
    return any(name in str(error) for name in CONFLICTS)
