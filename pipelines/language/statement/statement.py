"""A join as its statement and the keys of its sources describe it, without schemas."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from pipelines.language.file.options import SourceKind
from pipelines.language.statement.definition import How, JoinType

InputKind = SourceKind | Literal["join"]
"""The kind of an input: that of a source, or another join of the file."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """
    An input, as FROM and the file describe it.

    Args:
        source: Its name in the `sources` of the file, or in its `joins`.
        alias: Its alias in the statement; its name in FROM if it has no alias.
        key: The key columns, named as in the file; for a join, as in its SELECT list. Inputs that key the result
            together have their keys in the same order.
        times: For a stream: its watermarked columns, named as in the file, each with its lateness; UPSTREAM replaces
            the lateness if the stream is the result of another join.
        added: For the result of another join that is a stream: the columns that lakejoin adds, which no statement can
            use.
        may_be_absent: Whether parts of the key may be null, but not all of them: the input is the result of a join
            whose rows may lack a side.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    kind: InputKind = "table"
    times: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    may_be_absent: bool = False

    @property
    def is_result(self) -> bool:
        """Whether the input is a stream that another join produces."""
        return bool(self.added)

    def time(self, name: str) -> str | None:
        """Return a watermarked column, named as in the file, ignoring case; None if it is not watermarked."""
        return next((column for column, _ in self.times if column.lower() == name.lower()), None)


@dataclass(frozen=True)
class JoinClause:
    """A JOIN clause: its whole condition, for USING as equalities, and the conditions other than a key's equalities."""

    how: How
    on: exp.Expr
    further: tuple[exp.Expr, ...]

    def uses(self, side: Side) -> bool:
        """Return whether ON has a column of an input, written with its alias."""
        return any(column.table.lower() == side.alias.lower() for column in self.on.find_all(exp.Column))


def absent_after(hows: Iterable[How]) -> frozenset[int]:
    """Return the places of the inputs that may have no row in a joined row, after JOINs of some types."""
    absent: set[int] = set()
    for place, how in enumerate(hows, start=1):
        absent |= set(range(place)) if how in ("right", "full") else set()
        absent |= {place} if how in ("left", "full") else set()
    return frozenset(absent)


@dataclass(frozen=True)
class ReferenceClause:
    """
    A foreign key, which finds the rows of a referenced input.

    Args:
        side: The place of the referenced input in FROM.
        expressions: The expression that equals each column of its key, in the order of the file.
        null_safe: The positions of the expressions that `<=>` compares, for which null is a value.
    """

    side: int
    expressions: tuple[exp.Expr, ...]
    null_safe: tuple[int, ...] = ()


@dataclass(frozen=True)
class Equality:
    """
    An equality of ON between two inputs.

    Args:
        left: The expression over the left input, or over one that it looks up.
        right: The expression over the right input.
        is_null_safe: Whether it is `<=>`, for which null is a value.
    """

    left: exp.Expr
    right: exp.Expr
    is_null_safe: bool


@dataclass(frozen=True, kw_only=True)
class PairingClause:
    """
    A join of two inputs of any cardinality, whose result has the keys of both.

    Args:
        left: The place of the left input.
        right: The place of the right input.
        equalities: The equalities of ON that compare the values of the rows.
        over: The place of the input whose columns their left expressions have: the left input, or one that it looks up.
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
        members: The places of the inputs that have the result's key, in ascending order; for a join with a stream, the
            stream, whose rows need no key; for a pairing its two inputs, each of which has a part of the key.
        complete: Sets of members. In each set, at least one member holds the key of every result row: for a left join
            the left input alone, for a full join both inputs together.
        links: The references to the other inputs.
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
        return min((sorted(places) for places in self.complete), key=lambda places: (len(places), places))


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
        keys: The key of the result and the references.
        select: The items of the SELECT list.
        key: The key of the result, named as in the SELECT list, in the order of the members' keys; empty for a stream.
        is_self_join: Whether both inputs are the same stream, so that they have the same rows.
        part_of: The join whose statement it is a part of; empty if it is not a part.
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
    is_self_join: bool = False
    part_of: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources and joins whose columns `bind` needs, each once, in the order of FROM."""
        return tuple(dict.fromkeys(side.source for side in self.sides))

    @property
    def may_be_absent(self) -> bool:
        """Whether parts of the result's key may be null: a row lacks one side of a pairing, here or in an input."""
        is_outer = self.keys.is_many_to_many and self.keys.paired.how != "inner"
        return is_outer or any(self.sides[place].may_be_absent for place in self.keys.members)

    @property
    def reads_stream(self) -> bool:
        """Whether the first input, and therefore the result, is a stream."""
        return self.sides[0].kind == "stream"

    @property
    def is_windowed(self) -> bool:
        """Whether the statement joins two streams within time bounds."""
        return self.reads_stream and self.sides[1].kind == "stream"

    @property
    def kind(self) -> JoinType:
        """The kind of join."""
        if self.is_windowed:
            return "stream-stream"
        if self.reads_stream:
            is_global = all(side.kind == "global_table" for side in self.sides[1:])
            return "stream-global-table" if is_global else "stream-table"
        if self.keys.is_many_to_many:
            return "many-to-many"
        if len(self.sides) > 2:
            return "star"
        return "foreign-key" if self.keys.links else "table-table"
