"""Checksums by which two tables are compared in one pass over each, without sorting or shuffling their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from lakehouse import limits
from lakehouse.sqltext import quote
from lakehouse.values import comparable, hash_of

PARTS = 2**16
"""Parts into which the hash of the key divides the rows of a table, each with its own checksum."""

FLAGS = 60
"""Columns whose nulls one number marks."""


def row_hash(columns: Sequence[StructField]) -> str:
    """
    Write the SQL of a row's hash (bigint): the same for rows that are equal under `<=>`, column by column.

    `xxhash64` skips nulls, so that (5, null) and (null, 5) have the same hash. So numbers that mark the null columns
    are hashed too; `hash_of` marks the nulls within nested values. Text under a collation is hashed by its bytes: equal
    rows may then have different hashes.
    """
    values, nulls = [], []
    for field in columns:
        name, kind = quote(field.name), field.dataType
        values.append(hash_of(name, kind) if isinstance(kind, (ArrayType, MapType, StructType)) else name)
    for first in range(0, len(columns), FLAGS):
        marks = (f"IF({quote(field.name)} IS NULL, {2**n}L, 0L)" for n, field in enumerate(columns[first:][:FLAGS]))
        nulls.append(" + ".join(marks))
    return f"xxhash64({', '.join((*values, *nulls))})"


def part_of(columns: Sequence[StructField], key: Sequence[str]) -> str:
    """Write the SQL of the number of the part to which a row belongs by its key, from 0 to `PARTS` - 1."""
    keys = (comparable(quote(field.name), field.dataType) for field in columns if field.name in key)
    return f"pmod(xxhash64({', '.join(keys)}), {PARTS})"


@dataclass(frozen=True)
class Compared:
    """
    How two tables compare by their checksums, part by part.

    Args:
        rows: The number of rows of the first table.
        differing: The parts in which they differ; none if the tables are equal.
    """

    rows: int
    differing: tuple[int, ...]

    def predicate(self, columns: Sequence[StructField], key: Sequence[str]) -> str:
        """Write the Spark SQL predicate for the rows in the parts that differ, or for all rows if these are many."""
        if len(self.differing) > limits.LISTED_PARTS:
            return "true"
        listed = ", ".join(map(str, self.differing))
        return f"{part_of(columns, key)} IN ({listed})" if listed else "false"


def compare_checksums(one: DataFrame, other: DataFrame, key: Sequence[str]) -> Compared:
    """
    Compare two tables by the number of rows, the `bit_xor` and the sum of the hashes of each part.

    Args:
        one: The first table.
        other: The other one, with the same columns.
        key: The columns that decide to which part a row belongs.
    """
    columns = list(one.schema)
    sides = (
        frame.selectExpr(f"{weight} AS weight", f"{part_of(columns, key)} AS part", f"{row_hash(columns)} AS hash")
        for weight, frame in ((1, one), (-1, other))
    )
    # What both tables have cancels out. The sum of whole hashes would overflow.
    parts = (
        reduce(DataFrame.unionAll, sides)
        .groupBy("part")
        .agg(
            F.count_if(F.expr("weight = 1")).alias("rows"),
            F.expr(f"sum(weight) <> 0 OR bit_xor(hash) <> 0 OR sum(weight * (hash & {2**32 - 1}L)) <> 0").alias(
                "differs"
            ),
        )
    )
    found = parts.agg(F.sum("rows").alias("rows"), F.expr("collect_list(IF(differs, part, NULL))").alias("differing"))
    rows, differing = found.collect()[0]
    return Compared(rows or 0, tuple(sorted(differing)))
