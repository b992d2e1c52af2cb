"""
Find the rows of a table by keys: by literals, which skip files, and by a join on the key.

The joins build their literals with the same code. To detect a mistake in that code, the gate checks that a predicate
holds for each key that it was built from, and, if a scan is cheap, that it finds the same rows as a join on the key.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse import limits
from lakehouse.values.driver_rows import TooLarge, fits_arrow, to_driver
from lakehouse.values.net_changes import fields_of, key_struct, null_key
from lakehouse.values.pruning import Pruning, null_safe_pruning, pruning
from lakehouse.values.sqltext import numbered, quote, row_struct, text

KEY = "_lakejoin_key"
"""The working column of the key."""

NO_LITERALS = Pruning((), None)


class ReadsDiffer(Exception):
    """Two ways to read a table find different rows; the text is the finding."""


def own_key(columns: Iterable[str], prefix: str = "") -> str:
    """Return the SQL of a key (struct<k0, …>) in the types of its columns; the prefix is their struct, with the dot."""
    return numbered(f"{prefix}{quote(name)}" for name in columns)


def has_key(row: str, columns: Iterable[str], *, may_be_absent: bool, key: str = "key") -> str:
    """Return the SQL condition that a struct has a key (struct<k0, …>) in its key columns."""
    equal = "<=>" if may_be_absent else "="
    return " AND ".join(f"{key}.k{part} {equal} {quote(row, name)}" for part, name in enumerate(columns))


def in_sample(expressions: str, salt: str, share: int) -> str:
    """Return the SQL condition that chooses about one in `share` rows by expressions, as Spark SQL."""
    return "TRUE" if share == 1 else f"pmod(xxhash64({expressions}, {text(salt)}), {share}) = 0"


def sample_of(keys: DataFrame, salt: str, most: int) -> DataFrame:
    """Return at most `most` rows of `key` and further columns, chosen by their `key`."""
    return keys.orderBy(F.xxhash64("key", F.lit(salt))).limit(most)


def trusted(keys: DataFrame, *, may_be_absent: bool = False) -> Pruning:
    """
    Return the pruning of distinct keys (`key`); raise ReadsDiffer if its predicate does not hold for each of them.

    If the keys are on the driver, no file is read.
    """
    literals = null_safe_pruning(keys) if may_be_absent else pruning(keys)
    predicate = literals.predicate(fields_of(keys, "key").fieldNames(), "key.")
    if predicate is not None:
        missed = keys.where(f"NOT coalesce({predicate}, FALSE)").select(F.expr("make_valid_utf8(to_json(key))"))
        for row in missed.limit(1).collect():
            raise ReadsDiffer(f"the literal predicate misses the key {row[0]}, which it was built from")
    return literals


@dataclass(frozen=True)
class Lookup:
    """
    A look-up of distinct keys (`key`) in a table by literals.

    Args:
        name: The name of the table in messages.
        literals: The pruning of these keys.
        joined: Filters rows to the given keys by a join.
    """

    name: str
    rows: DataFrame
    key: tuple[str, ...]
    keys: DataFrame
    literals: Pruning
    joined: Callable[[DataFrame, DataFrame], DataFrame]


def check_rows(lookups: Sequence[Lookup], salt: str) -> None:
    """Raise ReadsDiffer if literals and a join on the key find different rows, for a sample that the salt chooses."""
    differing = [_differing(lookup, salt) for lookup in lookups if lookup.literals.predicate(lookup.key) is not None]
    if not differing:
        return
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    least = reduce(DataFrame.unionAll, differing).agg(F.min(F.struct("name", "key")).alias("least"))
    first = least.select("least.*").collect()[0]
    if first.name is not None:
        raise ReadsDiffer(
            f"the literals and a join on the key find different rows of {first.name}: key {first.key}; if another tool "
            "wrote its files, their statistics are wrong: write its rows again, for example by INSERT OVERWRITE"
        )


def _differing(lookup: Lookup, salt: str) -> DataFrame:
    """Return `name` and `key` (JSON) of the keys whose rows the two ways find a different number of times."""
    # A hash needs no job if the keys are on the driver. Twice the number, since a hash takes only about its share.
    share = max((lookup.literals.keys or limits.LISTED_KEYS) // (2 * limits.SAMPLED_KEYS), 1)
    sample = lookup.keys.where(in_sample("'literals', key", salt, share))

    def counted(rows: DataFrame, times: int) -> DataFrame:
        return lookup.joined(rows, sample).select(F.expr(own_key(lookup.key)).alias(KEY), F.lit(times).alias("times"))

    predicate = lookup.literals.predicate(lookup.key)
    assert predicate is not None, "a look-up by literals has a predicate"
    both = counted(lookup.rows.where(predicate), 1).unionAll(counted(lookup.rows, -1))
    differing = both.groupBy(KEY).agg(F.sum("times").alias("surplus")).where("surplus <> 0")
    return differing.select(F.lit(lookup.name).alias("name"), F.expr(f"make_valid_utf8(to_json({KEY}))").alias("key"))


def with_keys(rows: DataFrame, key: Sequence[str], key_sql: str, keys: DataFrame, literals: Pruning) -> DataFrame:
    """Filter rows to those whose key (as SQL: struct<k0, …>) is one of the keys (`key`), whose pruning is given."""
    predicate = literals.predicate(key)
    rows = rows if predicate is None else rows.where(predicate)
    if literals.exact:
        return rows
    keyed = rows.withColumn(KEY, F.expr(key_sql))
    wanted = keys.select(F.col("key").cast(keyed.schema[KEY].dataType).alias(KEY))
    return keyed.join(F.broadcast(wanted), on=KEY, how="left_semi").drop(KEY)


@dataclass(frozen=True)
class InputTable:
    """
    An input of a join.

    Args:
        rows: Its rows at the pinned version, with the columns that the statement uses.
        types: The types in which the key columns are compared.
        changed: The keys that changed in the epoch, as `key` (struct<k0, …>); None without changes.
        size: In bytes.
        may_be_absent: Whether parts of a key may be null, but not all of them: a row may lack a side of a join.
        old: Reads the rows of the changed keys as they were before the epoch; None without a feed.
    """

    rows: DataFrame
    key: tuple[str, ...]
    types: tuple[DataType, ...]
    changed: DataFrame | None = None
    size: int = 0
    may_be_absent: bool = False
    old: Callable[[], DataFrame] | None = None

    @property
    def keyed(self) -> DataFrame:
        """The rows that have a key; the others take no part in the join."""
        return self.rows.where(f"NOT {null_key(self.key, may_be_absent=self.may_be_absent)}")

    @property
    def key_sql(self) -> str:
        """Spark SQL of the key of a row (struct<k0, …>)."""
        return key_struct(self.key, self.types)

    def with_keys(self, keys: DataFrame, literals: Pruning) -> DataFrame:
        """Read the rows that have one of the keys (`key`), by the literals of these keys."""
        return with_keys(self.keyed, self.key, self.key_sql, keys, literals)

    def joined(self, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Filter rows of the input to the keys by a join alone."""
        return with_keys(rows, self.key, self.key_sql, keys, NO_LITERALS)


def driver_copy(rows: DataFrame) -> DataFrame:
    """Collect rows to the driver, so that no later plan reads them again; return them as they are if too large."""
    try:
        return to_driver(rows).frame
    except TooLarge:
        return rows


def driver_copies(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Collect several frames to the driver in one job; see `driver_copy`."""
    numbers = [number for number, frame in enumerate(frames) if fits_arrow(frame.schema)]
    if len(numbers) < 2:
        return [driver_copy(frame) for frame in frames]
    structs = (frames[number].selectExpr(f"{row_struct(frames[number].columns)} AS of{number}") for number in numbers)
    try:
        rows = to_driver(reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), structs)).frame
    except TooLarge:
        return [driver_copy(frame) for frame in frames]
    return [
        rows.where(f"of{number} IS NOT NULL").select(f"of{number}.*") if number in numbers else frame
        for number, frame in enumerate(frames)
    ]
