"""
The errors of lakejoin: one class hierarchy, with an exit code for each class, the fields of its message and a remedy.

Callers branch on the class, on `code` (stable, for machines) and on `retryable`; they never parse the text. A remedy is
a sentence with actions, because an error is raised where nobody knows the kind of the join that it stops: the driver
gives it the commands of the kind. Until then it has those of a join of tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import ClassVar

Commands = Mapping[str, str]
"""The clause for each action; `{select}` in it stands for the option that selects the join."""

TAKING_SUCH_ROWS = (
    "let the statement take such rows, by `try_divide(a, b)`, `a / NULLIF(b, 0)`, `try_cast(a AS type)` or "
    "`try_add(a, b)`"
)
"""What to do about a row for which the statement raises."""

OF_TABLES: Commands = {
    "run": "run `lakejoin run{select}`",
    "load": "run `lakejoin backfill{select}` for the first load",
    "reconcile": "run `lakejoin backfill{select}` to reconcile the result with the sources as they are now",
    "take over": "run `lakejoin backfill{select}` to reconcile the table",
    "abandon": "run `lakejoin backfill{select}`, which abandons the epoch and reconciles the result",
    "adopt": "run `lakejoin verify{select}` to compare it with the join, or `lakejoin backfill{select}` to adopt it",
    "mend": f"correct the row in its source, then run `lakejoin run{{select}}`; or {TAKING_SUCH_ROWS}, then run "
    "`lakejoin backfill{select}`",
    "mend past row": "run `lakejoin backfill{select}` to reconcile the result with the sources as they are now",
    "redefine": "`lakejoin backfill --dry-run{select}` counts the rows that a backfill would rewrite; "
    "without `--dry-run` it writes them",
}
"""The commands for a join of tables."""


@dataclass(frozen=True)
class Remedy:
    """What to do: a sentence in which `{action}` is an action of `OF_TABLES`, and the join to select, once known."""

    text: str
    join: str = ""

    def by(self, commands: Commands) -> str:
        """Return the sentence with the commands of a kind of join."""
        select = f" --select {self.join}" if self.join else ""
        sentence = self.text
        for action, command in commands.items():
            sentence = sentence.replace(f"{{{action}}}", command.replace("{select}", select))
        return sentence


def printable(text: str) -> str:
    """Return a text in one line, with an escape sequence for each character that a terminal would interpret or hide."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


class LakejoinError(Exception):
    """
    The base class of all errors that lakejoin raises deliberately.

    Args:
        where: The pipeline file, join or table that the error is about, by its name in the pipeline file.
        problem: What is wrong, as a clause: "the change feed is off".
        hint: The next step for the user, usually a command; a `Remedy` if the command depends on the kind of join.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "FAILED"
    retryable: ClassVar[bool] = False

    def __init__(
        self, where: str, problem: str, *, expected: str = "", found: str = "", hint: str | Remedy = ""
    ) -> None:
        self.where, self.problem, self.expected, self.found = where, problem, expected, found
        self._remedy = hint if isinstance(hint, Remedy) else Remedy("")
        self._commands = OF_TABLES
        self.reports: Sequence[object] = ()  # of all joins of a command, if raised at its end
        self.hint = hint.by(OF_TABLES) if isinstance(hint, Remedy) else hint
        super().__init__(self.message)

    def name_commands(self, join: str, commands: Commands | None = None) -> None:
        """Name a kind's commands in the hint (None: those named already), and the join to select if it names none."""
        if self._remedy.text:
            self._remedy = replace(self._remedy, join=self._remedy.join or join)
            self._commands = commands or self._commands
            self.hint = self._remedy.by(self._commands)
            self.args = (self.message,)

    def advise(self, hint: str) -> None:
        """Replace the hint."""
        self._remedy, self.hint = Remedy(""), hint
        self.args = (self.message,)

    @property
    def message(self) -> str:
        """The full text, one fact per line."""
        facts = {"expected": self.expected, "found": self.found, "next": self.hint}
        lines = [f"  {name}: {fact}" for name, fact in facts.items() if fact]
        return "\n".join([f"{self.where}: {self.problem}", *lines])


class BufferFull(LakejoinError):
    """A join of two streams would buffer more rows than the pipeline file allows."""

    code = "BUFFER_FULL"


