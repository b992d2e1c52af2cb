"""The status of a join and of its sources."""

from datetime import datetime
from typing import Literal

from pipelines.report.facts import Facts
from pipelines.report.wording import duration, moment, number_of

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
