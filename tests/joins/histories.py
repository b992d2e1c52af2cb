"""
Random histories of tables: rows, change feeds and states, and the joins of two that are tried on them.

A history is a script of commits, cut at random into epochs; all of it follows from its seed. Each shape of join comes
with a plain Python evaluation, written without a look at the product: `oracle`. `stars` has the joins of more tables.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

Row = tuple[Any, ...]
Cells = dict[str, Any]
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Shape:
    """
    A join to try.

    Args:
        name: What it is called in the tests.
        types: The types of join that it is tried with.
        sql: The statement; `{how}` stands for the type, `{key}` for the first key column of the preserved side.
        schemas: The columns of the left and of the right table.
        keys: Their key columns.
        domain: For each column the values that it takes; in a key column a None is a row without a key.
        on: Whether two rows meet, when their keys are equal.
        where: Whether a joined row stays; a missing row is None.
        row: The result row of a joined pair, without the key; it follows `outputs`.
        outputs: The names of those columns.
        key_outputs: What the result calls its key.
    """

    name: str
    types: tuple[str, ...]
    sql: str
    schemas: tuple[StructType, StructType]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    domain: dict[str, Sequence[Any]]
    row: Callable[[Cells, Cells], Row]
    outputs: tuple[str, ...]
    key_outputs: tuple[str, ...]
    on: Callable[[Cells, Cells], bool] = lambda left, right: True
    where: Callable[[Cells, Cells], bool] = lambda left, right: True

    names = ("left", "right")
    """What the tables are called."""

    def statement(self, how: str) -> str:
        """Write the statement for a type of join; the key comes from the side that is preserved."""
        pairs = list(zip(*self.keys, strict=True))
        either = [
            f"coalesce(l.{one}, r.{other})" if how == "full" else f"r.{other}" if how == "right" else f"l.{one}"
            for one, other in pairs
        ]
        key = ", ".join(f"{part} AS {name}" for part, name in zip(either, self.key_outputs, strict=True))
        return self.sql.format(how=how.upper(), key=key)


class FeedRow(NamedTuple):
    """A row of a change feed: what happened, and the row."""

    change_type: str
    row: Row


@dataclass
class Commit:
    """A commit to one table: what its feed brings, and all tables after it."""

    side: int
    feed: list[FeedRow]
    states: tuple[list[Row], ...]


@dataclass
class Epoch:
    """What the feed of each table brings, the commits that did, and the tables at the end."""

    feeds: tuple[list[FeedRow], ...]
    states: tuple[list[Row], ...] = ()
    commits: list[Commit] = field(default_factory=list)


@dataclass
class History:
    """A seed, the script that it makes, the tables before the first epoch, and the epochs."""

    seed: str
    script: list[str]
    start: tuple[list[Row], ...]
    epochs: list[Epoch]

    def states(self) -> list[tuple[list[Row], ...]]:
        """Give the tables before the first epoch and after each."""
        return [self.start, *(epoch.states for epoch in self.epochs)]


def _schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


STRING, INT, LONG, DOUBLE = StringType(), IntegerType(), LongType(), DoubleType()
ODD = ("select", "a.b", "x`y", "two words")
"""Column names that need quotes, two of each side."""

WITH_USING = Shape(
    name="using",
    types=("inner", "left", "right", "full"),
    sql="SELECT * EXCEPT (spare) FROM left l {how} JOIN right r USING (Id)",
    schemas=(
        StructType([StructField(name, STRING) for name in ("ID", "select", "spare", "a.b")]),
        StructType([StructField(name, STRING) for name in ("x`y", "id", "two words")]),
    ),
    keys=(("ID",), ("id",)),
    domain={"ID": ["a", "b", "", None], "select": ["1", "2", None], "a.b": ["3", None], "spare": ["8", "9"]}
    | {"id": ["a", "b", "", None], "x`y": ["5", "6", None], "two words": ["7", None]},
    row=lambda left, right: tuple(side.get(name) for side, name in zip((left, left, right, right), ODD, strict=True)),
    outputs=ODD,
    key_outputs=("id",),
)

COMPOSITE = Shape(
    name="composite",
    types=("inner", "left", "right", "full"),
    sql=(
        "SELECT coalesce(l.v, 0) + coalesce(r.w, 0) AS total, {key}, l.x AS x, l.v IS NULL AND r.w IS NULL AS bare,"
        " CASE WHEN l.v > r.w THEN 'more' WHEN l.v <= r.w THEN 'less' END AS which, r.y AS y FROM left l {how} JOIN"
        " right r ON r.n = l.number AND l.name = r.a WHERE coalesce(l.v, r.w, 1) <> 2 OR r.y > 0"
    ),
    schemas=(_schema(number=INT, v=INT, name=STRING, x=DOUBLE), _schema(a=STRING, n=LONG, w=INT, y=DOUBLE)),
    keys=(("name", "number"), ("a", "n")),
    domain={
        "name": ["a", "a", "b", None],
        "number": [0, 7, 7, None],
        "v": [0, 1, 2, None],
        "x": [NAN, 0.0, -0.0, 1.5, None],
    }
    | {"a": ["a", "a", "b", None], "n": [0, 7, 7, None], "w": [0, 1, 2, None], "y": [NAN, 0.0, -0.0, 1.5, None]},
    row=lambda left, right: _composite_row(left.get("v"), right.get("w"), left.get("x"), right.get("y")),
    where=lambda left, right: _composite_where(left.get("v"), right.get("w"), right.get("y")),
    outputs=("total", "x", "bare", "which", "y"),
    key_outputs=("k1", "k2"),
)

CONDITIONS = Shape(
    name="conditions",
    types=("inner", "left", "right"),
    sql=(
        "SELECT {key}, l.v AS v, r.w AS w FROM left l {how} JOIN right r"
        " ON l.v >= r.w AND l.k = r.k AND r.kind <> 'off' WHERE l.v IS NULL OR l.v < 3"
    ),
    schemas=(_schema(k=STRING, v=INT), _schema(k=STRING, w=INT, kind=STRING)),
    keys=(("k",), ("k",)),
    domain={
        "k": ["a", "a", "a", "a", "b", None],
        "v": [0, 1, 1, 2, 2, 2, 2, 3, None],
        "w": [-2, -1, 0, 0, 1, 1, 2, None],
        "kind": ["on", "on", "on", "on", "on", "on", "off", None],
    },
    row=lambda left, right: (left.get("v"), right.get("w")),
    on=lambda left, right: (
        None not in (left["v"], right["w"], right["kind"]) and left["v"] >= right["w"] and right["kind"] != "off"
    ),
    where=lambda left, right: left.get("v") is None or left["v"] < 3,
    outputs=("v", "w"),
    key_outputs=("k",),
)

SHAPES = (WITH_USING, COMPOSITE, CONDITIONS)


def _composite_row(v: int | None, w: int | None, x: float | None, y: float | None) -> Row:
    which = None if v is None or w is None else "more" if v > w else "less"
    return ((v or 0) + (w or 0), x, v is None and w is None, which, y)


def _composite_where(v: int | None, w: int | None, y: float | None) -> bool:
    first = v if v is not None else w if w is not None else 1
    return first != 2 or (y is not None and (y != y or y > 0))


def oracle(shape: Shape, how: str, left: Sequence[Row], right: Sequence[Row]) -> dict[Row, Row]:
    """Evaluate the join in plain Python: every pair of rows, then the rows that met nothing; the result by key."""
    tables = [
        [dict(zip(schema.fieldNames(), row, strict=True)) for row in rows]
        for schema, rows in zip(shape.schemas, (left, right), strict=True)
    ]
    here, there = (
        [(key_of(cells, key), cells) for cells in rows] for rows, key in zip(tables, shape.keys, strict=True)
    )
    here, there = ([(key, cells) for key, cells in rows if None not in key] for rows in (here, there))
    pairs = [(key, one, other) for key, one in here for same, other in there if key == same and shape.on(one, other)]
    met = {key for key, _, _ in pairs}
    if how in ("left", "full"):
        pairs += [(key, one, {}) for key, one in here if key not in met]
    if how in ("right", "full"):
        pairs += [(key, {}, other) for key, other in there if key not in met]
    return {key: tuple(map(plain, shape.row(one, other))) for key, one, other in pairs if shape.where(one, other)}


def key_of(cells: Cells, key: Sequence[str]) -> Row:
    """Give the key of a row."""
    return tuple(cells[name] for name in key)


def plain(value: Any) -> Any:
    """Make values equal in Python where they are in Spark: NaN is NaN, and -0.0 is 0.0."""
    return ("NaN" if value != value else value + 0.0) if isinstance(value, float) else value


class Tables(Protocol):
    """What a history needs to know of a shape: for each table its name, columns and key, and the values to take."""

    names: Sequence[str]
    schemas: Sequence[StructType]
    keys: Sequence[Sequence[str]]
    domain: dict[str, Sequence[Any]]


class Writer:
    """One table of a history, and the ways in which people change tables."""

    def __init__(self, shape: Tables, side: int, chance: random.Random) -> None:
        self.schema = shape.schemas[side].fieldNames()
        self.key = [self.schema.index(name) for name in shape.keys[side]]
        self.domain = [shape.domain[name] for name in self.schema]
        self.chance = chance
        self.rows: list[Row] = []
        self.past: list[list[Row]] = []

    def commit(self) -> tuple[str, list[FeedRow]]:
        """Change the table once, at random; deletes are frequent."""
        ways = [self.upsert, self.amend, self.several] * 5 + [self.delete] * 5 + [self.move, self.rekey] * 2
        way = self.chance.choice([*ways, self.touch, self.overwrite, self.restore, self.clear])
        feed = way()
        self.past.append(list(self.rows))
        return f"{way.__name__} {feed}", feed

    def upsert(self) -> list[FeedRow]:
        """Write a row, which may be there, may be the same, and may be one without a key."""
        return self._put(tuple(self.chance.choice(values) for values in self.domain))

    def amend(self) -> list[FeedRow]:
        """Give a row new values under its key."""
        if not self.rows:
            return []
        old = self.chance.choice(self.rows)
        pairs = enumerate(zip(old, self.domain, strict=True))
        return self._put(tuple(cell if n in self.key else self.chance.choice(values) for n, (cell, values) in pairs))

    def several(self) -> list[FeedRow]:
        """Write rows with different keys in one commit, as MERGE does."""
        rows = {self._key(row): row for row in (tuple(map(self.chance.choice, self.domain)) for _ in range(3))}
        return [change for row in rows.values() for change in self._put(row)]

    def delete(self) -> list[FeedRow]:
        """Delete a row."""
        return self._delete(self.chance.choice(self.rows)) if self.rows else []

    def move(self) -> list[FeedRow]:
        """Delete a row and insert its values under a free key, in one commit."""
        moved = self._moved()
        if moved is None:
            return []
        old, new = moved
        self.rows.append(new)
        return [*self._delete(old), FeedRow("insert", new)]

    def rekey(self) -> list[FeedRow]:
        """Update the key of a row: the old key's preimage, the new key's postimage."""
        moved = self._moved()
        if moved is None:
            return []
        old, new = moved
        self.rows[self.rows.index(old)] = new
        return [FeedRow("update_preimage", old), FeedRow("update_postimage", new)]

    def touch(self) -> list[FeedRow]:
        """Update every row to what it is."""
        return [FeedRow(kind, row) for row in self.rows for kind in ("update_preimage", "update_postimage")]

    def overwrite(self) -> list[FeedRow]:
        """Overwrite the table with itself."""
        return self._replace(list(self.rows))

    def restore(self) -> list[FeedRow]:
        """Restore an earlier version."""
        return self._replace(list(self.chance.choice(self.past)) if self.past else [])

    def clear(self) -> list[FeedRow]:
        """Delete all rows."""
        return [change for row in list(self.rows) for change in self._delete(row)]

    def _put(self, row: Row) -> list[FeedRow]:
        for place, old in enumerate(self.rows):
            if self._key(old) == self._key(row):
                self.rows[place] = row
                return [FeedRow("update_preimage", old), FeedRow("update_postimage", row)]
        self.rows.append(row)
        return [FeedRow("insert", row)]

    def _delete(self, row: Row) -> list[FeedRow]:
        self.rows.remove(row)
        return [FeedRow("delete", row)]

    def _replace(self, rows: list[Row]) -> list[FeedRow]:
        gone, self.rows = self.rows, rows
        return [*(FeedRow("insert", row) for row in rows), *(FeedRow("delete", row) for row in gone)]

    def _moved(self) -> tuple[Row, Row] | None:
        """Choose a row and give it a key that no row has, if there is one within a few tries."""
        if not self.rows:
            return None
        old = self.chance.choice(self.rows)
        cells = [self.chance.choice(self.domain[n]) if n in self.key else cell for n, cell in enumerate(old)]
        taken = {self._key(row) for row in self.rows}
        return None if self._key(tuple(cells)) in taken else (old, tuple(cells))

    def _key(self, row: Row) -> Row:
        return tuple(row[place] for place in self.key)


def history(shape: Tables, seed: str, epochs: int = 4, filled: int = 4) -> History:
    """
    Make up a history.

    Args:
        shape: The join whose tables they are.
        seed: What all of it follows from.
        epochs: How many epochs there are, of up to five commits each; some have none.
        filled: How many commits there are at most for each table before the first epoch, of three rows each.

    Returns:
        The history; the rows of each epoch's feeds are in no order, as Delta gives them.
    """
    chance = random.Random(seed)
    sides = range(len(shape.names))
    writers = [Writer(shape, side, chance) for side in sides]
    script = []
    for _ in range(chance.randrange(filled * len(writers))):
        chance.choice(writers).several()
    start = tuple(list(writer.rows) for writer in writers)
    script.append("start: " + ", ".join(f"{name} {rows}" for name, rows in zip(shape.names, start, strict=True)))
    made = []
    for number in range(epochs):
        epoch = Epoch(tuple([] for _ in sides))
        for _ in range(chance.choice([0, 1, 1, 2, 3, 4, 5])):
            side = chance.choice(sides)
            what, feed = writers[side].commit()
            script.append(f"epoch {number + 1}, {shape.names[side]}: {what}")
            epoch.feeds[side].extend(feed)
            epoch.commits.append(Commit(side, list(feed), tuple(list(writer.rows) for writer in writers)))
        for feed in epoch.feeds:
            chance.shuffle(feed)
        epoch.states = tuple(list(writer.rows) for writer in writers)
        made.append(epoch)
    return History(seed, script, start, made)
