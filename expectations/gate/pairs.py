"""
The gate of a join in which rows match in any number: checks its change set, or a load, against result and sources.

    staged keys, changed rows ──► keys of each side to check ──► all rows that share a value with them ──► statement

Rows of the left side may have the values of rows that they look up. These are looked up in whole tables, and left rows
with a value are those that refer, step by step, to a row with it.

For a row to check, the gate has every row of the other side with its value, so that the plain statement finds every
match of it. That shows a pair that does not match, a match that is missing, and an unmatched row beside a match. Where
WHERE or an inner look-up may hide a pair, some further rows are checked, too: those of outer sides with a value that a
row to check has, or had before the epoch.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from expectations.gate.affected import Paired, Sides, affected
from expectations.gate.by_key import ReadsDiffer, driver_copy, in_sample, own_key, sample_of
from expectations.gate.rules import (
    KEY_RULES,
    KEYLESS,
    LOADED_RULES,
    RULES,
    SOURCE_RULES,
    judge_lines,
    of_loaded,
    of_staged,
    staged_lines,
    with_published,
)
from expectations.gate.sources import GateSources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.tables.columns import as_columns
from lakehouse.tables.table import read
from lakehouse.values.compare import same, type_sql
from lakehouse.values.net_changes import all_or_any_null, fields_of
from lakehouse.values.pruning import null_safe_predicate
from lakehouse.values.sqltext import Address, numbered, quote, row_struct

CHECKED, STAGED = (f"_lakejoin_{name}" for name in ("checked", "staged"))
"""Working columns: whether the join is computed again for a row, and the key of a staged line."""

SIDE_KEYS = ("_lakejoin_left_key", "_lakejoin_right_key")
"""Working columns: the key to check that a row has on the left and on the right side."""

Keys = tuple[DataFrame, DataFrame]
"""Distinct keys of rows of the left and of the right input, as `key` (struct<k0, …>)."""


def gate_pairs(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: GateSources,
    paired: Paired,
    *,
    is_incremental: bool,
) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against, and the sources.

    Args:
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of its rows.
        is_incremental: Whether the change set holds every change of the rows that it changes; a backfill of a part of
            the result leaves others out.
    """
    gate = _Gate(sources, paired, fields_of(changes, "after"))
    published = as_columns(read(spark, result, base_version), gate.row)
    lines = staged_lines(changes, paired.key)
    lines = driver_copy(lines) if rows <= limits.CHANGES_VIA_DRIVER else lines
    try:
        keys = gate.keys_to_check(lines, rows, is_incremental=is_incremental)
        with ThreadPoolExecutor() as pool:
            checking = pool.submit(sources.check_reads, dict(zip(paired.inputs, keys, strict=True)))
            reading = pool.submit(lambda: driver_copy(gate.rows(gate.published(published, keys, lines), "existing")))
            computed = driver_copy(gate.rows(gate.computed(keys), "computed"))
            existing = reading.result()
            checking.result()
    except ReadsDiffer as differing:
        return Verdict((str(differing),))
    compared = lines.join(existing, on="key", how="full").join(computed, on="key", how="full")
    compared = gate.marked(compared, keys, gate.parts)
    if not is_incremental:
        compared = compared.where("staged")
    conditions = with_published(lambda image: same("existing", image, gate.row))
    conditions |= of_staged(paired.key, gate.row, CHECKED)
    return gate.judged(compared.where(f"staged OR {CHECKED}"), conditions, RULES | SOURCE_RULES)


def gate_loaded_pairs(
    spark: SparkSession, result: Address, version: int, sources: GateSources, paired: Paired, salt: str
) -> Verdict:
    """Check a loaded result: keys are unique, and a sample of rows, also of the sources', is what the join computes."""
    loaded = read(spark, result, version)
    gate = _Gate(sources, paired, loaded.schema)
    keys = loaded.selectExpr(f"{own_key(paired.key)} AS key")
    repeated = keys.groupBy("key").count().where("count > 1").limit(limits.SAMPLED_KEYS).select("key")
    sample = driver_copy(sample_of(keys, salt, limits.SAMPLED_KEYS))
    keys_of_sides = gate.with_sources(sample, salt)
    try:
        existing = gate.rows(gate.of_keys(loaded, keys_of_sides), "existing")
        computed = gate.rows(gate.computed(keys_of_sides), "computed")
    except ReadsDiffer as differing:
        return Verdict((str(differing),))
    lines = existing.join(computed, on="key", how="full")
    lines = lines.unionByName(repeated.unionAll(repeated), allowMissingColumns=True)
    return gate.judged(lines, of_loaded(loaded.schema), LOADED_RULES)


