"""
Touch, look up, difference: the incremental step that all joins of tables share.

    changes of the sources ──► touched keys ──► look-up of what the changes do not bring
                │                                          │
                └──────────► images of the sources: as they were, as they are
                                           │
                              meaning of both, then their difference = the change set

The result is not read: what it holds is, by the rule that every epoch leaves the meaning behind, the meaning of the old
images.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.changes import key_struct
from lakehouse.sqltext import quote
from pipelines.joins.difference import IMAGE, NEW, OLD, difference
from pipelines.joins.meaning import meaning
from pipelines.spec import Input, TableJoin


def images(
    changes: DataFrame, looked_up: DataFrame, side: Input, types: Sequence[DataType], scope: Sequence[str] = ()
) -> DataFrame:
    """
    Give the touched part of a source twice: as it was and as it is.

    Args:
        changes: Net changes: the scope columns, `key`, `old`, `new`.
        looked_up: The source's rows for the touched keys, at the pinned version: the scope columns and the columns
            that the join uses.
        side: The source in the join.
        types: The types in which key parts are compared.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `_lakejoin_image` ('old' or 'new') and the source's columns. A key with a change has its rows
        from the change, any other the looked-up row in both images.
    """
    scopes = [F.col(quote(name)) for name in scope]
    changed = changes.select(
        *scopes,
        F.explode(
            F.expr(f"array(named_struct('image', '{OLD}', 'row', old), named_struct('image', '{NEW}', 'row', new))")
        ).alias("item"),
    ).where("item.row IS NOT NULL")
    from_changes = changed.select(
        *scopes,
        F.col("item.image").alias(IMAGE),
        *(F.col(f"item.row.{quote(name)}").alias(name) for name in side.columns),
    )
    row = looked_up.alias("row")
    known = changes.select(*scopes, "key").alias("change")
    same_key = [f"{quote('row', name)} = {quote('change', name)}" for name in scope]
    same_key.append(f"{key_struct(side.key, types, 'row.')} = change.key")
    unchanged = row.join(known, on=F.expr(" AND ".join(same_key)), how="left_anti")
    from_lookup = unchanged.select(
        *(F.col(quote("row", name)) for name in scope),
        F.explode(F.array(F.lit(OLD), F.lit(NEW))).alias(IMAGE),
        *(F.col(quote("row", name)) for name in side.columns),
    )
    return from_changes.unionAll(from_lookup)


def change_set(left: DataFrame, right: DataFrame, join: TableJoin, scope: Sequence[str] = ()) -> DataFrame:
    """
    Compute what an epoch changes in the result.

    Args:
        left: Images of the left source, as `images` gives them.
        right: Images of the right source.
        join: The join.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `op`, `key`, `before`, `after`, `copies`, as `difference` gives them: exactly the rows of the
        result that differ, a delete only for a row that was there.
    """
    both = meaning(left, right, join, [*scope, IMAGE])
    return difference(both, join.key, scope)
