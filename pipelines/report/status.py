"""Where a join stands."""

from datetime import datetime
from typing import Literal

from pipelines.report.facts import Facts
from pipelines.report.wording import duration, moment, number_of

State = Literal["current", "behind", "not loaded", "open", "broken", "unreadable"]


class SourceStatus(Facts):
    """How far a source has moved on, and how long that can still be read."""

    name: str
    """The source."""
    version: int | None
    """Its newest version; null if the table cannot be looked at."""
    accounted: int | None
    """Its version that the result accounts for; null before the load."""
    commits_behind: int | None
    """Commits with data that the result does not have yet; null before the load, or if that cannot be told."""
    seconds_behind: float | None
    """Age of the oldest of these commits; 0 if there is none, null where `commits_behind` is."""
    retention_seconds: float | None
    """How long a change stays readable: the table's `delta.deletedFileRetentionDuration`, or its
    `delta.logRetentionDuration` if that is shorter; null if that cannot be told."""
    readable_until: datetime | None
    """When the oldest of these commits stops being readable; null if there is none, or if that cannot be told."""
    warning: str = ""
    """What a person should know; may be empty."""

    def text(self) -> str:
        """Render for a person, as one line without the warning."""
        return f"{self.name}: {self._where()}"

    def _where(self) -> str:
        if self.version is None:
            return "not there"
        if self.accounted is None:
            return f"at version {self.version}"
        if self.commits_behind is None:
            return f"at version {self.version}; the result has it up to version {self.accounted}"
        if not self.commits_behind:
            stays = self.retention_seconds
            readable = "" if stays is None else f"; changes stay readable for {duration(stays)}"
            return f"nothing new since version {self.accounted}{readable}"
        behind = f"{number_of(self.commits_behind, 'commit', 'commits')} behind"
        age = f"the oldest {duration(self.seconds_behind or 0)} old"
        until = "" if self.readable_until is None else f"; readable until {moment(self.readable_until)}"
        return f"{behind}, {age}{until}"


class GateStatus(Facts):
    """The last gate that a change set of the join went through."""

    passed: bool
    """Whether it passed."""
    epoch: int
    """The epoch."""
    at: datetime
    """When."""
    findings: str = ""
    """What it found, if it failed or warned."""

    def text(self) -> str:
        """Render for a person, as one line."""
        if self.passed:
            warned = f", warned: {self.findings}" if self.findings else ""
            return f"last gate: passed, epoch {self.epoch}{warned}"
        return f"last gate: failed, epoch {self.epoch}: {self.findings}"


class JoinStatus(Facts):
    """Where one join stands."""

    join: str
    """The join."""
    state: State
    """current, behind, not loaded, open (an epoch waits to be finished), broken or unreadable."""
    epoch: int
    """Its last committed epoch; 0 before the load."""
    committed_at: datetime | None
    """When that epoch was committed."""
    result_version: int | None
    """The version of the result that it made."""
    sources: tuple[SourceStatus, ...]
    """Its sources, left before right."""
    last_gate: GateStatus | None
    """Its last gate; null before the first."""
    note: str = ""
    """What a person should know, with the command that helps; may be empty."""

    def text(self) -> str:
        """Render for a person."""
        warnings = [f"{source.name}: {source.warning}" for source in self.sources if source.warning]
        lines = [
            *(source.text() for source in self.sources),
            *([self.last_gate.text()] if self.last_gate else []),
            *(f"warning: {warning}" for warning in (*warnings, *filter(None, [self.note]))),
        ]
        return "\n".join([f"{self.join}: {self.state}{self._epoch()}", *(f"  {line}" for line in lines)])

    def _epoch(self) -> str:
        if not self.epoch:
            return ""
        committed = "" if self.committed_at is None else f", committed {moment(self.committed_at)}"
        return f" (epoch {self.epoch}, version {self.result_version}{committed})"
