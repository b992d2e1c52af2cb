"""A join as its statement and the keys of its sources describe it, without schemas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sqlglot import exp

from pipelines.language.file.model import Source
from pipelines.language.file.options import SourceKind
from pipelines.language.names import ROW_COLUMNS, STREAM_COLUMNS
from pipelines.language.statement.definition import How, JoinType

InputKind = SourceKind | Literal["join"]
"""The kind of an input: that of a source, or another join of the file."""


@dataclass(frozen=True)
class Query:
    """
    A subquery of FROM, or a query of WITH, over one table.

    Args:
        alias: The name by which its expressions may qualify the columns of that table.
    """

    alias: str
    select: tuple[exp.Expr, ...]
    where: exp.Expr | None


@dataclass(frozen=True, kw_only=True)
class Groups:
    """
    How an input groups rows: it has a row for each value of its key among them.

    Args:
        rows: These rows, an input over the same source, which has the key of the groups, too.
        by: What the groups are by, in the order of that key, as written.
        values: The columns besides the key, each with its aggregates over columns of the rows.
        having: Whether a group is a row of the input, in the same form; None if all are.
        collected: The columns of the rows that a semi join compares besides equalities.
        summed: The columns of the rows of which a sum is taken; `averaged`, an average.
    """

    rows: "Side"
    by: tuple[exp.Expr, ...]
    values: tuple[tuple[str, exp.Expr], ...] = ()
    having: exp.Expr | None = None
    collected: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()


class Matches(NamedTuple):
    """
    A semi or anti join, EXISTS or IN, which adds an input: one that groups the rows that it looks for by their values.

    Args:
        written: The condition as the statement writes it.
        holds: The same condition over what a row of the statement finds.
    """

    written: exp.Expr
    holds: exp.Expr


@dataclass(frozen=True, kw_only=True)
class Side:
    """
    An input, as FROM and the file describe it.

    Args:
        key: The key columns, named as in the file; for a join, as in its SELECT list; for a subquery, as it names them.
            Inputs that key the result together have their keys in the same order.
        source_key: For a subquery the key columns of its source, in the order of `key`; else empty.
        queries: The queries through which the source is read, the innermost first; none if it is read as it is.
        times: For a stream: its watermarked columns, named as in the file, each with its lateness; UPSTREAM replaces
            the lateness if the stream is the result of another join.
        added: For the result of another join that is a stream: the columns that lakejoin adds, which no statement can
            use.
        may_be_absent: As for the `Input` of a definition.
        groups: How it groups rows; None if each of its rows is one row of the source.
        matches: The semi join that adds it; None for an input of FROM. Only lakejoin names columns of an added one.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    kind: InputKind = "table"
    times: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    may_be_absent: bool = False
    source_key: tuple[str, ...] = ()
    queries: tuple[Query, ...] = ()
    groups: Groups | None = None
    matches: Matches | None = None

    def through(self, alias: str, key: tuple[str, ...], queries: tuple[Query, ...]) -> "Side":
        """Return the input that reads this source through queries, which name its key columns `key`."""
        return replace(self, alias=alias, key=key, source_key=self.key if queries else (), queries=queries)

    def keyed_by(self, key: tuple[str, ...]) -> "Side":
        """Return the input with its key columns in another order."""
        order = [self.key.index(name) for name in key]
        return replace(self, key=key, source_key=tuple(self.source_key[n] for n in order) if self.source_key else ())

    @property
    def is_result(self) -> bool:
        """Whether the input is a stream that another join produces."""
        return bool(self.added)

    def time(self, name: str) -> str | None:
        """Return a watermarked column, named as in the file, ignoring case; None if it is not watermarked."""
        return next((column for column, _ in self.times if column.lower() == name.lower()), None)


UPSTREAM = ""
"""Replaces a lateness: the join that produces the column determines its watermark."""


class Produced(NamedTuple):
    """
    The properties of a join's result for the joins that read it.

    Args:
        key: The key of the result, named as in the SELECT list; empty for a stream.
        times: For a stream: the columns that have a watermark.
        added: For a stream: the columns that lakejoin adds, which no statement can use.
        is_ordered: Whether `order_by` orders its rows, instead of the commits that caused them.
        may_be_absent: Whether parts of the key may be null, because a row lacks one side of the join.
    """

    key: tuple[str, ...]
    is_stream: bool = False
    times: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    is_ordered: bool = False
    may_be_absent: bool = False


Sources = Mapping[str, Source | None]
Results = Mapping[str, Produced | None]
"""The sources of a file and the results of its joins; what is invalid or unknown is None."""


Clause = Literal["ON", "WHERE"]
"""Where the condition of a JOIN is written."""


class Inputs(NamedTuple):
    """
    The inputs of a statement; the keys are in the order of the file.

    Args:
        sides: The inputs in the order of FROM.
        hows: The type of each JOIN.
        clauses: Where the condition of each JOIN is written.
        select: The statement, in which each JOIN has its condition.
    """

    sides: tuple[Side, ...]
    hows: tuple[How, ...]
    clauses: tuple[Clause, ...]
    select: exp.Select


