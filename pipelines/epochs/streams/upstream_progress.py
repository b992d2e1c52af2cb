"""
Streams that other joins make, as those have recorded them: which positions they passed, how far watermarks were.

Their rows carry the time of what caused them. The commits that wrote them say nothing, and where no row came, a
watermark may have moved all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import DateType, StructType

from lakehouse.entries import JoinHistory
from pipelines.joins.lookup import ALWAYS
from pipelines.spec.sql.lengths import DAY


class UpstreamPosition(NamedTuple):
    """
    A position of a stream that another join makes.

    Args:
        time: Its time, in microseconds since 1970: none lies before that of a position before it.
        version: The version of the result that has its rows, or the last one before it where it has none.
        watermarks: How far watermarks moved at it, by column in lower case.
    """

    time: int
    version: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class UpstreamProgress:
    """
    What is recorded of the epochs of another join that are read.

    Args:
        positions: What they passed, in order.
        floors: For each version of the result the time before which none of its rows counts, versions ascending.
        watermarks: How far the watermarks are after all of them, by column in lower case.
    """

    positions: tuple[UpstreamPosition, ...]
    floors: tuple[tuple[int, int], ...]
    watermarks: Mapping[str, int]

    def time_sql(self, position: str) -> str:
        """Give the SQL of a row's time, from the column with that of its cause and `_commit_version`."""
        cases = " ".join(f"WHEN _commit_version <= {version} THEN {time}L" for version, time in self.floors)
        return f"greatest({position}, CASE {cases} END)" if cases else position


def upstream_progress(
    history: JoinHistory, epochs: tuple[int, int], schema: StructType, timezone: str, clock: int | None
) -> UpstreamProgress:
    """
    Look up what a join recorded of the stream that it makes.

    Args:
        history: What the ledger knows of it.
        epochs: Which of its epochs are read, (after, until].
        schema: The columns of its result.
        timezone: That of the session.
        clock: The greatest time of its positions before; None for a first load, which takes its rows as they are.
    """
    (after, until), earlier = epochs, {}
    if timezone != "UTC":  # a day begins elsewhere where dates are compared with dates alone
        earlier = {field.name.lower(): DAY for field in schema if isinstance(field.dataType, DateType)}

    def lowered(watermarks: Mapping[str, int]) -> dict[str, int]:
        return {name.lower(): mark - earlier.get(name.lower(), 0) for name, mark in watermarks.items()}

    positions: list[UpstreamPosition] = []
    floors: dict[int, int] = {}
    time = ALWAYS if clock is None else clock
    for entry in history.between(after, until) if clock is not None else ():
        version = entry.result.version
        assert version is not None
        floors.setdefault(version, time)
        for passed in entry.positions:
            time = max(time, passed.time)
            positions.append(UpstreamPosition(time, version, lowered(passed.watermarks)))
    return UpstreamProgress(tuple(positions), tuple(sorted(floors.items())), lowered(history.watermarks_at(until)))
