"""The graph of a pipeline, drawn as SVG: which join reads which sources and joins."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree as ET

from markupsafe import Markup

from pipelines.commands.site.layout import Layout, Place, laid_out
from pipelines.commands.site.svg import element, fitted, length, markup

NAME, KIND, PADDING = 13.0, 11.0, 12.0
NARROWEST, WIDEST = 110.0, 200.0
KINDS = {
    "table": "table",
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


@dataclass(frozen=True)
class Node:
    """A source or a join; a source reads nothing and has no page and no state."""

    name: str
    kind: str
    reads: tuple[str, ...] = ()
    page: str = ""
    state: str = ""


def graph(nodes: Sequence[Node]) -> Markup:
    """Draw the sources and joins, each after those that it reads; a node with a page links to it."""
    layout = laid_out({node.name: node.reads for node in nodes}, node_width(nodes))
    size = {"width": layout.width, "height": layout.height}
    picture = element(
        "svg",
        _arrowhead(),
        *(_arrow(way.places, layout, f"{way.reader} reads {way.read}") for way in layout.ways),
        *(_node(node, layout) for node in nodes),
        class_="graph",
        role="group",
        viewBox=f"0 0 {layout.width:.0f} {layout.height:.0f}",
        **size,
    )
    picture.set("aria-label", in_words(nodes))
    return markup(picture)


def in_words(nodes: Sequence[Node]) -> str:
    """Describe the picture in words, for screen readers."""
    result = [f"{node.name} reads {', '.join(node.reads)}" for node in nodes if node.reads]
    return f"Dependencies: {'; '.join(result)}."


def node_width(nodes: Sequence[Node]) -> float:
    """Compute the width of the nodes from their longest text, within bounds."""
    texts = [(node.name, NAME) for node in nodes] + [(_kind(node), KIND) for node in nodes]
    longest = max(length(text, size) for text, size in texts)
    return min(max(longest + 2 * PADDING, NARROWEST), WIDEST)


def _kind(node: Node) -> str:
    return KINDS.get(node.kind, node.kind)


def _node(node: Node, layout: Layout) -> ET.Element:
    x, y = layout.nodes[node.name]
    room = layout.node_width - 2 * PADDING
    state = f", {node.state}" if node.state else ""
    drawn = (
        element("title", f"{node.name}: {_kind(node)}{state}"),
        element(
            "rect", x=x, y=y, width=layout.node_width, height=Place(node.name, 0).height, rx=4 if node.reads else 18
        ),
        element("text", fitted(node.name, room, NAME), class_="name", x=x + PADDING, y=y + 20),
        element("text", fitted(_kind(node), room, KIND), class_="kind", x=x + PADDING, y=y + 36),
    )
    shape = f"node kind-{node.kind}" + (f" state-{node.state.replace(' ', '-')}" if node.state else "")
    return element("a", *drawn, class_=shape, href=node.page) if node.page else element("g", *drawn, class_=shape)


def _arrow(places: Sequence[Place], layout: Layout, label: str) -> ET.Element:
    """Draw an arrow: a curve between columns, and a straight line across a column that it passes."""
    path = ""
    for start, end in pairwise(places):
        (left, above), (right, below) = layout.at[start], layout.at[end]
        left, above, below = left + layout.node_width, above + start.height / 2, below + end.height / 2
        middle = (left + right) / 2
        path += f"{'L' if path else 'M'}{left:.1f},{above:.1f} "
        path += f"C{middle:.1f},{above:.1f} {middle:.1f},{below:.1f} {right:.1f},{below:.1f} "
    return element("path", element("title", label), class_="arrow", d=path.strip(), marker_end="url(#arrowhead)")


def _arrowhead() -> ET.Element:
    head = element(
        "marker",
        element("path", d="M0,0 L8,4 L0,8 z"),
        id="arrowhead",
        viewBox="0 0 8 8",
        refX=8,
        refY=4,
        markerWidth=8,
        markerHeight=8,
        orient="auto",
    )
    return element("defs", head)
