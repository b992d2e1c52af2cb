"""
The gate: a change set is checked against what is published before it is published itself.

It re-reads the stage and the result at the pinned version and shares no code with the joins, so that a mistake there
cannot hide here.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

from expectations.validation import Verdict, validated
from lakehouse.address import Address
from lakehouse.pruning import pruning
from lakehouse.sqltext import quote
from lakehouse.stage import fields_of
from lakehouse.tables import read
from lakehouse.values import comparable, same

RULES = {
    "unnecessary_tombstone": "no unnecessary tombstone: a delete removes a row that is there",
    "update_of_nothing": "an update changes a row that is there",
    "insert_of_present": "an insert adds a row that is not there",
    "changes_nothing": "no spurious row: an update changes something",
    "before_differs": "the staged row before the change is the published one",
    "loses_its_key": "the row after the change has the key of the change",
}

CHANGELOG_RULES = {
    "leads_elsewhere": "the last row of a key leads to what the epoch makes of it",
    "left_out": "every change of the result has a row in the changelog",
    "tombstone_of_nothing": "no unnecessary tombstone: what it deletes was there just before",
    "repeats": "no repeated value: an upsert changes something",
}
STREAM_RULES = {
    "number_differs": "the staged rows are those that were counted",
    "of_another_epoch": "every row is of the epoch that adds it",
    "has_no_position": "every row has its place in the order",
}
STRICT_RULES = ("tombstone_of_nothing", "repeats")
"""Rules that the semantics of Kafka Streams break by intent."""


IN_PROCESS = 100_000
UNLIKE_IN_PANDAS = (FloatType, DoubleType, StructType, ArrayType)
"""Key types that pandas tells apart otherwise than Spark does."""


def gate_change_set(spark: SparkSession, changes: DataFrame, rows: int, result: Address, base_version: int) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against.

    Args:
        spark: Our session.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: How many rows it has; a small one is validated in this process, at a tenth of the time.
        result: The result table.
        base_version: Its version.

    Returns:
        The verdict. A gate that cannot be evaluated raises; it never passes.
    """
    key = fields_of(changes, "key")
    row = fields_of(changes, "after")
    names = key.fieldNames()
    keys = changes.selectExpr(
        "named_struct(" + ", ".join(f"'k{n}', key.{quote(name)}" for n, name in enumerate(names)) + ") AS key"
    )
    held = read(spark, result, base_version)
    # A key with a null matches nothing; that it is there at all is for the first rule to say.
    complete = keys.where(" AND ".join(f"key.k{n} IS NOT NULL" for n in range(len(names))))
    predicate = pruning(complete).predicate(names)
    if predicate is not None:
        held = held.where(predicate)
    held = held.select(F.struct(*(F.col(quote(field.name)) for field in row)).alias("held")).alias("h")
    staged = changes.alias("c")
    joined = staged.join(
        held, on=F.expr(" AND ".join(f"c.key.{quote(name)} = h.held.{quote(name)}" for name in names)), how="left"
    )
    keeps_key = " AND ".join(same(f"c.key.{quote(f.name)}", f"c.after.{quote(f.name)}", f.dataType) for f in key)
    batch = joined.select(
        *(F.expr(comparable(f"c.key.{quote(f.name)}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(key)),
        F.expr("c.op = 'delete' AND h.held IS NULL").alias("unnecessary_tombstone"),
        F.expr("c.op = 'update' AND h.held IS NULL").alias("update_of_nothing"),
        F.expr("c.op = 'insert' AND h.held IS NOT NULL").alias("insert_of_present"),
        F.expr(f"c.op = 'update' AND {same('h.held', 'c.after', row)}").alias("changes_nothing"),
        F.expr(f"NOT {same('h.held', 'c.before', row)}").alias("before_differs"),
        F.expr(f"c.after IS NOT NULL AND NOT ({keeps_key})").alias("loses_its_key"),
    )
    plain = not any(isinstance(field.dataType, UNLIKE_IN_PANDAS) for field in key)
    return _judged(batch, names, list(RULES), in_process=plain and rows <= IN_PROCESS)


def gate_changelog(
    spark: SparkSession,
    changelog: DataFrame,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    *,
    strict: bool,
) -> Verdict:
    """
    Check the staged rows of a changelog against the staged change set and the result that it was computed against.

    Args:
        spark: Our session.
        changelog: The staged rows of the changelog.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: How many rows the changelog has.
        result: The result table.
        base_version: Its version.
        strict: Whether a row that changes nothing breaks a rule too.

    Returns:
        The verdict. A gate that cannot be evaluated raises; it never passes.
    """
    key, row = fields_of(changes, "key"), fields_of(changes, "after")
    names = key.fieldNames()

    def named(columns: Sequence[str], prefix: str = "") -> str:
        return "named_struct(" + ", ".join(f"'k{n}', {prefix}{quote(name)}" for n, name in enumerate(columns)) + ")"

    values = ", ".join(quote(name) for name in row.fieldNames())
    logged = changelog.select(
        F.expr(named(names)).alias("key"),
        F.col("_position").alias("position"),
        F.expr(f"IF(_op = 'upsert', struct({values}), NULL)").alias("row"),
    )
    keys = logged.select("key").distinct()
    held = read(spark, result, base_version)
    predicate = pruning(keys).predicate(names)
    if predicate is not None:
        held = held.where(predicate)
    held = held.select(F.expr(named(names)).alias("key"), F.expr(f"struct({values})").alias("held"))
    made = changes.select(F.expr(named(names, "key.")).alias("key"), F.lit(True).alias("changed"), "after")
    in_order = Window.partitionBy("key").orderBy("position")
    known = logged.join(held, on="key", how="left").join(made, on="key", how="full")
    steps = known.select(
        "key",
        "position",
        "row",
        F.expr("IF(changed, after, held)").alias("end"),
        F.lag("row").over(in_order).alias("lagged"),
        (F.row_number().over(in_order) == 1).alias("is_first"),
        F.lead("position").over(in_order).isNull().alias("is_last"),
        "held",
    ).withColumn("previous", F.expr("IF(is_first, held, lagged)"))
    rules = [name for name in CHANGELOG_RULES if strict or name not in STRICT_RULES]
    batch = steps.select(
        *(F.expr(comparable(f"key.k{n}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(key)),
        F.expr("coalesce(position, -1)").alias(f"key_{len(names)}"),
        F.expr(f"position IS NOT NULL AND is_last AND NOT {same('row', 'end', row)}").alias("leads_elsewhere"),
        F.expr("position IS NULL").alias("left_out"),
        F.expr("position IS NOT NULL AND row IS NULL AND previous IS NULL").alias("tombstone_of_nothing"),
        F.expr(f"row IS NOT NULL AND {same('row', 'previous', row)}").alias("repeats"),
    )
    plain = not any(isinstance(field.dataType, UNLIKE_IN_PANDAS) for field in key)
    return _judged(batch, [*names, "_position"], rules, in_process=plain and rows <= IN_PROCESS)


def gate_stream(rows: DataFrame, number: int, epoch: int | None, epoch_column: str, position_column: str) -> Verdict:
    """
    Check the staged rows that an epoch adds to the result of a join with a stream.

    Args:
        rows: The staged rows.
        number: How many rows were counted while they were staged.
        epoch: The epoch; None where the rows are of several.
        epoch_column: The column that names it.
        position_column: The column that orders the rows in it.
    """
    of_others = f"{quote(epoch_column)} IS NULL" if epoch is None else f"NOT ({quote(epoch_column)} <=> {epoch})"
    counted = rows.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.expr(f"IF({of_others}, 1, NULL)")).alias("of_others"),
        F.count(F.expr(f"IF({quote(position_column)} IS NULL, 1, NULL)")).alias("unplaced"),
    )
    batch = counted.select(
        F.lit(0).alias("key_0"),
        F.expr(f"rows <> {number}").alias("number_differs"),
        F.expr("of_others > 0").alias("of_another_epoch"),
        F.expr("unplaced > 0").alias("has_no_position"),
    )
    return _judged(batch, ["epoch"], list(STREAM_RULES), in_process=True)


def gate_loaded(spark: SparkSession, result: Address, version: int, key: Sequence[str]) -> Verdict:
    """
    Check a freshly loaded result where it lies: the key is present and unique.

    Args:
        spark: Our session.
        result: The result table.
        version: The version that the load made.
        key: Its key columns.
    """
    loaded = read(spark, result, version)
    kinds = [loaded.schema[name].dataType for name in key]
    parts = [f"key_{place}" for place in range(len(key))]
    grouped = loaded.groupBy(
        *(F.expr(comparable(quote(name), kind)).alias(part) for name, kind, part in zip(key, kinds, parts, strict=True))
    ).count()
    # A key that is there once cannot break a rule: only the others, each twice at most, are looked at.
    suspects = grouped.where(" OR ".join(["count > 1", *(f"{part} IS NULL" for part in parts)]))
    batch = suspects.select(
        *parts, F.explode(F.expr("array_repeat(1, CAST(least(count, 2) AS INT))")).alias("time")
    ).select(*parts)
    plain = not any(isinstance(kind, UNLIKE_IN_PANDAS) for kind in kinds)
    return _judged(batch.limit(IN_PROCESS) if plain else batch, key, [], in_process=plain)


def _judged(batch: DataFrame, key: Sequence[str], rules: Sequence[str], *, in_process: bool) -> Verdict:
    """
    Hold a batch to its rules.

    The columns `key_0` and so on have the key of each row, the column of a rule whether the row breaks it.
    """
    names = {f"key_{n}": name for n, name in enumerate(key)}  # a key column's own name may hold dots or backticks

    def expected() -> list[Any]:
        import great_expectations.expectations as gxe

        present = [gxe.ExpectColumnValuesToNotBeNull(column=column) for column in names]
        unique = (
            gxe.ExpectColumnValuesToBeUnique(column="key_0")
            if len(names) == 1
            else gxe.ExpectCompoundColumnsToBeUnique(column_list=list(names))
        )
        return [*present, unique, *(gxe.ExpectColumnValuesToBeInSet(column=rule, value_set=[False]) for rule in rules)]

    return validated("change set", batch, expected, partial(_finding, names=names), in_process=in_process)


def _finding(result: Any, names: Mapping[str, str]) -> str:
    settings = result.expectation_config
    columns = settings.kwargs.get("column_list") or [settings.kwargs["column"]]
    column = ", ".join(names.get(column, column) for column in columns)
    number = (result.result or {}).get("unexpected_count")
    rows = f" ({number} rows)" if number is not None else ""
    words_of = RULES | CHANGELOG_RULES | STREAM_RULES
    if column in words_of:
        return f"{words_of[column]}{rows}"
    words = "the key is present" if settings.type.endswith("not_be_null") else "one change per key"
    return f"{words}: {column}{rows}"