class DuplicateKey(LakejoinError):
    """A source or a result contains a key more than once; `found` lists examples."""

    code = "DUPLICATE_KEY"


class RowFailed(LakejoinError):
    """The statement raises for a row, such as a division by zero; `found` names the row, if it could be found."""

    code = "ROW_FAILED"


class Unexpected(LakejoinError):
    """An error that lakejoin did not foresee; `problem` is its last cause."""

    code = "UNEXPECTED"


class Drifted(LakejoinError):
    """`verify` found rows that differ from the join."""

    code = "DRIFTED"


@dataclass(frozen=True)
class Fault:
    """
    One fault of a pipeline file.

    Args:
        path: Dotted keys in the file: `joins.flight_status.sql`.
        problem: What is wrong there; for a fault of the SQL it names the clause.
        line: The line of the file, from 1, if known.
        excerpt: A line of the statement and, below it, a line that underlines the clause.
    """

    path: str
    problem: str
    hint: str = ""
    line: int | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path} (line {self.line})"
        excerpt = [f"  | {line}" for line in self.excerpt.split("\n") if self.excerpt]
        hint = [printable(f"  next: {self.hint}")] if self.hint else []
        return "\n".join([printable(f"{where}: {self.problem}"), *excerpt, *hint])


class StorageFailed(LakejoinError):
    """Files of lakejoin, or a table, cannot be reached where they lie, or something was left of what was removed."""

    code = "STORAGE_FAILED"


class PipelineFileError(LakejoinError):
    """The pipeline file cannot be used; `faults` holds all faults in it, not only the first."""

    exit_code = 2
    code = "BAD_PIPELINE_FILE"

    def __init__(self, where: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(where, f"{len(self.faults)} fault" + ("s" if len(self.faults) != 1 else ""))

    @property
    def message(self) -> str:
        """The full text: a heading, then each fault."""
        return "\n".join([f"{self.where}: {self.problem}", *(indent(str(fault), "  ") for fault in self.faults)])


class FilesExist(LakejoinError):
    """A file to be written exists already, and lakejoin did not write it; nothing was written."""

    exit_code = 2
    code = "FILE_EXISTS"


class GateFailed(LakejoinError):
    """The change set failed its gate; nothing was published, and the stage is retained."""

    exit_code = 3
    code = "GATE_FAILED"


class GateErrored(LakejoinError):
    """An expectation could not be evaluated: the rows are unchecked, and no epoch was published."""

    code = "GATE_ERRORED"


class CannotContinue(LakejoinError):
    """The join cannot continue from the recorded versions; the user has to decide, usually by `backfill`."""

    exit_code = 4
    code = "CANNOT_CONTINUE"


class SourceRecreated(CannotContinue):
    """A source was dropped and recreated: its table id differs from the recorded one."""

    code = "SOURCE_RECREATED"


class FeedUnavailable(CannotContinue):
    """The change feed of the required versions is off, is gone or has a gap."""

    code = "FEED_UNAVAILABLE"


class SchemaBroken(CannotContinue):
    """The columns of a table differ from the columns that the join was built with."""

    code = "SCHEMA_BROKEN"


class ForeignWriter(CannotContinue):
    """A foreign write changed a table that lakejoin maintains."""

    code = "FOREIGN_WRITER"


class BrokenEpoch(CannotContinue):
    """The rows that a commit changed differ from the rows staged for it."""

    code = "BROKEN_EPOCH"


class DefinitionChanged(CannotContinue):
    """The definition of the join differs from the definition of its last epoch."""

    code = "DEFINITION_CHANGED"


class PastRowFailed(CannotContinue):
    """The statement raises for a row as it was in between, which the exact changelog needs; it does no longer."""

    code = "PAST_ROW_FAILED"


class NotLoaded(CannotContinue):
    """The ledger has no epoch to continue from, but a result exists that a run must not replace."""

    code = "NOT_LOADED"


class LedgerForgot(CannotContinue):
    """Rows were removed from the ledger: an epoch that was begun is missing."""

    code = "LEDGER_FORGOT"


class WriteRefused(CannotContinue):
    """A constraint or a property of a table that lakejoin maintains prevents the write of an epoch."""

    code = "WRITE_REFUSED"


class AnotherRun(LakejoinError):
    """Another run publishes this epoch, or must be finished first."""

    exit_code = 5
    code = "ANOTHER_RUN"
    retryable = True
