"""The gate of a change set: checks it against the published result and the sources, which it reads again."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from expectations.gate.affected import touched
from expectations.gate.by_key import (
    NO_LITERALS,
    ReadsDiffer,
    driver_copy,
    has_key,
    in_sample,
    own_key,
    trusted,
    with_keys,
)
from expectations.gate.rules import (
    KEY_RULES,
    KEYLESS,
    RULES,
    SOURCE_RULES,
    judge_lines,
    of_staged,
    staged_lines,
    with_published,
)
from expectations.gate.sources import GateSources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.tables.columns import as_columns
from lakehouse.tables.table import read
from lakehouse.values.checksums import NEW_HASH, has_checksum, row_hash
from lakehouse.values.compare import same
from lakehouse.values.net_changes import all_or_any_null, fields_of
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import Address, quote, row_struct, struct


@dataclass(frozen=True)
class PrefetchedRows:
    """
    Rows of the result and of the sources that were read before the change set was known. All are on the driver.

    Args:
        keys: `key` (struct<k0, …>) of the result rows that the changes of the sources may affect, or a share of these.
        published: `existing`, the published rows with these keys; None if the keys are only a share.
        computed: `computed`, the rows with these keys that the join computes; None if the keys are only a share.
    """

    keys: DataFrame
    published: DataFrame | None = None
    computed: DataFrame | None = None


def prefetch_rows(
    spark: SparkSession,
    schema: StructType,
    result: Address,
    base_version: int,
    sources: GateSources,
    layout: Sequence[str] = (),
) -> PrefetchedRows | None:
    """
    Read the rows against which a small change set of a schema will be checked, while it is computed.

    The result is None if the sources have no changes, or if reading the rows together with the change set costs less.
    If the result is laid out by other columns than its key, `layout`, only the change set says where its rows are.
    """
    touched_keys = None if sources.are_small else touched(sources)
    if touched_keys is None:
        return None
    staged = _Staged(changes=spark.createDataFrame([], schema), rows=0, sources=sources)
    keys = staged.numbered_keys(touched_keys)
    if layout or len(touched_keys.take(sources.share)) == sources.share:
        return PrefetchedRows(keys)
    try:
        existing, computed = staged.looked_up(keys, keys, read(spark, result, base_version))
    except ReadsDiffer:
        return None  # the gate finds this again, and reports it
    assert computed is not None, "the sources are known"
    return PrefetchedRows(keys, existing, driver_copy(computed))


def gate_change_set(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: GateSources | None = None,
    prefetched: PrefetchedRows | None = None,
    *,
    are_on_driver: bool = False,
    layout: Sequence[str] = (),
) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against, and the sources.

    Args:
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of its rows. This process validates a small change set itself, in a tenth of the time.
        sources: Without them, the rows after the change are checked only for their keys.
        are_on_driver: Whether the change set is on the driver already.
        layout: The columns by which the result is laid out, if not by its key.
    """
    staged = _Staged(
        changes=changes,
        rows=rows,
        sources=sources,
        prefetched=prefetched,
        are_on_driver=are_on_driver,
        layout=tuple(layout),
    )
    try:
        lines = staged.with_rows(staged.lines(), as_columns(read(spark, result, base_version), staged.row))
    except ReadsDiffer as differing:
        return Verdict((str(differing),))
    rules = RULES if sources is None else RULES | SOURCE_RULES
    rules = KEY_RULES | rules if staged.may_be_absent else rules
    verdict = judge_lines(
        lines,
        staged.names,
        [field.dataType for field in staged.key],
        staged.conditions(),
        rules,
        are_many=rows > limits.ROWS_ON_DRIVER,
        may_be_absent=staged.may_be_absent,
    )
    if verdict.passed or sources is None:
        return verdict
    return Verdict(verdict.findings + sources.unlike_literals(staged.recomputed(lines)))


