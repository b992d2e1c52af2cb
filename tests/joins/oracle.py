"""
The join of two streams in plain Python, event by event, from the tables of section 6 of the design. It shares no code
with what it judges, and is slow on purpose: a list is the buffer, and every row looks at all of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Side = Literal["l", "r"]
Values = Mapping[str, Any]
Row = tuple[Any, Values]
"""What identifies a row, and its values by column."""

Semantics = Literal["strict", "kafka", "kafka-0.10.2", "kafka-0.10.0"]

OTHER: Mapping[Side, Side] = {"l": "r", "r": "l"}
PRESERVED = {"inner": "", "left": "l", "right": "r", "full": "lr"}
EAGER = ("kafka-0.10.2", "kafka-0.10.0")
"""Semantics by which a row without a match is emitted as it comes, and its matches later as well."""


class Bound(NamedTuple):
    """`greater >= lesser - allowance`; columns are called `l.t` and `r.u`."""

    greater: str
    lesser: str
    allowance: int


class Emitted(NamedTuple):
    """A row of the result: the number of the step at which it came (the first is 1), and the rows it consists of."""

    position: int
    left: Row | None
    right: Row | None


class TooManyRows(Exception):
    """More rows are held at the end of a position, after those that left, than may be."""


@dataclass
class Held:
    side: Side
    row: Row
    matched: bool


class Oracle:
    def __init__(
        self,
        how: str,
        bounds: Iterable[Bound],
        times: Mapping[Side, Sequence[str]],
        lateness: Mapping[str, Any],
        meets: Callable[[Values, Values], bool | None],
        alone: Mapping[Side, Callable[[Values], bool | None]],
        keys: Mapping[Side, Callable[[Values], bool]],
        semantics: Semantics = "strict",
        is_null_value: Callable[[Values], bool] | None = None,
        max_rows: int | None = None,
    ) -> None:
        self.how, self.bounds, self.times, self.lateness = how, tuple(bounds), times, lateness
        self.meets, self.alone, self.keys = meets, alone, keys
        self.semantics, self.is_null_value, self.max_rows = semantics, is_null_value, max_rows
        self.position = 0
        self.buffered: list[Held] = []
        self.largest = 0
        self.counts: Counter[str] = Counter()
        """Rows that were dropped (late, null_values, null_keys) or joined but not stored (below_limit, one_side)."""
        self._columns = [f"{side}.{time}" for side in OTHER for time in times[side]]
        self._bounding = {column for bound in self.bounds for column in (bound.greater, bound.lesser)}
        self._watermarks: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}

    def rows(self, side: Side, rows: Iterable[Row]) -> list[Emitted]:
        return self.both(rows, ()) if side == "l" else self.both((), rows)

    def both(self, left: Iterable[Row], right: Iterable[Row]) -> list[Emitted]:
        """Take one position of a stream that is joined with itself: its right rows meet the left rows stored at it."""
        self.position += 1
        arrivals: list[tuple[Side, Row]] = [*(("l", row) for row in left), *(("r", row) for row in right)]
        emitted = [one for side, row in arrivals for one in self._arrive(side, row)]
        for side, (_, values) in arrivals:
            for column, time in self._times_of(side, values).items():
                self._see(column, time)
        return emitted + self._end()

    def watermark(self, column: str, value: Any) -> list[Emitted]:
        """Take a position at which nothing comes but a watermark."""
        self.position += 1
        self._move(column, value)
        return self._end()

    def flush(self) -> list[Emitted]:
        """Let every row leave, as if its partners could not come any more; watermarks and limits stay."""
        self.position += 1
        return self._leave(list(self.buffered))

    def watermarks(self) -> dict[str, Any]:
        """Give W of each column; None before it is known."""
        return {column: self._watermarks.get(column) for column in self._columns}

    def limits(self) -> dict[str, Any]:
        """Give the limit of each column, below which rows leave; None before it is known, and where no bound is."""
        return {column: self._limits.get(column) for column in self._columns}

    def outputs(self) -> dict[str, Any]:
        known = [column for column in self._columns if column in self._watermarks and column in self._limits]
        return {column: min(self._watermarks[column], self._limits[column]) for column in known}

    def _arrive(self, side: Side, row: Row) -> list[Emitted]:
        values = row[1]
        looks_up = stores = True
        if self.is_null_value is not None and self.is_null_value(values):
            if self.semantics != "kafka-0.10.0":
                self.counts["null_values"] += 1
                return []
            stores = False
        if self._is_late(side, values):
            self.counts["late"] += 1
            return []
        if self._has_null_key(side, values):
            if not self._preserves(side):
                self.counts["null_keys"] += 1
            return self._alone(side, row)
        if self.semantics == "kafka-0.10.0" and self.how in ("left", "right"):
            looks_up, stores = self._preserves(side), stores and not self._preserves(side)
        if self._is_below(side, values):
            self.counts["below_limit"] += 1
            stores = False
        elif self.alone[side](values) is not True:
            self.counts["one_side"] += 1
            stores = False
        emitted = self._matches(side, row) if looks_up else []
        matched = bool(emitted)
        if stores:
            self.buffered.append(Held(side, row, matched))
        if not matched and (not stores or self.semantics in EAGER):
            return self._alone(side, row)
        return emitted

    def _matches(self, side: Side, row: Row) -> list[Emitted]:
        emitted = []
        for held in self.buffered:
            left, right = (row, held.row) if side == "l" else (held.row, row)
            if held.side != side and self.meets(left[1], right[1]) is True:
                held.matched = True
                emitted.append(Emitted(self.position, left, right))
        return emitted

    def _alone(self, side: Side, row: Row) -> list[Emitted]:
        if not self._preserves(side):
            return []
        return [Emitted(self.position, row, None) if side == "l" else Emitted(self.position, None, row)]

    def _preserves(self, side: Side) -> bool:
        return side in PRESERVED[self.how]

    def _times_of(self, side: Side, values: Values) -> dict[str, Any]:
        return {f"{side}.{time}": values[time] for time in self.times[side] if values[time] is not None}

    def _is_late(self, side: Side, values: Values) -> bool:
        if self.semantics != "strict":
            return False
        times = self._times_of(side, values).items()
        return any(column in self._watermarks and time < self._watermarks[column] for column, time in times)

    def _has_null_key(self, side: Side, values: Values) -> bool:
        bounding = [time for time in self.times[side] if f"{side}.{time}" in self._bounding]
        return self.keys[side](values) or any(values[time] is None for time in bounding)

    def _is_below(self, side: Side, values: Values) -> bool:
        times = self._times_of(side, values).items()
        return any(column in self._limits and time < self._limits[column] for column, time in times)

    def _see(self, column: str, time: Any) -> None:
        """A row carries a time: by the kafka modes there is one stream time, which is that of all columns."""
        for moved in [column] if self.semantics == "strict" else self._columns:
            if moved in self.lateness:
                self._move(moved, time - self.lateness[moved])

    def _move(self, column: str, value: Any) -> None:
        self._watermarks[column] = max(value, self._watermarks.get(column, value))

    def _end(self) -> list[Emitted]:
        for greater, lesser, allowance in self.bounds:
            if lesser in self._watermarks:
                limit = self._watermarks[lesser] - allowance
                self._limits[greater] = max(limit, self._limits.get(greater, limit))
        emitted = self._leave([held for held in self.buffered if self._is_below(held.side, held.row[1])])
        self.largest = max(self.largest, len(self.buffered))
        if self.max_rows is not None and len(self.buffered) > self.max_rows:
            raise TooManyRows(f"{len(self.buffered)} rows after position {self.position}: {self.max_rows} may be held")
        return emitted

    def _leave(self, leaving: list[Held]) -> list[Emitted]:
        gone = set(map(id, leaving))
        self.buffered = [held for held in self.buffered if id(held) not in gone]
        if self.semantics in EAGER:
            return []
        return [one for held in leaving if not held.matched for one in self._alone(held.side, held.row)]
