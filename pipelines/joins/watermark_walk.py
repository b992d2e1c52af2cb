"""
Watermarks of few positions, those of commits: walked on the driver, where a query over all rows would take longer.

What a position sees, and when limits rose, is as `watermarks` says of rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.joins.watermarks import NOTHING_YET, PLACE, lowest, watermark_step
from pipelines.spec import Window as Bounded


class Position(NamedTuple):
    """
    A position of one history.

    Args:
        time: Its time.
        rank: Its side; of a stream that is joined with itself 0.
        version: Its commit.
        before: The watermarks before it, by their places; NOTHING_YET where nothing came.
        after: Those after it.
    """

    time: int
    rank: int
    version: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def steps_at(rows: DataFrame, window: Bounded) -> DataFrame:
    """
    Give what the rows of each position tell of the watermarks.

    Args:
        rows: PLACE and the columns that `watermark_step` names, of one history.
        window: The watermarked columns.

    Returns:
        A row for each position, with these columns.
    """
    return rows.groupBy(*PLACE).agg(
        *(F.max(watermark_step(n)).alias(watermark_step(n)) for n in range(len(window.watermarks)))
    )


def combined_steps(steps: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """
    Bring what is told of a position from several sides into one row for each.

    Args:
        steps: Rows of `steps_at`.

    Returns:
        Rows of `steps_at`, each position once.
    """
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in steps:
        place, told = tuple(row[: len(PLACE)]), row[len(PLACE) :]
        known = found.setdefault(place, [None] * len(told))
        found[place] = [
            max((one for one in pair if one is not None), default=None) for pair in zip(known, told, strict=True)
        ]
    return [(*place, *told) for place, told in found.items()]


def walked(steps: Iterable[Sequence[Any]], floors: Sequence[int]) -> list[Position]:
    """
    Walk the positions of one history in their order.

    Args:
        steps: Rows of `steps_at`.
        floors: The watermarks by then, NOTHING_YET where nothing came.

    Returns:
        The positions in their order.
    """
    known, positions = tuple(floors), []
    for place, told in sorted((tuple(row[: len(PLACE)]), row[len(PLACE) :]) for row in steps):
        after = tuple(before if one is None else max(before, one) for before, one in zip(known, told, strict=True))
        time, rank, version = place
        positions.append(Position(time, rank, version, known, after))
        known = after
    return positions


def risen(positions: Sequence[Position], window: Bounded, number: int) -> list[tuple[int, int]]:
    """
    Say when the limit of a watermarked column rose.

    Args:
        positions: What `walked` gives.
        window: The watermarked columns and their bounds.
        number: Which column.

    Returns:
        Each limit with the time after which it was so high, ascending.
    """
    steps: list[tuple[int, int]] = []
    for position in positions:
        height = lowest(window, number, dict(enumerate(position.after)))
        if height > (steps[-1][0] if steps else NOTHING_YET):
            steps.append((height, position.time))
    return steps
