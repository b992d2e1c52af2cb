"""
The gate of a join in which rows match in any number: checks its change set, or a load, against result and sources.

    staged keys, changed rows ──► keys of each side to check ──► all rows that share a value with them ──► statement

Rows of the left side may have the values of rows that they look up. These are looked up in whole tables, and left rows
with a value are those that refer, step by step, to a row with it.

For a row to check, the gate has every row of the other side with its value, so that the plain statement finds every
match of it. That shows a pair that does not match, a match that is missing, and an unmatched row beside a match. Where
WHERE or an inner look-up may hide a pair, some further rows are checked, too: those of outer sides with a value that a
row to check has, or had before the epoch. The gate shares no code with the joins.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from expectations.gate.by_key import ReadsDiffer, driver_copy
from expectations.gate.changes import RULES, SOURCE_RULES
from expectations.gate.judging import KEY_RULES, KEYLESS, is_alike_in_pandas, judged, suspects
from expectations.gate.loaded import LOADED_RULES
from expectations.gate.paired import Paired
from expectations.gate.sides import Sides
from expectations.gate.sources import Sources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.tables.table import read
from lakehouse.values.compare import comparable, identical, same, type_sql
from lakehouse.values.net_changes import all_or_any_null
from lakehouse.values.pruning import null_safe_predicate
from lakehouse.values.sqltext import numbered, quote, row_struct

CHECKED, STAGED = (f"_lakejoin_{name}" for name in ("checked", "staged"))
"""Working columns: whether the join is computed again for a row, and the key of a staged line."""

KNOWN = ("_lakejoin_known_0", "_lakejoin_known_1")
"""Working columns: the key to check that a row has on the left and on the right side."""


Keys = tuple[DataFrame, DataFrame]
"""Distinct keys of rows of the left and of the right input, as `key` (struct<k0, …>)."""


def gate_pairs(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: Sources,
    paired: Paired,
    *,
    is_incremental: bool,
) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against, and the sources.

    Args:
        spark: Our session.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of its rows.
        result: The result table.
        base_version: The version of the result.
        sources: The sources of the join as the epoch pinned them.
        paired: The inputs whose rows match in any number.
        is_incremental: Whether the change set holds every change of the rows that it changes; a backfill of a part of
            the result leaves others out.
    """
    gate = _Gate(sources, paired, changes.schema["after"].dataType)
    try:
        return _judge_changes(gate, changes, rows, read(spark, result, base_version), is_incremental=is_incremental)
    except ReadsDiffer as found:
        return Verdict((str(found),))


def _judge_changes(
    gate: "_Gate", changes: DataFrame, rows: int, published: DataFrame, *, is_incremental: bool
) -> Verdict:
    """Compare staged lines, published rows and rows that the join makes, key by key."""
    paired = gate.paired
    own = F.expr(numbered(quote("key", name) for name in paired.key)).alias("key")
    lines = changes.select(own, "op", "before", "after", F.lit(True).alias("staged"))
    lines = driver_copy(lines) if rows <= limits.CHANGES_VIA_DRIVER else lines
    keys = gate.to_check(lines, rows, is_incremental=is_incremental)
    with ThreadPoolExecutor() as pool:
        checking = pool.submit(gate.check_reads, keys)
        holding = pool.submit(lambda: driver_copy(gate.rows(gate.published(published, keys, lines), "held")))
        made = driver_copy(gate.rows(gate.made(keys), "made"))
        held = holding.result()
        checking.result()
    whole = lines.join(held, on="key", how="full").join(made, on="key", how="full")
    whole = gate.marked(whole, keys)
    if not is_incremental:
        whole = whole.where("staged")
    rules = KEY_RULES | RULES | SOURCE_RULES
    broken = gate.broken()
    return gate.judged(whole.where(f"staged OR {CHECKED}"), broken, rules)


