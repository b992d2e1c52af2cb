"""
The gate of a change set: checks it against the published result before it is published.

The gate reads the stage and the result again at the pinned version. It shares no code with the joins, so that it does
not repeat a mistake of the joins.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from expectations.gate.by_key import ReadsDiffer, driver_copy, trusted, with_keys
from expectations.gate.judging import KEY_RULES, KEYLESS, is_alike_in_pandas, judged, suspects
from expectations.gate.sources import Sources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.tables.table import read
from lakehouse.values.checksums import NEW_HASH, has_checksum, row_hash
from lakehouse.values.compare import comparable, identical, same, type_sql
from lakehouse.values.net_changes import all_or_any_null, fields_of
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, row_struct, struct, text

RULES = {
    "unnecessary_tombstone": "no unnecessary tombstone: a delete removes an existing row",
    "update_of_nothing": "an update changes an existing row",
    "insert_of_present": "an insert adds a row that does not exist yet",
    "changes_nothing": "no spurious row: an update changes something",
    "before_differs": "the staged row before the change equals the published row",
    "loses_its_key": "the row after the change has the key of the change",
}
SOURCE_RULES = {
    "not_joined": "the row after the change equals the row that the join computes from its sources",
    "left_out": "no missing change: the result changes wherever the changes of its sources require it",
}


@dataclass(frozen=True)
class PrefetchedRows:
    """
    Rows of the result and of the sources that were read before the change set was known. All are on the driver.

    Args:
        keys: `key` (struct<k0, …>) of the result rows that the changes of the sources may affect, or a share of these.
        published: `held`, the published rows with these keys; None if the keys are only a share.
        made: `made`, the rows with these keys that the join computes from its sources; None if the keys are a share.
    """

    keys: DataFrame
    published: DataFrame | None = None
    made: DataFrame | None = None


def prefetch_rows(
    spark: SparkSession, kind: StructType, result: Address, base_version: int, sources: Sources
) -> PrefetchedRows | None:
    """
    Read the rows against which a small change set will be checked, while the change set is computed.

    Args:
        spark: Our session.
        kind: The columns of the change set: `op`, `key`, `before`, `after`.
        result: The result table.
        base_version: Its version.
        sources: The sources of the join as the epoch pinned them.

    Returns:
        The rows; if the sources have so many changes that the gate checks only a share of the rows, their keys alone.
        None if the sources have no changes, or if reading the rows together with the change set costs less.
    """
    touched = None if sources.are_small else sources.touched()
    if touched is None:
        return None
    staged = _Staged(spark.createDataFrame([], kind), 0, sources)
    keys = touched.select(F.col("key").cast(staged.numbered_key))
    if len(touched.take(sources.share)) == sources.share:
        return PrefetchedRows(keys)
    try:
        held, made = staged.looked_up(keys, keys, read(spark, result, base_version))
    except ReadsDiffer:
        return None  # the gate finds this again, and reports it
    assert made is not None, "sources are given"
    return PrefetchedRows(keys, held, driver_copy(made))


def gate_change_set(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: Sources | None = None,
    prefetched: PrefetchedRows | None = None,
    *,
    are_on_driver: bool = False,
) -> Verdict:
    """
    Check a staged change set against the result at the version that it was computed against, and the sources.

    Args:
        spark: Our session.
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of its rows. This process validates a small change set itself, in a tenth of the time.
        result: The result table.
        base_version: The version of the result.
        sources: The sources of the join as the epoch pinned them. Without them, the rows after the change are checked
            only for their keys.
        prefetched: The rows that were already read.
        are_on_driver: Whether the change set is on the driver already.

    Returns:
        The verdict. A gate that cannot be evaluated raises an error; it never passes.
    """
    staged = _Staged(changes, rows, sources, prefetched, are_on_driver=are_on_driver)
    try:
        lines = staged.with_rows(staged.lines(), read(spark, result, base_version))
    except ReadsDiffer as found:
        return Verdict((str(found),))
    rules = RULES if sources is None else RULES | SOURCE_RULES
    absent = staged.may_be_absent
    rules = KEY_RULES | rules if absent else rules
    broken = staged.broken()
    batch = lines.select(
        *(F.expr(comparable(f"key.k{n}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(staged.key)),
        *(F.expr(f"coalesce({broken[name]}, FALSE)").alias(name) for name in rules),
    )
    if rows > limits.JUDGED_IN_PROCESS:
        batch = suspects(batch, staged.names, rules, may_be_absent=absent).limit(limits.JUDGED_IN_PROCESS)
    plain = is_alike_in_pandas(field.dataType for field in staged.key)
    return judged(batch, staged.names, rules, in_process=plain, may_be_absent=absent)


@dataclass(frozen=True)
class _Staged:
    """
    A staged change set, and the data against which it is checked.

    Args:
        changes: `op`, `key`, `before`, `after`.
        rows: The number of rows.
        sources: The sources of the join; None if they are not checked.
        prefetched: The rows that were already read.
        are_on_driver: Whether the change set is on the driver already.
    """

    changes: DataFrame
    rows: int
    sources: Sources | None
    prefetched: PrefetchedRows | None = None
    are_on_driver: bool = False

    @property
    def key(self) -> StructType:
        """The key columns of the result."""
        return fields_of(self.changes, "key")

    @property
    def row(self) -> StructType:
        """The columns of the result."""
        return fields_of(self.changes, "after")

    @property
    def names(self) -> list[str]:
        """The names of the key columns."""
        return self.key.fieldNames()

    @property
    def numbered_key(self) -> StructType:
        """The key columns under their names in the `key` of lines."""
        return StructType([StructField(f"k{n}", field.dataType) for n, field in enumerate(self.key)])

    @property
    def may_be_absent(self) -> bool:
        """Whether parts of a key may be null."""
        return self.sources is not None and self.sources.may_be_absent

    @property
    def by_hash(self) -> bool:
        """Whether rows are compared by their hashes, so that the wide rows of a large result are not shuffled."""
        return self.rows > limits.JUDGED_IN_PROCESS and has_checksum(list(self.row))

    @property
    def share(self) -> int:
        """The sampling interval: one in this number of staged rows is computed again."""
        return max(self.rows // limits.RECOMPUTED_ROWS, 1)

    @property
    def _recomputed(self) -> str:
        salt = "" if self.sources is None else self.sources.salt
        return f"pmod(xxhash64(key, {text(salt)}), {self.share}) = 0"

    def _collected(self, rows: DataFrame) -> DataFrame:
        """Collect rows to the driver, unless they are too large or reading their small files again costs less."""
        is_small = self.sources is not None and self.sources.are_small
        return driver_copy(rows) if self.rows <= limits.CHANGES_VIA_DRIVER and not is_small else rows

    def lines(self) -> DataFrame:
        """
        Return the staged changes, and the unstaged keys of rows that the changes of the sources may affect.

        Returns:
            `key` (struct<k0, …>), `op`, `before`, `after`, and `staged`, which is true or null.
        """
        with ThreadPoolExecutor() as pool:
            touching = pool.submit(self._touched)
            own = numbered(quote("key", name) for name in self.names)
            changes = self.changes if self.are_on_driver else self._collected(self.changes)
            lines = changes.selectExpr(f"{own} AS key", "op", "before", "after", "TRUE AS staged")
            touched = touching.result()
        if touched is None:
            return lines
        touched = touched.select(F.col("key").cast(self.numbered_key))
        not_staged = touched.join(self._keys(lines), on="key", how="left_anti")
        return lines.unionByName(not_staged, allowMissingColumns=True)

    def _touched(self) -> DataFrame | None:
        if self.prefetched is not None:
            return self.prefetched.keys
        return None if self.sources is None else self.sources.touched()

    def with_rows(self, lines: DataFrame, published: DataFrame) -> DataFrame:
        """
        Join lines with the rows of their keys: `held`, the published row, and `made`, computed from the sources.

        Args:
            lines: The lines, as `lines` returns them.
            published: The result.
        """
        held, made = self._rows_of(lines, published)
        if made is not None:
            lines = self._joined(lines, made, "made")
        return self._joined(self._hashed(lines) if self.by_hash else lines, held, "held")

    def _hashed(self, lines: DataFrame) -> DataFrame:
        """Replace the rows of lines by their hashes, after the rules that need the rows themselves."""
        images = [image for image in ("before", "after", "made") if image in lines.columns]
        hashes = (f"IF({image} IS NULL, NULL, {row_hash(list(self.row), f'{image}.')}) AS {image}" for image in images)
        alone = self._broken_alone().items()
        broken = (f"{sql} AS {rule}" for rule, sql in alone if "made" in images or rule not in SOURCE_RULES)
        return lines.selectExpr("key", "op", "staged", *hashes, *broken)

    def _rows_of(self, lines: DataFrame, published: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        keys, prefetched = self._keys(lines), None if self.by_hash else self.prefetched
        if prefetched is not None and prefetched.published is not None and self._are_among(keys, prefetched.keys):
            return prefetched.published, prefetched.made
        chosen = self._keys(lines.where(f"staged IS NULL OR {self._recomputed}"))
        return self.looked_up(keys, chosen, published)

    def _are_among(self, keys: DataFrame, others: DataFrame) -> bool:
        return keys.join(others, on="key", how="left_anti").isEmpty()

    def looked_up(self, keys: DataFrame, chosen: DataFrame, published: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """
        Return published rows, as `held`, and rows that the join computes from its sources, as `made`.

        Args:
            keys: The keys of the published rows.
            chosen: The keys of the computed rows.
            published: The result.

        Returns:
            The published rows, and the computed rows; None instead of the computed rows if no sources are checked.

        Raises:
            ReadsDiffer: The literals do not find the rows with the keys.
        """
        known = None
        if self.sources is None or not self.sources.are_small:
            if chosen is not keys:  # keys that were prefetched are distinct, and on the driver already
                chosen = driver_copy(chosen.distinct())
            known = trusted(chosen) if self.sources is None else self.sources.pruning(chosen)
        with ThreadPoolExecutor() as pool:
            holding = pool.submit(self._held, keys, chosen, known, published)
            made = None
            if self.sources is not None:
                values = {f.name: f"CAST({quote(f.name)} AS {type_sql(f.dataType)})" for f in self.row}
                made = self.sources.joined(chosen, known).selectExpr(f"{struct(values)} AS made")
            return holding.result(), made

    def _held(self, keys: DataFrame, chosen: DataFrame, known: Pruning | None, published: DataFrame) -> DataFrame:
        """Return the published rows with the keys; `known` is the pruning of those chosen, None for small sources."""
        rows = published
        if known is not None and self.share == 1:
            rows = with_keys(published, self.names, numbered(map(quote, self.names)), chosen, known)
        elif known is not None:
            predicate = trusted(keys, may_be_absent=self.may_be_absent).predicate(self.names)
            rows = published if predicate is None else published.where(predicate)
        if self.by_hash:
            parts = {name: quote(name) for name in self.names} | {NEW_HASH: row_hash(list(self.row))}
            return rows.selectExpr(f"{struct(parts)} AS held")
        return self._collected(rows.selectExpr(f"{row_struct(self.row.fieldNames())} AS held"))

    def broken(self) -> dict[str, str]:
        """Return for each rule the SQL condition of a line that violates it; `SOURCE_RULES` need `made`."""
        alone = self._broken_alone()
        return {
            KEYLESS: all_or_any_null(self._key_parts(), are_all=True),
            "unnecessary_tombstone": "op = 'delete' AND held IS NULL",
            "update_of_nothing": "op = 'update' AND held IS NULL",
            "insert_of_present": "op = 'insert' AND held IS NOT NULL",
            "changes_nothing": f"op = 'update' AND {self._is_held('after')}",
            "before_differs": f"staged AND NOT {self._is_held('before')}",
            "left_out": f"staged IS NULL AND NOT {self._is_held('made')}",
            **({rule: rule for rule in alone} if self.by_hash else alone),
        }

    def _broken_alone(self) -> dict[str, str]:
        """Return the conditions of the rules that need no published row."""
        keeps = (same(f"key.k{n}", f"after.{quote(f.name)}", f.dataType) for n, f in enumerate(self.key))
        # Staged rows are compared exactly, but a published row may have the entries of a map in another order.
        exactly = [identical(image, self.row) for image in ("made", "after")]
        return {
            "loses_its_key": f"after IS NOT NULL AND NOT ({' AND '.join(keeps)})",
            "not_joined": f"staged AND {self._recomputed} AND NOT ({exactly[0]} <=> {exactly[1]})",
        }

    def _is_held(self, image: str) -> str:
        """Return the condition that an image of a line equals the published row."""
        return f"(held.{NEW_HASH} <=> {image})" if self.by_hash else same("held", image, self.row)

    def _keys(self, lines: DataFrame) -> DataFrame:
        """Return the keys of lines that are keys. The others match nothing; the key rule reports them."""
        return lines.where(f"NOT {all_or_any_null(self._key_parts(), are_all=self.may_be_absent)}").select("key")

    def _key_parts(self) -> list[str]:
        return [f"key.k{n}" for n in range(len(self.names))]

    def _joined(self, lines: DataFrame, rows: DataFrame, name: str) -> DataFrame:
        """Join lines with the rows of their keys; the rows are structs in the column `name`."""
        equal = "<=>" if self.may_be_absent else "="
        same_key = " AND ".join(f"key.k{n} {equal} {quote(name, part)}" for n, part in enumerate(self.names))
        return lines.join(rows, on=F.expr(same_key), how="left")
