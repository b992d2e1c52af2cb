"""A join as the rest of lakejoin sees it: names, keys and Spark SQL, and nothing of the parser."""

from dataclasses import dataclass
from typing import Literal

How = Literal["inner", "left", "right", "full"]
Kind = Literal["table-table", "foreign-key", "star", "stream-table", "stream-global-table"]


@dataclass(frozen=True)
class Input:
    """
    One input of a join.

    Args:
        source: Its name in the `sources` of the file, or in its `joins`.
        alias: Its alias in the statement; the name in FROM when there is none.
        key: The key columns under their real names; of all inputs that key the result in one order. None for a stream.
        columns: Real names of all columns that the statement uses, the key first, then in the order of the table.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Output:
    """
    One column of the result.

    Args:
        name: What the result calls it.
        expression: Spark SQL over `alias`.`column`, every column in backticks.
    """

    name: str
    expression: str


@dataclass(frozen=True)
class Step:
    """A further input: the type of join, and the whole ON condition as Spark SQL, all columns qualified and quoted."""

    how: How
    on: str


@dataclass(frozen=True)
class Link:
    """
    How the rows of a referenced input are found: a foreign key.

    Args:
        input: The place of the referenced input.
        expressions: What equals each column of its key, as Spark SQL over columns of the referencing input.
        over: The place of the referencing input.
    """

    input: int
    expressions: tuple[str, ...]
    over: int


@dataclass(frozen=True)
class TableJoin:
    """
    A join of tables: of two on their keys, over a foreign key, or a star of both.

    A join of a stream with tables has the same shape: the stream is the only member, without a key, and refers to each
    table.

    Args:
        name: The join's name in the file.
        inputs: The inputs in the order of FROM.
        steps: How each input but the first is joined to those before it.
        members: The places of the inputs that have the result's key.
        links: The other inputs, each after the one that refers to it.
        where: The WHERE condition as Spark SQL, all columns qualified and quoted, or None.
        outputs: The columns of the result, in the order of the SELECT.
        key: Names of the outputs that hold the result's key, in the order of the members' keys.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    members: tuple[int, ...]
    links: tuple[Link, ...]
    where: str | None
    outputs: tuple[Output, ...]
    key: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources, each once, in the order of FROM."""
        return tuple(dict.fromkeys(item.source for item in self.inputs))

    def places(self, source: str) -> tuple[int, ...]:
        """Give the places of the inputs that read a source."""
        return tuple(place for place, item in enumerate(self.inputs) if item.source == source)
