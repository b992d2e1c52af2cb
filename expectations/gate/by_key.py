"""
Find the rows of a table by keys: by literals, which skip files, and by a join on the key.

The joins build their literals with the same code. To detect a mistake in that code, the gate checks that a predicate
holds for each key that it was built from, and, if a scan is cheap, that it finds the same rows as a join on the key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.values.driver_rows import TooLarge, carried, to_driver
from lakehouse.values.net_changes import fields_of
from lakehouse.values.pruning import Pruning, null_safe_pruning, pruning
from lakehouse.values.sqltext import numbered, quote, row_struct, text

KEY = "_lakejoin_key"
"""The working column of the key."""

NO_LITERALS = Pruning((), None)


class ReadsDiffer(Exception):
    """Two ways to read a table find different rows; the text is the finding."""


def trusted(keys: DataFrame, *, may_be_absent: bool = False) -> Pruning:
    """
    Return the pruning of keys, after checking that its predicate holds for each of them.

    Args:
        keys: `key` (struct<k0, …>), each key once. If they are on the driver, no file is read.
        may_be_absent: Whether parts of a key may be null.

    Raises:
        ReadsDiffer: The predicate does not hold for a key.
    """
    known = null_safe_pruning(keys) if may_be_absent else pruning(keys)
    _check_holds(known.predicate(fields_of(keys, "key").fieldNames(), "key."), keys)
    return known


def _check_holds(predicate: str | None, keys: DataFrame) -> None:
    """Check that a predicate holds for each of the keys, as `key`; raise `ReadsDiffer` if not."""
    if predicate is None:
        return
    missed = keys.where(f"NOT coalesce({predicate}, FALSE)").select(F.expr("make_valid_utf8(to_json(key))")).limit(1)
    for row in missed.collect():
        raise ReadsDiffer(f"the literal predicate misses the key {row[0]}, which it was built from")


@dataclass(frozen=True)
class Lookup:
    """
    A look-up of some keys in a table by literals.

    Args:
        name: The name of the table in messages.
        rows: Its rows; a check reads only the key columns.
        key: Its key columns.
        keys: The keys, as `key` (struct<k0, …>), each once.
        known: The pruning of these keys.
        joined: Filters rows to the given keys by a join.
    """

    name: str
    rows: DataFrame
    key: tuple[str, ...]
    keys: DataFrame
    known: Pruning
    joined: Callable[[DataFrame, DataFrame], DataFrame]


def check_rows(lookups: Sequence[Lookup], salt: str) -> None:
    """
    Check that literals find the same rows of each table as a join on the key, for a sample of the keys.

    Args:
        lookups: The look-ups.
        salt: Chooses the sample.

    Raises:
        ReadsDiffer: The literals find different rows.
    """
    differing = [_differing(lookup, salt) for lookup in lookups if lookup.known.predicate(lookup.key) is not None]
    if not differing:
        return
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    first = reduce(DataFrame.unionAll, differing).agg(F.min(F.struct("name", "key")).alias("first"))
    found = first.select("first.*").collect()[0]
    if found.name is not None:
        raise ReadsDiffer(
            f"the literals and a join on the key find different rows of {found.name}: key {found.key}; if another tool "
            "wrote its files, their statistics are wrong: write its rows again, for example by INSERT OVERWRITE"
        )


def _differing(lookup: Lookup, salt: str) -> DataFrame:
    """Return `name` and `key` (JSON) of the keys whose rows the two ways find a different number of times."""
    # A hash needs no job if the keys are on the driver. Twice the number, since a hash takes only about its share.
    share = max((lookup.known.keys or limits.LISTED_KEYS) // (2 * limits.SAMPLED_KEYS), 1)
    sample = lookup.keys.where(f"pmod(xxhash64('literals', key, {text(salt)}), {share}) = 0")

    def counted(part: DataFrame, times: int) -> DataFrame:
        own = F.expr(numbered(map(quote, lookup.key))).alias(KEY)
        return lookup.joined(part, sample).select(own, F.lit(times).alias("times"))

    predicate = lookup.known.predicate(lookup.key)
    assert predicate is not None, "a look-up by literals has a predicate"
    both = counted(lookup.rows.where(predicate), 1).unionAll(counted(lookup.rows, -1))
    differing = both.groupBy(KEY).agg(F.sum("times").alias("surplus")).where("surplus <> 0")
    return differing.select(F.lit(lookup.name).alias("name"), F.expr(f"make_valid_utf8(to_json({KEY}))").alias("key"))


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
