"""
Find the rows of a table by keys: by literals, which skip files, and by a join on the key.

The joins build their literals with the same code. To detect a mistake in that code, the gate checks that a predicate
holds for each key that it was built from, and, if a scan is cheap, that it finds the same rows as a join on the key.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.pruning import Pruning, pruning
from lakehouse.small import TooLarge, to_driver
from lakehouse.sqltext import numbered, quote
from lakehouse.stage import fields_of

KEY = "_lakejoin_key"
"""The working column of the key."""

NO_LITERALS = Pruning((), None)


class LiteralsMiss(Exception):
    """A literal predicate misses rows with a key that it was built from; the text is the finding."""


def trusted(keys: DataFrame) -> Pruning:
    """
    Return the pruning of keys, after checking that its predicate holds for each of them.

    Args:
        keys: `key` (struct<k0, …>), each key once, no part null. If they are on the driver, no file is read.

    Raises:
        LiteralsMiss: The predicate does not hold for a key.
    """
    known = pruning(keys)
    predicate = known.predicate(fields_of(keys, "key").fieldNames(), "key.")
    if predicate is not None:
        missed = (
            keys.where(f"NOT coalesce({predicate}, FALSE)")
            .select(F.expr("make_valid_utf8(to_json(key))"))
            .limit(1)
            .collect()
        )
        if missed:
            raise LiteralsMiss(f"the literal predicate misses the key {missed[0][0]}, which it was built from")
    return known


def check_rows(
    name: str,
    rows: DataFrame,
    key: Sequence[str],
    keys: DataFrame,
    known: Pruning,
    joined: Callable[[DataFrame, DataFrame], DataFrame],
) -> None:
    """
    Check that the literals find the same rows of a table as a join on the key, for a sample of the keys.

    Args:
        name: The name of the table in messages.
        rows: Its rows; only the key columns are read.
        key: Its key columns.
        keys: The keys, as `key` (struct<k0, …>).
        known: The pruning of these keys.
        joined: Filters rows to the given keys by a join.

    Raises:
        LiteralsMiss: The literals find different rows.
    """
    predicate = known.predicate(key)
    if predicate is None:
        return
    sample = driver_copy(keys.limit(limits.SAMPLED_KEYS))

    def counted(part: DataFrame, times: int) -> DataFrame:
        own = F.expr(numbered(map(quote, key))).alias(KEY)
        return joined(part, sample).select(own, F.lit(times).alias("times"))

    both = counted(rows.where(predicate), 1).unionAll(counted(rows, -1))
    differing = both.groupBy(KEY).agg(F.sum("times").alias("surplus")).where("surplus <> 0")
    found = differing.select(F.expr(f"make_valid_utf8(to_json({KEY}))")).limit(1).collect()
    if found:
        raise LiteralsMiss(f"the literals and a join on the key find different rows of {name}: key {found[0][0]}")


def with_keys(rows: DataFrame, key: Sequence[str], own: str, keys: DataFrame, known: Pruning) -> DataFrame:
    """
    Filter rows to the given keys.

    Args:
        rows: The rows.
        key: Their key columns.
        own: Spark SQL of their key (struct<k0, …>).
        keys: The keys, as `key`.
        known: The pruning of these keys.
    """
    predicate = known.predicate(key)
    found = rows if predicate is None else rows.where(predicate)
    if known.exact:
        return found
    kind = found.select(F.expr(own)).schema[0].dataType
    wanted = keys.select(F.col("key").cast(kind).alias(KEY))
    return found.withColumn(KEY, F.expr(own)).join(F.broadcast(wanted), on=KEY, how="left_semi").drop(KEY)


def driver_copy(rows: DataFrame) -> DataFrame:
    """Collect rows to the driver, so that no later plan reads them again; return them as they are if too large."""
    try:
        return to_driver(rows).frame
    except TooLarge:
        return rows
