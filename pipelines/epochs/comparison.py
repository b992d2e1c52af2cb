"""The differences between two tables, as counts and examples."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

EXAMPLES = 5


def counted(different: DataFrame) -> tuple[dict[str, int], list[Row]]:
    """
    Count the rows of a `bag_difference`.

    Returns:
        The numbers of missing and surplus rows, and examples of them.
    """
    totals = different.agg(
        F.sum(F.expr("IF(surplus < 0, -surplus, 0)")).alias("missing"),
        F.sum(F.expr("IF(surplus > 0, surplus, 0)")).alias("surplus"),
    ).collect()[0]
    counts = {"missing": totals["missing"] or 0, "surplus": totals["surplus"] or 0}
    return counts, different.limit(EXAMPLES).collect() if any(counts.values()) else []


def examples_of(rows: Sequence[Row]) -> list[str]:
    """Format the first few rows of a `bag_difference`."""
    return [_example(row) for row in rows[:EXAMPLES]]


def _example(row: Row) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in row["row"].asDict().items())
    return f"{'missing' if row['surplus'] < 0 else 'surplus'} ({values})"