class _Gate:
    """The sources of a join, for the keys of rows of both sides."""

    def __init__(self, sources: GateSources, paired: Paired, row: StructType) -> None:
        self._sources, self.paired, self.row = sources, paired, row
        self._sides = Sides(sources, paired)

    def keys_to_check(self, lines: DataFrame, rows: int, *, is_incremental: bool) -> Keys:
        """Return the keys of each side to check: of staged rows and of changed rows, or of a share of them."""
        share = max(rows // limits.SEARCHED_ROWS, 1)
        sample = lines.where(in_sample("key", self._sources.salt, share))
        keys = self._keys(sample, affected(self._sources) if is_incremental else {})
        keys = keys if share == 1 else self._of_few_lines(keys, lines)
        return self._with_partners(keys) if is_incremental and self._may_hide_pairs else keys

    def _of_few_lines(self, keys: Keys, lines: DataFrame) -> Keys:
        """Return a sample of the keys of each side, of which about `limits.SEARCHED_ROWS` lines have one."""
        with_keys = self._with_side_keys(lines, keys, self.parts)
        numbers = with_keys.agg(*(F.count(name) for name in SIDE_KEYS)).collect()[0]
        samples = []
        for of_side, number in zip(keys, numbers, strict=True):
            most = max(of_side.count() * limits.SEARCHED_ROWS // max(number, 1), 1)
            is_few = number <= limits.SEARCHED_ROWS
            samples.append(of_side if is_few else driver_copy(sample_of(of_side, self._sources.salt, most)))
        return samples[0], samples[1]

    @property
    def _may_hide_pairs(self) -> bool:
        """Whether WHERE, or an inner look-up, may leave out a pair, so that nothing shows that its rows match."""
        statement, (_, right) = self._sources.statement, self.paired.inputs
        return statement.where is not None or any(how == "inner" for how, _ in statement.steps[right:])

    def _with_partners(self, keys: Keys) -> Keys:
        """Add some rows of outer sides with a value that rows to check have or had: WHERE may hide their matches."""
        with_partners = list(keys)
        for side, is_outer in enumerate(self.paired.outer):
            if is_outer:
                values = self._sides.values_ever(1 - side, keys[1 - side])
                partners = self._keys_of(side, self._sides.with_value(side, values))
                sample = sample_of(partners, self._sources.salt, limits.SAMPLED_KEYS)
                with_partners[side] = driver_copy(keys[side].unionAll(sample).distinct())
        return with_partners[0], with_partners[1]

    def _keys_of(self, side: int, rows: DataFrame) -> DataFrame:
        return rows.selectExpr(f"{self._sides.table(side).key_sql} AS key")

    def with_sources(self, sample: DataFrame, salt: str) -> Keys:
        """Return the keys of each side of a sample of the result, and of rows of both inputs."""
        of_inputs = {
            index: sample_of(self._keys_of(side, self._sides.table(side).keyed), salt, limits.SAMPLED_KEYS)
            for side, index in enumerate(self.paired.inputs)
        }
        return self._keys(sample, of_inputs)

    def _keys(self, lines: DataFrame, of_inputs: dict[int, DataFrame]) -> Keys:
        """Return the distinct keys that lines have on each side, and those of rows of the inputs."""
        keys = []
        for side, index in enumerate(self.paired.inputs):
            table, parts = self._sides.table(side), self._of_side(side, self.parts)
            absent = all_or_any_null(parts, are_all=table.may_be_absent)
            of_lines = lines.where(f"NOT {absent}").selectExpr(f"{_cast(parts, table.types)} AS key")
            others = [of_inputs[index].select("key")] if index in of_inputs else []
            keys.append(driver_copy(reduce(DataFrame.unionAll, [of_lines, *others]).distinct()))
        return keys[0], keys[1]

    def computed(self, keys: Keys) -> DataFrame:
        """
        Return the rows that the statement makes of the rows with these keys: the columns of SELECT.

        One of two rows that match must have a key to check. Other rows, which may seem to have no match, are left out.
        """
        tables = [table.keyed for table in self._sources.inputs]
        with ThreadPoolExecutor() as pool:
            own = list(pool.map(lambda side: driver_copy(self._sides.with_key(side, keys[side])), (0, 1)))
            groups = pool.map(lambda side: self._group(side, own, keys[side]), (0, 1))
            for index, group in zip(self.paired.inputs, groups, strict=True):
                tables[index] = group
        statement, (_, right) = self._sources.statement, self.paired.inputs
        is_checked = " OR ".join(quote(statement.aliases[index], CHECKED) for index in self.paired.inputs)
        steps = [
            (how, f"({on}) AND ({is_checked})" if index == right else on)
            for index, (how, on) in enumerate(statement.steps, start=1)
        ]
        casts = (f"CAST({quote(f.name)} AS {type_sql(f.dataType)}) AS {quote(f.name)}" for f in self.row)
        return self.of_keys(replace(statement, steps=tuple(steps)).over(tables).selectExpr(*casts), keys)

    def of_keys(self, rows: DataFrame, keys: Keys) -> DataFrame:
        """Filter rows of the result to those with one of the keys on its side."""
        parts = [quote(name) for name in self.paired.key]
        return self.marked(rows, keys, parts).where(CHECKED).drop(CHECKED)

    def published(self, rows: DataFrame, keys: Keys, lines: DataFrame) -> DataFrame:
        """Return the rows of the result with one of the keys on its side, or with the key of a line."""
        predicates = [null_safe_predicate(lines.select("key"), self.paired.key)]
        for side, names in enumerate(self.paired.keys):
            literals = self._sides.literals(side, keys[side])
            predicates.append("false" if literals.keys == 0 else literals.predicate(names))
        rows = rows if None in predicates else rows.where(" OR ".join(f"({each or 'false'})" for each in predicates))
        parts, staged = [quote(name) for name in self.paired.key], lines.select(F.col("key").alias(STAGED)).distinct()
        marked = self.marked(rows, keys, parts).join(staged, on=F.expr(f"{numbered(parts)} = {STAGED}"), how="left")
        return marked.where(f"{CHECKED} OR {STAGED} IS NOT NULL").drop(CHECKED, STAGED)

    @property
    def parts(self) -> list[str]:
        """The SQL of the parts of the key of a line."""
        return [f"key.k{part}" for part in range(len(self.paired.key))]

    def marked(self, rows: DataFrame, keys: Keys, parts: Sequence[str]) -> DataFrame:
        """Add CHECKED: whether the parts of a row's key, as SQL, have one of the keys on its side."""
        condition = " OR ".join(f"{name} IS NOT NULL" for name in SIDE_KEYS)
        return self._with_side_keys(rows, keys, parts).withColumn(CHECKED, F.expr(condition)).drop(*SIDE_KEYS)

    def _with_side_keys(self, rows: DataFrame, keys: Keys, parts: Sequence[str]) -> DataFrame:
        """Add SIDE_KEYS: for each side the one of the keys that the parts of a row's key, as SQL, have on this side."""
        for side, name in enumerate(SIDE_KEYS):
            same_key = f"{_cast(self._of_side(side, parts), self._sides.table(side).types)} = {name}"
            rows = rows.join(F.broadcast(keys[side].select(F.col("key").alias(name))), on=F.expr(same_key), how="left")
        return rows

    def _of_side(self, side: int, parts: Sequence[str]) -> Sequence[str]:
        """Return those of the parts of a key that one side gives it."""
        first = len(self.paired.keys[0])
        return parts[first:] if side else parts[:first]

    def rows(self, rows: DataFrame, name: str) -> DataFrame:
        """Return rows of the result with their key, as `key` (struct<k0, …>) and a struct."""
        return rows.selectExpr(f"{own_key(self.paired.key)} AS key", f"{row_struct(self.row.fieldNames())} AS {name}")

    def judged(self, lines: DataFrame, conditions: dict[str, str], rules: dict[str, str]) -> Verdict:
        """Judge lines by the rules for keys and by further rules, whose conditions are given."""
        key, types = self.paired.key, [self.row[name].dataType for name in self.paired.key]
        conditions, rules = conditions | {KEYLESS: self.paired.keyless}, KEY_RULES | rules
        return judge_lines(lines, key, types, conditions, rules, are_many=True, may_be_absent=True)

    def _group(self, side: int, own: Sequence[DataFrame], keys: DataFrame) -> DataFrame:
        """Return the rows to check of a side (`own`, by `keys`), and those that can match one of the other, CHECKED."""
        checked = F.broadcast(keys.select(F.col("key").alias(STAGED)))
        same_key = F.expr(f"{self._sides.table(side).key_sql} = {STAGED}")
        values = self._sides.values(1 - side, own[1 - side], [table.keyed for table in self._sources.inputs])
        others = self._sides.with_value(side, values).join(checked, on=same_key, how="left_anti")
        partners = driver_copy(others).withColumn(CHECKED, F.lit(False))
        return own[side].withColumn(CHECKED, F.lit(True)).unionByName(partners)


def _cast(parts: Sequence[str], types: Sequence[DataType]) -> str:
    """Return the SQL of a key (struct<k0, …>) of parts, as SQL, in some types."""
    return numbered(f"CAST({part} AS {type_sql(of)})" for part, of in zip(parts, types, strict=True))
