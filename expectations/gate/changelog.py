"""The gate of a changelog: checks its staged rows against the staged change set and the result before it."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from expectations.gate.by_key import ReadsDiffer, driver_copy, own_key, trusted
from expectations.gate.judging import KEY_RULES, KEYLESS, is_alike_in_pandas, judged, key_columns
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.tables.table import read
from lakehouse.values.compare import same
from lakehouse.values.net_changes import fields_of
from lakehouse.values.sqltext import quote

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

    A gate that cannot be evaluated raises an error; it never passes.

    Args:
        changelog: The staged rows of the changelog.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of staged rows of the changelog.
        base_version: The version of the result.
        strict: Whether a row that changes nothing also violates a rule.
        is_small: Whether reading the whole result costs less than finding the rows that are needed.
        keyless: If parts of a key may be null, the SQL condition of a wrong `key` (struct<k0, …>).
    """
    key, row = fields_of(changes, "key"), fields_of(changes, "after")
    names, may_be_absent = key.fieldNames(), keyless is not None
    values = ", ".join(quote(name) for name in row.fieldNames())
    logged = changelog.selectExpr(
        f"{own_key(names)} AS key", "_position AS position", f"IF(_op = 'upsert', struct({values}), NULL) AS row"
    )
    published = read(spark, result, base_version)
    try:
        keys = logged.select("key").distinct()
        predicate = None if is_small else _predicate(keys, names, rows, may_be_absent=may_be_absent)
    except ReadsDiffer as differing:
        return Verdict((str(differing),))
    if predicate is not None:
        published = published.where(predicate)
    published = published.selectExpr(f"{own_key(names)} AS key", f"struct({values}) AS existing")
    changed = changes.selectExpr(f"{own_key(names, 'key.')} AS key", "TRUE AS changed", "after")
    steps = _steps(logged, published, changed)
    rules = {name: words for name, words in CHANGELOG_RULES.items() if strict or name not in STRICT_RULES}
    conditions = {
        "leads_elsewhere": f"position IS NOT NULL AND is_last AND NOT {same('row', 'end', row)}",
        "left_out": "position IS NULL",
        "tombstone_of_nothing": "position IS NOT NULL AND row IS NULL AND previous IS NULL",
        "repeats": f"row IS NOT NULL AND {same('row', 'previous', row)}",
    }
    if keyless is not None:
        rules, conditions = rules | KEY_RULES, conditions | {KEYLESS: keyless}
    types = [field.dataType for field in key]
    batch = steps.selectExpr(
        *key_columns(types),
        f"coalesce(position, -1) AS key_{len(names)}",
        *(f"{condition} AS {rule}" for rule, condition in conditions.items()),
    )
    in_process = is_alike_in_pandas(types) and rows <= limits.JUDGED_IN_PROCESS
    return judged(batch, [*names, "_position"], rules, in_process=in_process, may_be_absent=may_be_absent)


def _steps(logged: DataFrame, published: DataFrame, changed: DataFrame) -> DataFrame:
    """Return the changelog row by row: `previous` is the row of the key just before, `end` the one after the epoch."""
    in_order = Window.partitionBy("key").orderBy("position")
    joined = logged.join(published, on="key", how="left").join(changed, on="key", how="full")
    return joined.select(
        "key",
        "position",
        "row",
        F.expr("IF(changed, after, existing)").alias("end"),
        F.lag("row").over(in_order).alias("lagged"),
        (F.row_number().over(in_order) == 1).alias("is_first"),
        F.lead("position").over(in_order).isNull().alias("is_last"),
        "existing",
    ).withColumn("previous", F.expr("IF(is_first, existing, lagged)"))


def _predicate(keys: DataFrame, names: Sequence[str], rows: int, *, may_be_absent: bool) -> str | None:
    """Return a predicate for the rows of the result with some keys; None if none is possible."""
    keys = driver_copy(keys) if rows <= limits.JUDGED_IN_PROCESS else keys
    return trusted(keys, may_be_absent=may_be_absent).predicate(names)
