"""The change feeds that the joins of one run read; a version range that several joins need is read once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from threading import Lock
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.errors.address import Address
from lakehouse.feed.distorted import Repair, distortion
from lakehouse.feed.feed_ranges import feed_ranges
from lakehouse.session.engine import Engine
from lakehouse.session.session import persisted, unpersist
from lakehouse.tables.feed import FEED_COLUMNS
from lakehouse.tables.table import Table, read_changes
from lakehouse.values.sqltext import quote

Rows = Literal["netted", "commit by commit", "inserted"]
"""How the rows of a feed are used."""

Wanted = Mapping[str, frozenset[str] | None]
"""The columns that joins may use of each source that several of them read, in lower case; None for all columns."""


class Distorted(Exception):
    """Rows of a feed may differ from the rows of its table; results computed from them must be computed again."""


class Feeds:
    """The feeds of a run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted: Wanted = {}
        self._cached: dict[str, tuple[int, int, DataFrame]] = {}
        self._lock = Lock()
        self._distorted: set[tuple[Address, int, int]] = set()

    @contextmanager
    def shared(self, wanted: Wanted) -> Iterator[None]:
        """Cache the feeds of the wanted sources while joins run one after the other, so they are read only once."""
        self._wanted = wanted
        try:
            yield
        finally:
            for source in self._wanted:
                self._forget(source)
            self._wanted = {}

    def read(
        self,
        source: str,
        table: Table,
        after: int,
        to: int,
        columns: Sequence[str],
        rows: Rows = "netted",
    ) -> DataFrame:
        """
        Read the feed of versions (after, to], as `read_changes` does, and repair it if it is known to be distorted.

        The source is empty for a table that only one join reads. The rows are used netted over all commits, netted
        within each commit, or as inserted rows.
        """
        feed = self._read(source, table, after, to, columns)
        if (table.address, after, to) not in self._distorted:
            return feed
        repair = Repair(self._engine.spark, table, feed, after, to)
        if rows == "inserted":
            return repair.inserted()
        return repair.netted() if rows == "netted" else repair.commit_by_commit()

    def refuse_distorted(self, table: Table, after: int, to: int, number: int) -> None:
        """
        Raise `Distorted` if rows of the feed of versions (after, to] may differ from the table's; the next `read`
        repairs it.

        `number` is the number of such rows; a feed that is repaired already is not refused.
        """
        if number and (table.address, after, to) not in self._distorted:
            self._distorted.add((table.address, after, to))
            raise Distorted

    @property
    def repairs(self) -> int:
        """The number of feeds found to be distorted so far."""
        return len(self._distorted)

    def inspect(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> None:
        """Check a feed for distorted rows if its readers do not, so that the next `read` repairs it if needed."""
        if (table.address, after, to) in self._distorted:
            return
        feed = self._read(source, table, after, to, columns)
        kinds = {name: table.schema[name].dataType for name in columns}
        # Count with an aggregate: Spark would evaluate a filter on the values of the table, too.
        if feed.agg(F.count_if(F.expr(distortion(kinds)))).collect()[0][0]:
            self._distorted.add((table.address, after, to))

    def _read(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        if source not in self._wanted:
            return self._changes(table, after, to, columns)
        with self._lock:  # an epoch and the prefetch of its gate may read at the same time
            first, last, cached = self._cached.get(source, (after, to, None))
            if cached is None or (first, last) != (after, to):
                wanted = self._wanted[source]
                shared = [name for name in table.schema.fieldNames() if wanted is None or name.lower() in wanted]
                names = list(dict.fromkeys((*columns, *shared)))
                self._forget(source)  # earlier ranges are not read again
                cached = persisted(self._changes(table, after, to, names))
                self._cached[source] = (after, to, cached)
        if not set(columns) <= set(cached.columns):
            return self._changes(table, after, to, columns)
        return cached.selectExpr(*map(quote, (*columns, *FEED_COLUMNS)))

    def _changes(self, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        """Read the feed of versions (after, to], one readable range at a time."""
        ranges = feed_ranges(self._engine, table, after, to)
        return reduce(DataFrame.unionAll, (read_changes(self._engine.spark, table, *part, columns) for part in ranges))

    def _forget(self, source: str) -> None:
        if source in self._cached:
            unpersist(self._cached.pop(source)[2])
