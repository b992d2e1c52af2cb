"""
A change set is checked against what is published before it is published itself.

The gate re-reads the stage and the result at the pinned version and shares no code with the joins, so that a mistake
there cannot hide here.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.gate.judging import IN_PROCESS, is_alike_in_pandas, judged
from expectations.validation import Verdict
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
    plain = is_alike_in_pandas(field.dataType for field in key)
    return judged(batch, names, RULES, in_process=plain and rows <= IN_PROCESS)


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
    plain = is_alike_in_pandas(kinds)
    return judged(batch.limit(IN_PROCESS) if plain else batch, key, {}, in_process=plain)
