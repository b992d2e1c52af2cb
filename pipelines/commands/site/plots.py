"""The plots of the epochs of a join, drawn as SVG: axes, bars or a line, and a tooltip for each epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from xml.etree import ElementTree as ET

from markupsafe import Markup

from pipelines.commands.site.svg import element, markup
from pipelines.report import EpochReport
from pipelines.report.facts import moment, steps_in_order
from pipelines.report.join_report import APPENDED, COUNTED

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

WIDTH, HEIGHT = 440.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 26.0, 38.0
LABELS = 9
WIDEST_BAR = 22.0
TICKS = 4
"""The approximate number of marks of an axis above zero."""
ROUND = (1, 2, 5, 10)
SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Slot:
    """An epoch on the axis, with its tooltip; `wrong` is the step of an attempt that was not committed, or empty."""

    epoch: int
    tooltip: str
    wrong: str = ""


@dataclass(frozen=True)
class Series:
    """A series of a plot: its name, its CSS class, and its value for each slot, if any."""

    name: str
    style: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot over epochs, oldest first, with stacked bars or a line; the text `empty` replaces one without values."""

    title: str
    unit: str
    slots: tuple[Slot, ...]
    series: tuple[Series, ...]
    empty: str

    @property
    def is_level(self) -> bool:
        """Whether the values are a level after each epoch, drawn as a line, instead of amounts of each epoch."""
        return self.title == LEVEL

    @property
    def has_failures(self) -> bool:
        """Whether the picture has a cross for an attempt that failed."""
        return any(slot.wrong for slot in self.slots)

    @property
    def totals(self) -> tuple[float, ...]:
        """The height of each slot."""
        return tuple(sum(series.values[index] or 0 for series in self.series) for index in range(len(self.slots)))

    @property
    def cut(self) -> int | None:
        """The slot whose bar is cut off, if any."""
        totals = self.totals
        if self.is_level or len(totals) < 3:
            return None
        *_, second, highest = sorted(totals)
        return totals.index(highest) if second and highest > FAR * second else None


def plots_of(epochs: Sequence[EpochReport]) -> tuple[Plot, ...]:
    """Build the plots of epochs, which come newest first, each at its last step."""
    epochs = list(reversed(epochs[:NEWEST]))
    tombstones = "tombstones" if any("tombstones" in epoch.counts for epoch in epochs) else "deleted"
    rows = {
        "Rows changed": {name: name for name in CHANGED},
        "Tombstones": {tombstones: "tombstones"},
        "Late rows": {"late": "late"},
        LEVEL: {"buffered": "buffered"},
    }
    steps = steps_in_order(name for epoch in epochs for name in epoch.seconds)
    timed = [_series(name, f"step-{name}", epochs, [epoch.seconds.get(name) for epoch in epochs]) for name in steps]
    counted = {
        title: [
            _series(name, f"rows-{name}", epochs, [epoch.counts.get(count) for epoch in epochs])
            for count, name in counts.items()
        ]
        for title, counts in rows.items()
    }
    return (
        *(_plot(title, "rows", epochs, series) for title, series in counted.items()),
        _plot("Seconds by step", "seconds", epochs, timed),
    )


def _series(name: str, style: str, epochs: Sequence[EpochReport], values: Sequence[float | None]) -> Series:
    """Build a series. Only committed epochs have values, because a failed attempt published nothing."""
    pairs = zip(epochs, values, strict=True)
    return Series(name, style, tuple(value if epoch.step == "committed" else None for epoch, value in pairs))


def _plot(title: str, unit: str, epochs: Sequence[EpochReport], candidates: Sequence[Series]) -> Plot:
    """Build a plot of the series that have values, or with a text if no series has values or all values are zero."""
    series = tuple(each for each in candidates if any(value is not None for value in each.values))
    none, zero = EMPTY[title]
    empty = "" if any(any(each.values) for each in series) else zero if series else none
    if not any(epoch.step == "committed" for epoch in epochs):
        empty = "No epoch has been committed yet."
    slots = tuple(_slot(epoch, index, series, unit) for index, epoch in enumerate(epochs))
    return Plot(title=title, unit=unit, slots=slots, series=series, empty=empty)


def _slot(epoch: EpochReport, index: int, series: Sequence[Series], unit: str) -> Slot:
    head = f"epoch {epoch.epoch}, {moment(epoch.at)}"
    if epoch.step != "committed":
        return Slot(epoch.epoch, f"{head}: {epoch.step}", epoch.step)
    values = [(each.name, value) for each in series if (value := each.values[index]) is not None]
    amounts = (f"{value:,} {name}" if unit == "rows" else f"{value:.1f} s {name}" for name, value in values)
    return Slot(epoch.epoch, f"{head}: {', '.join(amounts) or 'not counted'}")


def drawn(plot: Plot) -> Markup:
    """Draw a plot, which must not be empty."""
    frame = _Frame(plot)
    picture = element(
        "svg",
        *frame.axes(),
        *(frame.line() if plot.is_level else ()),
        *frame.slots(),
        class_="plot",
        role="img",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
    )
    series = ", ".join(f"{each.name} up to {max(value or 0 for value in each.values):,.10g}" for each in plot.series)
    first, last = plot.slots[0].epoch, plot.slots[-1].epoch
    picture.set("aria-label", f"{plot.title} in {plot.unit}, epochs {first} to {last}: {series}.")
    return markup(picture)


