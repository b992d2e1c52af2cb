"""The plots of the epochs of a join: their series, and the texts of empty plots."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.report import EpochReport
from pipelines.report.join_report import APPENDED, COUNTED
from pipelines.report.wording import moment, steps_in_order

NEWEST = 120
"""The maximal number of epochs in a plot."""
CHANGED = (*COUNTED, APPENDED)
FAR = 4
"""The highest bar is cut off and labelled with its value if it is more than this many times as high as the next."""
LEVEL = "Buffered rows"
"""The plot of a level after each epoch."""
EMPTY = {
    "Rows changed": ("No epoch counted changed rows.", "No row changed."),
    "Tombstones": ("Not counted: rows are only added to the result of a join with a stream.", "No key was deleted."),
    "Late rows": ("Not counted: only changelog sources and joins of two streams have late rows.", "No row was late."),
    LEVEL: ("Not counted: only joins of two streams buffer rows.", "The buffer was empty after each epoch."),
    "Seconds by step": ("No epoch recorded its seconds.", "All epochs took 0 seconds."),
}
"""For each plot the text that replaces it if no epoch has its values, and if all values are zero."""


@dataclass(frozen=True)
class Slot:
    """An epoch on the axis, with its tooltip; `wrong` is the step of an attempt that was not committed, or empty."""

    epoch: int
    said: str
    wrong: str = ""


@dataclass(frozen=True)
class Series:
    """A series of a plot: its name, its CSS class, and its value for each slot, if any."""

    name: str
    style: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Plot:
    """
    A plot over epochs.

    Args:
        unit: rows or seconds.
        slots: The epochs, oldest first.
        series: The series; the bars of several are stacked.
        is_level: Whether the values are a level after each epoch, drawn as a line, instead of amounts of each epoch.
        empty: The text that replaces an empty plot; empty if the plot has values.
    """

    title: str
    unit: str
    slots: tuple[Slot, ...]
    series: tuple[Series, ...]
    is_level: bool = False
    empty: str = ""

    @property
    def totals(self) -> tuple[float, ...]:
        """The height of each slot."""
        return tuple(sum(one.values[place] or 0 for one in self.series) for place in range(len(self.slots)))

    @property
    def cut(self) -> int | None:
        """The slot whose bar is cut off, if any."""
        totals = self.totals
        if self.is_level or len(totals) < 3:
            return None
        highest = max(range(len(totals)), key=lambda place: totals[place])
        next_one = max(total for place, total in enumerate(totals) if place != highest)
        return highest if next_one and totals[highest] > FAR * next_one else None


def plots_of(epochs: Sequence[EpochReport]) -> tuple[Plot, ...]:
    """
    Build the plots of epochs, which come newest first, each at its last step.

    They show changed rows, tombstones, late rows, buffered rows, and seconds by step.
    """
    shown = list(reversed(epochs[:NEWEST]))
    tombstones = "tombstones" if any("tombstones" in epoch.counts for epoch in shown) else "deleted"
    steps = steps_in_order(name for epoch in shown for name in epoch.seconds)
    rows = {
        "Rows changed": {name: name for name in CHANGED},
        "Tombstones": {tombstones: "tombstones"},
        "Late rows": {"late": "late"},
        LEVEL: {"buffered": "buffered"},
    }
    counted = {
        title: [(name, f"rows-{name}", [epoch.counts.get(count) for epoch in shown]) for count, name in counts.items()]
        for title, counts in rows.items()
    }
    timed = [(name, f"step-{name}", [epoch.seconds.get(name) for epoch in shown]) for name in steps]
    return (
        *(_plot(title, "rows", shown, wanted) for title, wanted in counted.items()),
        _plot("Seconds by step", "seconds", shown, timed),
    )


def _plot(
    title: str, unit: str, epochs: Sequence[EpochReport], wanted: Sequence[tuple[str, str, Sequence[float | None]]]
) -> Plot:
    """
    Build a plot of the series that have values, or with a text if no series has values or all values are zero.

    Only committed epochs have values, because a failed attempt published nothing.
    """
    committed = [epoch.step == "committed" for epoch in epochs]
    found = (
        Series(name, style, tuple(value if is_made else None for value, is_made in zip(values, committed, strict=True)))
        for name, style, values in wanted
    )
    series = tuple(one for one in found if any(value is not None for value in one.values))
    none, zero = EMPTY[title]
    words = "" if any(any(one.values) for one in series) else zero if series else none
    if not any(committed):
        words = "No epoch has been committed yet."
    slots = tuple(_slot(epoch, place, series, unit) for place, epoch in enumerate(epochs))
    return Plot(title, unit, slots, series, title == LEVEL, words)


def _slot(epoch: EpochReport, place: int, series: Sequence[Series], unit: str) -> Slot:
    head = f"epoch {epoch.epoch}, {moment(epoch.at)}"
    if epoch.step != "committed":
        return Slot(epoch.epoch, f"{head}: {epoch.step}", epoch.step)
    result = [f"{_amount(value, unit)} {one.name}" for one in series if (value := one.values[place]) is not None]
    return Slot(epoch.epoch, f"{head}: {', '.join(result) or 'not counted'}")


def _amount(value: float, unit: str) -> str:
    return f"{value:,}" if unit == "rows" else f"{value:.1f} s"
