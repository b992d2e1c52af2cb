"""The gate of a first load: checks the keys of the loaded result, and a sample of whole rows against the sources."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from expectations.gate.by_key import NO_LITERALS, ReadsDiffer, driver_copy, with_keys
from expectations.gate.judging import is_alike_in_pandas, judged
from expectations.gate.sources import Sources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.address import Address
from lakehouse.changes import key_struct, null_key
from lakehouse.sqltext import numbered, quote
from lakehouse.tables import read
from lakehouse.uniqueness import has_repeated_keys
from lakehouse.values import comparable, identical

LOADED_RULES = {
    "missing": "the result has every row that the join computes from its sources",
    "surplus": "the result has no row that the join does not compute from its sources",
    "differs": "a row of the result equals the row that the join computes from its sources",
}


def gate_loaded(
    spark: SparkSession,
    result: Address,
    version: int,
    key: Sequence[str],
    sources: Sources | None = None,
    salt: str = "",
) -> Verdict:
    """
    Check a loaded result: keys are present and unique, and a sample of rows equals what the join computes.

    Args:
        spark: Our session.
        result: The result table.
        version: The version that the load created.
        key: The key columns of the result.
        sources: The sources of the join as the load pinned them; without them only the keys are checked.
        salt: Selects the rows of the sample; each load uses another salt.

    Returns:
        The verdict. A gate that cannot be evaluated raises an error; it never passes.
    """
    loaded = read(spark, result, version)
    kinds = [loaded.schema[name].dataType for name in key]
    is_small = sources is None or sources.are_small
    with ThreadPoolExecutor() as pool:
        is_suspect = pool.submit(lambda: is_small or _has_suspect_keys(loaded, key))
        if sources is None:
            wrong, rules = None, dict[str, str]()
        else:
            try:
                wrong, rules = _with_wrong_rows(loaded, key, sources, salt), LOADED_RULES
            except ReadsDiffer as found:
                return Verdict((str(found),))
    batch = _with_suspect_keys(loaded if is_suspect.result() else loaded.limit(0), key, kinds)
    if wrong is not None:
        batch = batch.unionByName(wrong, allowMissingColumns=True)
    batch = batch.select(*_parts(key), *(F.coalesce(rule, F.lit(False)).alias(rule) for rule in rules))
    plain = is_alike_in_pandas(kinds)
    return judged(batch.limit(limits.JUDGED_IN_PROCESS) if plain else batch, key, rules, in_process=plain)


def _parts(key: Sequence[str]) -> list[str]:
    return [f"key_{place}" for place in range(len(key))]


def _has_suspect_keys(loaded: DataFrame, key: Sequence[str]) -> bool:
    return bool(loaded.where(null_key(key)).head(1)) or has_repeated_keys(loaded, key)


def _with_suspect_keys(loaded: DataFrame, key: Sequence[str], kinds: Sequence[DataType]) -> DataFrame:
    """Return the keys that violate a rule: null keys, and keys that occur more than once, as two rows each."""
    parts = _parts(key)
    grouped = loaded.groupBy(
        *(F.expr(comparable(quote(name), kind)).alias(part) for name, kind, part in zip(key, kinds, parts, strict=True))
    ).count()
    suspects = grouped.where(" OR ".join(["count > 1", *(f"{part} IS NULL" for part in parts)]))
    times = F.explode(F.expr("array_repeat(1, CAST(least(count, 2) AS INT))"))
    return suspects.select(*parts, times.alias("time")).select(*parts)


def _with_wrong_rows(loaded: DataFrame, key: Sequence[str], sources: Sources, salt: str) -> DataFrame:
    """Return the keys of a sample whose loaded row differs from the row of the join, and the rules they violate."""
    row = loaded.schema
    numbered_key = StructType([StructField(f"k{place}", row[name].dataType) for place, name in enumerate(key)])
    own = numbered(map(quote, key))
    keyed = [(loaded, key, own)]
    for item in (sources.inputs[place] for place in sources.members):
        keyed.append((item.rows, item.key, key_struct(item.key, item.types)))
    samples = []
    for rows, names, sql in keyed:
        keys = rows.where(f"NOT {null_key(names)}").select(F.expr(sql).cast(numbered_key).alias("key"))
        samples.append(keys.orderBy(F.xxhash64("key", F.lit(salt))).limit(limits.LOADED_KEYS))
    sample = driver_copy(reduce(DataFrame.unionAll, samples).distinct())
    known = None if sources.are_small else sources.pruning(sample)
    values = (F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in row)
    made = sources.joined(sample, known).select(F.struct(*values).alias("made"))
    held = with_keys(loaded, key, own, sample, known or NO_LITERALS)
    held = held.select(F.struct(*(F.col(quote(field.name)) for field in row)).alias("held"))
    lines = sample
    for rows, name in ((made, "made"), (held, "held")):
        same_key = " AND ".join(f"key.k{place} = {quote(name, part)}" for place, part in enumerate(key))
        lines = lines.join(rows, on=F.expr(same_key), how="left")
    same = f"{identical('made', row)} <=> {identical('held', row)}"
    return lines.where(f"NOT ({same})").select(
        *(F.expr(comparable(f"key.{f.name}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(numbered_key)),
        F.expr("held IS NULL").alias("missing"),
        F.expr("made IS NULL").alias("surplus"),
        F.expr("made IS NOT NULL AND held IS NOT NULL").alias("differs"),
    )
