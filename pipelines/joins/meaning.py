"""
The meaning of a join: its plain query over whole tables.

This is the one definition of correctness. A load and a full recompute evaluate it over the sources, an incremental
epoch over the touched part of them as they were and as they are, and `verify` and the tests compare with it.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.sqltext import quote
from pipelines.spec import TableJoin


def meaning(left: DataFrame, right: DataFrame, join: TableJoin, scope: Sequence[str] = ()) -> DataFrame:
    """
    Evaluate a join of two tables.

    Args:
        left: The left table's rows: its columns that the join uses, and the scope columns.
        right: The right table's rows.
        join: The join.
        scope: Columns that keep independent histories apart: rows meet only where all of them are equal.

    Returns:
        The scope columns, then the columns of the SELECT list. Rows whose primary key is null take no part, for they
        are no KTable rows (KIP-962 concerns foreign keys; a null key of a KTable is dropped by Kafka Streams too).
    """
    here, there = join.left.alias, join.right.alias
    left = left.where(f"NOT {null_key(join.left.key)}").alias(here)
    right = right.where(f"NOT {null_key(join.right.key)}").alias(there)
    together = [f"{quote(here, name)} = {quote(there, name)}" for name in scope]
    condition = " AND ".join([*together, f"({join.on})"])
    joined = left.join(right, on=F.expr(condition), how=join.how)
    if join.where is not None:
        joined = joined.where(F.expr(join.where))
    scopes = [F.coalesce(F.col(quote(here, name)), F.col(quote(there, name))).alias(name) for name in scope]
    return joined.select(*scopes, *(F.expr(output.expression).alias(output.name) for output in join.outputs))