def gate_loaded_pairs(
    spark: SparkSession, result: Address, version: int, sources: Sources, paired: Paired, salt: str
) -> Verdict:
    """
    Check a loaded result: keys are unique, and a sample of rows, also of the sources', is what the join computes.

    Args:
        spark: Our session.
        result: The result table.
        version: The version that the load created.
        sources: The sources of the join as the load pinned them.
        paired: The inputs whose rows match in any number.
        salt: Chooses the sample.
    """
    loaded = read(spark, result, version)
    gate = _Gate(sources, paired, loaded.schema)
    key = row_struct(paired.key)
    twice = loaded.groupBy(F.expr(key).alias("twice")).count().where("count > 1").limit(limits.LOADED_KEYS)
    lines = loaded.select(F.expr(numbered(map(quote, paired.key))).alias("key"))
    sample = driver_copy(lines.orderBy(F.xxhash64("key", F.lit(salt))).limit(limits.LOADED_KEYS))
    keys = gate.with_sources(sample, salt)
    try:
        held, made = gate.rows(gate.of_keys(loaded, keys), "held"), gate.rows(gate.made(keys), "made")
    except ReadsDiffer as differ:
        return Verdict((str(differ),))
    row = f"{identical('made', loaded.schema)} <=> {identical('held', loaded.schema)}"
    broken = {
        KEYLESS: paired.keyless,
        "missing": "held IS NULL AND made IS NOT NULL",
        "surplus": "made IS NULL AND held IS NOT NULL",
        "differs": f"held IS NOT NULL AND made IS NOT NULL AND NOT ({row})",
    }
    found = held.join(made, on="key", how="full")
    again = twice.select(F.expr(numbered(quote("twice", name) for name in paired.key)).alias("key"))
    found = found.unionByName(again.unionAll(again), allowMissingColumns=True)
    return gate.judged(found, broken, KEY_RULES | LOADED_RULES)


