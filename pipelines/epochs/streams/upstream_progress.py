"""
Read the progress that joins recorded of the streams that they make: the positions that they passed, and watermarks.

The rows of these streams carry the time of their cause. The times of the commits that wrote them do not matter, and a
watermark may have moved without a new row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.types import DateType, StructType

from lakehouse.ledger.entries import JoinHistory
from pipelines.language.sql.lengths import DAY
from pipelines.language.statement.semantics import ALWAYS


class UpstreamPosition(NamedTuple):
    """
    A position of a stream that another join makes.

    Args:
        time: In microseconds since 1970, at least the time of the position before it.
        version: The version of the result that holds its rows; if it has none, the last version before it.
        watermarks: The watermarks that moved at it, by column in lower case.
    """

    time: int
    version: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class UpstreamProgress:
    """
    The recorded progress of the epochs of another join that are read.

    Args:
        positions: The positions that the epochs passed, in order.
        floors: Versions of the result, ascending, each with the least time that its rows count at.
        watermarks: The watermarks after all of these epochs, by column in lower case.
    """

    positions: tuple[UpstreamPosition, ...]
    floors: tuple[tuple[int, int], ...]
    watermarks: Mapping[str, int]

    def time_sql(self, position: str) -> str:
        """Return the SQL of a row's time, from the column with the time of its cause and `_commit_version`."""
        cases = " ".join(f"WHEN _commit_version <= {version} THEN {time}L" for version, time in self.floors)
        return f"greatest({position}, CASE {cases} END)" if cases else position


def upstream_progress(
    history: JoinHistory, epochs: tuple[int, int], schema: StructType, timezone: str, clock: int | None
) -> UpstreamProgress:
    """
    Return the progress that a join recorded of the stream that it makes.

    Args:
        epochs: The epochs that are read, (after, until].
        schema: The columns of its result.
        clock: The greatest time of its earlier positions; None for a first load, which reads its rows as they are.
    """
    (after, until), earlier = epochs, {}
    if timezone != "UTC":  # days begin at another time where dates are compared with dates alone
        earlier = {field.name.lower(): DAY for field in schema if isinstance(field.dataType, DateType)}

    def lowered(watermarks: Mapping[str, int]) -> dict[str, int]:
        return {name.lower(): watermark - earlier.get(name.lower(), 0) for name, watermark in watermarks.items()}

    positions: list[UpstreamPosition] = []
    floors: dict[int, int] = {}
    time = ALWAYS if clock is None else clock
    for entry in history.between(after, until) if clock is not None else ():
        version = entry.result.version
        assert version is not None
        floors.setdefault(version, time)
        for position in entry.positions:
            time = max(time, position.time)
            positions.append(UpstreamPosition(time, version, lowered(position.watermarks)))
    return UpstreamProgress(tuple(positions), tuple(sorted(floors.items())), lowered(history.watermarks_at(until)))
