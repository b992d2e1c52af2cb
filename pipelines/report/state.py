"""What commands report about a join without running it: its explanation, its status and its history."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from textwrap import indent, wrap
from typing import Literal

from lakehouse.ledger.entries import Step
from lakehouse.values.recorded import SourceVersions
from pipelines.language.statement.definition import How, JoinType
from pipelines.report.facts import Facts, duration, estimated, moment, number_of, steps, table

State = Literal["current", "behind", "not loaded", "open", "broken", "unreadable", "stopped"]
NEEDS_A_PERSON = ("broken", "unreadable", "stopped")
"""The states in which the next run stops: a person has to act."""


class SourceStatus(Facts):
    """How far the result is behind a source, and how long the pending changes stay readable."""

    name: str
    """The name of the source."""
    version: int | None
    """The newest version of the source; null if the table cannot be read."""
    accounted: int | None
    """The version of the source that the result accounts for; null before the load."""
    commits_behind: int | None
    """The number of commits with data that the result does not include yet; null before the load, or if unknown."""
    seconds_behind: float | None
    """The age of the oldest of these commits in seconds; 0 if `commits_behind` is 0, null if it is null."""
    retention_seconds: float | None
    """How long a change stays readable, in seconds: the smaller of the table's `delta.deletedFileRetentionDuration` and
    `delta.logRetentionDuration`; null if unknown."""
    readable_until: datetime | None
    """The time until which the oldest of these commits stays readable; null without such commits, or if unknown."""
    warning: str = ""
    """A warning about the source; may be empty."""

    def text(self) -> str:
        """Render as one line of text, without the warning."""
        return f"{self.name}: {self._where()}"

    def _where(self) -> str:
        if self.version is None:
            return "does not exist"
        if self.accounted is None:
            return f"at version {self.version}"
        if self.commits_behind is None:
            return f"at version {self.version}; the result has it up to version {self.accounted}"
        if not self.commits_behind:
            retention = self.retention_seconds
            readable = "" if retention is None else f"; changes stay readable for {duration(retention)}"
            return f"nothing new since version {self.accounted}{readable}"
        behind = f"{number_of(self.commits_behind, 'commit', 'commits')} behind"
        age = f"the oldest {duration(self.seconds_behind or 0)} old"
        until = "" if self.readable_until is None else f"; readable until {moment(self.readable_until)}"
        return f"{behind}, {age}{until}"


class GateStatus(Facts):
    """The result of the last gate of the join."""

    passed: bool
    """Whether the gate passed."""
    epoch: int
    """The number of the epoch."""
    at: datetime
    """The time of the gate."""
    findings: str = ""
    """The findings of the gate, if it failed or warned; else empty."""

    def text(self) -> str:
        """Render as one line of text."""
        if self.passed:
            warned = f", warned: {self.findings}" if self.findings else ""
            return f"last gate: passed, epoch {self.epoch}{warned}"
        return f"last gate: failed, epoch {self.epoch}: {self.findings}"


class JoinStatus(Facts):
    """The status of one join."""

    join: str
    """The name of the join."""
    state: State
    """current, behind, not loaded, open (an epoch is not finished), broken, unreadable (a source), or stopped (its
    tables or its definition are not as its last epoch left them). After the last three the exit code is 4."""
    epoch: int
    """The number of the last committed epoch; 0 before the load."""
    committed_at: datetime | None
    """The time at which that epoch was committed; null before the load."""
    result_version: int | None
    """The version of the result that this epoch created; null before the load."""
    sources: tuple[SourceStatus, ...]
    """The sources, left before right."""
    last_gate: GateStatus | None
    """The last gate; null before the first."""
    verified_at: datetime | None = None
    """The time of the last `lakejoin verify --quick` that found the recorded checksum in the result; null if none."""
    verified_epoch: int | None = None
    """The epoch whose checksum this was; null if none."""
    refused: str = ""
    """Why runs have been refused since the last epoch, and since when; empty if none was, or if the cause is gone."""
    note: str = ""
    """A warning about the join, with the command that resolves it; may be empty."""

    def text(self) -> str:
        """Render as text."""
        warnings = [f"{source.name}: {source.warning}" for source in self.sources if source.warning]
        lines = [
            *(source.text() for source in self.sources),
            *([self.last_gate.text()] if self.last_gate else []),
            *([self._verified()] if self.verified_at else []),
            *([f"runs are refused: {self.refused}"] if self.refused else []),
            *(f"warning: {warning}" for warning in (*warnings, *filter(None, [self.note]))),
        ]
        return "\n".join([f"{self.join}: {self.state}{self._epoch()}", *(f"  {line}" for line in lines)])

    def _verified(self) -> str:
        assert self.verified_at is not None
        return f"checksum last verified: {moment(self.verified_at)}, epoch {self.verified_epoch}"

    def _epoch(self) -> str:
        if not self.epoch:
            return ""
        committed = "" if self.committed_at is None else f", committed {moment(self.committed_at)}"
        return f" (epoch {self.epoch}, version {self.result_version}{committed})"


COLUMNS = ("epoch", "when", "step", "strategy", "inserted", "updated", "deleted")
NUMBERS = ("epoch", "inserted", "updated", "deleted")


class EpochReport(Facts):
    """One epoch, or one attempt at an epoch, with the last step that it reached."""

    epoch: int
    """The number of the epoch."""
    step: Step
    """publishing (open), committed, rejected (by its gate), refused (it could not continue), abandoned or broken."""
    at: datetime
    """The time of the step."""
    run_id: str
    """The id of the run."""
    strategy: str
    """load, incremental, reconcile or overwrite."""
    reason: str
    """The reason for this strategy: a stable code, a colon, and a description."""
    sources: tuple[SourceVersions, ...]
    """The versions of the sources that the epoch accounts for."""
    result_version: int | None
    """The version of the result that the epoch created."""
    counts: Mapping[str, int]
    """Rows read, looked_up, touched, inserted, updated, deleted, unchanged, null_keys; files read for look-ups."""
    seconds: Mapping[str, float]
    """The seconds that each step took."""
    estimates: Mapping[str, float] = {}
    """The estimated seconds of each way to compute an epoch of a join of tables, by strategy."""
    message: str = ""
    """Why the epoch was rejected, refused, abandoned or broken; may be empty."""

    def cells(self) -> tuple[str, ...]:
        """Render as the cells of a table row, without `seconds` and `message`."""
        shown = {"inserted": self.counts.get("appended"), **self.counts}
        counts = (
            f"{shown[name]:,}" if shown.get(name) is not None else "-" for name in ("inserted", "updated", "deleted")
        )
        return (str(self.epoch), moment(self.at), self.step, self.strategy, *counts)


class JoinHistoryReport(Facts):
    """The latest epochs of one join, newest first."""

    join: str
    """The name of the join."""
    epochs: tuple[EpochReport, ...]
    """The epochs."""
    more: bool
    """Whether older epochs exist."""

    def text(self) -> str:
        """Render as a table, with the seconds and the message of each epoch below its row."""
        if not self.epochs:
            return f"{self.join}: no epochs yet; `lakejoin run` makes the first"
        cells = [epoch.cells() for epoch in self.epochs]
        head, rule, *rows = table(COLUMNS, cells, [name in NUMBERS for name in COLUMNS])
        lines = [f"{self.join}:", f"  {head}", f"  {rule}"]
        for row, epoch in zip(rows, self.epochs, strict=True):
            lines.append(f"  {row}")
            took = [f"{sum(epoch.seconds.values()):.1f} s: {steps(epoch.seconds)}"] if epoch.seconds else []
            expected = [f"estimated: {estimated(epoch.estimates)}"] if epoch.estimates else []
            below = [*took, *expected, *epoch.message.splitlines()]
            lines.extend(f"         {line}" for line in below)
        if self.more:
            lines.append("  older epochs exist: --limit shows more")
        return "\n".join(lines)


WIDTH = 100
"""The number of characters at which lines wrap. The statement is not wrapped."""

LABEL = 13
"""The number of characters before the second column."""


class SourceExplanation(Facts):
    """One input of a join."""

    name: str
    """The name of the source or join."""
    alias: str
    """Its alias in the statement."""
    kind: str
    """Its kind in the pipeline file; `join` for another join of the file."""
    key: tuple[str, ...]
    """Its key columns. All inputs that key the result list theirs in the same order."""
    address: str
    """The table or folder; a path is relative to the pipeline file if the file states it that way."""
    change: str
    """How a change of this input affects the result."""
    pruning: tuple[str, ...] = ()
    """What a change of this input skips files by, with a warning where it skips none; empty with a stream."""

    def text(self) -> str:
        """Render as one line of text, without `change` and `pruning`."""
        alias = "" if self.alias.lower() == self.name.lower() else f" as {self.alias}"
        key = f", key ({', '.join(self.key)})" if self.key else ""
        return f"{self.kind} {self.name}{alias}{key}, in {self.address}"


class JoinExplanation(Facts):
    """The kind of a join, the reasons for it, and its consequences."""

    join: str
    """The name of the join."""
    kind: JoinType
    """The kind of join."""
    how: tuple[How, ...]
    """The type of each JOIN, in the order of the statement."""
    why: tuple[str, ...]
    """The reasons for this kind: what keys the result, and what each reference is."""
    sources: tuple[SourceExplanation, ...]
    """Its inputs, in the order of FROM."""
    key: tuple[str, ...]
    """The parts of the result's key, named by the inputs that hold them; empty if the result is a stream."""
    result: str
    """The result table or its folder."""
    semantics: str
    """strict, kafka, kafka-0.10.2 or kafka-0.10.0."""
    refresh: str
    """auto, incremental or full."""
    plan: tuple[str, ...]
    """What the join reads and stores without the optimizer: a line for each read, with the stores that it fills, and a
    line for the join."""
    optimised: tuple[str, ...]
    """The same after the rules of the optimizer; empty if the rules change nothing for this join."""
    rules: tuple[str, ...]
    """What each rule changed for this join: the name of the rule, a colon, and a description."""
    sql: str
    """The statement."""
    gated: tuple[str, ...] = ()
    """Your own expectations that gate each epoch: the expectations that judge each row by itself."""
    validated: tuple[str, ...] = ()
    """Your own expectations that judge the result as a whole; they do not apply to a change set."""
    notes: tuple[str, ...] = ()
    """Notes about this join for the reader."""

    def text(self) -> str:
        """Render as text."""
        lines = [", ".join(filter(None, (f"{self.join}: {self.kind}", self.types())))]
        lines += _labelled("why", *self.why)
        labels = ("left", "right") if len(self.sources) == 2 else ("input",) * len(self.sources)
        for label, source in zip(labels, self.sources, strict=True):
            lines += _labelled(label, source.text(), f"a change {source.change}", *source.pruning)
        holds = f"one row for each ({', '.join(self.key)})" if self.key else "a stream, to which rows are added"
        lines += _labelled("result", f"{self.result}, {holds}")
        lines += _labelled("semantics", self.semantics)
        lines += _labelled("plan", *self.plan)
        lines += _labelled("optimised", *self.optimised, *self.rules)
        lines += _labelled("gate", *self.gated)
        lines += _labelled("validate", *self.validated)
        lines += _labelled("notes", *self.notes, bullet="- ")
        return "\n".join([*lines, "  sql", indent(self.sql, "    ")])

    def types(self) -> str:
        """Describe the types of its JOINs; a statement of one input has none."""
        if not self.how:
            return ""
        if len(self.how) == 1:
            return f"{self.how[0]} join"
        return f"{len(self.sources)} inputs, {' and '.join(dict.fromkeys(self.how))} joins"


def _labelled(label: str, *texts: str, bullet: str = "") -> Iterator[str]:
    """Wrap each text in the second column, with the label in the first column of the first line."""
    for number, text in enumerate(texts):
        yield from wrap(
            text,
            WIDTH,
            initial_indent=f"  {'' if number else label}".ljust(LABEL) + bullet,
            subsequent_indent=" " * (LABEL + len(bullet)),
            break_long_words=False,
            break_on_hyphens=False,
        )
