"""
Table-table joins: both sides have the same key, and so has the result.

A change of either side touches its own key and nothing else; the other side is looked up for the touched keys. Inner,
left, right and full join differ only in their meaning.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.sqltext import quote


def touched_keys(left: DataFrame, right: DataFrame, scope: Sequence[str] = ()) -> DataFrame:
    """
    Name every result row that an epoch could alter.

    Args:
        left: Net changes of the left table: the scope columns, `key`, `old`, `new`.
        right: Net changes of the right table.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns and `key` (struct<k0, …>), one row per key, none null.
    """
    names = [F.col(quote(name)) for name in scope]
    return left.select(*names, "key").unionAll(right.select(*names, "key")).distinct()
