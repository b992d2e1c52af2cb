"""Round numbers for an axis."""

from math import ceil, floor, log10

TICKS = 4
"""The approximate number of marks of an axis above zero."""
ROUND = (1, 2, 5, 10)
SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


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
