"""The key space of a table, split into ranges with about equal numbers of rows."""

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.values.compare import PRUNABLE, skips_files
from lakehouse.values.pruning import carried, literal, representable
from lakehouse.values.recorded import Slice
from lakehouse.values.sqltext import quote


def slices_of(rows: DataFrame, key: Sequence[str], number: int) -> tuple[Slice, ...]:
    """
    Split the key space of a table by its first key column with ordered literals.

    Args:
        rows: The table.
        key: Its key columns.
        number: The wanted number of slices, at most 1,000.

    Returns:
        Slices such that each possible key meets the condition of exactly one slice. The number is lower if many rows
        have the same value, and 1 if no key column has ordered literals.
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
