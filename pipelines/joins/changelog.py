"""
The changelog table of a result, `<result>__changelog`, to which each epoch appends its rows.

It has at most one row for each causing change and key of the result. The result equals the last row of each key in the
order of `_epoch` and then `_position`. Rows of several keys share a position; where rows match in any number, a reader
takes those of a position in the order of `_op`, tombstones first, or all at once.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from lakehouse.values.net_changes import key_struct
from lakehouse.values.sqltext import quote, row_struct
from pipelines.joins.emission_rules import TOMBSTONE, UPSERT
from pipelines.joins.filter import Subset, differing
from pipelines.joins.versions import BEGINNING
from pipelines.language import CHANGELOG_COLUMNS

BACKFILL = "backfill"
"""The cause of a row that a reconciliation adds because the changelog's last row for a key differs from the result."""

POSITIONS_PER_EPOCH = 2**31
"""More than the positions of any epoch: the factor that combines epoch and position into one number."""

BEFORE_ALL = "TIMESTAMP '1970-01-01 00:00:00Z'"
"""The time that orders the rows of a backfill before all other changes."""

COLUMN_TYPES = dict(
    zip(CHANGELOG_COLUMNS, (StringType(), StringType(), LongType(), LongType(), TimestampType()), strict=True)
)


def changelog_schema(columns: StructType) -> StructType:
    """
    Return the columns of a changelog.

    These are the result's columns, then `_op` (string: upsert or tombstone), `_cause` (string: the name in FROM of the
    source that changed, or backfill), `_position` (bigint: within the epoch), `_epoch` (bigint) and `_at` (timestamp of
    the change).
    """
    return StructType([*columns, *(StructField(name, kind) for name, kind in COLUMN_TYPES.items())])


def changelog_rows(rows: DataFrame, key: Sequence[str], columns: StructType, epoch: int) -> DataFrame:
    """
    Convert `position`, `at`, `cause`, `op`, `key` and `new` of an epoch's changes to rows of the changelog.

    A tombstone has null in all columns except the key.
    """
    values = [
        F.col(f"key.{quote(field.name)}" if field.name in key else f"new.{quote(field.name)}").cast(field.dataType)
        for field in columns
    ]
    at = F.expr(f"IF(at = {BEFORE_ALL}, current_timestamp(), at)")
    found = [F.col("op"), F.col("cause"), F.col("position"), F.lit(epoch).cast("bigint"), at]
    named = zip(changelog_schema(columns).fieldNames(), [*values, *found], strict=True)
    return rows.select(*(value.alias(name) for name, value in named))


def missing_rows(
    changelog: DataFrame,
    result: DataFrame,
    key: Sequence[str],
    columns: StructType,
    epoch: int,
    subset: Subset | None = None,
) -> DataFrame:
    """
    Return the rows that a reconciliation appends: one for each key whose last row differs from the result.

    Their position precedes all other changes of the epoch; their cause is `backfill`.

    Args:
        subset: The part of the result to reconcile; None for the whole result.
    """
    wanted = result.select(*(F.col(quote(name)) for name in columns.fieldNames()))
    logged = changelog if subset is None else subset.rows(changelog)
    changes = differing(last_rows(logged, columns, key), wanted, key, subset).select(
        F.lit(BEGINNING).cast("bigint").alias("position"),
        F.current_timestamp().alias("at"),
        F.lit(BACKFILL).alias("cause"),
        F.expr(f"IF(op = 'delete', '{TOMBSTONE}', '{UPSERT}')").alias("op"),
        "key",
        F.col("after").alias("new"),
    )
    return changelog_rows(changes, key, columns, epoch)


def last_rows(changelog: DataFrame, columns: StructType, key: Sequence[str]) -> DataFrame:
    """Return the result that a changelog leads to: one row for each key whose last row is an upsert."""
    row = F.struct("_op", *(F.col(quote(name)) for name in columns.fieldNames()))
    keys = [F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(key)]
    last = changelog.groupBy(*keys).agg(F.max_by(row, F.struct("_epoch", "_position")).alias("last"))
    return last.where(f"last._op = '{UPSERT}'").select(
        *(F.col(f"last.{quote(name)}").alias(name) for name in columns.fieldNames())
    )


def logged_changes(fresh: DataFrame, before: DataFrame, key: Sequence[str], kinds: Mapping[str, DataType]) -> DataFrame:
    """
    Read the rows of a changelog as the changes of a source.

    Args:
        before: Earlier rows, including those of the same keys.
        kinds: The columns to return, with their types.

    Returns:
        For each fresh row `key` (struct<k0, …>), `version` (bigint, in the order of the changelog), `at`, and `old` and
        `new` (struct of the columns; null if absent). The rows of a backfill precede all others in time.
    """
    types = [kinds[name] for name in key]
    row = row_struct(kinds)

    def versions(rows: DataFrame, *, are_fresh: bool) -> DataFrame:
        return rows.select(
            F.expr(key_struct(key, types)).alias("key"),
            F.expr(f"_epoch * {POSITIONS_PER_EPOCH} + _position").alias("version"),
            F.expr(f"IF(_cause = '{BACKFILL}', {BEFORE_ALL}, _at)").alias("at"),
            F.expr(f"IF(_op = '{UPSERT}', {row}, NULL)").alias("new"),
            F.lit(are_fresh).alias("fresh"),
        )

    found = versions(fresh, are_fresh=True)
    earlier = versions(before, are_fresh=False).join(found.select("key").distinct(), on="key", how="left_semi")
    in_order = Window.partitionBy("key").orderBy("version")
    return (
        found.unionAll(earlier)
        .withColumn("old", F.lag("new").over(in_order))
        .where("fresh")
        .select("key", "version", "at", "old", "new")
    )