class _Gate:
    """
    The sources of a join, for the keys of rows of both sides.

    Args:
        sources: The sources.
        paired: The inputs whose rows match in any number.
        row: The columns of the result.
    """

    def __init__(self, sources: Sources, paired: Paired, row: DataType) -> None:
        assert isinstance(row, StructType)
        self._sources, self.paired, self._row = sources, paired, row
        self._sides = Sides(sources, paired)

    def to_check(self, lines: DataFrame, rows: int, *, is_incremental: bool) -> Keys:
        """Return the keys of each side to check: of staged rows and of changed rows, or of a share of them."""
        share = max(rows // limits.LEFT_OUT_ROWS, 1)
        sample = lines.where(f"pmod(xxhash64(key, '{self._sources.salt}'), {share}) = 0")
        keys = self._keys(sample, self._sources.affected() if is_incremental else {})
        keys = keys if share == 1 else self._of_few_lines(keys, lines)
        return self._with_partners(keys) if is_incremental and self._may_hide_pairs else keys

    def _of_few_lines(self, keys: Keys, lines: DataFrame) -> Keys:
        """Return a sample of the keys of each side, of which about `limits.LEFT_OUT_ROWS` lines have one."""
        known = self._with_known(lines, keys, self._parts())
        numbers = known.agg(*(F.count(name) for name in KNOWN)).collect()[0]
        found = []
        for some, number in zip(keys, numbers, strict=True):
            most = max(some.count() * limits.LEFT_OUT_ROWS // max(number, 1), 1)
            in_turn = some.orderBy(F.xxhash64("key", F.lit(self._sources.salt)))
            found.append(some if number <= limits.LEFT_OUT_ROWS else driver_copy(in_turn.limit(most)))
        return found[0], found[1]

    def check_reads(self, keys: Keys) -> None:
        """Check what was read of the sources by another way to read it; raise `ReadsDiffer` if they differ."""
        self._sources.check_reads(dict(zip(self.paired.places, keys, strict=True)))

    @property
    def _may_hide_pairs(self) -> bool:
        """Whether WHERE, or an inner look-up, may leave out a pair, so that nothing shows that its rows match."""
        statement, (_, right) = self._sources.statement, self.paired.places
        return statement.where is not None or any(how == "inner" for how, _ in statement.steps[right:])

    def _with_partners(self, keys: Keys) -> Keys:
        """Add some rows of outer sides with a value that rows to check have or had: WHERE may hide their matches."""
        found = list(keys)
        for side, place in enumerate(self.paired.places):
            if self.paired.outer[side]:
                values = self._sides.values_ever(1 - side, keys[1 - side])
                partners = self._sides.with_value(side, values).select(self._sides.key(place))
                some = partners.orderBy(F.xxhash64("key", F.lit(self._sources.salt))).limit(limits.LOADED_KEYS)
                found[side] = driver_copy(keys[side].unionAll(some).distinct())
        return found[0], found[1]

    def with_sources(self, sample: DataFrame, salt: str) -> Keys:
        """Return the keys of each side of a sample of the result, and of rows of both inputs."""
        reached = {}
        for place in self.paired.places:
            item = self._sources.inputs[place]
            keys = item.keyed.select(self._sides.key(place))
            reached[place] = keys.orderBy(F.xxhash64("key", F.lit(salt))).limit(limits.LOADED_KEYS)
        return self._keys(sample, reached)

    def _keys(self, lines: DataFrame, reached: dict[int, DataFrame]) -> Keys:
        first, found = 0, []
        for place, names in zip(self.paired.places, self.paired.keys, strict=True):
            kinds = self._sources.inputs[place].types
            parts = [f"key.k{first + part}" for part in range(len(names))]
            cast = (f"CAST({part} AS {type_sql(kind)})" for part, kind in zip(parts, kinds, strict=True))
            absent = all_or_any_null(parts, are_all=self._sources.inputs[place].may_be_absent)
            own = lines.where(f"NOT {absent}").select(F.expr(numbered(cast)).alias("key"))
            more = [reached[place].select("key")] if place in reached else []
            found.append(driver_copy(reduce(DataFrame.unionAll, [own, *more]).distinct()))
            first += len(names)
        return found[0], found[1]

    def made(self, keys: Keys) -> DataFrame:
        """
        Return the rows that the statement makes of the rows with these keys: the columns of SELECT.

        One of two rows that match must have a key to check. Other rows, which may seem to have no match, are left out.
        """
        tables = [item.keyed for item in self._sources.inputs]
        with ThreadPoolExecutor() as pool:
            own = list(pool.map(lambda side: driver_copy(self._sides.with_key(side, keys[side])), (0, 1)))
            groups = pool.map(lambda side: self._group(side, own, keys[side]), (0, 1))
            for place, group in zip(self.paired.places, groups, strict=True):
                tables[place] = group
        statement, (_, right) = self._sources.statement, self.paired.places
        chosen = " OR ".join(quote(statement.aliases[place], CHECKED) for place in self.paired.places)
        steps = [
            (how, f"({on}) AND ({chosen})" if n == right else on) for n, (how, on) in enumerate(statement.steps, 1)
        ]
        casts = (f"CAST({quote(f.name)} AS {type_sql(f.dataType)}) AS {quote(f.name)}" for f in self._row)
        return self.of_keys(replace(statement, steps=tuple(steps)).over(tables).selectExpr(*casts), keys)

    def of_keys(self, rows: DataFrame, keys: Keys) -> DataFrame:
        """Filter rows of the result to those with one of the keys on its side."""
        names = [quote(name) for name in self.paired.key]
        return self._marked(rows, keys, names).where(CHECKED).drop(CHECKED)

    def published(self, rows: DataFrame, keys: Keys, lines: DataFrame) -> DataFrame:
        """Return the rows of the result with one of the keys on its side, or with the key of a line."""
        predicates = [null_safe_predicate(lines.select("key"), self.paired.key)]
        for side, names in enumerate(self.paired.keys):
            known = self._sides.trusted(side, keys[side])
            predicates.append("false" if known.keys == 0 else known.predicate(names))
        rows = rows if None in predicates else rows.where(" OR ".join(f"({one or 'false'})" for one in predicates))
        parts, staged = [quote(name) for name in self.paired.key], lines.select(F.col("key").alias(STAGED)).distinct()
        found = self._marked(rows, keys, parts).join(staged, on=F.expr(f"{numbered(parts)} = {STAGED}"), how="left")
        return found.where(f"{CHECKED} OR {STAGED} IS NOT NULL").drop(CHECKED, STAGED)

    def marked(self, lines: DataFrame, keys: Keys) -> DataFrame:
        """Add CHECKED to lines: whether `made` is known for their key."""
        return self._marked(lines, keys, self._parts())

    def _parts(self) -> list[str]:
        """Return the SQL of the parts of the key of a line."""
        return [f"key.k{place}" for place in range(len(self.paired.key))]

    def _marked(self, rows: DataFrame, keys: Keys, parts: Sequence[str]) -> DataFrame:
        """Add CHECKED: whether the parts of a row's key, as SQL, have one of the keys on its side."""
        condition = " OR ".join(f"{name} IS NOT NULL" for name in KNOWN)
        return self._with_known(rows, keys, parts).withColumn(CHECKED, F.expr(condition)).drop(*KNOWN)

    def _with_known(self, rows: DataFrame, keys: Keys, parts: Sequence[str]) -> DataFrame:
        """Add for each side in KNOWN the one of the keys that the parts of a row's key, as SQL, have on this side."""
        first = 0
        for side, place in enumerate(self.paired.places):
            kinds, known = self._sources.inputs[place].types, KNOWN[side]
            own = zip(parts[first:], kinds, strict=False)
            same_key = f"{numbered(f'CAST({part} AS {type_sql(kind)})' for part, kind in own)} = {known}"
            wanted = F.broadcast(keys[side].select(F.col("key").alias(known)))
            rows = rows.join(wanted, on=F.expr(same_key), how="left")
            first += len(kinds)
        return rows

    def rows(self, rows: DataFrame, name: str) -> DataFrame:
        """Return rows of the result with their key, as `key` (struct<k0, …>) and a struct."""
        own = numbered(map(quote, self.paired.key))
        return rows.selectExpr(f"{own} AS key", f"{row_struct(self._row.fieldNames())} AS {name}")

    def broken(self) -> dict[str, str]:
        """Return for each rule the SQL condition of a line that violates it."""
        row, key = self._row, self.paired.key
        keeps = (same(f"key.k{n}", f"after.{quote(name)}", row[name].dataType) for n, name in enumerate(key))
        exactly = [identical(image, row) for image in ("made", "after")]
        return {
            KEYLESS: self.paired.keyless,
            "unnecessary_tombstone": "op = 'delete' AND held IS NULL",
            "update_of_nothing": "op = 'update' AND held IS NULL",
            "insert_of_present": "op = 'insert' AND held IS NOT NULL",
            "changes_nothing": f"op = 'update' AND {same('held', 'after', row)}",
            "before_differs": f"staged AND NOT {same('held', 'before', row)}",
            "loses_its_key": f"after IS NOT NULL AND NOT ({' AND '.join(keeps)})",
            "not_joined": f"staged AND {CHECKED} AND NOT ({exactly[0]} <=> {exactly[1]})",
            "left_out": f"staged IS NULL AND NOT {same('made', 'held', row)}",
        }

    def judged(self, lines: DataFrame, broken: dict[str, str], rules: dict[str, str]) -> Verdict:
        """Judge lines, of which only those that violate a rule, or have the key of another one, are looked at."""
        kinds = [self._row[name].dataType for name in self.paired.key]
        parts = (f"{comparable(f'key.k{n}', kind)} AS key_{n}" for n, kind in enumerate(kinds))
        flags = (f"coalesce({broken[rule]}, FALSE) AS {rule}" for rule in rules)
        batch = lines.selectExpr(*parts, *flags)
        suspect = suspects(batch, self.paired.key, rules, may_be_absent=True)
        found = suspect.limit(limits.JUDGED_IN_PROCESS)
        plain = is_alike_in_pandas(kinds)
        return judged(found, self.paired.key, rules, in_process=plain, may_be_absent=True)

    def _group(self, side: int, own: Sequence[DataFrame], keys: DataFrame) -> DataFrame:
        """
        Return the rows of one side that can match rows to check, and those to check themselves, with CHECKED.

        Args:
            side: The side.
            own: The rows to check of both sides.
            keys: The keys of those of this side.
        """
        place = self.paired.places[side]
        checked = F.broadcast(keys.select(F.col("key").alias(STAGED)))
        same_key = F.expr(f"{self._sides.key_sql(place)} = {STAGED}")
        values = self._sides.values(1 - side, own[1 - side], [item.keyed for item in self._sources.inputs])
        others = self._sides.with_value(side, values).join(checked, on=same_key, how="left_anti")
        partners = driver_copy(others).withColumn(CHECKED, F.lit(False))
        return own[side].withColumn(CHECKED, F.lit(True)).unionByName(partners)
