"""
Watermarks of commits, whose positions are few: computed on the driver, because a query over all rows takes longer.

The rules for watermarks and limits are those that `watermarks` applies to rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.joins.watermarks import NOTHING_YET, PLACE, limit_value, watermark_step
from pipelines.language import Window as Bounded


class Position(NamedTuple):
    """
    A position of one history.

    Args:
        rank: The side; 0 if a stream is joined with itself.
        before: The watermarks before the position, by number; NOTHING_YET without earlier rows.
    """

    time: int
    rank: int
    version: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def steps_at(rows: DataFrame, window: Bounded) -> DataFrame:
    """
    Return the greatest step of each watermark at each position of one history, in the columns of the rows.

    The columns are PLACE and those that `watermark_step` names.
    """
    return rows.groupBy(*PLACE).agg(
        *(F.max(watermark_step(n)).alias(watermark_step(n)) for n in range(len(window.watermarks)))
    )


def combined_steps(steps: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Combine rows of `steps_at`, from several sources, into one for each position."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in steps:
        place, values = tuple(row[: len(PLACE)]), row[len(PLACE) :]
        known = found.setdefault(place, [None] * len(values))
        found[place] = [
            max((one for one in pair if one is not None), default=None) for pair in zip(known, values, strict=True)
        ]
    return [(*place, *values) for place, values in found.items()]


def walk(steps: Iterable[Sequence[Any]], floors: Sequence[int]) -> list[Position]:
    """
    Compute the watermarks at the positions of one history, in order, from rows of `steps_at`.

    `floors` are the watermarks before the first position, NOTHING_YET without earlier rows.
    """
    known, positions = tuple(floors), []
    for place, values in sorted((tuple(row[: len(PLACE)]), row[len(PLACE) :]) for row in steps):
        after = tuple(before if one is None else max(before, one) for before, one in zip(known, values, strict=True))
        time, rank, version = place
        positions.append(Position(time, rank, version, known, after))
        known = after
    return positions


def limit_rises(positions: Sequence[Position], window: Bounded, number: int) -> list[tuple[int, int]]:
    """
    Return each value to which the limit of a watermarked column rose, with the time of the position that raised it.

    Both ascend.
    """
    steps: list[tuple[int, int]] = []
    for position in positions:
        height = limit_value(window, number, dict(enumerate(position.after)))
        if height > (steps[-1][0] if steps else NOTHING_YET):
            steps.append((height, position.time))
    return steps
