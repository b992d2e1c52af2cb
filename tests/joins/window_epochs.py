"""
Histories of a join of two streams, cut into epochs. The oracle goes through each history, and says what every epoch
begins with and what it must come to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tests.joins.oracle import Emitted, Oracle, Row, Side, TooManyRows
from tests.joins.windows import Definition, Epoch, Made, Values, remembers

SIDES: tuple[Side, Side] = ("l", "r")
CUTS = ("whole", "cut at random", "one step an epoch")


class Step(NamedTuple):
    position: int
    taken: Callable[[Any], Iterable[Emitted]]
    rows: Sequence[tuple[int, int, Values, bool]] = ()
    given: tuple[int, int] | None = None


@dataclass
class Part:
    epoch: Epoch
    expected: Made
    before: Any
    positions: list[int] = field(default_factory=list)
    fails: bool = False


def ends_of(steps: Sequence[Step], name: str) -> list[list[int]]:
    """Say after how many steps the epochs end, for each of CUTS; random is what the name makes of it."""
    every = list(range(1, len(steps) + 1))
    random = Random(name)
    some = random.sample(every, random.randint(1, len(every)))
    return [every[-1:], sorted({*some, every[-1]}), every]


def cut(
    definition: Definition,
    oracle: Oracle,
    steps: Sequence[Step],
    ends: Iterable[int],
    noted: Callable[[Any], Any] = lambda oracle: None,
) -> Iterator[Part]:
    marks = definition.window.watermarks
    places = {f"{SIDES[mark.time.input]}.{mark.time.column}": place for place, mark in enumerate(marks)}

    def placed(of: dict[str, Any]) -> dict[int, int]:
        return {places[name]: value for name, value in of.items() if value is not None}

    start = 0
    for end in ends:
        epoch = Epoch(held=_held(definition, oracle), watermarks=placed(oracle.watermarks()))
        made = Made(most=len(oracle.buffered))
        part = Part(epoch, made, noted(oracle))
        for step in steps[start:end]:
            part.positions.append(step.position)
            epoch.rows += step.rows
            if step.given:
                epoch.given = [*(epoch.given or ()), (step.position, *step.given)]
            try:
                emitted = step.taken(oracle)
            except TooManyRows:
                made.most = len(oracle.buffered)
                part.fails = True
                yield part
                return
            for one in emitted:
                left, right = _values(definition, 0, one.left), _values(definition, 1, one.right)
                made.emitted[step.position, left, right] += 1
            made.most = max(made.most or 0, len(oracle.buffered))
            if step.rows or step.given:
                made.results[step.position] = placed(oracle.outputs())
        made.held = Counter(_held(definition, oracle))
        made.watermarks = placed(oracle.watermarks())
        yield part
        start = end


def _held(definition: Definition, oracle: Oracle) -> list[tuple[int, Values, bool]]:
    found = []
    for held in oracle.buffered:
        side = SIDES.index(held.side)
        values = _values(definition, side, held.row)
        assert values is not None
        found.append((side, values, remembers(definition, side) and held.matched))
    return found


def _values(definition: Definition, side: int, row: Row | None) -> Values | None:
    return None if row is None else tuple(row[1][name] for name in definition.columns[side].names)