class _Frame:
    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._totals, self._cut = plot.totals, plot.cut
        fitting = [total for index, total in enumerate(self._totals) if index != self._cut]
        self._marks = ticks(max(fitting), whole=plot.unit == "rows")
        self._step = (WIDTH - LEFT - RIGHT) / len(plot.slots)

    def axes(self) -> Iterator[ET.Element]:
        """Draw the marks with their numbers, the numbers of some epochs, and the labels of both axes."""
        for tick in self._marks:
            y = self._y(tick)
            yield element("line", class_="mark" if tick else "axis", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
            yield element("text", shown(tick), class_="up", x=LEFT - 6, y=y + 4)
        yield element("text", self._plot.unit, class_="unit", x=2, y=12)
        yield element("text", "epoch", class_="unit across", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4)
        distance = every(len(self._plot.slots), LABELS)
        for index, slot in enumerate(self._plot.slots):
            if not slot.wrong and (slot.epoch % distance == 0 or len(self._plot.slots) == 1):
                yield element("text", str(slot.epoch), class_="across", x=self._x(index), y=HEIGHT - BOTTOM + 16)

    def slots(self) -> Iterator[ET.Element]:
        """Draw each epoch: its bar, its point, or a cross for a failed attempt, over the area of its tooltip."""
        height = HEIGHT - TOP - BOTTOM
        for index, slot in enumerate(self._plot.slots):
            x = LEFT + index * self._step
            area = element("rect", class_="area", x=x, y=TOP, width=self._step, height=height)
            draw = self._cross if slot.wrong else self._points if self._plot.is_level else self._bars
            yield element("g", element("title", slot.tooltip), area, *draw(index), class_="slot")

    def line(self) -> Iterator[ET.Element]:
        """Draw the line of a level; failed attempts changed nothing, so the line passes them."""
        for series in self._plot.series:
            values = [(index, value) for index, value in enumerate(series.values) if value is not None]
            path = " ".join(f"{self._x(index):.1f},{self._y(value):.1f}" for index, value in values)
            yield element("polyline", class_=f"line {series.style}", points=path)

    def _points(self, index: int) -> Iterator[ET.Element]:
        x, radius = self._x(index), min(3.0, self._step / 2)
        for series in self._plot.series:
            value = series.values[index]
            if value is not None:
                yield element("circle", class_=series.style, cx=x, cy=self._y(value), r=radius)

    def _bars(self, index: int) -> Iterator[ET.Element]:
        """Draw the stacked bars of a slot, each at least one unit high, and the value of one that is cut off."""
        width = min(self._step * 0.8, WIDEST_BAR)
        base, middle, total = self._y(0), self._x(index), self._totals[index]
        scale = self._marks[-1] / total if index == self._cut else 1.0
        for series in self._plot.series:
            value = (series.values[index] or 0) * scale
            if value:
                height = max(self._y(0) - self._y(value), 1.0)
                base -= height
                yield element("rect", class_=series.style, x=middle - width / 2, y=base, width=width, height=height)
        if index == self._cut and index < len(self._plot.slots) / 2:
            yield element("text", f"▲ {total:,.10g}", class_="cut", x=middle - 4, y=TOP - 4)
        elif index == self._cut:
            yield element("text", f"{total:,.10g} ▲", class_="cut end", x=middle + 4, y=TOP - 4)

    def _cross(self, index: int) -> Iterator[ET.Element]:
        yield element("text", "✕", class_="cross", x=self._x(index), y=HEIGHT - BOTTOM - 4)

    def _x(self, index: int) -> float:
        return LEFT + (index + 0.5) * self._step

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._marks[-1] * (HEIGHT - TOP - BOTTOM)


def ticks(top: float, *, whole: bool) -> tuple[float, ...]:
    """Compute round numbers at equal distances from zero, the last of them not below `top`, as the marks of an axis."""
    step = _step(top / TICKS)
    if whole:
        step = max(step, 1.0)
    return tuple(step * number for number in range(max(ceil(top / step - 1e-9), 1) + 1))


def shown(tick: float) -> str:
    """Format a mark in few characters: `250`, `1,500`, `20k`, `1.5M`, `0.25`."""
    if tick >= 10_000:
        size, letter = next((size, letter) for size, letter in SHORT if tick >= size)
        return f"{tick / size:g}{letter}"
    return f"{tick:,.10g}"


def every(number: int, labels: int) -> int:
    """Return the smallest round distance at which at most `labels` of `number` epochs are labelled."""
    return max(ceil(_step(number / labels)), 1)


def _step(least: float) -> float:
    """Return the smallest round number that is not below `least`."""
    if least <= 0:
        return 1.0
    size = 10.0 ** floor(log10(least))
    return next((part * size for part in ROUND if part * size >= least * (1 - 1e-9)), 10 * size)
