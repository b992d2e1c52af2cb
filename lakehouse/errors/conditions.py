"""What Delta and Spark raise for tables that cannot be read or refuse a write, and the lakejoin errors for it."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException

from lakehouse.errors.errors import (
    AnotherRun,
    CannotContinue,
    FeedUnavailable,
    LakejoinError,
    Remedy,
    SchemaBroken,
    StorageFailed,
    Unexpected,
    WriteRefused,
)
from lakehouse.values.sqltext import Address

_GONE = {"FileNotFoundException", "FILE_NOT_EXIST", "FILE_NOT_FOUND", "FILE_NOT_FOUND_DETAILED"}
_GONE |= {"DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_TRUNCATED_TRANSACTION_LOG"}
_GONE |= {"DELTA_LOG_FILE_NOT_FOUND", "DELTA_CHANGE_DATA_FILE_NOT_FOUND", "DELTA_NO_RECREATABLE_HISTORY_FOUND"}
_GONE |= {"DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"}
_GONE |= {"DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"}
_MISSING = {"DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"}
_MISSING |= {"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}
_FEED_OFF = ("DELTA_MISSING_CHANGE_DATA",)
_FEED_SCHEMA = (
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
)
_KNOWN = {*_GONE, *_MISSING, *_FEED_OFF, *_FEED_SCHEMA}

_CONFLICTS = (
    "DELTA_CONCURRENT",
    "ConcurrentModification",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "A conflicting metadata domain",  # the error of two overwrites of a clustered table; it names no condition
)

_DATA_EXCEPTION = re.compile(r"SQLSTATE: 22\w{3}")
"""The class of SQLSTATE of conditions about a value: a division by zero, a failing cast, an overflow."""

_FRAGMENT = re.compile(r"== SQL .*?position \d+\) ==\n(.*?)\n( *)(\^+)", re.DOTALL)
"""The text of an expression in a condition, with the carets below the part that raised."""

_STACK = re.compile(r"\n\s*(?:at [\w.$/]+\(|Driver stacktrace|JVM stacktrace|Caused by|\n)")
"""The end of the text of a condition."""

_CLASSES = re.compile(r"^(?:Caused by)?[:\s]*(?:[a-z_$][\w$]*\.)+[A-Z][\w$.]*(?:Exception|Error)?:?\s*")
"""The Java class name at the start of a text."""

_REFUSAL = re.compile(r"\[(DELTA_[A-Z0-9_.]+)\]\s*(.+?)(?:\s*SQLSTATE\b|\n\s*at |\n\nJVM|$)", re.DOTALL)
"""A condition of Delta with its text, anywhere in a message."""

_NO_FILE_SYSTEM = re.compile(r'Class org\.apache\.hadoop\.fs\.\S+ not found|No FileSystem for scheme "[\w+.-]+"')
"""What Hadoop says of an address whose file system is not on the class path of Spark."""

_LONGEST = 400
"""The maximum number of characters of Delta's text in a message."""

_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@contextmanager
def reading(join: str, source: str = "") -> Iterator[None]:
    """
    Convert errors of Delta and Spark about unreadable versions to lakejoin errors.

    The error names the source, or if several tables are read, the join or changelog source that its hint selects.

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
        raised: type[CannotContinue] = FeedUnavailable
        if conditions.intersection(_FEED_OFF):
            problem = "the change feed was off for some of the required versions"
        elif conditions.intersection(_FEED_SCHEMA):
            raised, problem = SchemaBroken, "its columns changed inside the range"
        elif conditions.intersection(_GONE):
            problem = "some of the required versions are no longer readable"
        else:
            raise
        raise raised(where, problem, found=error_text(error), hint=Remedy("{reconcile}", join)) from error


@contextmanager
def reading_whole(join: str, source: str) -> Iterator[None]:
    """Raise CannotContinue if files of a source's newest version are gone, so that a backfill cannot read it either."""
    try:
        yield
    except LakejoinError:
        raise
    except Exception as error:  # see `reading`
        if not _conditions(error).intersection(_GONE):
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
    Return the paragraph of an error that names the condition, without classes, stack and SQLSTATE, in one line of at
    most 500 characters. The text of a failed job contains its cause, below the Java classes that passed it on.
    """
    message = str(error).strip()
    start = min((message.index(name) for name in _conditions(error) & _KNOWN if name in message), default=0)
    begin = message.rfind("\n", 0, start) + 1
    text = _STACK.split(message[begin:], maxsplit=1)[0]
    text = re.sub(r"\s*SQLSTATE: \w+", "", " ".join(text.split()))
    return _CLASSES.sub("", text)[:500]


def is_missing(error: PySparkException) -> bool:
    """Return whether an error means that the Delta table does not exist."""
    return bool(_conditions(error) & _MISSING)


def is_of_spark(error: Exception) -> bool:
    """Return whether Spark, or the Py4J gateway to it, raised an error."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def is_about_a_row(error: Exception) -> bool:
    """Return whether an expression raised for a row: for its values, not for the statement, a table or a version."""
    text = str(error)
    return is_of_spark(error) and "[DELTA_" not in text and _DATA_EXCEPTION.search(text) is not None


