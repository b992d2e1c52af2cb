"""The epochs of a join."""

from collections.abc import Mapping
from datetime import datetime

from lakehouse.entries import SourceVersions, Step
from pipelines.report.facts import Facts
from pipelines.report.table import table
from pipelines.report.wording import moment, steps

COLUMNS = ("epoch", "when", "step", "strategy", "inserted", "updated", "deleted")
NUMBERS = ("epoch", "inserted", "updated", "deleted")


class EpochReport(Facts):
    """One epoch, or an attempt at one, at the last step that it took."""

    epoch: int
    """Its number."""
    step: Step
    """publishing (open), committed, rejected, abandoned or broken."""
    at: datetime
    """When the step was taken."""
    run_id: str
    """The run."""
    strategy: str
    """load, incremental or reconcile."""
    reason: str
    """Why this strategy: a stable code, a colon, and words."""
    sources: tuple[SourceVersions, ...]
    """The versions that it accounts for."""
    result_version: int | None
    """The version of the result that it made."""
    counts: Mapping[str, int]
    """Rows read, looked_up, touched, inserted, updated, deleted, unchanged, null_keys; files read for look-ups."""
    seconds: Mapping[str, float]
    """Seconds of each step."""
    message: str = ""
    """Why it was rejected, abandoned or broken; may be empty."""

    def cells(self) -> tuple[str, ...]:
        """Render for a person, as the cells of a row; what is long goes below it."""
        shown = {"inserted": self.counts.get("appended"), **self.counts}
        counts = (
            f"{shown[name]:,}" if shown.get(name) is not None else "-" for name in ("inserted", "updated", "deleted")
        )
        return (str(self.epoch), moment(self.at), self.step, self.strategy, *counts)


class JoinHistoryReport(Facts):
    """The newest epochs of one join, newest first."""

    join: str
    """The join."""
    epochs: tuple[EpochReport, ...]
    """Its epochs."""
    more: bool
    """Whether there are older ones."""

    def text(self) -> str:
        """Render for a person: a table; below each row the seconds, and the message of an epoch that went wrong."""
        if not self.epochs:
            return f"{self.join}: no epochs yet; `lakejoin run` makes the first"
        cells = [epoch.cells() for epoch in self.epochs]
        head, rule, *rows = table(COLUMNS, cells, [name in NUMBERS for name in COLUMNS])
        lines = [f"{self.join}:", f"  {head}", f"  {rule}"]
        for row, epoch in zip(rows, self.epochs, strict=True):
            lines.append(f"  {row}")
            took = [f"{sum(epoch.seconds.values()):.1f} s: {steps(epoch.seconds)}"] if epoch.seconds else []
            below = [*took, *epoch.message.splitlines()]
            lines.extend(f"         {line}" for line in below)
        if self.more:
            lines.append("  there are older ones: --limit shows more")
        return "\n".join(lines)
