"""
The meaning of a join: its plain query over whole tables.

This is the only definition of correctness. A load and a full recompute evaluate it over the sources. An incremental
epoch evaluates it over the old and the new image of their touched rows. `verify` and the tests compare with it.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.net_changes import null_key
from lakehouse.values.sqltext import quote, struct
from pipelines.language import Link, Output, ResolvedQuery
from pipelines.language.statement.added_columns import MATCHED, PREFIX

PRESENT, ROW = (f"{PREFIX}{name}" for name in ("present", "row"))

TOUCHED, UNMATCHED = (f"{PREFIX}{name}" for name in ("touched", "unmatched"))
"""Columns of the rows of a pairing: whether a row is touched, and whether it has no match among untouched rows."""


def meaning(
    tables: Sequence[DataFrame], join: ResolvedQuery, scope: Sequence[str] = (), *, of_touched: bool = False
) -> DataFrame:
    """
    Evaluate a join of tables and return the columns of the SELECT list.

    Rows with a null primary key are ignored, because they are not KTable rows (KIP-962 concerns foreign keys; Kafka
    Streams also drops rows of a KTable with a null key).

    Args:
        tables: The rows of each input in the order of FROM: the columns that the join uses.
        scope: Columns of all tables by which independent rows are separated, such as images: rows match only if all of
            them are equal. They precede the columns of the SELECT list.
        of_touched: Whether the rows of a pairing have the columns TOUCHED and UNMATCHED. Then two rows match only if
            one of them is touched, and a row without a match is in the result only if UNMATCHED says that it has none.
    """
    rows = [
        table.where(f"NOT {null_key(item.key, may_be_absent=item.may_be_absent)}").alias(item.alias)
        for table, item in zip(tables, join.inputs, strict=True)
    ]
    joined = rows[0]
    scopes = {name: quote(join.inputs[0].alias, name) for name in scope}
    right = join.right_of_pairing if of_touched else None
    for place, (step, table, item) in enumerate(zip(join.steps, rows[1:], join.inputs[1:], strict=True), 1):
        added = {name: quote(item.alias, name) for name in scope}
        together = [f"{scopes[name]} = {added[name]}" for name in scope]
        if place == right:
            together.append("(" + " OR ".join(quote(join.inputs[n].alias, TOUCHED) for n in join.paired.places) + ")")
        joined = joined.join(table, on=F.expr(" AND ".join([*together, f"({step.on})"])), how=step.how)
        if place == right:
            one, other = (quote(join.inputs[n].alias, UNMATCHED) for n in join.paired.places)
            joined = joined.where(f"({one} IS NOT NULL AND {other} IS NOT NULL) OR coalesce({one}, {other})")
        if step.how == "right":
            scopes = added
        elif step.how == "full":
            scopes = {name: f"coalesce({scopes[name]}, {added[name]})" for name in scope}
    if join.where is not None:
        joined = joined.where(F.expr(join.where))
    values = [(name, scopes[name]) for name in scope] + [(output.name, output.expression) for output in join.outputs]
    return joined.selectExpr(*(f"{sql} AS {quote(name)}" for name, sql in values))


def meaning_of_matched(found: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Evaluate a join for each combination of rows, in which every input has one row or none.

    `meaning` evaluates whole tables and matches their rows by key; here the rows are already matched.

    Args:
        found: For each input a struct of its row, named by its alias and null if it has no row, and other columns.

    Returns:
        The columns, with `_lakejoin_row`: the columns of the SELECT list (struct), null if the join has no row.
    """
    first, *others = join.inputs
    state = found.withColumn(PRESENT, F.expr(f"{quote(first.alias)} IS NOT NULL"))
    before = [first.alias]
    for step, item in zip(join.steps, others, strict=True):
        both = f"{PRESENT} AND {quote(item.alias)} IS NOT NULL"
        state = state.withColumn(MATCHED, F.expr(f"IF({both}, coalesce({step.on}, FALSE), FALSE)"))
        if step.how == "left":
            state = _null_unless(state, MATCHED, [item.alias])
        elif step.how == "right":
            state = _null_unless(state, MATCHED, before).withColumn(PRESENT, F.expr(f"{quote(item.alias)} IS NOT NULL"))
        elif step.how == "full":
            state = _null_unless(state, PRESENT, before)
            state = state.withColumn(PRESENT, F.expr(f"{PRESENT} OR {quote(item.alias)} IS NOT NULL"))
        else:
            state = state.withColumn(PRESENT, F.col(MATCHED))
        before.append(item.alias)
    if join.where is not None:
        state = state.withColumn(PRESENT, F.expr(f"IF({PRESENT}, coalesce({join.where}, FALSE), FALSE)"))
    row = struct({output.name: output.expression for output in join.outputs})
    return state.withColumn(ROW, F.expr(f"IF({PRESENT}, {row}, NULL)"))


def without_unmatched(found: DataFrame, link: Link, join: ResolvedQuery) -> DataFrame:
    """
    Set the rows of outer look-ups to null where they do not satisfy ON, if a reference may take these nulls as values.

    That is a reference by `<=>` with parts from several inputs. Any other reference from such a row finds at most a row
    that `meaning_of_matched` leaves out.

    Args:
        found: For each input before the referenced one a struct, as `meaning_of_matched` takes it, and other columns.
        link: The reference to look up next.
    """
    if not (link.overs and link.null_safe):
        return found
    before = join.up_to(link.input, (Output("kept", "TRUE"),))
    return meaning_of_matched(found, before).select(*(F.col(quote(name)) for name in found.columns))


def _null_unless(state: DataFrame, condition: str, aliases: Sequence[str]) -> DataFrame:
    return state.withColumns({alias: F.expr(f"IF({condition}, {quote(alias)}, NULL)") for alias in aliases})
