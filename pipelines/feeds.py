"""The change feeds that the joins of one run read: what several take of the same versions is read once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.feed import FEED_COLUMNS
from lakehouse.session import let_go, persisted
from lakehouse.sqltext import quote
from lakehouse.tables import Table, read_changes

Wanted = Mapping[str, frozenset[str] | None]
"""Of sources that several joins read the columns that these may use, in lower case; None for all."""


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

    def read(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        """
        Read the feed of versions (after, to], as `read_changes` does.

        Args:
            source: Its name in the file.
            table: The table; of one whose rows are not all there for a reader those that are.
            after: Last version that is already accounted for.
            to: Last version to read.
            columns: The columns that are wanted.
        """
        if source not in self._wanted:
            return read_changes(self._spark, table, after, to, columns)
        with self._lock:  # an epoch and what its gate reads ahead ask at the same time
            first, last, kept = self._kept.get(source, (after, to, None))
            if kept is None or (first, last) != (after, to):
                wanted = self._wanted[source]
                also = [name for name in table.schema.fieldNames() if wanted is None or name.lower() in wanted]
                names = list(dict.fromkeys((*columns, *also)))
                self._forget(source)  # it was read, and one goes on with the next range
                kept = persisted(read_changes(self._spark, table, after, to, names))
                self._kept[source] = (after, to, kept)
        if not set(columns) <= set(kept.columns):
            return read_changes(self._spark, table, after, to, columns)
        return kept.select(*(F.col(quote(name)) for name in (*columns, *FEED_COLUMNS)))

    def _forget(self, source: str) -> None:
        """Let go what is kept of a source."""
        if source in self._kept:
            let_go(self._kept.pop(source)[2])
