"""The keys of tables in ranges of about equal size, so that tables can be joined and sorted by one exchange of each."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType

from lakehouse.values.compare import PRUNABLE, is_collated
from lakehouse.values.net_changes import fields_of
from lakehouse.values.pruning import carried, literal, representable
from lakehouse.values.sqltext import numbered

SAMPLED = 200
"""Keys of the sample for each range. A range then seldom has more than 1.3 times its share of the rows."""


def bounds_of(keys: DataFrame, rows: int, number: int) -> list[str] | None:
    """
    Find where to cut keys into ranges with about equal numbers of rows, by a sample of them.

    Args:
        keys: `key` (struct<k0, …>), no part null.
        rows: About how many they are.
        number: The wanted number of ranges.

    Returns:
        The bounds between the ranges as Spark SQL in ascending order, each the first key of a range in the form of
        `compared`: fewer than wanted if a key occurs often, none without keys. None instead of a list if a part has a
        type without literals in order.
    """
    kinds = [field.dataType for field in fields_of(keys, "key")]
    if not all(isinstance(kind, PRUNABLE) and not is_collated(kind) for kind in kinds):
        return None
    share = min(1.0, SAMPLED * number / max(rows, 1))
    sent = (_sent(f"key.k{place}", kind, place) for place, kind in enumerate(kinds))
    # One task sorts it, because a global order would read the tables twice.
    sample = keys.sample(share, seed=0).repartition(1).sortWithinPartitions("key").selectExpr(*sent).collect()
    chosen = dict.fromkeys(tuple(sample[len(sample) * place // number]) for place in range(1, number) if sample)
    return [
        compared([literal(value, kind) for value, kind in zip(key, kinds, strict=True)])
        for key in chosen
        if all(representable(value, kind) for value, kind in zip(key, kinds, strict=True))
    ]


def _sent(part: str, kind: DataType, place: int) -> str:
    """Write the SQL that transfers a part of a key to the driver; invalid UTF-8 becomes replacement characters."""
    sql = f"make_valid_utf8({part})" if isinstance(kind, StringType) else carried(part, kind)
    return f"{sql} AS k{place}"


def compared(parts: Sequence[str]) -> str:
    """Write a key, given by its parts, in the form in which keys are compared with bounds."""
    return parts[0] if len(parts) == 1 else numbered(parts)


def range_of(key: str, bounds: Sequence[str], first: int = 0) -> str:
    """
    Write the SQL of the number of the range that contains a key, found by halving.

    Args:
        key: The key in the form of `compared`.
        bounds: The bounds.
        first: The number of the first of these ranges.
    """
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    below = range_of(key, bounds[:middle], first)
    return f"IF({key} < {bounds[middle]}, {below}, {range_of(key, bounds[middle + 1 :], first + middle + 1)})"
