"""
The graph of a pipeline, drawn as SVG: sources on the left, each join to the right of all nodes that it reads.

    column 0      column 1      column 2
    orders   ──►  paid     ──►  named
    customers ──── lane ──────►            an arrow that passes a column has a place of its own in it

Places in a column are ordered by the mean position of their neighbours, from the left and from the right in turn, as in
layered drawings by Sugiyama. The result is the order with the fewest crossings among those tried.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean
from xml.etree import ElementTree as ET

from markupsafe import Markup

from pipelines.commands.site.svg import element, fitted, length, markup

NAME, KIND, PADDING = 13.0, 11.0, 12.0
NARROWEST, WIDEST = 110.0, 200.0
NODE_HEIGHT, LANE_HEIGHT = 46.0, 8.0
GAP_ACROSS, GAP_DOWN, MARGIN = 64.0, 16.0, 6.0
ROUNDS = 6
KINDS = {
    "table": "table",
    "semi-join": "semi-join",
    "grouped": "groups",
    "changelog": "changelog",
    "stream": "stream",
    "global_table": "global table",
    "table-table": "table-table join",
    "foreign-key": "foreign-key join",
    "star": "star join",
    "many-to-many": "many-to-many join",
    "stream-table": "stream-table join",
    "stream-global-table": "stream-global-table join",
    "stream-stream": "stream-stream join",
}
"""The label of each kind in the picture."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A source or a join; a source reads nothing and has no page and no state."""

    name: str
    kind: str
    reads: tuple[str, ...] = ()
    page: str = ""
    state: str = ""


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


@dataclass(frozen=True, kw_only=True)
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


def graph(nodes: Sequence[Node]) -> Markup:
    """Draw the sources and joins, each after those that it reads; a node with a page links to it."""
    layout = laid_out({node.name: node.reads for node in nodes}, _node_width(nodes))
    picture = element(
        "svg",
        _arrowhead(),
        *(_arrow(way, layout) for way in layout.ways),
        *(_node(node, layout) for node in nodes),
        class_="graph",
        role="group",
        viewBox=f"0 0 {layout.width:.0f} {layout.height:.0f}",
        width=layout.width,
        height=layout.height,
    )
    in_words = "; ".join(f"{node.name} reads {', '.join(node.reads)}" for node in nodes if node.reads)
    picture.set("aria-label", f"Dependencies: {in_words}.")
    return markup(picture)


def _node_width(nodes: Sequence[Node]) -> float:
    """Compute the width of the nodes from their longest text, within bounds."""
    texts = [(node.name, NAME) for node in nodes] + [(KINDS.get(node.kind, node.kind), KIND) for node in nodes]
    longest = max(length(text, size) for text, size in texts)
    return min(max(longest + 2 * PADDING, NARROWEST), WIDEST)


def _node(node: Node, layout: Layout) -> ET.Element:
    x, y = layout.nodes[node.name]
    room, corner = layout.node_width - 2 * PADDING, 4 if node.reads else 18
    kind, state = KINDS.get(node.kind, node.kind), f", {node.state}" if node.state else ""
    drawn = (
        element("title", f"{node.name}: {kind}{state}"),
        element("rect", x=x, y=y, width=layout.node_width, height=NODE_HEIGHT, rx=corner),
        element("text", fitted(node.name, room, NAME), class_="name", x=x + PADDING, y=y + 20),
        element("text", fitted(kind, room, KIND), class_="kind", x=x + PADDING, y=y + 36),
    )
    shape = f"node kind-{node.kind}" + (f" state-{node.state.replace(' ', '-')}" if node.state else "")
    return element("a", *drawn, class_=shape, href=node.page) if node.page else element("g", *drawn, class_=shape)


def _arrow(way: Way, layout: Layout) -> ET.Element:
    """Draw an arrow: a curve between columns, and a straight line across a column that it passes."""
    path = ""
    for start, end in pairwise(way.places):
        (left, above), (right, below) = layout.at[start], layout.at[end]
        left, above, below = left + layout.node_width, above + start.height / 2, below + end.height / 2
        middle = (left + right) / 2
        path += f"{'L' if path else 'M'}{left:.1f},{above:.1f} "
        path += f"C{middle:.1f},{above:.1f} {middle:.1f},{below:.1f} {right:.1f},{below:.1f} "
    title = element("title", f"{way.reader} reads {way.read}")
    return element("path", title, class_="arrow", d=path.strip(), marker_end="url(#arrowhead)")


def _arrowhead() -> ET.Element:
    size: dict[str, str | float] = {"viewBox": "0 0 8 8", "refX": 8, "refY": 4, "markerWidth": 8, "markerHeight": 8}
    head = element("marker", element("path", d="M0,0 L8,4 L0,8 z"), id="arrowhead", **size, orient="auto")
    return element("defs", head)


def laid_out(reads: Mapping[str, Sequence[str]], node_width: float) -> Layout:
    """Find a place for each node, which comes after those that it reads; a source reads none."""
    columns: dict[str, int] = {}
    for name, others in reads.items():
        columns[name] = 1 + max((columns[other] for other in others), default=-1)
    ways = tuple(_way(read, reader, columns) for reader, others in reads.items() for read in dict.fromkeys(others))
    return _placed(_ordered(columns, ways), ways, node_width)


def _way(read: str, reader: str, columns: Mapping[str, int]) -> Way:
    """Build an arrow. Arrows from one node pass a column in the same lane."""
    first, last = Place(read, columns[read]), Place(reader, columns[reader])
    lanes = (Place(read, column, is_lane=True) for column in range(first.column + 1, last.column))
    return Way(read, reader, (first, *lanes, last))


def _ordered(columns: Mapping[str, int], ways: Sequence[Way]) -> list[list[Place]]:
    nodes = [Place(name, column) for name, column in columns.items()]
    places = dict.fromkeys([*nodes, *(place for way in ways for place in way.places)])
    order = [[place for place in places if place.column == number] for number in range(1 + max(columns.values()))]
    steps = list(dict.fromkeys(step for way in ways for step in pairwise(way.places)))
    return min(_tried(order, steps), key=lambda tried: _crossings(tried, steps))


def _crossings(columns: Sequence[Sequence[Place]], steps: Sequence[tuple[Place, Place]]) -> int:
    """Count the crossings of arrows between neighbouring columns."""
    rank = {place: number for column in columns for number, place in enumerate(column)}
    return sum(
        a.column == c.column and (rank[a] - rank[c]) * (rank[b] - rank[d]) < 0
        for (a, b), (c, d) in combinations(steps, 2)
    )


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
            column.sort(key=lambda place: fmean([rank[other] for other in near.get(place, ())] or [rank[place]]))
        yield order


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
    return Layout(ways=ways, at=at, node_width=node_width, width=width, height=2 * MARGIN + max(heights))
