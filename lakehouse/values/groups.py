"""Rows grouped by the values of some columns."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.sqltext import quote

HAVING = "_lakejoin_having"
"""The working column of whether a group stays."""


def grouped(rows: DataFrame, by: Sequence[str], values: Mapping[str, str], having: str | None = None) -> DataFrame:
    """
    Group rows by columns.

    Args:
        values: The aggregates, as SQL by name.
        having: Whether a group stays, as SQL with aggregates; None if all do.

    Returns:
        The columns `by`, then the values; a row for each group.
    """
    columns = [*map(quote, by)]
    found = values if having is None else {**values, HAVING: having}
    if not found:
        return rows.select(*columns).distinct()
    groups = rows.groupBy(*columns).agg(*(F.expr(sql).alias(name) for name, sql in found.items()))
    return groups if having is None else groups.where(HAVING).drop(HAVING)
