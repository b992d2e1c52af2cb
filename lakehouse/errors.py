"""
The errors of lakejoin: one tree, each with its exit code and the fields its message is made of.

A message says where it happened, what was wrong (expected and found) and what to do next. Callers branch on the class,
on `code` (stable, for machines) and on `retryable`; they never parse the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import ClassVar


def printable(text: str) -> str:
    """
    Write out what a terminal would obey or not show.

    Args:
        text: Anything, as a name out of a file.

    Returns:
        The text in one line: an escape sequence for each character that cannot be printed.
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def reconcile_hint(join: str = "") -> str:
    """
    Return the hint to reconcile a result with its sources.

    Args:
        join: The join; empty where only a table is known: `conditions.reading` then adds the join.
    """
    select = f" --select {join}" if join else ""
    return f"run `lakejoin backfill{select}` to reconcile the result with the sources as they are now"


class LakejoinError(Exception):
    """
    Base of all errors that lakejoin raises on purpose.

    Args:
        where: The pipeline file, join or table that the error is about, named as the pipeline file names it.
        problem: What is wrong, as a clause: "the change feed is off".
        expected: What would have been right, if that is not plain from the problem.
        found: What was there instead.
        hint: The next step for the person who reads it, mostly a command.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "FAILED"
    retryable: ClassVar[bool] = False

    def __init__(self, where: str, problem: str, *, expected: str = "", found: str = "", hint: str = "") -> None:
        self.where = where
        self.problem = problem
        self.expected = expected
        self.found = found
        self.hint = hint
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The whole text, one fact a line."""
        lines = [f"{self.where}: {self.problem}"]
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.found:
            lines.append(f"  found: {self.found}")
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return "\n".join(lines)


class BufferFull(LakejoinError):
    """More rows would wait in a join of two streams than its file allows."""

    code = "BUFFER_FULL"


class DuplicateKey(LakejoinError):
    """A source or a result holds a key more than once; `found` gives examples."""

    code = "DUPLICATE_KEY"


class Drifted(LakejoinError):
    """`verify` found rows that differ from the join."""

    code = "DRIFTED"


@dataclass(frozen=True)
class Fault:
    """
    One fault of a pipeline file.

    Args:
        path: Where in the file, as dotted keys: `joins.flight_status.sql`.
        problem: What is wrong there, naming the clause for a fault of the SQL.
        hint: What would be right.
        line: The line of the file, from 1, where it is known.
        excerpt: A line of the statement and, below it, the clause underlined.
    """

    path: str
    problem: str
    hint: str = ""
    line: int | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path} (line {self.line})"
        lines = [printable(f"{where}: {self.problem}")]
        lines += [f"  | {line}" for line in self.excerpt.split("\n") if self.excerpt]
        return "\n".join([*lines, printable(f"  next: {self.hint}")] if self.hint else lines)


class PipelineFileError(LakejoinError):
    """The pipeline file cannot be used; `faults` holds every fault found in it, not only the first."""

    exit_code = 2
    code = "BAD_PIPELINE_FILE"

    def __init__(self, where: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(where, f"{len(self.faults)} fault" + ("s" if len(self.faults) != 1 else ""))

    @property
    def message(self) -> str:
        """The whole text: a head line, then each fault."""
        return "\n".join([f"{self.where}: {self.problem}", *(indent(str(fault), "  ") for fault in self.faults)])


class FilesExist(LakejoinError):
    """A file that would be written is there already, and not ours; nothing was written."""

    exit_code = 2
    code = "FILE_EXISTS"


class GateFailed(LakejoinError):
    """The change set did not pass its gate; nothing was published and the stage is kept."""

    exit_code = 3
    code = "GATE_FAILED"


class GateErrored(LakejoinError):
    """An expectation could not be evaluated: nothing is known of the rows, and no epoch was published."""

    code = "GATE_ERRORED"


class CannotContinue(LakejoinError):
    """The recorded versions cannot be continued from; a person has to decide, mostly by `backfill`."""

    exit_code = 4
    code = "CANNOT_CONTINUE"


class SourceRecreated(CannotContinue):
    """A source was dropped and made again: its table id is not the recorded one."""

    code = "SOURCE_RECREATED"


class FeedUnavailable(CannotContinue):
    """The change feed of the needed versions is off, gone or has a gap."""

    code = "FEED_UNAVAILABLE"


class SchemaBroken(CannotContinue):
    """A table's columns are no longer those that the join was built with."""

    code = "SCHEMA_BROKEN"


class ForeignWriter(CannotContinue):
    """Somebody else wrote to a table that lakejoin keeps."""

    code = "FOREIGN_WRITER"


class BrokenEpoch(CannotContinue):
    """What a commit changed is not what was staged for it."""

    code = "BROKEN_EPOCH"


class DefinitionChanged(CannotContinue):
    """The join is defined otherwise than when its last epoch ran."""

    code = "DEFINITION_CHANGED"


class NotLoaded(CannotContinue):
    """There is no epoch to continue from, but a result that may not simply be replaced."""

    code = "NOT_LOADED"


class LedgerForgot(CannotContinue):
    """Rows were taken out of the ledger: it does not hold an epoch that was begun."""

    code = "LEDGER_FORGOT"


class WriteRefused(CannotContinue):
    """A table that lakejoin keeps does not take the rows of an epoch, for a constraint or a property of it."""

    code = "WRITE_REFUSED"


class AnotherRun(LakejoinError):
    """Another run publishes this epoch, or has to be finished first."""

    exit_code = 5
    code = "ANOTHER_RUN"
    retryable = True
