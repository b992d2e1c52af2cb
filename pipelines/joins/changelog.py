"""
The changelog table of a result, `<result>__changelog`, to which each epoch appends its rows.

It has at most one row for each causing change and key of the result. The result equals the last row of each key in the
order of `_epoch` and then `_position`. Rows of several keys share a position; where rows match in any number, a reader
takes those of a position in the order of `_op`, tombstones first, or all at once.

The rules that decide which pieces of a timeline get a changelog row, over `old` and `new`:

    old      new      strict            kafka, kafka-0.10.2                            kafka-0.10.0
    any      present  upsert if it      upsert                                         upsert
                      differs
    present  absent   tombstone         tombstone                                      tombstone
    absent   absent   nothing, ever     by key: tombstone if the other side has a row  tombstone
                                        foreign key, the referenced side changed:
                                          tombstone
                                        foreign key, inner, the referring side
                                          changed: tombstone if its old reference
                                          was not null and differs from the new one

`strict` is stricter than Kafka Streams, whose library (3.9.1) emits tombstones for keys that its result never
contained. The other semantics reproduce the library exactly: KIP-77 for 0.10.2, and the behaviour before it for 0.10.0.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from lakehouse.values.compare import same, type_sql
from lakehouse.values.net_changes import each_change, key_struct
from lakehouse.values.sqltext import quote, row_struct, struct, text
from pipelines.joins.difference import Subset, differing
from pipelines.joins.timeline import BEGINNING
from pipelines.language import CHANGELOG_COLUMNS, ResolvedQuery, Semantics
from pipelines.language.names import PREFIX

UPSERT, TOMBSTONE = "upsert", "tombstone"
OP = CHANGELOG_COLUMNS[0]
"""The column that says which of them a row is."""

BACKFILL = "backfill"
"""The cause of a row that a reconciliation adds because the changelog's last row for a key differs from the result."""

POSITIONS_PER_EPOCH = 2**31
"""More than the positions of any epoch: the factor that combines epoch and position into one number."""

BEFORE_ALL = "TIMESTAMP '1970-01-01 00:00:00Z'"
"""The time that orders the rows of a backfill before all other changes."""

PREVIOUS = f"{PREFIX}previous"
"""The struct of the previous row; a result may have a column of any other name."""

COLUMN_TYPES = dict(
    zip(CHANGELOG_COLUMNS, (StringType(), StringType(), LongType(), LongType(), TimestampType()), strict=True)
)


def emitted(timeline: DataFrame, join: ResolvedQuery, columns: StructType, semantics: Semantics) -> DataFrame:
    """
    Return the changelog of an epoch: one row for each source change and result key that the rules emit.

    Returns:
        `position`, `cause` (the name of the source that changed), `op` (upsert or tombstone), `key` (struct of the key
        columns), `old` and `new` (struct of the result's columns; null if absent).
    """
    in_order = Window.partitionBy("key").orderBy("position")
    old = {"old": F.lag("row").over(in_order), "old_reference": F.lag("reference").over(in_order)}
    steps = timeline.withColumns(old).withColumnRenamed("row", "new").where(F.col("position") > BEGINNING)
    sources = ", ".join(text(item.source) for item in join.inputs)
    typed = ((name, f"CAST(key.k{index} AS {type_sql(columns[name].dataType)})") for index, name in enumerate(join.key))
    keys = {name: f"coalesce(new.{quote(name)}, old.{quote(name)}, {part})" for name, part in typed}
    return steps.where(_emits(join, columns, semantics)).select(
        "position",
        F.expr(f"element_at(array({sources}), cause + 1)").alias("cause"),
        F.expr(f"IF(new IS NULL, '{TOMBSTONE}', '{UPSERT}')").alias("op"),
        F.expr(struct(keys)).alias("key"),
        "old",
        "new",
    )


def _emits(join: ResolvedQuery, columns: StructType, semantics: Semantics) -> str:
    if semantics == "strict":
        return f"NOT {same('old', 'new', columns)}"
    if semantics == "kafka-0.10.0":
        return "TRUE"
    unnecessary = "other"  # tombstones of Kafka Streams for keys that its result does not contain
    if join.links:
        unnecessary = f"cause = {join.links[0].input}"
        if join.steps[0].how == "inner":
            unnecessary += " OR (old_reference IS NOT NULL AND NOT old_reference <=> reference)"
    return f"new IS NOT NULL OR old IS NOT NULL OR {unnecessary}"


def changelog_schema(columns: StructType) -> StructType:
    """
    Return the columns of a changelog.

    These are the result's columns, then `_op` (string: upsert or tombstone), `_cause` (string: the name in FROM of the
    source that changed, or backfill), `_position` (bigint: within the epoch), `_epoch` (bigint) and `_at` (timestamp of
    the change).
    """
    return StructType([*columns, *(StructField(name, data_type) for name, data_type in COLUMN_TYPES.items())])


