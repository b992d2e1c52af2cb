"""The change feed of a table, read from one version to another."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.values.sqltext import quote

CHANGE_FEED = "delta.enableChangeDataFeed"
"""The table property with which commits record their changes."""


FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that a feed adds to the columns of its table."""


def read_feed(
    spark: SparkSession, address: Address, after: int, to: int, columns: Sequence[str], where: str = ""
) -> DataFrame:
    """
    Read the feed of versions (after, to]: the columns, then `_change_type`, `_commit_version`, `_commit_timestamp`.

    Args:
        after: The last version that is already processed. The range must not be empty.
        to: The last version to read. It must exist, because Delta silently clamps a later version.
        where: A Spark SQL predicate for the rows that exist for a reader, applied to each image; empty for all rows. An
            update from a row that exists to a row that does not then counts as a delete.
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
