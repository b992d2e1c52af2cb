"""
Net changes: a feed's rows as one change per key.

A change is a key with its old and its new row; a missing new row is a tombstone, a missing old row an insert. Within
and across versions a feed is read as a bag: an overwrite or a restore lists every row as deleted and inserted in no
order, and whatever occurs on both sides cancels out. Rows cancel only if they are identical: 0.0 and -0.0 are equal as
values of the result, but an expression may tell them apart.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse.sqltext import numbered, quote, row_struct, struct
from lakehouse.values import comparable, identical, same, type_sql


def key_struct(key: Sequence[str], types: Sequence[DataType], prefix: str = "") -> str:
    """
    Give the SQL of a row's key as both sides of a join name it: struct<k0, k1, …> in the common types.

    Args:
        key: The key columns, in the order of the join's key.
        types: For each the type in which the sides are compared.
        prefix: What the columns are fields of, with the dot: "r.".
    """
    return numbered(f"CAST({prefix}{quote(name)} AS {type_sql(kind)})" for name, kind in zip(key, types, strict=True))


def null_key(key: Sequence[str], prefix: str = "") -> str:
    """Give the SQL that tells whether a row has no key: a composite key with any null part is null (KIP-962)."""
    return "(" + (" OR ".join(f"{prefix}{quote(name)} IS NULL" for name in key) or "FALSE") + ")"


def net(
    feed: DataFrame,
    key: Sequence[str],
    types: Sequence[DataType],
    columns: Mapping[str, DataType],
    scope: Sequence[str] = (),
) -> DataFrame:
    """
    Net a feed to one change per key.

    Args:
        feed: The columns with `_change_type` as Delta names it, and the scope columns.
        key: The key columns.
        types: The types of the key parts in the changes.
        columns: The columns that belong to the row, with their types; differences elsewhere are no change.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `key` (struct<k0, …>), `old` and `new` (struct of the columns, null if absent) and `copies`
        (bigint, the most rows left over for either image; more than 1 is a duplicate key). Rows without a key are left
        out, keys whose changes cancel out too.
    """
    # Rows are grouped by one struct, not column by column: Spark derives each mixture of a column and its copy from a
    # projection, and each mixture of the columns that a frame is partitioned by, one call within another.
    forms = {name: identical(quote(name), kind) for name, kind in columns.items()}
    rewritten = {name: form for name, form in forms.items() if form != quote(name)}
    plain = [name for name in columns if name not in rewritten]
    grouped = {"plain": row_struct(plain)} if plain else {}
    if rewritten:
        grouped["rewritten"] = struct(rewritten)
    arrives = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
    rows = feed.where(f"NOT {null_key(key)}").select(
        *(F.col(quote(name)) for name in scope),
        F.expr(key_struct(key, types)).alias("key"),
        F.expr(arrives).alias("arrives"),
        *(F.expr(sql).alias(name) for name, sql in grouped.items()),
        *([F.expr(row_struct(rewritten)).alias("as_read")] if rewritten else []),
    )
    as_read = [F.first("as_read").alias("as_read")] if rewritten else []
    left_over = rows.groupBy(*scope, "key", *grouped).agg(F.sum("arrives").alias("surplus"), *as_read)
    left_over = left_over.where("surplus <> 0")
    parts = {name: f"{'as_read' if name in rewritten else 'plain'}.{quote(name)}" for name in columns}
    row = struct(parts) if rewritten else "plain"
    return left_over.groupBy(*scope, "key").agg(
        F.first(F.expr(f"IF(surplus < 0, {row}, NULL)"), ignorenulls=True).alias("old"),
        F.first(F.expr(f"IF(surplus > 0, {row}, NULL)"), ignorenulls=True).alias("new"),
        F.greatest(F.sum(F.expr("IF(surplus < 0, -surplus, 0)")), F.sum(F.expr("IF(surplus > 0, surplus, 0)"))).alias(
            "copies"
        ),
    )


def as_feed(changes: DataFrame) -> DataFrame:
    """Write changes as a feed again: the columns of `old` and `new`, and `_change_type`."""
    images = "array(named_struct('kind', 'delete', 'row', old), named_struct('kind', 'insert', 'row', new))"
    rows = changes.select(F.explode(F.expr(images)).alias("image")).where("image.row IS NOT NULL")
    return rows.select("image.row.*", F.col("image.kind").alias("_change_type"))


def each_change(feed: DataFrame, key: Sequence[str], columns: Mapping[str, DataType]) -> DataFrame:
    """
    Give the changes of a feed one by one, each commit for itself.

    What a commit lists as deleted and inserted alike, as an overwrite or a restore does, is no change of it; an update
    is one even if it changes nothing.

    Args:
        feed: The columns with `_change_type` and `_commit_version` as Delta names them.
        key: The key columns.
        columns: All columns of a row, with their types.

    Returns:
        `_change_type` (insert, update or delete), `_commit_version`, `old` and `new` (struct of the columns, null if
        absent). A key that a commit changes more than once has a row for each change.
    """
    row = row_struct(columns)
    arrives = "_change_type IN ('insert', 'update_postimage')"
    images = feed.select(
        *(F.expr(comparable(quote(name), columns[name])).alias(f"k{place}") for place, name in enumerate(key)),
        "_commit_version",
        F.expr(arrives).alias("arrives"),
        F.expr("_change_type LIKE 'update%'").alias("updates"),
        F.expr(row).alias("row"),
    )
    of_key = ["_commit_version", *(f"k{place}" for place in range(len(key)))]
    among = Window.partitionBy(*of_key, "arrives").orderBy(F.col("updates").desc())
    pairs = images.withColumn("number", F.row_number().over(among)).groupBy(*of_key, "number")
    changes = pairs.agg(
        F.first(F.expr("IF(arrives, NULL, row)"), ignorenulls=True).alias("old"),
        F.first(F.expr("IF(arrives, row, NULL)"), ignorenulls=True).alias("new"),
        F.bool_or("updates").alias("updates"),
    )
    kind = "CASE WHEN new IS NULL THEN 'delete' WHEN old IS NULL THEN 'insert' ELSE 'update' END"
    is_change = f"updates OR NOT {same('old', 'new', StructType([StructField(*item) for item in columns.items()]))}"
    return changes.where(is_change).select(F.expr(kind).alias("_change_type"), "_commit_version", "old", "new")
