"""The gates of a result that was written in place: its keys, and after a first load a sample of its whole rows."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from expectations.gate.by_key import NO_LITERALS, ReadsDiffer, driver_copy, has_key, own_key, sample_of, with_keys
from expectations.gate.rules import (
    KEY_RULES,
    KEYLESS,
    LOADED_RULES,
    is_alike_in_pandas,
    judge_lines,
    judged,
    key_columns,
    of_loaded,
    suspects,
)
from expectations.gate.sources import GateSources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.tables.table import read
from lakehouse.values.checksums import checksum_of
from lakehouse.values.compare import comparable, is_exact
from lakehouse.values.net_changes import all_or_any_null, has_repeated_keys, null_key
from lakehouse.values.sqltext import Address, quote, row_struct


def gate_loaded(
    spark: SparkSession,
    result: Address,
    version: int,
    key: Sequence[str],
    sources: GateSources,
    salt: str,
) -> Verdict:
    """
    Check a loaded result: keys are present and unique, and a sample of rows equals what the join computes.

    Where each row of the first table makes one row of the result, all keys are those of the table.

    Args:
        version: The version that the load created.
        salt: Selects the rows of the sample; each load uses another salt.
    """
    loaded = read(spark, result, version)
    types = [loaded.schema[name].dataType for name in key]
    may_be_absent = sources.may_be_absent
    parts = [f"key_{part}" for part in range(len(key))]
    compared = (comparable(quote(name), of) for name, of in zip(key, types, strict=True))
    keys = loaded.selectExpr(*(f"{sql} AS {part}" for sql, part in zip(compared, parts, strict=True)))
    if may_be_absent:
        keys = keys.withColumn(KEYLESS, F.expr(all_or_any_null(parts, are_all=True)))
    batch = suspects(keys, key, KEY_RULES if may_be_absent else (), may_be_absent=may_be_absent)
    rules = KEY_RULES | LOADED_RULES if may_be_absent else LOADED_RULES
    in_process = is_alike_in_pandas(types)
    batch = batch.limit(limits.ROWS_ON_DRIVER) if in_process else batch
    with ThreadPoolExecutor(max_workers=1) as pool:  # one reads all keys, the other few rows by many small queries
        checking = pool.submit(_check_all_keys, keys, types, batch, sources)
        try:
            wrong = driver_copy(_with_wrong_rows(loaded, key, sources, salt))
        except ReadsDiffer as differing:
            return Verdict((str(differing),))
        batch, of_all_keys = checking.result()
    batch = batch.unionByName(wrong, allowMissingColumns=True)
    batch = batch.select(*parts, *(F.coalesce(rule, F.lit(False)).alias(rule) for rule in rules))
    verdict = judged(batch, key, rules, in_process=in_process, may_be_absent=may_be_absent)
    return Verdict(verdict.findings + of_all_keys)


def gate_keys(
    spark: SparkSession, result: Address, version: int, key: Sequence[str], *, may_be_absent: bool = False
) -> Verdict:
    """
    Check all keys of a version of a result: each is present and occurs once.

    Args:
        may_be_absent: Whether parts of a key may be null, but not all.
    """
    keyless = null_key(key, may_be_absent=may_be_absent)
    rows = read(spark, result, version)
    if not has_repeated_keys(rows, key, may_be_absent=may_be_absent):
        rows = rows.where(keyless)  # the rows that are left to judge, for which Delta seldom reads a file
    lines = rows.selectExpr(f"{own_key(key)} AS key", f"{keyless} AS {KEYLESS}")
    types, conditions = [rows.schema[name].dataType for name in key], {KEYLESS: KEYLESS}
    return judge_lines(lines, key, types, conditions, KEY_RULES, are_many=True, may_be_absent=True)


def _check_all_keys(
    keys: DataFrame, types: Sequence[DataType], batch: DataFrame, sources: GateSources
) -> tuple[DataFrame, tuple[str, ...]]:
    """
    Compare all keys of the result with those of the first table, if each of its rows makes one row of the result.

    Their numbers and the sums of their hashes take two scans and no shuffle. If they are equal, no key of the result
    occurs twice, because the load has checked that none of the table does; else the batch of wrong keys is computed.
    """
    expected = _keys_of_first(sources, types)
    if expected is None:
        return driver_copy(batch), ()
    published, computed = checksum_of(keys), checksum_of(expected)
    if published == computed:
        return batch.where("FALSE"), ()
    other_keys = " with other keys" if published.rows == computed.rows else ""
    rows = f"{published.rows} rows for {computed.rows}{other_keys}"
    return driver_copy(batch), (f"the result has a row for each row of the first table: {rows}",)


def _keys_of_first(sources: GateSources, types: Sequence[DataType]) -> DataFrame | None:
    """Return the keys of the first table as `key_0` and so on; None if the result may have other keys, or hashes."""
    statement, first = sources.statement, sources.inputs[0]
    keeps_rows = statement.where is None and all(how == "left" for how, _ in statement.steps)
    if not keeps_rows or 0 not in sources.members or sources.may_be_absent or not all(map(is_exact, types)):
        return None
    parts = enumerate(zip(first.key, types, strict=True))
    return first.keyed.select(*(F.col(quote(name)).cast(of).alias(f"key_{n}") for n, (name, of) in parts))


def _with_wrong_rows(loaded: DataFrame, key: Sequence[str], sources: GateSources, salt: str) -> DataFrame:
    """Return the keys of a sample whose loaded row differs from the row of the join, and the rules they violate."""
    row, may_be_absent = loaded.schema, sources.may_be_absent
    numbered_key = StructType([StructField(f"k{part}", row[name].dataType) for part, name in enumerate(key)])
    tables = [sources.inputs[member] for member in sources.members]
    keyed = [(loaded.where(f"NOT {null_key(key, may_be_absent=may_be_absent)}"), own_key(key))]
    keyed += [(table.keyed, table.key_sql) for table in tables]
    keys = (rows.select(F.expr(key_sql).cast(numbered_key).alias("key")) for rows, key_sql in keyed)
    samples = (sample_of(keys_of_table, salt, limits.SAMPLED_KEYS) for keys_of_table in keys)
    sample = driver_copy(reduce(DataFrame.unionAll, samples).distinct())
    literals = None if sources.are_small else sources.pruning(sample)
    existing = with_keys(loaded, key, own_key(key), sample, literals or NO_LITERALS)
    existing = existing.selectExpr(f"{row_struct(row.fieldNames())} AS existing")
    with ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(driver_copy, existing)
        computed = sources.computed(sample, literals, row, level_by_level=True)
        existing = reading.result()
    lines = sample
    for rows, name in ((computed, "computed"), (existing, "existing")):
        lines = lines.join(rows, on=F.expr(has_key(name, key, may_be_absent=may_be_absent)), how="left")
    flags = (f"{condition} AS {rule}" for rule, condition in of_loaded(row).items())
    flagged = lines.selectExpr(*key_columns(field.dataType for field in numbered_key), *flags)
    return flagged.where(" OR ".join(LOADED_RULES))
