"""
The meaning of a join: its plain query over whole tables.

This is the only definition of correctness. A load and a full recompute evaluate it over the sources. An incremental
epoch evaluates it over the old and the new image of their touched rows. `verify` and the tests compare with it.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakehouse.values.checksums import hash_in_order
from lakehouse.values.net_changes import null_key
from lakehouse.values.sqltext import quote, struct
from pipelines.language import Link, Output, ResolvedQuery
from pipelines.language.names import MATCHED, PREFIX

PRESENT, ROW = (f"{PREFIX}{name}" for name in ("present", "row"))

TOUCHED, UNMATCHED = (f"{PREFIX}{name}" for name in ("touched", "unmatched"))
"""Columns of the rows of a pairing: whether a row is touched, and whether it has no match among untouched rows."""


def meaning(
    tables: Sequence[DataFrame], join: ResolvedQuery, scope: Sequence[str] = (), *, of_touched: bool = False
) -> DataFrame:
    """
    Evaluate a join of tables, in the order of FROM, and return the columns of the SELECT list.

    Rows with a null primary key are ignored, because they are not KTable rows (KIP-962 concerns foreign keys; Kafka
    Streams also drops rows of a KTable with a null key).

    Args:
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
    for index, (step, table, item) in enumerate(zip(join.steps, rows[1:], join.inputs[1:], strict=True), 1):
        added = {name: quote(item.alias, name) for name in scope}
        together = [f"{scopes[name]} = {added[name]}" for name in scope]
        if index == right:
            together.append("(" + " OR ".join(quote(join.inputs[n].alias, TOUCHED) for n in join.paired.places) + ")")
        joined = joined.join(table, on=F.expr(" AND ".join([*together, f"({step.on})"])), how=step.how)
        if index == right:
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


def meaning_of_matched(matched: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Evaluate a join for rows that are already matched: each combination has one row of every input, or none.

    Args:
        matched: For each input a struct of its row, named by its alias and null if it has no row, and other columns.

    Returns:
        The columns, with ROW: the columns of the SELECT list (struct), null if the join has no row.
    """
    first, *others = join.inputs
    state = matched.withColumn(PRESENT, F.expr(f"{quote(first.alias)} IS NOT NULL"))
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


def without_unmatched(matched: DataFrame, link: Link, join: ResolvedQuery) -> DataFrame:
    """
    Set the rows of outer look-ups to null where they do not satisfy ON, if a reference may take these nulls as values.

    That is a reference by `<=>` with parts from several inputs. Any other reference from such a row finds at most a row
    that `meaning_of_matched` leaves out. `matched` has structs, as that takes them, of the inputs before the next one,
    which `link` references.
    """
    if not (link.overs and link.null_safe):
        return matched
    before = join.up_to(link.input, (Output("kept", "TRUE"),))
    return meaning_of_matched(matched, before).select(*(F.col(quote(name)) for name in matched.columns))


def _null_unless(state: DataFrame, condition: str, aliases: Sequence[str]) -> DataFrame:
    return state.withColumns({alias: F.expr(f"IF({condition}, {quote(alias)}, NULL)") for alias in aliases})


def hashed_meaning(tables: Sequence[DataFrame], join: ResolvedQuery, columns: StructType) -> DataFrame:
    """
    Evaluate a join of tables, with hashes in place of the columns that the result takes from an input unchanged.

    A comparison by checksums needs no values. The hashes are computed below the join, so that the wide rows of the
    sources are not shuffled. A row that lacks an input has the hash null, as has a row whose columns of that input are
    all null: in the result these rows are equal.

    Returns:
        The key columns, the other columns that are not taken from one input unchanged, and a hash (bigint) for each
        input of which the result has two columns or more.
    """
    hashed, taken = list(tables), _taken(join)
    for index, names in taken.items():
        fields = [StructField(column, columns[name].dataType) for name, column in names.items()]
        hashed[index] = tables[index].withColumn(_hash_of(index), F.expr(_hash_sql(fields)))
    hashes = [Output(_hash_of(index), quote(join.inputs[index].alias, _hash_of(index))) for index in taken]
    outputs = {output.name: output for output in join.outputs}
    return meaning(hashed, replace(join, outputs=(*(outputs[name] for name in _rest(join, columns)), *hashes)))


def hashed_rows(rows: DataFrame, join: ResolvedQuery, columns: StructType) -> DataFrame:
    """Return rows of a result, in its types, in the form of `hashed_meaning`; further columns stay as they are."""
    hashes = (f"{_hash_sql([columns[name] for name in names])} AS {_hash_of(i)}" for i, names in _taken(join).items())
    further = (name for name in rows.columns if name not in columns.fieldNames())
    return rows.selectExpr(*map(quote, _rest(join, columns)), *hashes, *map(quote, further))


def _taken(join: ResolvedQuery) -> dict[int, dict[str, str]]:
    """Return by input its columns by the outputs, besides the key, that they are, if these are two or more."""
    taken = {}
    for index, item in enumerate(join.inputs):
        columns = {quote(item.alias, name): name for name in item.columns}
        others = (output for output in join.outputs if output.name not in join.key)
        taken[index] = {output.name: columns[output.expression] for output in others if output.expression in columns}
    return {index: names for index, names in taken.items() if len(names) > 1}


def _rest(join: ResolvedQuery, columns: StructType) -> list[str]:
    hashed = {name for names in _taken(join).values() for name in names}
    return [name for name in columns.fieldNames() if name not in hashed]


def _hash_of(index: int) -> str:
    return f"{PREFIX}hash_{index}"


def _hash_sql(columns: Sequence[StructField]) -> str:
    """Return the SQL of the hash of some columns, which is null if all of them are null."""
    all_null = " AND ".join(f"{quote(field.name)} IS NULL" for field in columns)
    return f"IF({all_null}, NULL, {hash_in_order(columns)})"