@dataclass(frozen=True, kw_only=True)
class _Staged:
    """A staged change set, and the data against which it is checked; see `gate_change_set`."""

    changes: DataFrame
    rows: int
    sources: GateSources | None
    prefetched: PrefetchedRows | None = None
    are_on_driver: bool = False
    layout: tuple[str, ...] = ()

    @property
    def key(self) -> StructType:
        return fields_of(self.changes, "key")

    @property
    def row(self) -> StructType:
        return fields_of(self.changes, "after")

    @property
    def names(self) -> list[str]:
        return self.key.fieldNames()

    @property
    def may_be_absent(self) -> bool:
        return self.sources is not None and self.sources.may_be_absent

    @property
    def by_hash(self) -> bool:
        """Whether rows are compared by their hashes, so that the wide rows of a large result are not shuffled."""
        return self.rows > limits.ROWS_ON_DRIVER and has_checksum(list(self.row))

    @property
    def share(self) -> int:
        """The sampling interval: one in this number of staged rows is computed again."""
        return max(self.rows // limits.RECOMPUTED_ROWS, 1)

    @property
    def _is_recomputed(self) -> str:
        return in_sample("key", self.sources.salt if self.sources else "", self.share)

    def _collected(self, rows: DataFrame) -> DataFrame:
        """Collect rows to the driver, unless they are too large or reading their small files again costs less."""
        is_small = self.sources is not None and self.sources.are_small
        return driver_copy(rows) if self.rows <= limits.CHANGES_VIA_DRIVER and not is_small else rows

    def lines(self) -> DataFrame:
        """
        Return the staged changes, and the unstaged keys of rows that the changes of the sources may affect.

        The columns are `key` (struct<k0, …>), `op`, `before`, `after`, and `staged`, which is true or null.
        """
        with ThreadPoolExecutor() as pool:
            touching = pool.submit(self._touched)
            changes = self.changes if self.are_on_driver else self._collected(self.changes)
            lines = staged_lines(changes, self.names)
            keys = touching.result()
        if keys is None:
            return lines
        not_staged = self.numbered_keys(keys).join(self._keys(lines), on="key", how="left_anti")
        return lines.unionByName(not_staged, allowMissingColumns=True)

    def numbered_keys(self, keys: DataFrame) -> DataFrame:
        """Return keys as the `key` of lines: struct<k0, …> in the types of the result."""
        numbered_key = StructType([StructField(f"k{part}", field.dataType) for part, field in enumerate(self.key)])
        return keys.select(F.col("key").cast(numbered_key))

    def _touched(self) -> DataFrame | None:
        if self.prefetched is not None:
            return self.prefetched.keys
        return None if self.sources is None else touched(self.sources)

    def with_rows(self, lines: DataFrame, published: DataFrame) -> DataFrame:
        """Join lines with the rows of their keys: `existing`, which is published, and `computed` from the sources."""
        prefetched = None if self.by_hash else self.prefetched
        if prefetched is not None and prefetched.published is not None and self._has_only(prefetched.keys):
            existing, computed = prefetched.published, prefetched.computed
        else:
            located = self._located(lines, published)
            existing, computed = self.looked_up(self._keys(lines), self.recomputed(lines), located)
        if computed is not None:
            lines = self._joined(lines, computed, "computed")
        return self._joined(self._hashed(lines) if self.by_hash else lines, existing, "existing")

    def _located(self, lines: DataFrame, published: DataFrame) -> DataFrame:
        """
        Filter published rows by the columns by which the result is laid out, so that files without rows of the lines
        are skipped: to the values that the staged rows have before the change, and to those of the rows with any other
        key, which are searched for by key in all files. A line whose row is elsewhere violates a rule.
        """
        if not self.layout or (self.sources is not None and self.sources.are_small):
            return published
        values = lines.where("before IS NOT NULL").selectExpr(f"{own_key(self.layout, 'before.')} AS key")
        others = driver_copy(self._keys(lines.where("before IS NULL")).distinct())
        if not others.isEmpty():
            literals = trusted(others, may_be_absent=self.may_be_absent)
            found = with_keys(published, self.names, own_key(self.names), others, literals)
            values = values.unionAll(found.selectExpr(f"{own_key(self.layout)} AS key"))
        located = trusted(driver_copy(values.distinct()), may_be_absent=True)
        if located.keys == 0:
            return published.where("FALSE")
        predicate = located.predicate(self.layout)
        return published if predicate is None else published.where(predicate)

    def _has_only(self, keys: DataFrame) -> bool:
        """
        Return whether each staged key is among some keys on the driver, which are few. Without a Spark job, unless the
        stage is too large for the driver; more staged rows than keys are not collected.
        """
        found = {row[0] for row in keys.select(F.xxhash64("key")).collect()}
        if self.rows > len(found):
            return False
        staged = self._keys(staged_lines(self.changes, self.names)).select(F.xxhash64("key"))
        return found.issuperset(row[0] for row in staged.collect())

    def _hashed(self, lines: DataFrame) -> DataFrame:
        """Replace the rows of lines by their hashes, after the rules that need the rows themselves."""
        images = [image for image in ("before", "after", "computed") if image in lines.columns]
        hashes = (f"IF({image} IS NULL, NULL, {row_hash(list(self.row), f'{image}.')}) AS {image}" for image in images)
        conditions = self._conditions_of_staged.items()
        flags = (f"{sql} AS {rule}" for rule, sql in conditions if "computed" in images or rule not in SOURCE_RULES)
        return lines.selectExpr("key", "op", "staged", *hashes, *flags)

    def recomputed(self, lines: DataFrame) -> DataFrame:
        """Return the keys of the lines that the join computes again: the unstaged ones, and a sample of the others."""
        return self._keys(lines.where(f"staged IS NULL OR {self._is_recomputed}"))

    def looked_up(
        self, keys: DataFrame, recomputed: DataFrame, published: DataFrame
    ) -> tuple[DataFrame, DataFrame | None]:
        """
        Return published rows with some keys, as `existing`, and recomputed rows with other keys, as `computed`.

        No rows are recomputed without sources. Raise ReadsDiffer if the literals do not find the rows with the keys.
        """
        literals = None
        if self.sources is None or not self.sources.are_small:
            if recomputed is not keys:  # keys that were prefetched are distinct, and on the driver already
                recomputed = driver_copy(recomputed.distinct())
            literals = trusted(recomputed) if self.sources is None else self.sources.pruning(recomputed)
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(self._existing, keys, recomputed, literals, published)
            computed = None if self.sources is None else self.sources.computed(recomputed, literals, self.row)
            return reading.result(), computed

    def _existing(
        self, keys: DataFrame, recomputed: DataFrame, literals: Pruning | None, published: DataFrame
    ) -> DataFrame:
        """Return published rows; `literals` are the pruning of the recomputed keys, None for small sources."""
        rows = published
        if literals is not None and self.share == 1:
            literals = NO_LITERALS if self.layout else literals  # its files have no ranges of the key
            rows = with_keys(published, self.names, own_key(self.names), recomputed, literals)
        elif literals is not None and not self.layout:
            rows = published.where(trusted(keys, may_be_absent=self.may_be_absent).predicate(self.names) or "TRUE")
        if self.by_hash:
            parts = {name: quote(name) for name in self.names} | {NEW_HASH: row_hash(list(self.row))}
            return rows.selectExpr(f"{struct(parts)} AS existing")
        return self._collected(rows.selectExpr(f"{row_struct(self.row.fieldNames())} AS existing"))

    def conditions(self) -> dict[str, str]:
        """Return for each rule the SQL condition of a line that violates it; `SOURCE_RULES` need `computed`."""
        staged = self._conditions_of_staged
        conditions = with_published(self._is_existing) | ({rule: rule for rule in staged} if self.by_hash else staged)
        return conditions | {KEYLESS: all_or_any_null(self._key_parts, are_all=True)}

    @property
    def _conditions_of_staged(self) -> dict[str, str]:
        return of_staged(self.names, self.row, self._is_recomputed)

    def _is_existing(self, image: str) -> str:
        """Return the condition that an image of a line equals the published row."""
        return f"(existing.{NEW_HASH} <=> {image})" if self.by_hash else same("existing", image, self.row)

    def _keys(self, lines: DataFrame) -> DataFrame:
        """Return the keys of lines that are keys. The others match nothing; the key rule reports them."""
        return lines.where(f"NOT {all_or_any_null(self._key_parts, are_all=self.may_be_absent)}").select("key")

    @property
    def _key_parts(self) -> list[str]:
        return [f"key.k{n}" for n in range(len(self.names))]

    def _joined(self, lines: DataFrame, rows: DataFrame, name: str) -> DataFrame:
        """Join lines with the rows of their keys; the rows are structs in the column `name`."""
        return lines.join(rows, on=F.expr(has_key(name, self.names, may_be_absent=self.may_be_absent)), how="left")
