"""A join as the rest of lakejoin sees it: names, keys and Spark SQL, and nothing of the parser."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pipelines.spec.sql.lengths import Unit

How = Literal["inner", "left", "right", "full"]
JoinType = Literal["table-table", "foreign-key", "star", "stream-table", "stream-global-table", "stream-stream"]


@dataclass(frozen=True)
class Input:
    """
    One input of a join.

    Args:
        source: Its name in the `sources` of the file, or in its `joins`.
        alias: Its alias in the statement; the name in FROM when there is none.
        key: The key columns under their real names; of all inputs that key the result in one order. None for a stream.
        columns: Real names of all columns that the statement uses, the key first, then in the order of the table. Of a
            stream joined with itself both inputs have those that either uses.
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


class Time(NamedTuple):
    """
    A watermarked column.

    Args:
        input: The place of its input.
        column: Its name, as the table has it.
    """

    input: int
    column: str


class Watermark(NamedTuple):
    """
    A watermarked column and how late its values may come.

    Args:
        time: The column.
        lateness: In microseconds; of a column of integers as it counts.
        unit: What the lateness was written as.
        is_from_upstream: Whether its watermarks come from the ledger of the join that produces the column, not from
            rows.
    """

    time: Time
    lateness: int
    unit: Unit = ""
    is_from_upstream: bool = False


class Within(NamedTuple):
    """
    A bound on two times of the inputs of a join: `greater` is at least `lesser` less the allowance.

    Args:
        greater: The place of a watermark.
        lesser: The place of another one, of the other input.
        allowance: In microseconds; of columns of integers as they count.
        unit: What it was written as.
        has_days: Whether its length depends on the time zone.
    """

    greater: int
    lesser: int
    allowance: int
    unit: Unit = ""
    has_days: bool = False


@dataclass(frozen=True)
class Window:
    """
    What keeps the state of a join of two streams from growing without end.

    Args:
        watermarks: The watermarked columns, those of the left input first.
        bounds: The bounds of ON between them, at least one each way.
        equalities: The equalities of ON, as Spark SQL over the left and over the right input.
        one_sided: What ON demands of the rows of the left and of the right input alone, as Spark SQL.
        by_date: Whether all times are dates: their days have 24 hours.
        is_self_join: Whether both inputs are one stream: a commit is then one position on both sides.
    """

    watermarks: tuple[Watermark, ...]
    bounds: tuple[Within, ...]
    equalities: tuple[tuple[str, str], ...]
    one_sided: tuple[str, str]
    by_date: bool = False
    is_self_join: bool = False

    def of(self, place: int) -> tuple[int, ...]:
        """Give the places of the watermarks of an input."""
        return tuple(n for n, mark in enumerate(self.watermarks) if mark.time.input == place)

    def limiting(self, watermark: int) -> tuple[Within, ...]:
        """Give the bounds that limit a time from below."""
        return tuple(bound for bound in self.bounds if bound.greater == watermark)


@dataclass(frozen=True)
class ResolvedQuery:
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
        window: Of a join of two streams what bounds it in time; else None.
        looking_up: Of a join of a stream with tables the watermarked columns of the stream.
        carried: Of a join with a stream: the outputs that go on with a watermark, each with its place in `watermarks`.
        left_out: The columns, each after its source, that a star would stand for and that are not in the result.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    members: tuple[int, ...]
    links: tuple[Link, ...]
    where: str | None
    outputs: tuple[Output, ...]
    key: tuple[str, ...]
    window: Window | None = None
    looking_up: tuple[Watermark, ...] = ()
    carried: tuple[tuple[str, int], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def watermarks(self) -> tuple[Watermark, ...]:
        """The watermarked columns of a join with a stream."""
        return self.looking_up if self.window is None else self.window.watermarks

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources, each once, in the order of FROM."""
        return tuple(dict.fromkeys(item.source for item in self.inputs))

    def places(self, source: str) -> tuple[int, ...]:
        """Give the places of the inputs that read a source."""
        return tuple(place for place, item in enumerate(self.inputs) if item.source == source)
