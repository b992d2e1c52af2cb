"""The change feeds that the joins of one run read: what several take of the same versions is read once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from threading import Lock
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.address import Address
from lakehouse.distorted import Repair, distortion
from lakehouse.feed import FEED_COLUMNS
from lakehouse.feed_ranges import feed_ranges
from lakehouse.session import persisted, unpersist
from lakehouse.sqltext import quote
from lakehouse.tables import Table, read_changes

Rows = Literal["netted", "commit by commit", "inserted"]
"""What the rows of a feed are used for."""

Wanted = Mapping[str, frozenset[str] | None]
"""Of sources that several joins read the columns that these may use, in lower case; None for all."""


class Distorted(Exception):
    """Rows of a feed may differ from those of its table; what was computed of them is to be computed again."""


class Feeds:
    """
    The feeds of a run.

    Args:
        spark: Our session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._wanted: Wanted = {}
        self._kept: dict[str, tuple[int, int, DataFrame]] = {}
        self._lock = Lock()
        self._distorted: set[tuple[Address, int, int]] = set()

    @contextmanager
    def shared(self, wanted: Wanted) -> Iterator[None]:
        """Keep, while joins run one after the other, what the first of them reads of a source for the others."""
        self._wanted = wanted
        try:
            yield
        finally:
            for source in self._wanted:
                self._forget(source)
            self._wanted = {}

    def read(
        self, source: str, table: Table, after: int, to: int, columns: Sequence[str], rows: Rows = "netted"
    ) -> DataFrame:
        """
        Read the feed of versions (after, to], as `read_changes` does; a feed that proved distorted is repaired.

        Args:
            source: Its name in the file; empty for a table that no two joins read.
            table: The table; of one whose rows do not all count for a reader those that do.
            after: Last version that is already accounted for.
            to: Last version to read.
            columns: The columns that are wanted.
            rows: What they are used for: to be netted over all commits or within each commit, or as inserted rows.
        """
        feed = self._read(source, table, after, to, columns)
        if (table.address, after, to) not in self._distorted:
            return feed
        repair = Repair(self._spark, table, feed, after, to)
        if rows == "inserted":
            return repair.inserted()
        return repair.netted() if rows == "netted" else repair.commit_by_commit()

    def refuse_distorted(self, table: Table, after: int, to: int, number: int) -> None:
        """
        See that a feed that was read shows its rows as the table holds them.

        Args:
            table: The table.
            after: The version after which the feed began.
            to: The last version that was read.
            number: How many of its rows may be distorted.

        Raises:
            Distorted: Some may be, and the feed was not repaired; read again, it is.
        """
        if number and (table.address, after, to) not in self._distorted:
            self._distorted.add((table.address, after, to))
            raise Distorted

    @property
    def repairs(self) -> int:
        """How many feeds proved distorted so far."""
        return len(self._distorted)

    def inspect(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> None:
        """Look through a feed whose readers do not, so that it is repaired where it has to be."""
        if (table.address, after, to) in self._distorted:
            return
        feed = self._read(source, table, after, to, columns)
        kinds = {name: table.schema[name].dataType for name in columns}
        # Counted, for a filter would be evaluated on the values of the table, too.
        if feed.agg(F.count_if(F.expr(distortion(kinds)))).collect()[0][0]:
            self._distorted.add((table.address, after, to))

    def _read(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        if source not in self._wanted:
            return self._changes(table, after, to, columns)
        with self._lock:  # an epoch and what its gate reads ahead ask at the same time
            first, last, kept = self._kept.get(source, (after, to, None))
            if kept is None or (first, last) != (after, to):
                wanted = self._wanted[source]
                also = [name for name in table.schema.fieldNames() if wanted is None or name.lower() in wanted]
                names = list(dict.fromkeys((*columns, *also)))
                self._forget(source)  # it was read, and one goes on with the next range
                kept = persisted(self._changes(table, after, to, names))
                self._kept[source] = (after, to, kept)
        if not set(columns) <= set(kept.columns):
            return self._changes(table, after, to, columns)
        return kept.selectExpr(*map(quote, (*columns, *FEED_COLUMNS)))

    def _changes(self, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        """Read the feed of versions (after, to] in the ranges that it is readable in."""
        ranges = feed_ranges(self._spark, table, after, to)
        return reduce(DataFrame.unionAll, (read_changes(self._spark, table, *part, columns) for part in ranges))

    def _forget(self, source: str) -> None:
        """Let go what is kept of a source."""
        if source in self._kept:
            unpersist(self._kept.pop(source)[2])
