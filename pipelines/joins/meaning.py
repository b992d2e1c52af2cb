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


def meaning(tables: Sequence[DataFrame], join: TableJoin, scope: Sequence[str] = ()) -> DataFrame:
    """
    Evaluate a join of tables.

    Args:
        tables: The rows of each input in the order of FROM: its columns that the join uses, and the scope columns.
        join: The join.
        scope: Columns that keep independent histories apart: rows meet only where all of them are equal.

    Returns:
        The scope columns, then the columns of the SELECT list. Rows whose primary key is null take no part, for they
        are no KTable rows (KIP-962 concerns foreign keys; a null key of a KTable is dropped by Kafka Streams too).
    """
    rows = [
        table.where(f"NOT {null_key(item.key)}").alias(item.alias)
        for table, item in zip(tables, join.inputs, strict=True)
    ]
    joined = rows[0]
    held = {name: quote(join.inputs[0].alias, name) for name in scope}
    for step, table, item in zip(join.steps, rows[1:], join.inputs[1:], strict=True):
        added = {name: quote(item.alias, name) for name in scope}
        together = [f"{held[name]} = {added[name]}" for name in scope]
        joined = joined.join(table, on=F.expr(" AND ".join([*together, f"({step.on})"])), how=step.how)
        if step.how == "right":
            held = added
        elif step.how == "full":
            held = {name: f"coalesce({held[name]}, {added[name]})" for name in scope}
    if join.where is not None:
        joined = joined.where(F.expr(join.where))
    scopes = [F.expr(held[name]).alias(name) for name in scope]
    return joined.select(*scopes, *(F.expr(output.expression).alias(output.name) for output in join.outputs))
