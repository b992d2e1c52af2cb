"""
Net changes: the rows of a change feed as one change per key.

A change is a key with its old and its new row. A missing new row is a tombstone, a missing old row is an insert. The
feed is read as a bag, within and across versions: an overwrite or a restore lists every row as deleted and as inserted,
in no order, and rows that occur on both sides cancel out. Rows cancel only if they are identical: the result treats 0.0
and -0.0 as equal, but an expression may distinguish them.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse.values.compare import comparable, identical, same, type_sql
from lakehouse.values.sqltext import numbered, quote, row_struct, struct


def key_struct(key: Sequence[str], types: Sequence[DataType], prefix: str = "") -> str:
    """
    Return the SQL of a row's key in the form that both sides of a join use: struct<k0, k1, …> in the common types. The
    prefix is the struct that contains the columns, with the dot: "r.".
    """
    return numbered(f"CAST({prefix}{quote(name)} AS {type_sql(kind)})" for name, kind in zip(key, types, strict=True))


def null_key(key: Sequence[str], *, may_be_absent: bool = False) -> str:
    """Return the predicate for rows without a key: any part is null (KIP-962), or all are if a side may be absent."""
    return all_or_any_null([quote(name) for name in key], are_all=may_be_absent)


def all_or_any_null(parts: Sequence[str], *, are_all: bool) -> str:
    """Return the SQL predicate that all parts of a key, given as SQL, are null, or that any part is."""
    return "(" + ((" AND " if are_all else " OR ").join(f"{part} IS NULL" for part in parts) or "FALSE") + ")"


def no_reference(expressions: Sequence[str], null_safe: Collection[int]) -> str:
    """
    Return the SQL predicate that a row refers to nothing, by the SQL of what equals each part of the key.

    Args:
        null_safe: The positions of those that `<=>` compares, for which null is a value. No row has a key of nulls
            alone.
    """
    plain = [f"({expression})" for place, expression in enumerate(expressions) if place not in null_safe]
    return all_or_any_null(plain or [f"({expression})" for expression in expressions], are_all=not plain)


def wrong_key(sides: Sequence[Sequence[str]], may_be_absent: Sequence[bool]) -> str:
    """
    Return the SQL predicate for rows with a wrong key of several tables: half of the key of one, or no key at all.

    Args:
        sides: For each table the parts of its key, as SQL; all of them are null where a row lacks the table.
        may_be_absent: For each table whether parts of the key of a row may be null.
    """
    absent = [all_or_any_null(parts, are_all=True) for parts in sides]
    lacking = [all_or_any_null(parts, are_all=False) for parts in sides]
    parts = zip(lacking, absent, may_be_absent, strict=True)
    half = (f"({some} AND NOT {no})" for some, no, may_lack in parts if not may_lack)
    return "(" + " OR ".join([*half, f"({' AND '.join(absent)})"]) + ")"


def net(
    feed: DataFrame,
    key: Sequence[str],
    types: Sequence[DataType],
    columns: Mapping[str, DataType],
    scope: Sequence[str] = (),
    *,
    may_be_absent: bool = False,
) -> DataFrame:
    """
    Reduce a feed to one net change per key; rows without a key and keys whose changes cancel out are omitted.

    Args:
        feed: The columns, `_change_type` as Delta defines it, and the scope columns.
        types: The types of the key parts in the changes.
        columns: The columns of the row, with their types; differences in other columns are not changes.
        scope: Columns that separate independent histories.
        may_be_absent: Whether parts of a key may be null.

    Returns:
        The scope columns, `key` (struct<k0, …>), `old` and `new` (struct of the columns, null if absent) and `copies`
        (bigint, the larger number of rows that remain for either image; more than 1 means a duplicate key).
    """
    # Group rows by one struct, not by each column: Spark derives every combination of a column and its copy from a
    # projection, and, by nested calls, every combination of the columns that partition a frame.
    forms = {name: identical(quote(name), kind) for name, kind in columns.items()}
    rewritten = {name: form for name, form in forms.items() if form != quote(name)}
    plain = [name for name in columns if name not in rewritten]
    grouped = {"plain": row_struct(plain)} if plain else {}
    if rewritten:
        grouped["rewritten"] = struct(rewritten)
    arrives = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
    rows = feed.where(f"NOT {null_key(key, may_be_absent=may_be_absent)}").select(
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
    """Convert changes back to a feed: the columns of `old` and `new`, and `_change_type`."""
    images = "array(named_struct('kind', 'delete', 'row', old), named_struct('kind', 'insert', 'row', new))"
    rows = changes.select(F.explode(F.expr(images)).alias("image")).where("image.row IS NOT NULL")
    return rows.select("image.row.*", F.col("image.kind").alias("_change_type"))


def each_change(feed: DataFrame, key: Sequence[str], columns: Mapping[str, DataType]) -> DataFrame:
    """
    Return the changes of a feed one by one, separately for each commit; one commit may change a key more than once.

    A row that a commit lists as both deleted and inserted, as an overwrite or a restore does, is not a change. An
    update is a change even if it alters no value.

    Args:
        feed: The columns, and `_change_type` and `_commit_version` as Delta defines them.
        columns: All columns of a row, with their types.

    Returns:
        `_change_type` (insert, update or delete), `_commit_version`, `old` and `new` (struct of the columns, null if
        absent).
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


def fields_of(frame: DataFrame, column: str) -> StructType:
    """Return the fields of a struct column, such as `key` or `after` of a staged change set."""
    struct = frame.schema[column].dataType
    assert isinstance(struct, StructType)
    return struct
