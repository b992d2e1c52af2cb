"""The gate of a changelog: checks its staged rows against the staged change set and the result before it."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from expectations.gate.by_key import ReadsDiffer, driver_copy, trusted
from expectations.gate.judging import KEY_RULES, KEYLESS, is_alike_in_pandas, judged
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.tables.table import read
from lakehouse.values.compare import comparable, same
from lakehouse.values.net_changes import fields_of
from lakehouse.values.sqltext import numbered, quote

CHANGELOG_RULES = {
    "leads_elsewhere": "the last changelog row of a key equals the result after the epoch",
    "left_out": "every change of the result has a row in the changelog",
    "tombstone_of_nothing": "no unnecessary tombstone: a tombstone deletes a row that existed just before",
    "repeats": "no repeated value: an upsert changes something",
}
STRICT_RULES = ("tombstone_of_nothing", "repeats")
"""The rules that the semantics of Kafka Streams violate by design."""


def gate_changelog(
    spark: SparkSession,
    changelog: DataFrame,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    *,
    strict: bool,
    is_small: bool = False,
    keyless: str | None = None,
) -> Verdict:
    """
    Check the staged rows of a changelog against the staged change set and the result that it was computed against.

    Args:
        spark: Our session.
        changelog: The staged rows of the changelog.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of staged rows of the changelog.
        result: The result table.
        base_version: The version of the result.
        strict: Whether a row that changes nothing also violates a rule.
        is_small: Whether reading the whole result costs less than finding the rows that are needed.
        keyless: If parts of a key may be null, the SQL condition of a wrong `key` (struct<k0, …>).

    Returns:
        The verdict. A gate that cannot be evaluated raises an error; it never passes.
    """
    key, row = fields_of(changes, "key"), fields_of(changes, "after")
    names = key.fieldNames()

    def named(columns: Sequence[str], prefix: str = "") -> str:
        return numbered(f"{prefix}{quote(name)}" for name in columns)

    values = ", ".join(quote(name) for name in row.fieldNames())
    logged = changelog.select(
        F.expr(named(names)).alias("key"),
        F.col("_position").alias("position"),
        F.expr(f"IF(_op = 'upsert', struct({values}), NULL)").alias("row"),
    )
    held, absent = read(spark, result, base_version), keyless is not None
    try:
        keys = logged.select("key").distinct()
        predicate = None if is_small else _predicate(keys, names, rows, may_be_absent=absent)
    except ReadsDiffer as found:
        return Verdict((str(found),))
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
    rules = {name: words for name, words in CHANGELOG_RULES.items() if strict or name not in STRICT_RULES}
    further = {} if keyless is None else {KEYLESS: keyless}
    rules |= KEY_RULES if further else {}
    batch = steps.select(
        *(F.expr(comparable(f"key.k{n}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(key)),
        F.expr("coalesce(position, -1)").alias(f"key_{len(names)}"),
        F.expr(f"position IS NOT NULL AND is_last AND NOT {same('row', 'end', row)}").alias("leads_elsewhere"),
        F.expr("position IS NULL").alias("left_out"),
        F.expr("position IS NOT NULL AND row IS NULL AND previous IS NULL").alias("tombstone_of_nothing"),
        F.expr(f"row IS NOT NULL AND {same('row', 'previous', row)}").alias("repeats"),
        *(F.expr(condition).alias(rule) for rule, condition in further.items()),
    )
    plain = is_alike_in_pandas(field.dataType for field in key)
    is_few = rows <= limits.JUDGED_IN_PROCESS
    return judged(batch, [*names, "_position"], rules, in_process=plain and is_few, may_be_absent=absent)


def _predicate(keys: DataFrame, names: Sequence[str], rows: int, *, may_be_absent: bool) -> str | None:
    """Return a predicate for the rows of the result with some keys; None if none is possible."""
    keys = driver_copy(keys) if rows <= limits.JUDGED_IN_PROCESS else keys
    return trusted(keys, may_be_absent=may_be_absent).predicate(names)
