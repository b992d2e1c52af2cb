"""
The KTable of a changelog source: of each key the latest row, a tombstone being one too.

    raw rows ──► offers, one for each key, order and commit ──► latest, against what is held ──► change set

| a row of a key | then |
|---|---|
| of greater order than what is held | it is held |
| of equal order, in a later commit | it is held |
| of smaller order; null is smaller than all | nothing: it is late |
| of equal order with another one of its commit | one of them is taken, and the others are ties |

Of ties a tombstone is taken before any other row, then the row with the greatest values, column by column, the key
first, then in the order of the table (null is the smallest, floating point numbers compare as their texts).

A tombstone keeps its key and its order and nothing else, so that an older row that comes late resurrects nothing.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.changes import key_struct, null_key
from lakehouse.sqltext import quote, row_struct, struct
from lakehouse.values import identical, same
from pipelines.spec import Changelog
from pipelines.spec.names import DELETED, ORDER
from pipelines.spec.statement.added_columns import VERSION


def candidates(rows: DataFrame, changelog: Changelog, scope: Sequence[str] = ()) -> DataFrame:
    """
    Choose from the raw rows of each commit those that could be the latest of their keys.

    Args:
        rows: The columns of the source, `_lakejoin_version` (bigint) and the scope columns.
        changelog: How they are read.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `key` (struct<k0, …>), `ord` (the order), `_lakejoin_version`, `row` (struct of the KTable's
        columns) and `number` (bigint, of how many raw rows it was taken). Rows without a key are left out.
    """
    kinds = {name: rows.schema[name].dataType for name in changelog.columns}
    key_types = [kinds[name] for name in changelog.key]
    taken = rows.where(f"NOT {null_key(changelog.key)}").select(
        *(F.col(quote(name)) for name in scope),
        VERSION,
        F.expr(key_struct(changelog.key, key_types)).alias("key"),
        F.col(quote(changelog.order)).alias("ord"),
        F.expr(f"coalesce({changelog.tombstone}, false)").alias("dead"),
        F.struct(*(F.col(quote(name)) for name in changelog.columns)).alias("raw"),
    )
    values = {name: quote("raw", name) for name in changelog.columns}
    fields = {name: value if name in changelog.key else f"IF(dead, NULL, {value})" for name, value in values.items()}
    row = struct({**fields, DELETED: "dead", ORDER: "ord"})
    in_order = {f"c{n}": identical(values[name], kind) for n, (name, kind) in enumerate(kinds.items())}
    return taken.groupBy(*scope, "key", "ord", VERSION).agg(
        F.max_by(F.expr(row), F.expr(struct({"dead": "dead", **in_order}))).alias("row"),
        F.count(F.lit(1)).alias("number"),
    )


def latest(offered: DataFrame, existing: DataFrame, key: Sequence[str], scope: Sequence[str] = ()) -> DataFrame:
    """
    Compute what offers change in a KTable.

    Args:
        offered: What `candidates` returns; all of later commits than the existing rows.
        existing: The rows of the KTable, tombstones among them: the scope columns and its own. Only rows with one of
            the keys matter.
        key: The key columns.
        scope: Columns that keep independent histories apart.

    Returns:
        One row for each offered key: the scope columns, `op` (insert, update; null if nothing changes), `key` (struct
        of the key columns), `before` and `after` (struct of the KTable's columns; `before` is null if there is none),
        `late` (bigint, raw rows that are older than what is held) and `ties` (bigint, raw rows besides the one that was
        taken of several of one commit with equal order).
    """
    columns = StructType([field for field in existing.schema if field.name not in scope])
    key_types = [columns[name].dataType for name in key]
    rows = existing.select(
        *(F.col(quote(name)) for name in scope),
        F.expr(key_struct(key, key_types)).alias("key"),
        F.struct(*(F.col(quote(field.name)) for field in columns)).alias("before"),
    )
    same_key = " AND ".join(f"{quote('offer', name)} = {quote('held', name)}" for name in (*scope, "key"))
    late = f"IF({_is_older('offer.ord', f'held.before.{ORDER}')}, number, 0L)"
    newest = (
        offered.alias("offer")
        .join(rows.alias("held"), on=F.expr(same_key), how="left")
        .groupBy(*(F.col(quote("offer", name)) for name in (*scope, "key")))
        .agg(
            F.first("before").alias("before"),
            F.max_by("row", F.struct("ord", VERSION)).alias("after"),
            F.sum(F.expr(late)).alias("late"),
            F.sum(F.expr("number - 1")).alias("ties"),
        )
    )
    wins = f"NOT {_is_older(f'after.{ORDER}', f'before.{ORDER}')} AND NOT {same('before', 'after', columns)}"
    return newest.select(
        *(F.col(quote(name)) for name in scope),
        F.expr(f"CASE WHEN before IS NULL THEN 'insert' WHEN {wins} THEN 'update' END").alias("op"),
        F.expr(row_struct(key, "after.")).alias("key"),
        "before",
        "after",
        "late",
        "ties",
    )


def accepted(offered: DataFrame, changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """
    Give the changes that the offers of an epoch make one by one, those too that change nothing.

    Args:
        offered: Offers, as `candidates` gives them, with `at` (timestamp of their commit).
        changes: What became of the KTable in all: `key` and `old` (struct of its columns; null if there was none), of
            each key that it changed.
        columns: The columns that are wanted.

    Returns:
        For each offer that was held when it came, a tombstone of an absent key among them: `key`, `version` (bigint, in
        the order of commits, then of the order), `at`, `ord` (its order), and `old` and `new` (struct of the columns;
        null if absent).
    """

    def live(row: str) -> str:
        return f"IF(coalesce({row}.{DELETED}, true), NULL, {row_struct(columns, f'{row}.')})"

    came = Window.partitionBy("key").orderBy(VERSION, "ord")
    earlier = came.rowsBetween(Window.unboundedPreceding, -1)
    known = offered.join(changes.select("key", "old"), on="key", how="inner")
    judged = known.withColumn("greatest", F.greatest(F.max("ord").over(earlier), F.expr(f"old.{ORDER}")))
    existing = judged.where(f"NOT {_is_older('ord', 'greatest')}").withColumn("new", F.expr(live("row")))
    before = F.when(F.row_number().over(came) == 1, F.expr(live("old"))).otherwise(F.lag("new").over(came))
    return existing.select(
        "key",
        F.row_number().over(Window.orderBy(VERSION, "ord", "key")).cast("bigint").alias("version"),
        "at",
        "ord",
        before.alias("old"),
        "new",
    )


def _is_older(one: str, other: str) -> str:
    """Give the SQL that tells whether an order is smaller than another; null is smaller than all but null."""
    return f"({other} IS NOT NULL AND ({one} IS NULL OR {one} < {other}))"
