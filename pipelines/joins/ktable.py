"""
The KTable of a changelog source: the latest row of each key, which may be a tombstone.

    raw rows ──► candidates, one for each key, order and commit ──► latest, compared with the stored row ──► change set

| a row of a key | effect |
|---|---|
| with a greater order than the stored row | it replaces the stored row |
| with an equal order, in a later commit | it replaces the stored row |
| with a smaller order; null is smaller than all | it is late and ignored |
| with the same order as another row of its commit | one of them is the candidate, the others are ties |

Among ties a tombstone precedes any other row; then the row with the greatest values is the candidate, compared column
by column, the key first, then in the order of the table (null is the smallest; floating point numbers compare as their
texts).

A tombstone keeps its key and its order and no other values, so a late older row cannot restore a deleted key.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehouse.values.compare import identical, same
from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import quote, row_struct, struct
from pipelines.language import Changelog
from pipelines.language.names import DELETED, ORDER, VERSION


def candidates(rows: DataFrame, changelog: Changelog) -> DataFrame:
    """
    Select the raw rows of each commit that can be the latest of their keys; rows with a null key are left out.

    Args:
        rows: The columns of the source and `_lakejoin_version` (bigint).

    Returns:
        `key` (struct<k0, …>), `ord` (the order), `_lakejoin_version`, `row` (struct of the KTable's columns) and
        `number` (bigint: how many raw rows it was selected from).
    """
    types = {name: rows.schema[name].dataType for name in changelog.columns}
    key = key_struct(changelog.key, [types[name] for name in changelog.key])
    keyed = rows.where(f"NOT {null_key(changelog.key)}").select(
        VERSION,
        F.expr(key).alias("key"),
        F.col(quote(changelog.order)).alias("ord"),
        F.expr(f"coalesce({changelog.tombstone}, false)").alias("dead"),
        F.struct(*map(quote, changelog.columns)).alias("raw"),
    )
    values = {name: quote("raw", name) for name in changelog.columns}
    fields = {name: value if name in changelog.key else f"IF(dead, NULL, {value})" for name, value in values.items()}
    row = struct({**fields, DELETED: "dead", ORDER: "ord"})
    in_order = {f"c{n}": identical(values[name], types[name]) for n, name in enumerate(types)}
    return keyed.groupBy("key", "ord", VERSION).agg(
        F.max_by(F.expr(row), F.expr(struct({"dead": "dead", **in_order}))).alias("row"),
        F.count(F.lit(1)).alias("number"),
    )


def latest(candidate_rows: DataFrame, existing: DataFrame, key: Sequence[str]) -> DataFrame:
    """
    Compute the change set that candidates make in a KTable.

    Args:
        candidate_rows: The result of `candidates`; their commits are later than those of the existing rows.
        existing: The rows of the KTable, including tombstones. Only rows with the key of a candidate matter.

    Returns:
        One row for each key of a candidate: `op` (insert, update; null if the row does not change), `key` (struct of
        the key columns), `before` and `after` (struct of the KTable's columns; `before` is null if the key is new),
        `late` (bigint: raw rows that are older than the stored row) and `ties` (bigint: raw rows that were not selected
        among those of one commit with equal order).
    """
    columns = existing.schema
    key_sql = key_struct(key, [columns[name].dataType for name in key])
    rows = existing.select(F.expr(key_sql).alias("key"), F.struct(*map(quote, columns.names)).alias("before"))
    late = f"IF({_is_older('candidate.ord', f'stored.before.{ORDER}')}, number, 0L)"
    newest = (
        candidate_rows.alias("candidate")
        .join(rows.alias("stored"), on=F.expr("candidate.key = stored.key"), how="left")
        .groupBy("candidate.key")
        .agg(
            F.first("before").alias("before"),
            F.max_by("row", F.struct("ord", VERSION)).alias("after"),
            F.sum(F.expr(late)).alias("late"),
            F.sum(F.expr("number - 1")).alias("ties"),
        )
    )
    wins = f"NOT {_is_older(f'after.{ORDER}', f'before.{ORDER}')} AND NOT {same('before', 'after', columns)}"
    return newest.select(
        F.expr(f"CASE WHEN before IS NULL THEN 'insert' WHEN {wins} THEN 'update' END").alias("op"),
        F.expr(row_struct(key, "after.")).alias("key"),
        "before",
        "after",
        "late",
        "ties",
    )


def accepted(candidate_rows: DataFrame, changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """
    Return the changes of an epoch's candidates one by one, including those that change nothing.

    Args:
        candidate_rows: The result of `candidates`, with `at` (timestamp of their commit).
        changes: `key` and `old` (struct of the KTable's columns; null if the key is new) of each changed key.

    Returns:
        One row for each candidate that was not late when it arrived, including a tombstone of an absent key: `key`,
        `version` (bigint, by commit and then by order), `at`, `ord` (its order), and `old` and `new` (struct of
        `columns`; null if absent).
    """

    def live(row: str) -> str:
        return f"IF(coalesce({row}.{DELETED}, true), NULL, {row_struct(columns, f'{row}.')})"

    by_commit = Window.partitionBy("key").orderBy(VERSION, "ord")
    earlier = by_commit.rowsBetween(Window.unboundedPreceding, -1)
    greatest = F.greatest(F.max("ord").over(earlier), F.expr(f"old.{ORDER}"))
    judged = candidate_rows.join(changes.select("key", "old"), on="key", how="inner").withColumn("greatest", greatest)
    in_time = judged.where(f"NOT {_is_older('ord', 'greatest')}").withColumn("new", F.expr(live("row")))
    before = F.when(F.row_number().over(by_commit) == 1, F.expr(live("old"))).otherwise(F.lag("new").over(by_commit))
    return in_time.select(
        "key",
        F.row_number().over(Window.orderBy(VERSION, "ord", "key")).cast("bigint").alias("version"),
        "at",
        "ord",
        before.alias("old"),
        "new",
    )


def _is_older(one: str, other: str) -> str:
    """Return the SQL condition that an order is smaller than another; null is smaller than all but null."""
    return f"({other} IS NOT NULL AND ({one} IS NULL OR {one} < {other}))"
