"""The progress of joins on stderr: a bar for each join on a terminal, plain lines elsewhere."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell
from pipelines.report.progress import STEPS, Progress, SliceProgress, Tasks, position

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID


@dataclass
class _Now:
    join: str = ""
    step: str = ""
    rows: int | None = None

    def begin(self, join: str, step: str) -> None:
        self.rows = self.rows if join == self.join else None
        self.join, self.step = join, step

    def __str__(self) -> str:
        return self.step + ("" if self.rows is None else f" ({self.rows:,} rows)") + ":"


class Lines(Progress):
    """Prints a line for each epoch that begins and for long steps; with JSON logs also one for each join that ends."""

    def __init__(self) -> None:
        self._now = _Now()

    def step(self, join: str, name: str) -> None:
        """Remember the step, which `tasks` names."""
        self._now.begin(join, name)

    def rows(self, join: str, number: int) -> None:
        """Remember the number of rows, which `tasks` names."""
        self._now.rows = number

    def tasks(self, at: Tasks) -> None:
        """Print how far the step is."""
        now = self._now
        tell(f"{now.join}: {now} {at}", join=now.join, step=now.step, rows=now.rows, tasks=at.done, of_tasks=at.total)

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Print the epoch that begins."""
        self._now.rows = None
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy} ({reason})"
        tell(f"{join}: {what}", join=join, epoch=epoch, strategy=strategy, reason=reason)

    def slice(self, join: str, at: SliceProgress) -> None:
        """Print the slice that begins."""
        tell(f"{join}: {at}", join=join, slice=at.number + 1, slices=at.of, rows=at.rows, of_rows=at.of_rows)

    def finished(self, join: str, outcome: str) -> None:
        """Print how a join ended, with JSON logs only: the report on stdout says it to a user."""
        if is_json():
            level = logging.ERROR if outcome == "failed" else logging.INFO
            tell(f"{join}: {outcome}", level, join=join, outcome=outcome)


@dataclass
class _Bar:
    task: "TaskID"
    steps: tuple[str, ...] = ()
    at: int = -1
    sliced: SliceProgress | None = None

    @property
    def place(self) -> str:
        return f"{self.at + 1}/{len(self.steps)} " if self.steps else ""


class Bars(Progress):
    """
    A bar for each join, over the steps that its strategy takes; tasks of `display` have the fields `what` and `step`.
    """

    def __init__(self, display: "Display") -> None:
        self._display = display
        self._bars: dict[str, _Bar] = {}
        self._now = _Now()

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Set the length of the bar. The first step, `plan`, is done: it determined the strategy."""
        bar = self._bar(join)
        bar.steps, bar.at, self._now.rows = STEPS[strategy], 0, None
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy}"
        self._display.update(bar.task, total=len(bar.steps), completed=1, what=what)

    def step(self, join: str, name: str) -> None:
        """
        Move the bar, which has no length before the epoch is known. In a sliced backfill it counts rows: only its text
        changes.
        """
        self._now.begin(join, name)
        bar = self._bar(join)
        if bar.sliced is not None:
            self._display.update(bar.task, step=f"{bar.sliced}: {name}")
            return
        bar.at = position(bar.steps, name, bar.at)
        self._display.update(bar.task, completed=bar.at, step=f"{bar.place}{name}")

    def rows(self, join: str, number: int) -> None:
        """Remember the number of rows, which `tasks` shows."""
        self._now.rows = number

    def tasks(self, at: Tasks) -> None:
        """Show how far the step is."""
        bar = self._bar(self._now.join)
        if bar.sliced is None:
            self._display.update(bar.task, step=f"{bar.place}{self._now} {at}")

    def slice(self, join: str, at: SliceProgress) -> None:
        """Show how many rows of the result the backfill has processed."""
        bar = self._bar(join)
        bar.sliced = at
        self._display.update(bar.task, total=at.of_rows, completed=at.rows, step=str(at))

    def finished(self, join: str, outcome: str) -> None:
        """Fill the bar, unless the join failed or was skipped, and stop its clock."""
        bar = self._bar(join)
        if outcome in ("failed", "skipped"):
            self._display.update(bar.task, step=outcome)
        else:
            total = bar.sliced.of_rows if bar.sliced is not None else len(bar.steps) or 1
            self._display.update(bar.task, total=total, completed=total, step=outcome)
        self._display.stop_task(bar.task)

    def _bar(self, join: str) -> _Bar:
        if join not in self._bars:
            self._bars[join] = _Bar(self._display.add_task(join, total=None, what="", step=""))
        return self._bars[join]
