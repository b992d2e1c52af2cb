"""
The layout of a graph: sources on the left, each join to the right of all nodes that it reads.

    column 0      column 1      column 2
    orders   ──►  paid     ──►  named
    customers ──── lane ──────►            an arrow that passes a column has a place of its own in it

Places in a column are ordered by the mean position of their neighbours, from the left and from the right in turn, as in
layered drawings by Sugiyama. The result is the order with the fewest crossings among those tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

ROUNDS = 6
NODE_HEIGHT, LANE_HEIGHT = 46.0, 8.0
GAP_ACROSS, GAP_DOWN, MARGIN = 64.0, 16.0, 6.0


@dataclass(frozen=True)
class Place:
    """A place in a column, from 0: of a node, or a lane for the arrows that begin at this node and pass the column."""

    node: str
    column: int
    is_lane: bool = False

    @property
    def height(self) -> float:
        """The height of the place."""
        return LANE_HEIGHT if self.is_lane else NODE_HEIGHT


@dataclass(frozen=True)
class Way:
    """An arrow from a node that is read to its reader, with the places that it passes, including both ends."""

    read: str
    reader: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Layout:
    """A graph with its arrows; `at` has the upper left corner of each place."""

    ways: tuple[Way, ...]
    at: Mapping[Place, tuple[float, float]]
    node_width: float
    width: float
    height: float

    @property
    def nodes(self) -> dict[str, tuple[float, float]]:
        """The upper left corner of each node."""
        return {place.node: corner for place, corner in self.at.items() if not place.is_lane}


def laid_out(reads: Mapping[str, Sequence[str]], node_width: float) -> Layout:
    """Find a place for each node, which comes after those that it reads; a source reads none."""
    columns = columns_of(reads)
    ways = tuple(_way(read, reader, columns) for reader, others in reads.items() for read in dict.fromkeys(others))
    return _placed(_ordered(reads, columns, ways), ways, node_width)


def columns_of(reads: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the column of each node: 0 for a source, else the one after the last column that it reads from."""
    columns: dict[str, int] = {}
    for name, others in reads.items():
        columns[name] = 1 + max((columns[other] for other in others), default=-1)
    return columns


def crossings(columns: Sequence[Sequence[Place]], steps: Sequence[tuple[Place, Place]]) -> int:
    """Count the crossings of arrows between neighbouring columns."""
    rank = {place: number for column in columns for number, place in enumerate(column)}
    met = 0
    for (a, b), (c, d) in combinations(steps, 2):
        met += a.column == c.column and (rank[a] - rank[c]) * (rank[b] - rank[d]) < 0
    return met


def _way(read: str, reader: str, columns: Mapping[str, int]) -> Way:
    """Build an arrow. Arrows from one node pass a column in the same lane."""
    first, last = Place(read, columns[read]), Place(reader, columns[reader])
    lanes = (Place(read, column, is_lane=True) for column in range(first.column + 1, last.column))
    return Way(read, reader, (first, *lanes, last))


def _ordered(reads: Mapping[str, Sequence[str]], columns: Mapping[str, int], ways: Sequence[Way]) -> list[list[Place]]:
    nodes = [Place(name, columns[name]) for name in reads]
    places = dict.fromkeys([*nodes, *(place for way in ways for place in way.places)])
    order = [[place for place in places if place.column == number] for number in range(1 + max(columns.values()))]
    steps = list(dict.fromkeys(step for way in ways for step in pairwise(way.places)))
    return min(_tried(order, steps), key=lambda tried: crossings(tried, steps))


def _tried(order: list[list[Place]], steps: Sequence[tuple[Place, Place]]) -> Iterator[list[list[Place]]]:
    """Yield the given order, then orders sorted by neighbours on the left and on the right in turn."""
    before: dict[Place, list[Place]] = {}
    after: dict[Place, list[Place]] = {}
    for start, end in steps:
        before.setdefault(end, []).append(start)
        after.setdefault(start, []).append(end)
    yield order
    for number in range(ROUNDS):
        near = after if number % 2 else before
        order = [list(column) for column in order]
        for column in reversed(order) if number % 2 else order:
            rank = {place: (n + 0.5) / len(column) for column in order for n, place in enumerate(column)}
            column.sort(key=lambda place: _mean([rank[other] for other in near.get(place, ())] or [rank[place]]))
        yield order


def _mean(ranks: Sequence[float]) -> float:
    return sum(ranks) / len(ranks)


def _placed(order: Sequence[Sequence[Place]], ways: tuple[Way, ...], node_width: float) -> Layout:
    """Compute coordinates: places stacked in columns, and columns side by side, vertically centred."""
    heights = [sum(place.height + GAP_DOWN for place in column) - GAP_DOWN for column in order]
    at: dict[Place, tuple[float, float]] = {}
    for number, column in enumerate(order):
        x = MARGIN + number * (node_width + GAP_ACROSS)
        y = MARGIN + (max(heights) - heights[number]) / 2
        for place in column:
            at[place] = (x, y)
            y += place.height + GAP_DOWN
    width = 2 * MARGIN + len(order) * node_width + (len(order) - 1) * GAP_ACROSS
    return Layout(ways, at, node_width, width, 2 * MARGIN + max(heights))
