"""The changes of an input that groups rows by its key: one row for each value, as semi joins look them up, too."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.values.groups import grouped
from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import row_struct
from pipelines.joins.difference import IMAGE, NEW, OLD
from pipelines.joins.kernel import images
from pipelines.language import Grouping, Input


def changed_groups(
    changes: DataFrame,
    rows: DataFrame,
    side: Input,
    grouping: Grouping,
    types: Sequence[DataType],
    types_of_rows: Sequence[DataType],
) -> DataFrame:
    """
    Return the net changes of an input that groups rows: `key`, `old`, `new`, for each group that differs.

    Args:
        changes: The net changes of the rows: `key`, `old`, `new`.
        rows: The rows at the end of the epoch of each group that a changed row leaves or enters, and maybe others.
        types: The types in which the key of the input is compared; `types_of_rows`, those of the key of a row.
    """
    own = null_key(grouping.rows.key, may_be_absent=grouping.rows.may_be_absent)  # such rows are in no group
    both = images(changes, rows, grouping.rows, types_of_rows).where(f"NOT {own} AND NOT {null_key(side.key)}")
    groups = grouped(both, [IMAGE, *side.key], dict(grouping.values), grouping.having)
    row = row_struct(side.columns)
    keyed = groups.selectExpr(f"{key_struct(side.key, types)} AS key", IMAGE, f"{row} AS row")
    old, new = (
        F.first(F.expr(f"IF({IMAGE} = '{image}', row, NULL)"), ignorenulls=True).alias(image) for image in (OLD, NEW)
    )
    return keyed.groupBy("key").agg(old, new).where("NOT old <=> new")
