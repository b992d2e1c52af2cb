"""
The meaning of a join: its plain query over whole tables.

This is the one definition of correctness. A load and a full recompute evaluate it over the sources, an incremental
epoch over the touched part of them as they were and as they are, and `verify` and the tests compare with it.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.sqltext import quote, struct
from pipelines.spec import ResolvedQuery
from pipelines.spec.statement.added_columns import MATCHED, PREFIX

PRESENT, ROW = (f"{PREFIX}{name}" for name in ("present", "row"))


def meaning(tables: Sequence[DataFrame], join: ResolvedQuery, scope: Sequence[str] = ()) -> DataFrame:
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
    values = [(name, held[name]) for name in scope] + [(output.name, output.expression) for output in join.outputs]
    return joined.selectExpr(*(f"{sql} AS {quote(name)}" for name, sql in values))


def met(found: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Say which row each combination means: the meaning of a join in which every input has one row or none.

    `meaning` says the same of whole tables; there rows meet by their keys, here they have met already.

    Args:
        found: For each input a struct of its row under its alias, null where it has none, and other columns.
        join: The join.

    Returns:
        The columns, with `_lakejoin_row`: the columns of the SELECT list (struct), null where there is no row.
    """
    first, *others = join.inputs
    state = found.withColumn(PRESENT, F.expr(f"{quote(first.alias)} IS NOT NULL"))
    before = [first.alias]
    for step, item in zip(join.steps, others, strict=True):
        both = f"{PRESENT} AND {quote(item.alias)} IS NOT NULL"
        state = state.withColumn(MATCHED, F.expr(f"IF({both}, coalesce({step.on}, FALSE), FALSE)"))
        if step.how == "left":
            state = _kept_if(state, MATCHED, [item.alias])
        elif step.how == "right":
            state = _kept_if(state, MATCHED, before).withColumn(PRESENT, F.expr(f"{quote(item.alias)} IS NOT NULL"))
        elif step.how == "full":
            state = _kept_if(state, PRESENT, before)
            state = state.withColumn(PRESENT, F.expr(f"{PRESENT} OR {quote(item.alias)} IS NOT NULL"))
        else:
            state = state.withColumn(PRESENT, F.col(MATCHED))
        before.append(item.alias)
    if join.where is not None:
        state = state.withColumn(PRESENT, F.expr(f"IF({PRESENT}, coalesce({join.where}, FALSE), FALSE)"))
    row = struct({output.name: output.expression for output in join.outputs})
    return state.withColumn(ROW, F.expr(f"IF({PRESENT}, {row}, NULL)"))


def _kept_if(state: DataFrame, condition: str, aliases: Sequence[str]) -> DataFrame:
    return state.withColumns({alias: F.expr(f"IF({condition}, {quote(alias)}, NULL)") for alias in aliases})
