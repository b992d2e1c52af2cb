"""
Random histories of tables: rows, change feeds and states. A history is a script of commits, cut at random into epochs;
all of it follows from its seed.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql.types import StructType

Row = tuple[Any, ...]
NAN = float("nan")


class FeedRow(NamedTuple):
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
        return [self.start, *(epoch.states for epoch in self.epochs)]


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
        return self._replace(list(self.rows))

    def restore(self) -> list[FeedRow]:
        return self._replace(list(self.chance.choice(self.past)) if self.past else [])

    def clear(self) -> list[FeedRow]:
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
