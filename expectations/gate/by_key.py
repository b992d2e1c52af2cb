"""
Find the rows of a table by keys: by literals, which skip files, and by a join on the key.

The joins build their literals with the same code, and use the same reader of few rows. To detect a mistake there, the
gate checks that a predicate holds for each key that it was built from; if a scan is cheap, that the rows found are
those that a join on the key finds; and that Spark reads the same values as the reader of few rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.pruning import Pruning, pruning
from lakehouse.small import TooLarge, carried, to_driver
from lakehouse.sqltext import numbered, quote, row_struct, text
from lakehouse.stage import fields_of
from lakehouse.values import identical

KEY = "_lakejoin_key"
"""The working column of the key."""

NO_LITERALS = Pruning((), None)

Reader = Callable[[Pruning], DataFrame | None]
"""Reads the rows of a table with some keys without Spark, maybe also others; returns None if only Spark can do it."""


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


@dataclass(frozen=True)
class Lookup:
    """
    A look-up of some keys in a table by literals.

    Args:
        name: The name of the table in messages.
        rows: Its rows, read by Spark.
        key: Its key columns.
        keys: The keys, as `key` (struct<k0, …>), each once.
        known: The pruning of these keys.
        joined: Filters rows to the given keys by a join.
        found: The rows that were found without Spark; None if Spark finds them by the literals.
        size: The size of the table in bytes.
    """

    name: str
    rows: DataFrame
    key: tuple[str, ...]
    keys: DataFrame
    known: Pruning
    joined: Callable[[DataFrame, DataFrame], DataFrame]
    found: DataFrame | None = None
    size: int = 0


def check_rows(lookups: Sequence[Lookup], salt: str) -> None:
    """
    Check the rows that were found in each table, for a sample of the keys.

    A join on the key has to find the same rows, unless the table is large. Rows that were found without Spark must have
    the values that Spark reads.

    Args:
        lookups: The look-ups.
        salt: Chooses the sample.

    Raises:
        LiteralsMiss: Different rows were found.
    """
    differing = [frame for lookup in lookups if lookup.known.wanted for frame in _differing(lookup, salt)]
    found = first_of(differing)
    if found is not None:
        raise LiteralsMiss(f"two ways to read {found.name} find different rows with the key {found.key}")


def shown(name: str, keys: DataFrame, column: str) -> DataFrame:
    """Return `name`, that of a table, and `key`, the JSON of the keys in a column."""
    return keys.select(F.lit(name).alias("name"), F.expr(f"make_valid_utf8(to_json({column}))").alias("key"))


def first_of(found: Sequence[DataFrame]) -> Row | None:
    """Return the first row of frames with `name` and `key`; None if they are empty."""
    if not found:
        return None
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    first = reduce(DataFrame.unionAll, found).agg(F.min(F.struct("name", "key")).alias("first"))
    row = first.select("first.*").collect()[0]
    return None if row.name is None else row


def _differing(lookup: Lookup, salt: str) -> list[DataFrame]:
    """Return frames with `name` and `key` (JSON) of the rows that two ways do not find equally often."""
    # A hash needs no job if the keys are on the driver. Twice the number, since a hash takes only about its share.
    share = max((lookup.known.keys or limits.LISTED_KEYS) // (2 * limits.SAMPLED_KEYS), 1)
    sample = lookup.keys.where(f"pmod(xxhash64('literals', key, {text(salt)}), {share}) = 0")

    def compared(some: DataFrame, others: DataFrame, *values: str) -> DataFrame:
        own = F.expr(numbered(map(quote, lookup.key))).alias(KEY)
        parts = [
            lookup.joined(part, sample).select(own, *map(F.expr, values), F.lit(times).alias("times"))
            for part, times in ((some, 1), (others, -1))
        ]
        both = reduce(DataFrame.unionAll, parts)
        differing = both.groupBy(*both.columns[:-1]).agg(F.sum("times").alias("surplus")).where("surplus <> 0")
        return shown(lookup.name, differing, KEY)

    predicate = lookup.known.predicate(lookup.key)
    assert predicate is not None, "a look-up by literals has a predicate"
    if lookup.found is None:
        return [compared(lookup.rows.where(predicate), lookup.rows)] if lookup.size <= limits.SCANNED_BYTES else []
    row = numbered(identical(quote(field.name), field.dataType) for field in lookup.rows.schema)
    values = f"{row} AS row"
    if lookup.size <= limits.LITERAL_BYTES:
        return [compared(lookup.found, lookup.rows, values)]
    few = trusted(driver_copy(sample)).predicate(lookup.key)
    by_value = compared(lookup.found, lookup.rows if few is None else lookup.rows.where(few), values)
    return [by_value, *([compared(lookup.found, lookup.rows)] if lookup.size <= limits.SCANNED_BYTES else [])]


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


def found_directly(rows: DataFrame, own: str, keys: DataFrame, known: Pruning) -> DataFrame:
    """Filter rows that a `Reader` returned to the given keys; the arguments are those of `with_keys`."""
    return rows if known.exact else with_keys(rows, (), own, keys, NO_LITERALS)


def driver_copy(rows: DataFrame) -> DataFrame:
    """Collect rows to the driver, so that no later plan reads them again; return them as they are if too large."""
    try:
        return to_driver(rows).frame
    except TooLarge:
        return rows


def driver_copies(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Collect several frames to the driver in one job; see `driver_copy`."""
    together = [number for number, frame in enumerate(frames) if carried(frame.schema)]
    if len(together) < 2:
        return [driver_copy(frame) for frame in frames]
    structs = (
        frames[number].select(F.expr(row_struct(frames[number].columns)).alias(f"of{number}")) for number in together
    )
    try:
        rows = to_driver(reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), structs)).frame
    except TooLarge:
        return [driver_copy(frame) for frame in frames]
    return [
        rows.where(f"of{number} IS NOT NULL").select(f"of{number}.*") if number in together else frame
        for number, frame in enumerate(frames)
    ]
