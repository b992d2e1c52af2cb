"""A plot, drawn as SVG: axes with marks, bars or a line, and a tooltip for each epoch."""

from collections.abc import Iterator
from math import ceil, floor, log10
from xml.etree import ElementTree as ET

from markupsafe import Markup

from pipelines.commands.site.series import Plot
from pipelines.commands.site.svg import element, markup

WIDTH, HEIGHT = 440.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 26.0, 38.0
LABELS = 9
WIDEST_BAR = 22.0
CROSS = "✕"
TICKS = 4
"""The approximate number of marks of an axis above zero."""
ROUND = (1, 2, 5, 10)
SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


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
    picture.set("aria-label", in_words(plot))
    return markup(picture)


def in_words(plot: Plot) -> str:
    """Describe a plot in words, for screen readers."""
    first, last = plot.slots[0].epoch, plot.slots[-1].epoch
    series = ", ".join(f"{one.name} up to {max(value or 0 for value in one.values):,.10g}" for one in plot.series)
    return f"{plot.title} in {plot.unit}, epochs {first} to {last}: {series}."


class _Frame:
    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._totals, self._cut = plot.totals, plot.cut
        fitting = [total for place, total in enumerate(self._totals) if place != self._cut]
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
        for place, slot in enumerate(self._plot.slots):
            if not slot.wrong and (slot.epoch % distance == 0 or len(self._plot.slots) == 1):
                yield element("text", str(slot.epoch), class_="across", x=self._x(place), y=HEIGHT - BOTTOM + 16)

    def slots(self) -> Iterator[ET.Element]:
        """Draw each epoch: its bar, its point, or a cross for a failed attempt, over the area of its tooltip."""
        for place, slot in enumerate(self._plot.slots):
            area = element(
                "rect",
                class_="area",
                x=LEFT + place * self._step,
                y=TOP,
                width=self._step,
                height=HEIGHT - TOP - BOTTOM,
            )
            inside = self._cross(place) if slot.wrong else self._points(place) if self._plot.is_level else ()
            bars = () if slot.wrong or self._plot.is_level else self._bars(place)
            yield element("g", element("title", slot.said), area, *inside, *bars, class_="slot")

    def line(self) -> Iterator[ET.Element]:
        """Draw the line of a level; failed attempts changed nothing, so the line passes them."""
        for one in self._plot.series:
            points = [(self._x(place), self._y(value)) for place, value in enumerate(one.values) if value is not None]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            yield element("polyline", class_=f"line {one.style}", points=path)

    def _points(self, place: int) -> Iterator[ET.Element]:
        for one in self._plot.series:
            value = one.values[place]
            if value is not None:
                yield element(
                    "circle", class_=one.style, cx=self._x(place), cy=self._y(value), r=min(3.0, self._step / 2)
                )

    def _bars(self, place: int) -> Iterator[ET.Element]:
        """Draw the stacked bars of a slot; a bar is at least one unit high."""
        width = min(self._step * 0.8, WIDEST_BAR)
        base = self._y(0)
        scale = self._marks[-1] / self._totals[place] if place == self._cut else 1.0
        for one in self._plot.series:
            value = (one.values[place] or 0) * scale
            if value:
                height = max(self._y(0) - self._y(value), 1.0)
                base -= height
                x = self._x(place) - width / 2
                yield element("rect", class_=one.style, x=x, y=base, width=width, height=height)
        if place == self._cut:
            yield self._number(place)

    def _number(self, place: int) -> ET.Element:
        """Draw the value of a bar that is cut off above it, on the side with more room."""
        x, is_left = self._x(place), place < len(self._plot.slots) / 2
        number = f"{self._totals[place]:,.10g}"
        words = f"▲ {number}" if is_left else f"{number} ▲"
        return element("text", words, class_="cut" if is_left else "cut end", x=x + (-4 if is_left else 4), y=TOP - 4)

    def _cross(self, place: int) -> Iterator[ET.Element]:
        yield element("text", CROSS, class_="cross", x=self._x(place), y=HEIGHT - BOTTOM - 4)

    def _x(self, place: int) -> float:
        return LEFT + (place + 0.5) * self._step

    def _y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self._marks[-1] * (HEIGHT - TOP - BOTTOM)


def ticks(top: float, *, whole: bool) -> tuple[float, ...]:
    """
    Compute round numbers at equal distances from zero, the last of them not below `top`, as the marks of an axis.

    Values that are whole numbers have marks that are whole numbers too.
    """
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
    """Return the smallest round distance at which at most `labels` of `number` places are labelled."""
    return max(ceil(_step(number / labels)), 1)


def _step(least: float) -> float:
    """Return the smallest round number that is not below `least`."""
    if least <= 0:
        return 1.0
    size = 10.0 ** floor(log10(least))
    return next((part * size for part in ROUND if part * size >= least * (1 - 1e-9)), 10 * size)
