"""
Joins of any number of tables to try, and their evaluation in plain Python, written without a look at the product.
Predicates and rows are functions of the rows joined so far, in the order of FROM; a missing row is None all over.
"""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from .histories import Row, plain

How = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The columns of a table and its key columns, of which some, but not all, may be None if a side may be absent."""

    schema: StructType
    key: tuple[str, ...]
    may_be_absent: bool = False

    def is_key(self, key: Row) -> bool:
        return any(part is not None for part in key) if self.may_be_absent else None not in key


def table(*key: str, **columns: DataType) -> Table:
    return Table(StructType([StructField(name, kind) for name, kind in columns.items()]), key)


@dataclass(frozen=True)
class Reference:
    """How rows of one table name a row of another: `by` gives the key, of which any part may be None."""

    over: str
    to: str
    by: Callable[[Any], Row]


@dataclass(frozen=True)
class Through:
    """What a subquery makes of a row of its table: the values of its columns, or None if the filter is not true."""

    columns: tuple[str, ...]
    of: Callable[[Any], Row | None]


@dataclass(frozen=True, eq=False)
class Star:
    """
    A join to try.

    Args:
        name: What it is called in the tests.
        types: The combinations of types, a type for each JOIN.
        sql: The statement; `{0}`, `{1}`, … stand for the types.
        tables: The tables by name.
        domain: For each column the values that it takes; in a key column a None is a row without a key.
        inputs: The table of each input.
        on: For each JOIN whether a row meets rows joined so far.
        where: Whether a joined row stays.
        key: The key of a joined row.
        row: Its other columns; they follow `outputs`.
        outputs: The names of those columns.
        key_outputs: What the result calls its key.
        references: The foreign keys.
        may_be_absent: Whether parts of a key are None where a row of its table is absent, but never all of them.
        through: The subqueries among the inputs.
        declared: The keys of tables in the file that are unique only among the rows that a subquery takes.
        looks: The tables in which a joined row looks for rows: all of their rows follow it where functions take it.
    """

    name: str
    types: tuple[How, ...]
    sql: str
    tables: Mapping[str, Table]
    domain: dict[str, Sequence[Any]]
    inputs: tuple[str, ...]
    on: tuple[Callable[..., bool], ...]
    key: Callable[..., Row]
    row: Callable[..., Row]
    outputs: tuple[str, ...]
    key_outputs: tuple[str, ...] = ("id",)
    where: Callable[..., bool] = lambda *joined: True
    references: tuple[Reference, ...] = field(default=())
    may_be_absent: bool = False
    through: Mapping[int, Through] = field(default_factory=dict)
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    looks: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tables)

    def is_key(self, key: Row) -> bool:
        return any(part is not None for part in key) if self.may_be_absent else None not in key

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the tables that are results of joins whose rows may lack a side."""
        return tuple(name for name, one in self.tables.items() if one.may_be_absent)

    @property
    def schemas(self) -> tuple[StructType, ...]:
        return tuple(one.schema for one in self.tables.values())

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return tuple(one.key for one in self.tables.values())

    def statement(self, how: How) -> str:
        return self.sql.format(*(part.upper() for part in how))

    def rows(self, name: str, rows: Sequence[Row]) -> list[Any]:
        """Name the columns of a table's rows, and leave out the rows without a key."""
        kind = self._kind(name)
        named = [kind(*row) for row in rows]
        return [row for row in named if self.tables[name].is_key(self.key_of(name, row))]

    def key_of(self, name: str, row: Any) -> Row:
        return tuple(getattr(row, column) for column in self.tables[name].key)

    def input_rows(self, place: int, rows: Sequence[Row]) -> list[Any]:
        """Name the columns of an input's rows, given the rows of its table."""
        named, query = self.rows(self.inputs[place], rows), self.through.get(place)
        if query is None:
            return named
        kind = namedtuple("Taken", query.columns)
        return [kind(*taken) for taken in map(query.of, named) if taken is not None]

    def missing(self, place: int) -> Any:
        """Give the row of an input that stands for none."""
        query = self.through.get(place)
        kind = self._kind(self.inputs[place]) if query is None else namedtuple("Taken", query.columns)
        return kind(*(None for _ in kind._fields))

    def _kind(self, name: str) -> Any:
        return namedtuple(name, self.tables[name].schema.fieldNames(), rename=True)  # odd names are read by position


def equal(*pairs: Any) -> bool:
    """Tell whether the values of a pair are equal, and those of the next, as SQL does: null equals nothing."""
    return all(one is not None and one == other for one, other in zip(pairs[::2], pairs[1::2], strict=True))


def first(*values: Any) -> Any:
    """Give the first value that is not null, as COALESCE does."""
    return next((value for value in values if value is not None), None)


def oracle(star: Star, how: How, state: Sequence[Sequence[Row]]) -> dict[Row, Row]:
    """Evaluate a join: for each JOIN every pair of rows, then the rows that met nothing."""
    tables = dict(zip(star.names, state, strict=True))
    inputs = [star.input_rows(place, tables[name]) for place, name in enumerate(star.inputs)]
    joined = [(row,) for row in inputs[0]]
    for step, (kind, on) in enumerate(zip(how, star.on, strict=True), start=1):
        before = tuple(map(star.missing, range(step)))
        joined = list(_join(kind, joined, inputs[step], on, before, star.missing(step)))
    looked = [star.rows(name, tables[name]) for name in star.looks]
    result: dict[Row, Row] = {}
    for rows in ((*each, *looked) for each in joined):
        if star.where(*rows):
            key = star.key(*rows)
            assert star.is_key(key), rows
            assert key not in result, rows
            result[key] = tuple(map(plain, star.row(*rows)))
    return result


def _join(how: str, left: Sequence[Row], right: Sequence[Any], on: Any, before: Row, missing: Any) -> Iterator[Row]:
    pairs = [(here, there) for here in range(len(left)) for there in range(len(right)) if on(*left[here], right[there])]
    yield from ((*left[here], right[there]) for here, there in pairs)
    if how in ("left", "full"):
        met = {here for here, _ in pairs}
        yield from ((*rows, missing) for here, rows in enumerate(left) if here not in met)
    if how in ("right", "full"):
        met = {there for _, there in pairs}
        yield from ((*before, row) for there, row in enumerate(right) if there not in met)