def changelog_rows(rows: DataFrame, key: Sequence[str], columns: StructType, epoch: int) -> DataFrame:
    """
    Convert `position`, `at`, `cause`, `op`, `key` and `new` of an epoch's changes to rows of the changelog.

    A tombstone has null in all columns except the key.
    """
    structs = {field.name: "key" if field.name in key else "new" for field in columns}
    values = [F.col(f"{structs[field.name]}.{quote(field.name)}").cast(field.dataType) for field in columns]
    at = F.expr(f"IF(at = {BEFORE_ALL}, current_timestamp(), at)")
    added = [F.col("op"), F.col("cause"), F.col("position"), F.lit(epoch).cast("bigint"), at]
    named = zip(changelog_schema(columns).fieldNames(), [*values, *added], strict=True)
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

    Their position precedes all other changes of the epoch; their cause is `backfill`. A subset is the part of the
    result to reconcile.
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
    keys = [F.col(quote(name)).alias(f"k{index}") for index, name in enumerate(key)]
    last = changelog.groupBy(*keys).agg(F.max_by(row, F.struct("_epoch", "_position")).alias("last"))
    return last.where(f"last._op = '{UPSERT}'").select("last.*").drop("_op")


def logged_changes(fresh: DataFrame, before: DataFrame, key: Sequence[str], types: Mapping[str, DataType]) -> DataFrame:
    """
    Read the rows of a changelog as the changes of a source.

    Args:
        before: Earlier rows, including those of the same keys.
        types: The columns to return, with their types.

    Returns:
        For each fresh row `key` (struct<k0, …>), `version` (bigint, in the order of the changelog), `at`, and `old` and
        `new` (struct of the columns; null if absent). The rows of a backfill precede all others in time.
    """

    def versions(rows: DataFrame, *, are_fresh: bool) -> DataFrame:
        return rows.select(
            F.expr(key_struct(key, [types[name] for name in key])).alias("key"),
            F.expr(f"_epoch * {POSITIONS_PER_EPOCH} + _position").alias("version"),
            F.expr(f"IF(_cause = '{BACKFILL}', {BEFORE_ALL}, _at)").alias("at"),
            F.expr(f"IF(_op = '{UPSERT}', {row_struct(types)}, NULL)").alias("new"),
            F.lit(are_fresh).alias("fresh"),
        )

    later = versions(fresh, are_fresh=True)
    earlier = versions(before, are_fresh=False).join(later.select("key").distinct(), on="key", how="left_semi")
    old = F.lag("new").over(Window.partitionBy("key").orderBy("version"))
    return later.unionAll(earlier).withColumn("old", old).where("fresh").select("key", "version", "at", "old", "new")


class Before(NamedTuple):
    """
    The names of the columns that hold the previous row of a key.

    Args:
        values: For each column of a row, the column with its previous value.
        known: The boolean column that is true if the key existed before.
    """

    values: Mapping[str, str]
    known: str


def before_of(names: Sequence[str], taken: Sequence[str]) -> Before:
    """Choose names for the previous values of `names` that differ from the existing columns `taken`."""
    used = {name.lower() for name in taken}

    def free(name: str) -> str:
        while name.lower() in used:
            name += "_"
        return name

    return Before({name: free(f"{name} before") for name in names}, free("existed before"))


def changes_of(feed: DataFrame, key: Sequence[str], columns: StructType, before: Before) -> DataFrame:
    """
    Return the changes of a result with a key, each with the previous row of its key, from its feed.

    Returns:
        The result's columns (in a delete all are null except the key), `_change_type` (insert, update or delete),
        `_commit_version`, and the columns of the previous row.
    """
    changes = each_change(feed, key, {field.name: field.dataType for field in columns})
    now = (
        F.expr(f"coalesce(new.{quote(name)}, old.{quote(name)})" if name in key else f"new.{quote(name)}").alias(name)
        for name in columns.fieldNames()
    )
    return changes.select(*now, "_change_type", "_commit_version", *_values(before, "old"))


def logged_between(
    changelog: DataFrame, epochs: tuple[int, int], key: Sequence[str], columns: StructType, before: Before
) -> DataFrame:
    """
    Return the changelog rows of a range of epochs, first and last, each with its key's row before the first of them.

    The earlier row is in the columns that `before` names.
    """
    first, last = epochs
    rows = changelog.where(f"_epoch BETWEEN {first} AND {last}").alias("logged")
    same_key = " AND ".join(f"logged.{quote(name)} <=> earlier.{quote(name)}" for name in key)
    keys = rows.select(*(F.col(quote(name)) for name in key)).distinct().alias("logged")
    earlier = changelog.where(f"_epoch < {first}").alias("earlier").join(keys, on=F.expr(same_key), how="left_semi")
    previous = last_rows(earlier, columns, key).select(F.struct("*").alias(PREVIOUS))
    is_previous = " AND ".join(f"logged.{quote(name)} <=> {PREVIOUS}.{quote(name)}" for name in key)
    return rows.join(previous, on=F.expr(is_previous), how="left").select("logged.*", *_values(before, PREVIOUS))


def _values(before: Before, row: str) -> list[Column]:
    """Select the columns of the previous row from a struct that is null if the key did not exist before."""
    values = [F.col(f"{row}.{quote(name)}").alias(earlier) for name, earlier in before.values.items()]
    return [*values, F.col(row).isNotNull().alias(before.known)]
