"""The gate of a first load: checks the keys of the loaded result, and a sample of whole rows against the sources."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from expectations.gate.by_key import NO_LITERALS, ReadsDiffer, driver_copy, with_keys
from expectations.gate.judging import KEY_RULES, KEYLESS, is_alike_in_pandas, judged, suspects
from expectations.gate.sources import Sources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.tables.table import read
from lakehouse.values.checksums import checksum_of
from lakehouse.values.compare import comparable, identical, is_exact
from lakehouse.values.net_changes import all_or_any_null, key_struct, null_key
from lakehouse.values.sqltext import numbered, quote

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

    Where each row of the first table makes one row of the result, all keys are those of the table.

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
    absent = sources is not None and sources.may_be_absent
    numbered_keys = _numbered(loaded, key, kinds)
    if absent:
        parts = [f"key_{place}" for place in range(len(key))]
        numbered_keys = numbered_keys.withColumn(KEYLESS, F.expr(all_or_any_null(parts, are_all=True)))
    batch = suspects(numbered_keys, key, KEY_RULES if absent else (), may_be_absent=absent)
    rules = {} if sources is None else LOADED_RULES
    rules = KEY_RULES | rules if absent else rules
    plain = is_alike_in_pandas(kinds)
    batch = batch.limit(limits.JUDGED_IN_PROCESS) if plain else batch
    of_all: tuple[str, ...] = ()
    if sources is not None:
        with ThreadPoolExecutor(max_workers=1) as pool:  # one reads all keys, the other few rows by many small queries
            searching = pool.submit(_check_all_keys, numbered_keys, kinds, batch, sources)
            try:
                wrong = driver_copy(_with_wrong_rows(loaded, key, sources, salt))
            except ReadsDiffer as found:
                return Verdict((str(found),))
            batch, of_all = searching.result()
        batch = batch.unionByName(wrong, allowMissingColumns=True)
    batch = batch.select(
        *(f"key_{place}" for place in range(len(key))), *(F.coalesce(rule, F.lit(False)).alias(rule) for rule in rules)
    )
    verdict = judged(batch, key, rules, in_process=plain, may_be_absent=absent)
    return Verdict(verdict.findings + of_all)


def _check_all_keys(
    keys: DataFrame, kinds: Sequence[DataType], batch: DataFrame, sources: Sources
) -> tuple[DataFrame, tuple[str, ...]]:
    """
    Compare all keys of the result with those of the first table, if each of its rows makes one row of the result.

    Their numbers and the sums of their hashes take two scans and no shuffle. If they are equal, no key of the result
    occurs twice, because the load has checked that none of the table does.

    Args:
        keys: The keys of the result as `key_0` and so on.
        kinds: Their types.
        batch: What is wrong with single keys, to be searched for unless all keys are those of the table.
        sources: The sources of the join.

    Returns:
        The rows of the batch, and what is wrong with all keys.
    """
    expected = _keys_of_first(sources, kinds)
    if expected is None:
        return driver_copy(batch), ()
    held, made = checksum_of(keys), checksum_of(expected)
    if held == made:
        return batch.where("FALSE"), ()
    same = " with other keys" if held.rows == made.rows else ""
    rows = f"{held.rows} rows for {made.rows}{same}"
    return driver_copy(batch), (f"the result has a row for each row of the first table: {rows}",)


def _keys_of_first(sources: Sources, kinds: Sequence[DataType]) -> DataFrame | None:
    """Return the keys of the first table as `key_0` and so on; None if the result may have other keys, or hashes."""
    statement, first = sources.statement, sources.inputs[0]
    keeps_rows = statement.where is None and all(how == "left" for how, _ in statement.steps)
    if not keeps_rows or 0 not in sources.members or sources.may_be_absent or not all(map(is_exact, kinds)):
        return None
    parts = enumerate(zip(first.key, kinds, strict=True))
    return first.keyed.select(*(F.col(quote(name)).cast(kind).alias(f"key_{n}") for n, (name, kind) in parts))


def _numbered(loaded: DataFrame, key: Sequence[str], kinds: Sequence[DataType]) -> DataFrame:
    """Return the keys as `key_0` and so on."""
    parts = (comparable(quote(name), kind) for name, kind in zip(key, kinds, strict=True))
    return loaded.select(*(F.expr(part).alias(f"key_{place}") for place, part in enumerate(parts)))


def _with_wrong_rows(loaded: DataFrame, key: Sequence[str], sources: Sources, salt: str) -> DataFrame:
    """Return the keys of a sample whose loaded row differs from the row of the join, and the rules they violate."""
    row = loaded.schema
    numbered_key = StructType([StructField(f"k{place}", row[name].dataType) for place, name in enumerate(key)])
    own = numbered(map(quote, key))
    absent = sources.may_be_absent
    keyed = [(loaded.where(f"NOT {null_key(key, may_be_absent=absent)}"), own)]
    for item in (sources.inputs[place] for place in sources.members):
        keyed.append((item.keyed, key_struct(item.key, item.types)))
    samples = []
    for rows, sql in keyed:
        keys = rows.select(F.expr(sql).cast(numbered_key).alias("key"))
        samples.append(keys.orderBy(F.xxhash64("key", F.lit(salt))).limit(limits.LOADED_KEYS))
    sample = driver_copy(reduce(DataFrame.unionAll, samples).distinct())
    known = None if sources.are_small else sources.pruning(sample)
    values = (F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in row)
    held = with_keys(loaded, key, own, sample, known or NO_LITERALS)
    held = held.select(F.struct(*(F.col(quote(field.name)) for field in row)).alias("held"))
    with ThreadPoolExecutor(max_workers=1) as pool:
        holding = pool.submit(driver_copy, held)
        made = sources.joined(sample, known).select(F.struct(*values).alias("made"))
        held = holding.result()
    lines, equal = sample, "<=>" if absent else "="
    for rows, name in ((made, "made"), (held, "held")):
        same_key = " AND ".join(f"key.k{place} {equal} {quote(name, part)}" for place, part in enumerate(key))
        lines = lines.join(rows, on=F.expr(same_key), how="left")
    same = f"{identical('made', row)} <=> {identical('held', row)}"
    return lines.where(f"NOT ({same})").select(
        *(F.expr(comparable(f"key.{f.name}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(numbered_key)),
        F.expr("held IS NULL").alias("missing"),
        F.expr("made IS NULL").alias("surplus"),
        F.expr("made IS NOT NULL AND held IS NOT NULL").alias("differs"),
    )
