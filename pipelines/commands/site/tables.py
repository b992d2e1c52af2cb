"""The rows of the tables of the site, as cells of text."""

from dataclasses import dataclass

from pipelines.commands.site.facts import JoinFacts
from pipelines.commands.site.series import CHANGED
from pipelines.report import EpochReport
from pipelines.report.wording import in_order, moment

COUNTS = (*CHANGED, "tombstones", "changelog", "late", "buffered")
"""The counts with a column of their own, if any epoch has them; all other counts share one column."""
TITLES = {"changelog": "to the changelog"}
WRONG = ("rejected", "refused", "broken", "abandoned")
NONE = "–"  # noqa: RUF001


@dataclass(frozen=True)
class EpochRow:
    """
    An epoch in its table.

    Args:
        code: The reason for the strategy, as a code; `reason` is the same in words.
        counts: The counts, one for each column of counts; `further` are the others.
        seconds: Its duration; `steps` has that of each step.
    """

    epoch: EpochReport
    code: str
    reason: str
    counts: tuple[str, ...]
    further: str
    seconds: str
    steps: str

    @property
    def is_wrong(self) -> bool:
        """Whether it was rejected, refused, broken or abandoned."""
        return self.epoch.step in WRONG


@dataclass(frozen=True)
class EpochTable:
    """The titles of the columns of counts, and the rows, newest first."""

    titles: tuple[str, ...]
    rows: tuple[EpochRow, ...]

    @property
    def wrong(self) -> int:
        """The number of rows that are marked as failed."""
        return sum(row.is_wrong for row in self.rows)


@dataclass(frozen=True)
class JoinRow:
    """The last committed epoch of a join in the overview; all cells are empty before the first one."""

    epoch: str = NONE
    at: str = ""
    machine_at: str = ""
    changed: str = NONE
    late: str = NONE
    buffered: str = NONE


def epoch_table(join: JoinFacts) -> EpochTable:
    """Build the table of the epochs of a join."""
    names = tuple(name for name in COUNTS if any(name in epoch.counts for epoch in join.epochs))
    rows = tuple(_epoch_row(epoch, names) for epoch in join.epochs)
    return EpochTable(tuple(TITLES.get(name, name) for name in names), rows)


def join_row(join: JoinFacts) -> JoinRow:
    """Build the cells of a join in the overview, from its last committed epoch."""
    last = next((epoch for epoch in join.epochs if epoch.step == "committed"), None)
    if last is None:
        return JoinRow()
    return JoinRow(
        f"{last.epoch:,}",
        moment(last.at),
        last.at.isoformat(),
        _changed(last),
        _number(last, "late"),
        _number(last, "buffered"),
    )


def _changed(epoch: EpochReport) -> str:
    counts = {name: epoch.counts.get(name, 0) for name in CHANGED}
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "none"


def _epoch_row(epoch: EpochReport, names: tuple[str, ...]) -> EpochRow:
    code, colon, words = epoch.reason.partition(": ")
    others = {name: number for name, number in epoch.counts.items() if name not in names}
    return EpochRow(
        epoch=epoch,
        code=code if colon else "",
        reason=words if colon else code,
        counts=tuple(_number(epoch, name) for name in names),
        further=", ".join(f"{name} {number:,}" for name, number in sorted(others.items())),
        seconds=f"{sum(epoch.seconds.values()):.1f}" if epoch.seconds else NONE,
        steps=", ".join(f"{name} {took:.1f}" for name, took in in_order(epoch.seconds)),
    )


def _number(epoch: EpochReport, name: str) -> str:
    return f"{epoch.counts[name]:,}" if name in epoch.counts else NONE
