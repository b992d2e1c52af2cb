"""The definition of a join for the rest of lakejoin: names, keys and Spark SQL, without parser types."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, NamedTuple

from pipelines.language.sql.syntax import Unit

How = Literal["inner", "left", "right", "full"]
JoinType = Literal[
    "table",
    "semi-join",
    "grouped",
    "table-table",
    "foreign-key",
    "star",
    "many-to-many",
    "stream-table",
    "stream-global-table",
    "stream-stream",
]


@dataclass(frozen=True, kw_only=True)
class InputQuery:
    """
    How the rows of an input follow from those of its source, in Spark SQL over `alias`.`column` of the source.

    Args:
        key: The real names of the key columns of the source, in the order of the input's key.
        columns: The columns of the source that the input needs: the key first, then in the order of the table.
        values: The values of the input's columns, in their order.
        where: The filter, which holds for each row of the input; None for none.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[str, ...]
    where: str | None


@dataclass(frozen=True)
class Grouping:
    """
    How an input follows from rows that it groups: it has one row for each value of its key among them.

    Args:
        rows: The grouped rows, an input with the key of the source, which also has the columns of the group's key.
        values: The columns of the input besides its key, each with its aggregates in Spark SQL over columns of `rows`.
        having: Whether a group is a row of the input, in the same form; None if all are.
        collected: The columns of the rows whose combinations are the column MATCHES of a semi join.
        summed: The columns of the rows of which a sum is taken; `averaged`, an average.
    """

    rows: "Input"
    values: tuple[tuple[str, str], ...] = ()
    having: str | None = None
    collected: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """
    One input of a join.

    Args:
        key: The real names of the key columns, in the same order for all inputs that key the result. Empty for a
            stream.
        columns: The real names of all columns that the statement uses: the key first, then in the order of the table.
            In a self-join of a stream, both inputs list the columns that either uses.
        may_be_absent: Whether parts of the key may be null, but not all of them: the input is the result of a join
            whose rows may lack a side.
        query: The filter and the columns of a subquery, whose names `key` and `columns` are then; None for a source
            that is read as it is.
        grouping: The rows of the source that the input groups; None if each of its rows is one row of the source.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    _: KW_ONLY
    may_be_absent: bool = False
    query: InputQuery | None = None
    grouping: Grouping | None = None

    @property
    def ungrouped(self) -> "Input":
        """The input whose rows are single rows of the source, as its feed has them: this one, or what it groups."""
        return self if self.grouping is None else self.grouping.rows

    @property
    def source_key(self) -> tuple[str, ...]:
        """The key columns of the source, in the order of the input's key."""
        rows = self.ungrouped
        return rows.key if rows.query is None else rows.query.key

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the source that the input needs, the key first."""
        rows = self.ungrouped
        return rows.columns if rows.query is None else rows.query.columns


@dataclass(frozen=True)
class Output:
    """A column of the result: its name, and Spark SQL over `alias`.`column`, every column in backticks."""

    name: str
    expression: str


@dataclass(frozen=True)
class Step:
    """A JOIN clause: its type, and the whole ON condition as Spark SQL with all columns qualified and quoted."""

    how: How
    on: str


@dataclass(frozen=True)
class Link:
    """
    A foreign key, which finds the rows of a referenced input, `input`.

    Args:
        expressions: The expression that equals each column of its key, as Spark SQL over columns of the referencing
            input.
        over: The referencing input; of several inputs, the one through which the reference is followed from a changed
            row of the referenced input; in a join with a stream, where nothing is followed, the last.
        null_safe: The positions of the expressions that `<=>` compares, for which null is a value.
        overs: If the expressions are over several inputs: for each expression its input; else empty.
        parts: The parts of the key that the expressions equal; empty for the whole key.
    """

    input: int
    expressions: tuple[str, ...]
    over: int
    _: KW_ONLY
    null_safe: tuple[int, ...] = ()
    overs: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()

    @property
    def needed(self) -> set[int]:
        """The inputs whose rows must be known to find the rows to which it leads."""
        return set(range(self.input)) if self.overs else {self.over}

    @property
    def places(self) -> set[int]:
        """The inputs from which the parts of the key are taken."""
        return set(self.overs) or {self.over}

    @property
    def followed(self) -> "Link":
        """The reference by the parts of the key that come from the input through which it is followed."""
        if not self.overs:
            return self
        parts = tuple(part for part, index in enumerate(self.overs) if index == self.over)
        null_safe = tuple(number for number, part in enumerate(parts) if part in self.null_safe)
        expressions = tuple(self.expressions[part] for part in parts)
        return Link(self.input, expressions, self.over, null_safe=null_safe, parts=parts)


class Time(NamedTuple):
    """The index of an input, and a watermarked column of its table."""

    input: int
    column: str


class Watermark(NamedTuple):
    """
    A watermarked column and its allowed lateness.

    Args:
        lateness: In microseconds; for an integer column, in its own unit; `unit` is that of the file.
        is_from_upstream: Whether the watermarks come from the ledger of the join that produces the column.
    """

    time: Time
    lateness: int
    unit: Unit = ""
    is_from_upstream: bool = False


class Within(NamedTuple):
    """
    A bound between times of the two inputs of a join: watermark `greater` is at least `lesser` minus the allowance.

    Args:
        allowance: In microseconds; for integer columns, in their own unit.
        unit: The unit in which the statement states the allowance.
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
    The window of a join of two streams, which bounds its state.

    Args:
        watermarks: The watermarked columns, those of the left input first.
        bounds: The bounds of ON between them, at least one in each direction.
        equalities: The equalities of ON, each as Spark SQL over the left and over the right input.
        one_sided: The conditions of ON on the left input alone and on the right input alone, as Spark SQL.
        by_date: Whether all times are dates, whose days have 24 hours.
        is_self_join: Whether both inputs are the same stream; a commit then has one position on both sides.
    """

    watermarks: tuple[Watermark, ...]
    bounds: tuple[Within, ...]
    equalities: tuple[tuple[str, str], ...]
    one_sided: tuple[str, str]
    _: KW_ONLY
    by_date: bool = False
    is_self_join: bool = False

    def of(self, index: int) -> tuple[int, ...]:
        """Return the indexes of the watermarks of an input."""
        return tuple(n for n, watermark in enumerate(self.watermarks) if watermark.time.input == index)

    def limiting(self, watermark: int) -> tuple[Within, ...]:
        """Return the bounds that limit a watermarked column from below."""
        return tuple(bound for bound in self.bounds if bound.greater == watermark)


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """
    A join of two inputs of any cardinality.

    Args:
        over: The input whose columns give the rows of the left input their values: the left input itself, or one that
            it looks up before.
        on: The whole condition of ON as Spark SQL.
        values: For the left and for the right input, what the equalities of ON compare, as Spark SQL.
        null_safe: For each equality whether it is `<=>`, for which null is a value.
        after: The index after the last input.
        looked_up: Further inputs in ON, which the left input looks up before.
    """

    left: int
    right: int
    over: int
    how: How
    on: str
    values: tuple[tuple[str, ...], tuple[str, ...]]
    null_safe: tuple[bool, ...]
    after: int
    looked_up: tuple[int, ...] = ()

    @property
    def links(self) -> tuple[Link, Link]:
        """The value of a row of the left and of the right input, as a reference to the index after the last input."""
        left, right = (tuple(map(_as_value, values, self.null_safe)) for values in self.values)
        return Link(self.after, left, self.over), Link(self.after, right, self.right)

    @property
    def places(self) -> tuple[int, int]:
        """Both inputs."""
        return self.left, self.right

    def side(self, index: int) -> int:
        """Return 0 for the left input, 1 for the right one."""
        return self.places.index(index)

    def other(self, index: int) -> int:
        """Return the other input."""
        return self.places[1 - self.side(index)]

    @property
    def outer(self) -> tuple[bool, bool]:
        """For the left and for the right input, whether unmatched rows of it are in the result."""
        return self.how in ("left", "full"), self.how in ("right", "full")


def _as_value(sql: str, is_null_safe: bool) -> str:
    """Return an expression in a form in which null is a value, if it is one: structs with a null are equal."""
    return f"named_struct('value', {sql})" if is_null_safe else sql


@dataclass(frozen=True, kw_only=True)
class ResolvedQuery:
    """
    A join with all names resolved.

    A join of tables is a join of two tables on their keys, a foreign-key join, or a star of both. A join of a stream
    with tables has the same shape: the stream is the only member, has no key, and refers to each table. A join of two
    streams has a window.

    Args:
        inputs: The inputs in the order of FROM.
        steps: For each input except the first, how it is joined to the inputs before it.
        members: The inputs that have the result's key.
        links: The references to the other inputs, each after the link that reaches its referencing input.
        where: The WHERE condition as Spark SQL, all columns qualified and quoted, or None.
        outputs: The columns of the result, in the order of the SELECT.
        key: Names of the outputs that hold the result's key, in the order of the members' keys; for a pairing the key
            of its left input, then that of its right one.
        looking_up: For a join of a stream with tables: the watermarked columns of the stream.
        carried: For a join with a stream: the outputs that keep a watermark, each with its index in `watermarks`.
        left_out: The source and name of each column that a star would select but that the result does not have.
        pairing: The two inputs whose rows match in any number; None if the members have the same key.
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
    pairing: Pairing | None = None

    @property
    def sharing(self) -> tuple[int, ...]:
        """The inputs whose key is that of the first member; the inputs of a pairing share none."""
        return self.members[1:] if self.pairing is None else ()

    @property
    def paired(self) -> Pairing:
        """The two inputs whose rows match in any number; only for a join that has them."""
        assert self.pairing is not None, f"{self.name} joins by keys"
        return self.pairing

    @property
    def right_of_pairing(self) -> int | None:
        """The right input of a pairing; None for any other join."""
        return None if self.pairing is None else self.pairing.right

    def may_have_nulls(self, index: int) -> bool:
        """Return whether parts of the key of an input may be null; inputs that share a key are looked up by all."""
        if index == len(self.inputs):  # the values of a pairing
            return False
        if self.pairing is None and index in self.members:
            return self.has_absent_keys
        return self.inputs[index].may_be_absent

    @property
    def has_absent_keys(self) -> bool:
        """Whether parts of the key of a result row may be null: a side has no row, here or in an input."""
        is_outer = self.pairing is not None and any(self.pairing.outer)
        return is_outer or any(self.inputs[member].may_be_absent for member in self.members)

    def up_to(self, index: int, outputs: tuple[Output, ...]) -> "ResolvedQuery":
        """Return the join of the inputs before one, without WHERE, as a query for other columns."""
        return replace(
            self,
            inputs=self.inputs[:index],
            steps=self.steps[: index - 1],
            members=tuple(member for member in self.members if member < index),
            links=tuple(link for link in self.links if link.input < index),
            where=None,
            outputs=outputs,
            key=(),
            pairing=self.pairing if self.pairing is not None and self.pairing.right < index else None,
        )

    @property
    def matches_looked_up(self) -> bool:
        """Whether what a row of the left input of a pairing looks up before decides which rows it matches."""
        if self.pairing is None:
            return False
        before = (step.how for step in self.steps[: self.pairing.right - 1])
        return bool(self.pairing.looked_up) or (self.pairing.outer[1] and "inner" in before)

    @property
    def keys_of_sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """For a pairing the names of the key of its left and of its right input in the result."""
        first = len(self.inputs[self.paired.left].key)
        return self.key[:first], self.key[first:]

    @property
    def watermarks(self) -> tuple[Watermark, ...]:
        """The watermarked columns of a join with a stream."""
        return self.looking_up if self.window is None else self.window.watermarks

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources, each once, in the order of FROM."""
        return tuple(dict.fromkeys(each.source for each in self.inputs))

    def places(self, source: str) -> tuple[int, ...]:
        """Return the indexes of the inputs that read a source."""
        return tuple(index for index, each in enumerate(self.inputs) if each.source == source)

    def feed_of(self, index: int) -> int:
        """Return the first input whose rows, and therefore changes, are those of an input."""
        item = self.inputs[index]
        if item.ungrouped.query is not None:
            return index
        return next(place for place in self.places(item.source) if self.inputs[place].ungrouped.query is None)

    @property
    def feeds(self) -> tuple[int, ...]:
        """The inputs whose changes are read: the first that reads a source as it is, and each subquery."""
        return tuple(dict.fromkeys(map(self.feed_of, range(len(self.inputs)))))
