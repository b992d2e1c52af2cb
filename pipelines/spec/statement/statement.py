"""What is known of a join from its statement and the keys of its sources, before any schema is."""

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from pipelines.spec.file.options import SourceKind
from pipelines.spec.statement.definition import How, JoinType

InputKind = SourceKind | Literal["join"]
"""What an input is: a source of some kind, or another join of the file."""


@dataclass(frozen=True)
class Side:
    """
    An input as FROM and the file describe it.

    Args:
        source: Its name in the `sources` of the file, or in its `joins`.
        alias: What the statement calls it.
        key: The key as the file writes it, that of a join as its SELECT list does; of inputs that key the result
            together in one order.
        kind: What it is.
        times: Of a stream the watermarked columns, as the file writes them, each with its lateness; UPSTREAM where
            the stream is the result of another join.
        added: The columns of such a result that no statement sees, since lakejoin added them.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    kind: InputKind = "table"
    times: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_result(self) -> bool:
        """Whether it is a stream that another join makes."""
        return bool(self.added)

    def time(self, name: str) -> str | None:
        """Find a column among the watermarked ones, case aside."""
        return next((column for column, _ in self.times if column.lower() == name.lower()), None)


@dataclass(frozen=True)
class Step:
    """
    A JOIN clause.

    Args:
        how: The type of join.
        on: The whole condition; for USING the equalities that it stands for.
        further: Its conditions besides the equalities of a key.
    """

    how: How
    on: exp.Expr
    further: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Link:
    """
    How the rows of a referenced input are found.

    Args:
        side: The place of the input in FROM.
        expressions: What equals each column of its key, in the order of the file.
    """

    side: int
    expressions: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Keys:
    """
    What keys the result, and how every other input is found.

    Args:
        members: The places of the inputs that have the result's key, the first of them first; of a join with a stream
            the stream, whose rows need no key.
        complete: Sets of members of which one at least holds the key, whichever rows meet: of a left join the left
            alone, of a full join both together.
        links: The referenced inputs.
    """

    members: tuple[int, ...]
    complete: frozenset[frozenset[int]]
    links: tuple[Link, ...]

    @property
    def holders(self) -> list[int]:
        """The fewest members that always hold the key between them, the first in FROM where there is a choice."""
        return min((sorted(places) for places in self.complete), key=lambda places: (len(places), places))


@dataclass(frozen=True)
class Inferred:
    """The inputs with the keys of the members in one order, the JOIN clauses, and what keys the result."""

    sides: tuple[Side, ...]
    steps: tuple[Step, ...]
    keys: Keys


@dataclass(frozen=True)
class Statement:
    """
    A statement that was taken apart; `bind` makes a definition of it.

    Args:
        name: The join's name in the file.
        sql: Its text.
        sides: The inputs in the order of FROM; the keys of those that key the result have one order.
        steps: The JOIN clauses: the first joins the second input.
        using: The columns of USING, empty with ON.
        keys: What keys the result.
        select: The items of the SELECT list.
        where: The WHERE condition, or None.
        key: The key of the result: what the SELECT list calls each part, in the order of the members' keys; nothing
            for a stream.
        is_self_join: Whether both inputs are one stream, so that each row of the one is the same row of the other.
        part_of: The join whose statement it is a part of; nothing if it is none.
    """

    name: str
    sql: str
    sides: tuple[Side, ...]
    steps: tuple[Step, ...]
    using: tuple[str, ...]
    keys: Keys
    select: tuple[exp.Expr, ...]
    where: exp.Expr | None
    key: tuple[str, ...]
    is_self_join: bool = False
    part_of: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources and joins whose columns `bind` needs, each once, in the order of FROM."""
        return tuple(dict.fromkeys(side.source for side in self.sides))

    @property
    def reads_stream(self) -> bool:
        """Whether the first input is a stream, and the result with it."""
        return self.sides[0].kind == "stream"

    @property
    def is_windowed(self) -> bool:
        """Whether two streams meet within bounds of time."""
        return self.reads_stream and self.sides[1].kind == "stream"

    @property
    def kind(self) -> JoinType:
        """The kind of join."""
        if self.is_windowed:
            return "stream-stream"
        if self.reads_stream:
            is_global = all(side.kind == "global_table" for side in self.sides[1:])
            return "stream-global-table" if is_global else "stream-table"
        if len(self.sides) > 2:
            return "star"
        return "foreign-key" if self.keys.links else "table-table"