def failed_expression(error: Exception) -> str:
    """Return the expression that raised for a row, as Spark SQL; empty if the condition does not say."""
    match = _FRAGMENT.search(str(error))
    if match is None or "\n" in match[1]:
        return ""
    return match[1][len(match[2]) : len(match[2]) + len(match[3])]


def value_error(error: Exception) -> str:
    """Return what is wrong with a value, in one sentence: without the expression, and without advice to ignore it."""
    return re.split(r"\s*(?:If necessary|== SQL)", error_text(error), maxsplit=1)[0]


def last_cause(error: BaseException) -> str:
    """Return the last cause in the Java stack trace of an error, without its class; without one, its first line."""
    text = str(error).strip()
    causes = re.findall(r"^(?:Caused by)?: (.+)$", text, re.MULTILINE)
    line = causes[-1] if causes else next(iter(text.splitlines()), "")
    return _CLASSES.sub("", line)[:500] or line[:500] or type(error).__name__


def as_known(error: BaseException, where: str) -> LakejoinError:
    """
    Return an error as one of lakejoin: itself, a `StorageFailed` if Spark has no file system for an address, else an
    `Unexpected` with the last cause in its Java stack trace.
    """
    if isinstance(error, LakejoinError):
        return error
    text = str(error).strip()
    if missing := _NO_FILE_SYSTEM.search(text):
        return StorageFailed(
            where,
            "Spark has no file system for the address of a table",
            expected="the package of the object store on the class path of Spark",
            found=missing[0],
            hint="install it with `spark.jars.packages` (for `s3a://`: org.apache.hadoop:hadoop-aws, in the version of "
            "Spark's Hadoop), as `conf/README.md` says under Object stores",
        )
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
    return any(name in str(error) for name in _CONFLICTS)


def refusal(error: Exception, address: Address, epoch: int, join: str) -> LakejoinError:
    """
    Return the error for a failed write of an epoch to a table that a join, or a changelog source, maintains:
    WriteRefused for a constraint or a property of the table, AnotherRun for concurrent writes, else one with the hint
    to retry or abandon.
    """
    if is_conflict(error):
        return AnotherRun(
            address.label,
            f"other writers changed the table during each attempt to write epoch {epoch} of {join}",
            found=first_line(error),
            hint=Remedy("{run}, which retries the write", join),
        )
    match = _REFUSAL.search(str(error))
    found = " ".join((match[2] if match else first_line(error)).split())[:_LONGEST]
    condition, expected, raised = match[1] if match else "", "", WriteRefused if match else LakejoinError
    if "CONSTRAINT" in condition:
        name = re.search(r"CHECK constraint (\S+)", found)
        drop = f"ALTER TABLE {address.sql} DROP CONSTRAINT {name[1]}" if name else "make the column nullable"
        problem = f"epoch {epoch} of {join} violates a constraint of the table"
        expected = "rows that meet the constraints of the table"
        hint = f"{drop}, or correct the sources; then {{abandon}}"
    elif "APPEND_ONLY" in condition:
        problem = f"epoch {epoch} of {join} changes rows, and delta.appendOnly is set on the table"
        alter = f"ALTER TABLE {address.sql} SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
        hint = f"{alter}, then {{run}}, which finishes the epoch"
    elif condition:
        problem, found = f"the table refuses the write of epoch {epoch} of {join}", f"{condition}: {found}"
        hint = "undo the change to the table, then {run}; or {abandon}"
    else:
        problem = f"epoch {epoch} of {join} could not be written"
        hint = "{run}, which retries the write; or {abandon}"
    return raised(address.label, problem, expected=expected, found=found, hint=Remedy(hint, join))


def refuse_forgetting(name: str, address: Address, properties: Mapping[str, str]) -> None:
    """Raise CannotContinue if a property of a table lets Delta forget after a time which epochs were written to it."""
    if _TRANSACTION_RETENTION in properties:
        raise CannotContinue(
            name,
            f"{_TRANSACTION_RETENTION} is set on {address.label}",
            expected="no such property: Delta would forget which epochs were written, and one could be written twice",
            found=properties[_TRANSACTION_RETENTION],
            hint=f"ALTER TABLE {address.sql} UNSET TBLPROPERTIES ('{_TRANSACTION_RETENTION}')",
        )
