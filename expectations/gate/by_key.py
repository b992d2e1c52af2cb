"""
The rows of a table with one of some keys: by literals, which skip files, and by a join on the key.

The joins write their literals by the same code. A mistake there must not hide here, so a predicate has to hold for each
key that it was made from, and where a scan is cheap it has to find the rows that a join on the key finds.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.pruning import Pruning, pruning
from lakehouse.small import TooMuch, to_driver
from lakehouse.sqltext import numbered, quote
from lakehouse.stage import fields_of

KEY = "_lakejoin_key"
"""A working column."""

NO_LITERALS = Pruning((), None)


class LiteralsMiss(Exception):
    """A literal predicate misses rows with a key that it was made from; the text is the finding."""


def trusted(keys: DataFrame) -> Pruning:
    """
    Learn what keys prune to, and check that the predicate holds for each of them.

    Args:
        keys: `key` (struct<k0, …>), each key once, no part null. No file is read if they are on the driver.

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
            raise LiteralsMiss(f"the literal predicate misses the key {missed[0][0]}, which it was made from")
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
    Check that literals find the rows of a table that a join on the key finds, for a sample of the keys.

    Args:
        name: What messages call the table.
        rows: Its rows; only the key columns are read.
        key: Its key columns.
        keys: The keys, as `key` (struct<k0, …>).
        known: What these prune to.
        joined: Keeps the rows that have one of some keys, by a join.

    Raises:
        LiteralsMiss: They find other rows.
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
        raise LiteralsMiss(
            f"literals miss rows of {name} that a join on the key finds, or find others: key {found[0][0]}"
        )


def with_keys(rows: DataFrame, key: Sequence[str], own: str, keys: DataFrame, known: Pruning) -> DataFrame:
    """
    Leave the rows that have one of some keys.

    Args:
        rows: The rows.
        key: Their key columns.
        own: Spark SQL of their key (struct<k0, …>).
        keys: The keys, as `key`.
        known: What these prune to.
    """
    predicate = known.predicate(key)
    found = rows if predicate is None else rows.where(predicate)
    if known.exact:
        return found
    kind = found.select(F.expr(own)).schema[0].dataType
    wanted = keys.select(F.col("key").cast(kind).alias(KEY))
    return found.withColumn(KEY, F.expr(own)).join(F.broadcast(wanted), on=KEY, how="left_semi").drop(KEY)


def driver_copy(rows: DataFrame) -> DataFrame:
    """Bring rows to the driver, so that no later plan reads them again, unless they are many."""
    try:
        return to_driver(rows).frame
    except TooMuch:
        return rows
