"""
A change set is checked against what is published before it is published itself.

The gate re-reads the stage and the result at the pinned version and shares no code with the joins, so that a mistake
there cannot hide here.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.gate.judging import IN_PROCESS, is_alike_in_pandas, judged
from expectations.gate.sources import Sources, few, with_keys
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
SOURCE_RULES = {
    "not_joined": "the row after the change is what the join makes of its sources",
    "left_out": "no change is left out: the result is altered wherever its sources alter it",
}

FEW = 10_000
"""So many staged rows are brought to the driver, where no plan has to read them again."""
RECOMPUTED = 50_000
"""So many rows are computed once more; of a larger change set a share of about so many."""


def gate_change_set(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: Sources | None = None,
) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against, and the sources.

    Args:
        spark: Our session.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: How many rows it has; a small one is validated in this process, at a tenth of the time.
        result: The result table.
        base_version: Its version.
        sources: The sources of the join as the epoch pinned them; without them nothing is said about the rows after
            the change, but that they have their keys.

    Returns:
        The verdict. A gate that cannot be evaluated raises; it never passes.
    """
    key, row = fields_of(changes, "key"), fields_of(changes, "after")
    names = key.fieldNames()
    own = _key_of(names, "key.")
    complete = " AND ".join(f"key.k{n} IS NOT NULL" for n in range(len(names)))
    is_small = sources is not None and sources.are_small
    bring = few if rows <= FEW and not is_small else _as_they_are
    with ThreadPoolExecutor() as beside:
        looking = None if sources is None else beside.submit(sources.touched)
        lines = bring(changes).selectExpr(f"{own} AS key", "op", "before", "after", "TRUE AS staged")
        touched = None if looking is None else looking.result()
    # A key with a null matches nothing; that it is there at all is for the first rule to say.
    keys = lines.where(complete).select("key")
    share = max(rows // RECOMPUTED, 1)
    chosen = keys.where(f"pmod(xxhash64(key), {share}) = 0")
    if touched is not None:
        touched = touched.select(F.col("key").cast(keys.schema["key"].dataType))
        lines = lines.unionByName(touched.join(keys, on="key", how="left_anti"), allowMissingColumns=True)
        chosen, keys = chosen.unionAll(touched), keys.unionAll(touched)
    held, known = read(spark, result, base_version), None
    if not is_small:
        chosen = few(chosen.distinct())
        known = pruning(chosen) if sources is None else sources.pruning(chosen)
        if share == 1:
            held = with_keys(held, names, _key_of(names), chosen, known)
        else:
            predicate = pruning(keys).predicate(names)
            held = held if predicate is None else held.where(predicate)
    with ThreadPoolExecutor() as beside:
        holding = beside.submit(bring, held.select(F.struct(*(F.col(quote(f.name)) for f in row)).alias("held")))
        if sources is not None:
            values = (F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in row)
            made = sources.joined(chosen, known).select(F.struct(*values).alias("made"))
            lines = _beside(lines, made, "made", names)
        lines = _beside(lines, holding.result(), "held", names)
    keeps_key = " AND ".join(same(f"key.k{n}", f"after.{quote(f.name)}", f.dataType) for n, f in enumerate(key))
    broken = {
        "unnecessary_tombstone": "op = 'delete' AND held IS NULL",
        "update_of_nothing": "op = 'update' AND held IS NULL",
        "insert_of_present": "op = 'insert' AND held IS NOT NULL",
        "changes_nothing": f"op = 'update' AND {same('held', 'after', row)}",
        "before_differs": f"staged AND NOT {same('held', 'before', row)}",
        "loses_its_key": f"after IS NOT NULL AND NOT ({keeps_key})",
    }
    if sources is not None:
        recomputed = f"pmod(xxhash64(key), {share}) = 0"
        broken["not_joined"] = f"staged AND {recomputed} AND NOT {same('made', 'after', row)}"
        broken["left_out"] = f"staged IS NULL AND NOT {same('made', 'held', row)}"
    batch = lines.select(
        *(F.expr(comparable(f"key.k{n}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(key)),
        *(F.expr(f"coalesce({broken[name]}, FALSE)").alias(name) for name in broken),
    )
    plain = is_alike_in_pandas(field.dataType for field in key)
    return judged(
        batch, names, RULES if sources is None else RULES | SOURCE_RULES, in_process=plain and rows <= IN_PROCESS
    )


def _key_of(names: Sequence[str], prefix: str = "") -> str:
    return "named_struct(" + ", ".join(f"'k{n}', {prefix}{quote(name)}" for n, name in enumerate(names)) + ")"


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


def _beside(lines: DataFrame, rows: DataFrame, name: str, key: Sequence[str]) -> DataFrame:
    """Put rows, as structs under a name, beside the lines of their keys."""
    same_key = " AND ".join(f"key.k{n} = {name}.{quote(part)}" for n, part in enumerate(key))
    return lines.join(rows, on=F.expr(same_key), how="left")


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
