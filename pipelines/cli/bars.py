"""The progress of joins on stderr: a bar for each join on a terminal, plain lines elsewhere."""

from typing import TYPE_CHECKING

from pipelines.cli.logs import is_json, tell
from pipelines.report.progress import STEPS, Progress, Sliced, position

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID


class Lines(Progress):
    """Prints a line for each epoch that begins; with JSON logs also one for each join that ends."""

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Print the epoch that begins."""
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy} ({reason})"
        tell(f"{join}: {what}", join=join, epoch=epoch, strategy=strategy, reason=reason)

    def slice(self, join: str, at: Sliced) -> None:
        """Print the slice that begins."""
        tell(f"{join}: {at}", join=join, slice=at.number + 1, slices=at.of, rows=at.rows, of_rows=at.of_rows)

    def finished(self, join: str, outcome: str) -> None:
        """Print how a join ended, with JSON logs only: the report on stdout says it to a user."""
        if is_json():
            tell(f"{join}: {outcome}", join=join, outcome=outcome)


class Bars(Progress):
    """
    A bar for each join, over the steps that its strategy takes.

    Args:
        display: The started display of rich; each task has the fields `what` and `step`.
    """

    def __init__(self, display: "Display") -> None:
        self._display = display
        self._tasks: dict[str, TaskID] = {}
        self._steps: dict[str, tuple[str, ...]] = {}
        self._at: dict[str, int] = {}
        self._sliced: dict[str, Sliced] = {}

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        """Set the length of the bar. The first step, `plan`, is done: it determined the strategy."""
        self._steps[join], self._at[join] = STEPS[strategy], 0
        what = f"finishing epoch {epoch}" if strategy == "resume" else f"epoch {epoch}, {strategy}"
        self._display.update(self._task(join), total=len(STEPS[strategy]), completed=1, what=what)

    def step(self, join: str, name: str) -> None:
        """
        Move the bar to a step.

        Before the epoch is known the bar has no length. During a sliced backfill it counts rows, and only its text
        changes.
        """
        if join in self._sliced:
            self._display.update(self._task(join), step=f"{self._sliced[join]}: {name}")
            return
        steps = self._steps.get(join, ())
        self._at[join] = position(steps, name, self._at.get(join, -1))
        place = f"{self._at[join] + 1}/{len(steps)} " if steps else ""
        self._display.update(self._task(join), completed=self._at[join], step=f"{place}{name}")

    def slice(self, join: str, at: Sliced) -> None:
        """Show how many rows of the result the backfill has processed."""
        self._sliced[join] = at
        self._display.update(self._task(join), total=at.of_rows, completed=at.rows, step=str(at))

    def finished(self, join: str, outcome: str) -> None:
        """Fill the bar, unless the join failed or was skipped, and stop its clock."""
        task = self._task(join)
        if outcome in ("failed", "skipped"):
            self._display.update(task, step=outcome)
        else:
            at = self._sliced.get(join)
            total = at.of_rows if at is not None else len(self._steps.get(join, ())) or 1
            self._display.update(task, total=total, completed=total, step=outcome)
        self._display.stop_task(task)

    def _task(self, join: str) -> "TaskID":
        if join not in self._tasks:
            self._tasks[join] = self._display.add_task(join, total=None, what="", step="")
        return self._tasks[join]
