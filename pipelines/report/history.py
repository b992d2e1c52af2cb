"""The history of a join: its epochs."""

from collections.abc import Mapping
from datetime import datetime

from lakehouse.ledger.entries import Step
from lakehouse.values.recorded import SourceVersions
from pipelines.report.facts import Facts
from pipelines.report.wording import moment, steps, table

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
    """load, incremental or reconcile."""
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
            below = [*took, *epoch.message.splitlines()]
            lines.extend(f"         {line}" for line in below)
        if self.more:
            lines.append("  older epochs exist: --limit shows more")
        return "\n".join(lines)
