"""Random joins of two streams and random histories of them, for the oracle and for the product."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from pipelines.language import Semantics, Time, Watermark, Window, Within
from tests.joins.oracle import Bound, Emitted, Oracle, Side
from tests.joins.window_epochs import SIDES, Step, cut
from tests.joins.windows import Definition, Epoch, Made

HOWS = ("inner", "left", "right", "full")
Position = tuple[int, list[tuple[tuple[Any, ...], bool]]]
"""What comes at a position: the side, and rows with whether they have a value."""


@dataclass(frozen=True)
class Joined:
    """A random join: as the product has it, and what the oracle needs."""

    definition: Definition
    bounds: tuple[Bound, ...]
    lateness: dict[str, int]
    meets: Callable[[dict[str, Any], dict[str, Any]], bool | None]
    alone: dict[Side, Callable[[dict[str, Any]], bool | None]]
    has_key: bool
    times: dict[Side, tuple[str, ...]]

    def oracle(self) -> Oracle:
        null_key = (lambda values: values["k"] is None) if self.has_key else (lambda values: False)
        return Oracle(
            self.definition.how,
            self.bounds,
            self.times,
            self.lateness,
            self.meets,
            self.alone,
            dict.fromkeys(SIDES, null_key),
            self.definition.semantics,
            lambda values: not values["has_value"],
        )

    def named(self, side: int, row: tuple[Any, ...], has_value: bool) -> dict[str, Any]:
        names = self.definition.columns[side].names
        return {**dict(zip(names, row, strict=True)), "has_value": has_value}


def joined(random: Random, semantics: Semantics = "strict") -> Joined:
    """Draw a join: its type, time columns, bounds, key, and what else ON says."""
    several = semantics == "strict"
    times = {side: random.choice((("t",), ("t", "u"))) if several else ("t",) for side in SIDES}
    how = random.choice(HOWS if several else ("inner", "left", "full"))
    bounds = []
    for one, other in (("l", "r"), ("r", "l")):
        for _ in range(random.choice((1, 1, 2)) if several else 1):
            ends = (f"{one}.{random.choice(times[one])}", f"{other}.{random.choice(times[other])}")
            bounds.append(Bound(*ends, random.randint(-2, 6) if several else random.randint(0, 6)))
    tightest: dict[tuple[str, str], int] = {}
    for greater, lesser, allowance in bounds:
        tightest[greater, lesser] = min(allowance, tightest.get((greater, lesser), allowance))
    has_key = random.random() < 0.6
    alone_sql = [random.choice(("TRUE", "TRUE", f"{side}.v > {random.randint(0, 2)}")) for side in SIDES]
    differ = several and random.random() < 0.3
    parts = [f"{greater} >= {lesser} - ({allowance})" for greater, lesser, allowance in bounds]
    parts += ["l.k = r.k"] * has_key + [sql for sql in alone_sql if sql != "TRUE"] + ["l.v <> r.v"] * differ
    random.shuffle(parts)
    columns = tuple(
        StructType([StructField(name, LongType()) for name in ("id", "k", "v", *times[side])]) for side in SIDES
    )
    late = {f"{side}.{time}": random.randint(0, 5) for side in SIDES for time in times[side]}
    if not several:
        late = dict.fromkeys(late, random.randint(0, 5))
    names = list(late)
    marks = tuple(Watermark(Time(SIDES.index(name[0]), name[2:]), lateness) for name, lateness in late.items())
    within = tuple(Within(names.index(one), names.index(other), least) for (one, other), least in tightest.items())
    equalities = (("l.k", "r.k"),) if has_key else ()
    window = Window(marks, within, equalities, (alone_sql[0], alone_sql[1]))
    definition = Definition(how, " AND ".join(parts), (columns[0], columns[1]), window, semantics)

    def meets(left: dict[str, Any], right: dict[str, Any]) -> bool:
        values = {
            f"{side}.{name}": value
            for side, row in zip(SIDES, (left, right), strict=True)
            for name, value in row.items()
        }
        if any(not _at_least(values[g], values[b], c) for g, b, c in bounds):
            return False
        if has_key and (left["k"] is None or left["k"] != right["k"]):
            return False
        if differ and (left["v"] is None or right["v"] is None or left["v"] == right["v"]):
            return False
        return all(_alone(sql, row) for sql, row in zip(alone_sql, (left, right), strict=True))

    alone = {side: (lambda values, sql=sql: _alone(sql, values)) for side, sql in zip(SIDES, alone_sql, strict=True)}
    return Joined(definition, tuple(bounds), late, meets, alone, has_key, times)


def _at_least(greater: int | None, lesser: int | None, allowance: int) -> bool:
    return greater is not None and lesser is not None and greater >= lesser - allowance


def _alone(sql: str, values: dict[str, Any]) -> bool:
    return sql == "TRUE" or (values["v"] is not None and values["v"] > int(sql.rsplit(" ", 1)[1]))


def history(random: Random, of: Joined, positions: int = 14) -> list[Position]:
    """Draw what comes: times that move on with some disorder, equal rows, nulls, rows without a value."""
    found: list[Position] = []
    now = random.randint(-5, 5)
    for number in range(positions):
        now += random.choice((0, 1, 1, 2, 5))
        side = random.randint(0, 1)
        rows = []
        for _ in range(random.choice((1, 1, 2, 3))):
            times = [_maybe(random, now + random.randint(-7, 3), 0.05) for _ in of.times[SIDES[side]]]
            row = (
                number * 10,
                _maybe(random, random.randint(0, 1), 0.1),
                _maybe(random, random.randint(0, 3), 0.1),
                *times,
            )
            rows += [(row, random.random() < 0.93)] * random.choice((1, 1, 1, 2))
        found.append((side, rows))
    return found


def _maybe(random: Random, value: int, share: float) -> int | None:
    return None if random.random() < share else value


def epochs(of: Joined, positions: Sequence[Position], ends: Sequence[int]) -> tuple[list[Epoch], list[Made]]:
    """Cut a history into epochs and let the oracle say what each begins with and must come to."""

    def taken(side: int, rows: Sequence[tuple[tuple[Any, ...], bool]]) -> Callable[[Oracle], list[Emitted]]:
        return lambda oracle: oracle.rows(SIDES[side], [(object(), of.named(side, *row)) for row in rows])

    steps = [
        Step(number, taken(side, rows), [(number, side, *row) for row in rows])
        for number, (side, rows) in enumerate(positions, 1)
    ]
    parts = list(cut(of.definition, of.oracle(), steps, ends))
    return [part.epoch for part in parts], [part.expected for part in parts]