def added_columns(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return the columns that lakejoin adds to the result of a statement with these inputs."""
    if sides[0].kind != "stream":
        return ()
    return STREAM_COLUMNS + (ROW_COLUMNS if sides[1].kind == "stream" else ())


@dataclass(frozen=True)
class JoinClause:
    """
    A JOIN clause: its whole condition, for USING as equalities, and the conditions other than a key's equalities.

    The condition is written in `clause`.
    """

    how: How
    on: exp.Expr
    further: tuple[exp.Expr, ...]
    clause: Clause = "ON"

    def uses(self, side: Side) -> bool:
        """Return whether ON has a column of an input, written with its alias."""
        return any(column.table.lower() == side.alias.lower() for column in self.on.find_all(exp.Column))


def absent_after(hows: Iterable[How]) -> frozenset[int]:
    """Return the inputs that may have no row in a joined row, after JOINs of some types."""
    absent: set[int] = set()
    for index, how in enumerate(hows, start=1):
        absent |= set(range(index)) if how in ("right", "full") else set()
        absent |= {index} if how in ("left", "full") else set()
    return frozenset(absent)


@dataclass(frozen=True)
class ReferenceClause:
    """
    A foreign key, which finds the rows of a referenced input, `side`.

    An expression equals each column of its key, in the order of the file; `<=>`, for which null is a value, compares
    those at the positions `null_safe`.
    """

    side: int
    expressions: tuple[exp.Expr, ...]
    null_safe: tuple[int, ...] = ()


@dataclass(frozen=True)
class Equality:
    """An equality of ON, or `<=>`, of an expression over the left input, or one that it looks up, and the right one."""

    left: exp.Expr
    right: exp.Expr
    is_null_safe: bool


@dataclass(frozen=True, kw_only=True)
class PairingClause:
    """
    A join of two inputs of any cardinality, whose result has the keys of both.

    The equalities of ON compare the values of the rows; their left expressions have the columns of the input `over`:
    the left one, or one that it looks up.
    """

    left: int
    right: int
    how: How
    equalities: tuple[Equality, ...]
    over: int


@dataclass(frozen=True)
class Keys:
    """
    The key of the result, and the references to all other inputs.

    Args:
        members: The inputs that have the result's key, in ascending order; for a join with a stream, the stream, whose
            rows need no key; for a pairing its two inputs, each of which has a part of the key.
        complete: Sets of members. In each set, at least one member holds the key of every result row: for a left join
            the left input alone, for a full join both inputs together.
        pairing: The two inputs whose rows match in any number; None if each row of the result has one row of each.
    """

    members: tuple[int, ...]
    complete: frozenset[frozenset[int]]
    links: tuple[ReferenceClause, ...]
    pairing: PairingClause | None = None

    @property
    def is_many_to_many(self) -> bool:
        """Whether the rows of two inputs match in any number."""
        return self.pairing is not None

    @property
    def paired(self) -> PairingClause:
        """The two inputs whose rows match in any number; only if they do."""
        assert self.pairing is not None, "each row of the result has one row of each input"
        return self.pairing

    @property
    def holders(self) -> list[int]:
        """The smallest set of members that always holds the key; of several, the first in FROM."""
        return min((sorted(indexes) for indexes in self.complete), key=lambda indexes: (len(indexes), indexes))


@dataclass(frozen=True)
class Inferred:
    """The inputs, with the keys of the members in the same order, the JOIN clauses, and the key of the result."""

    sides: tuple[Side, ...]
    steps: tuple[JoinClause, ...]
    keys: Keys


@dataclass(frozen=True, kw_only=True)
class Statement:
    """
    A parsed statement; `bind` creates a definition from it.

    Args:
        sides: The inputs in the order of FROM; inputs that key the result have their keys in the same order.
        using: The columns of USING; empty for ON.
        key: The key of the result, named as in the SELECT list, in the order of the members' keys; empty for a stream.
        appended: The items of `select` that its text does not have: key columns that `key_columns: append` adds.
        is_self_join: Whether both inputs are the same stream, so that they have the same rows.
        part_of: The join whose statement it is a part of.
    """

    name: str
    sql: str
    sides: tuple[Side, ...]
    steps: tuple[JoinClause, ...]
    using: tuple[str, ...]
    keys: Keys
    select: tuple[exp.Expr, ...]
    where: exp.Expr | None
    key: tuple[str, ...]
    appended: tuple[exp.Expr, ...] = ()
    is_self_join: bool = False
    part_of: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources and joins whose columns `bind` needs, each once, in the order of FROM."""
        return tuple(dict.fromkeys(side.source for side in self.sides))

    @property
    def may_be_absent(self) -> bool:
        """Whether parts of the result's key may be null: a row lacks one side of a pairing, here or in an input."""
        is_outer = self.keys.is_many_to_many and self.keys.paired.how != "inner"
        return is_outer or any(self.sides[member].may_be_absent for member in self.keys.members)

    @property
    def reads_stream(self) -> bool:
        """Whether the first input, and therefore the result, is a stream."""
        return self.sides[0].kind == "stream"

    @property
    def is_windowed(self) -> bool:
        """Whether the statement joins two streams within time bounds."""
        return self.reads_stream and self.sides[1].kind == "stream"

    @property
    def of_from(self) -> tuple[Side, ...]:
        """The inputs of FROM, without those that semi joins, EXISTS and IN add, which are behind them."""
        return tuple(side for side in self.sides if side.matches is None)

    @property
    def hows(self) -> tuple[How, ...]:
        """The type of each JOIN between inputs of FROM."""
        return tuple(step.how for step in self.steps[: len(self.of_from) - 1])

    @property
    def kind(self) -> JoinType:
        """The kind of join."""
        if self.is_windowed:
            return "stream-stream"
        if self.reads_stream:
            is_global = all(side.kind == "global_table" for side in self.sides[1:])
            return "stream-global-table" if is_global else "stream-table"
        number = len(self.of_from)
        if number == 1:
            kind: JoinType = "table" if len(self.sides) == 1 else "semi-join"
            return kind if self.sides[0].groups is None else "grouped"
        if self.keys.is_many_to_many:
            return "many-to-many"
        if number > 2:
            return "star"
        return "foreign-key" if any(link.side < number for link in self.keys.links) else "table-table"
