"""The change feed of a table, read from one version to another."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.address import Address
from lakehouse.sqltext import quote

CHANGE_FEED = "delta.enableChangeDataFeed"
"""The property of a table whose commits record their changes."""


FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that a feed has beside those of its table."""


def read_feed(
    spark: SparkSession, address: Address, after: int, to: int, columns: Sequence[str], where: str = ""
) -> DataFrame:
    """
    Read the feed of versions (after, to].

    Args:
        spark: Our session.
        address: The table.
        after: Last version that is already accounted for.
        to: Last version to read; a version that exists, for Delta clamps a later one in silence.
        columns: The table's columns that are wanted.
        where: Spark SQL that tells which rows are there for a reader, in each image; all of them where it is empty. An
            update from one that is there to one that is not is then a delete.

    Returns:
        The columns, then `_change_type`, `_commit_version`, `_commit_timestamp`. An empty range is the caller's affair.
    """
    chunks = []
    for first in range(after + 1, to + 1, limits.VERSIONS_PER_READ):
        last = min(first + limits.VERSIONS_PER_READ - 1, to)
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", first).option("endingVersion", last)
        chunk = reader.load(address.path) if address.path else reader.table(address.table)
        names = [*columns, *FEED_COLUMNS]
        chunk = chunk.where(where) if where else chunk
        chunks.append(chunk.selectExpr(*map(quote, names)))
    return reduce(DataFrame.unionAll, chunks)
