"""
The keys of rows, and net changes: the rows of a change feed as one change per key.

A change is a key with its old and its new row. A missing new row is a tombstone, a missing old row is an insert. The
feed is read as a bag, within and across versions: an overwrite or a restore lists every row as deleted and as inserted,
in no order, and rows that occur on both sides cancel out. Rows cancel only if they are identical: the result treats 0.0
and -0.0 as equal, but an expression may distinguish them.
"""

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse.values.compare import INTEGRAL, comparable, identical, same, type_sql
from lakehouse.values.sqltext import numbered, quote, row_struct, struct


def key_struct(key: Sequence[str], types: Sequence[DataType], prefix: str = "") -> str:
    """Return the SQL of a row's key as both sides of a join use it: struct<k0, k1, …> in the common types."""
    return numbered(f"CAST({prefix}{quote(name)} AS {type_sql(part)})" for name, part in zip(key, types, strict=True))


def null_key(key: Sequence[str], *, may_be_absent: bool = False) -> str:
    """Return the predicate for rows without a key: any part is null (KIP-962), or all are if a side may be absent."""
    return all_or_any_null([quote(name) for name in key], are_all=may_be_absent)


def all_or_any_null(parts: Sequence[str], *, are_all: bool) -> str:
    """Return the SQL predicate that all parts of a key, given as SQL, are null, or that any part is."""
    return "(" + ((" AND " if are_all else " OR ").join(f"{part} IS NULL" for part in parts) or "FALSE") + ")"


def no_reference(expressions: Sequence[str], null_safe: Collection[int]) -> str:
    """
    Return the SQL predicate that a row refers to nothing, by the SQL of what equals each part of the key. Null is a
    value for parts at the positions `null_safe`, which `<=>` compares; no row has a key of nulls alone.
    """
    plain = [f"({expression})" for index, expression in enumerate(expressions) if index not in null_safe]
    return all_or_any_null(plain or [f"({expression})" for expression in expressions], are_all=not plain)


def wrong_key(sides: Sequence[Sequence[str]], may_be_absent: Sequence[bool]) -> str:
    """
    Return the SQL predicate for rows with a wrong key of several tables: half of the key of one, or no key at all. Each
    side has the parts of a table's key, as SQL, all null where a row lacks the table, and whether parts may be null.
    """
    absent = [all_or_any_null(parts, are_all=True) for parts in sides]
    half = (
        f"({all_or_any_null(parts, are_all=False)} AND NOT {no_part})"
        for parts, no_part, may_lack in zip(sides, absent, may_be_absent, strict=True)
        if not may_lack
    )
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
        columns: The columns of the row; differences in other columns are not changes.
        scope: Columns that separate independent histories.

    Returns:
        The scope columns, `key` (struct<k0, …>), `old` and `new` (struct of the columns, null if absent) and `copies`
        (bigint, the larger number of rows that remain for either image; more than 1 means a duplicate key).
    """
    # Group rows by one struct, not by each column: Spark derives every combination of a column and its copy from a
    # projection, and, by nested calls, every combination of the columns that partition a frame.
    forms = {name: identical(quote(name), data_type) for name, data_type in columns.items()}
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
    images = "array(named_struct('type', 'delete', 'row', old), named_struct('type', 'insert', 'row', new))"
    rows = changes.select(F.explode(F.expr(images)).alias("image")).where("image.row IS NOT NULL")
    return rows.select("image.row.*", F.col("image.type").alias("_change_type"))


def each_change(feed: DataFrame, key: Sequence[str], columns: Mapping[str, DataType]) -> DataFrame:
    """
    Return the changes of a feed one by one, separately for each commit; one commit may change a key more than once.

    A row that a commit lists as both deleted and inserted, as an overwrite or a restore does, is not a change. An
    update is a change even if it alters no value.

    Returns:
        `_change_type` (insert, update or delete), `_commit_version`, `old` and `new` (struct of the columns, null if
        absent).
    """
    row = row_struct(columns)
    arrives = "_change_type IN ('insert', 'update_postimage')"
    images = feed.select(
        *(F.expr(comparable(quote(name), columns[name])).alias(f"k{number}") for number, name in enumerate(key)),
        "_commit_version",
        F.expr(arrives).alias("arrives"),
        F.expr("_change_type LIKE 'update%'").alias("updates"),
        F.expr(row).alias("row"),
    )
    of_key = ["_commit_version", *(f"k{number}" for number in range(len(key)))]
    among = Window.partitionBy(*of_key, "arrives").orderBy(F.col("updates").desc())
    pairs = images.withColumn("number", F.row_number().over(among)).groupBy(*of_key, "number")
    changes = pairs.agg(
        F.first(F.expr("IF(arrives, NULL, row)"), ignorenulls=True).alias("old"),
        F.first(F.expr("IF(arrives, row, NULL)"), ignorenulls=True).alias("new"),
        F.bool_or("updates").alias("updates"),
    )
    change_type = "CASE WHEN new IS NULL THEN 'delete' WHEN old IS NULL THEN 'insert' ELSE 'update' END"
    is_change = f"updates OR NOT {same('old', 'new', StructType([StructField(*column) for column in columns.items()]))}"
    return changes.where(is_change).select(F.expr(change_type).alias("_change_type"), "_commit_version", "old", "new")


def fields_of(frame: DataFrame, column: str) -> StructType:
    """Return the fields of a struct column, such as `key` or `after` of a staged change set."""
    data_type = frame.schema[column].dataType
    assert isinstance(data_type, StructType)
    return data_type


_PACKED = 64
"""Neighbouring numbers that one word of bits holds."""


def has_repeated_keys(rows: DataFrame, key: Sequence[str], *, may_be_absent: bool = False) -> bool:
    """
    Return whether several rows have the same key; rows without a key do not count, but those with a part of it do if
    parts `may_be_absent`.

    If a part of the key is an integer, its values are marked in words of 64 bits, one word for each 64 neighbouring
    numbers. A word in which fewer bits are set than rows were marked has a key more than once. Keys that are dense, as
    generated ones are, need few words: of 4 million rows 0.5 s instead of 2.7 s for grouping by the whole key.
    """
    types = {name: rows.schema[name].dataType for name in key}
    # A null has no bit.
    integers = [] if may_be_absent else [name for name in key if isinstance(types[name], INTEGRAL)]
    packed = integers[-1] if integers else None
    parts = [F.expr(comparable(quote(name), types[name])) for name in types if name != packed]
    if packed is None:
        bits = F.lit(1)  # each group has the rows of one key
    else:
        number = f"CAST({quote(packed)} AS BIGINT)"
        parts.append(F.expr(f"shiftright({number}, 6)"))
        bits = F.expr(f"bit_count(bit_or(shiftleft(1L, CAST({number} & {_PACKED - 1} AS INT))))")
    named = [part.alias(f"k{number}") for number, part in enumerate(parts)]
    keyed = rows.where(f"NOT {null_key(key, may_be_absent=may_be_absent)}")
    groups = keyed.groupBy(*named).agg(F.count(F.lit(1)).alias("rows"), bits.alias("keys"))
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    return bool(groups.agg(F.count_if(F.expr("rows > keys")).alias("repeated")).collect()[0]["repeated"])
