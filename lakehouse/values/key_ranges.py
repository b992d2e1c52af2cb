"""The keys of tables in ranges with about equal numbers of rows: for joins and sorts by one exchange, and as slices."""

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.values.compare import PRUNABLE, is_collated, skips_files
from lakehouse.values.net_changes import fields_of
from lakehouse.values.pruning import carried, literal, readable, representable
from lakehouse.values.recorded import Slice
from lakehouse.values.sqltext import numbered, quote

SAMPLED = 200
"""Keys of the sample for each range. A range then seldom has more than 1.3 times its share of the rows."""


def bounds_of(keys: DataFrame, rows: int, number: int) -> list[str] | None:
    """
    Find where to cut keys into a number of ranges with about equal numbers of rows, by a sample of them.

    The bounds are Spark SQL in ascending order, each the first key of a range in the form of `compared`: fewer than
    wanted if a key occurs often, none without keys. They are None if a part has a type without literals in order.

    Args:
        keys: `key` (struct<k0, …>), no part null.
        rows: About how many they are.
    """
    kinds = [field.dataType for field in fields_of(keys, "key")]
    if not all(isinstance(kind, PRUNABLE) and not is_collated(kind) for kind in kinds):
        return None
    share = min(1.0, SAMPLED * number / max(rows, 1))
    sent = (f"{readable(carried(f'key.k{place}', kind), kind)} AS k{place}" for place, kind in enumerate(kinds))
    # One task sorts it, because a global order would read the tables twice.
    sample = keys.sample(share, seed=0).repartition(1).sortWithinPartitions("key").selectExpr(*sent).collect()
    chosen = dict.fromkeys(tuple(sample[len(sample) * place // number]) for place in range(1, number) if sample)
    return [
        compared([literal(value, kind) for value, kind in zip(key, kinds, strict=True)])
        for key in chosen
        if all(representable(value, kind) for value, kind in zip(key, kinds, strict=True))
    ]


def compared(parts: Sequence[str]) -> str:
    """Write a key, given by its parts, in the form in which keys are compared with bounds."""
    return parts[0] if len(parts) == 1 else numbered(parts)


def range_of(key: str, bounds: Sequence[str], first: int = 0) -> str:
    """Write the SQL of the number of the range, counted from `first`, that contains a key in the form of `compared`."""
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    below = range_of(key, bounds[:middle], first)
    return f"IF({key} < {bounds[middle]}, {below}, {range_of(key, bounds[middle + 1 :], first + middle + 1)})"


def slices_of(rows: DataFrame, key: Sequence[str], number: int) -> tuple[Slice, ...]:
    """
    Split the key space of a table by its first key column with ordered literals into at most 1,000 slices.

    Each possible key meets the condition of exactly one slice. The slices are fewer than wanted if many rows have the
    same value, and one if no key column has ordered literals.
    """
    column = next((name for name in key if isinstance(rows.schema[name].dataType, PRUNABLE)), None)
    if column is None or number == 1:
        return (Slice("true", rows.count()),)
    kind = rows.schema[column].dataType
    ranged = rows.select(F.col(quote(column)).alias("value")).repartitionByRange(
        min(number, limits.MOST_SLICES), "value"
    )
    parts = ranged.groupBy(F.spark_partition_id()).agg(F.min("value").alias("low"), F.count(F.lit(1)).alias("rows"))
    bounds: list[str] = []
    sizes: list[int] = []
    for low, size in parts.orderBy("low").selectExpr(carried("low", kind), "rows").collect():
        if not sizes:
            sizes.append(size)
        elif representable(low, kind):
            bounds.append(literal(low, kind))
            sizes.append(size)
        else:
            sizes[-1] += size
    # Of a function of the column no statistics tell which files it needs.
    name = quote(column) if skips_files(kind) else f"greatest({quote(column)}, {quote(column)})"
    if not bounds:
        return (Slice("true", sum(sizes)),)
    conditions = [
        f"({name} < {bounds[0]} OR {name} IS NULL)",
        *(f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(bounds)),
        f"{name} >= {bounds[-1]}",
    ]
    return tuple(Slice(condition, size) for condition, size in zip(conditions, sizes, strict=True))
