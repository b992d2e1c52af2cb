"""
A change set is checked against what is published before it is published itself.

The gate re-reads the stage and the result at the pinned version and shares no code with the joins, so that a mistake
there cannot hide here.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from expectations.gate.by_key import LiteralsMiss, driver_copy, trusted, with_keys
from expectations.gate.judging import is_alike_in_pandas, judged
from expectations.gate.sources import Sources
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.address import Address
from lakehouse.sqltext import numbered, quote, row_struct, struct
from lakehouse.stage import fields_of
from lakehouse.tables import read
from lakehouse.values import comparable, identical, same, type_sql

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


@dataclass(frozen=True)
class PrefetchedRows:
    """
    What was read of result and sources before the change set was known: all on the driver.

    Args:
        keys: `key` (struct<k0, …>) of the rows of the result that the sources may have changed.
        published: `held`, the published rows with these keys.
        made: `made`, those that the join makes of its sources.
    """

    keys: DataFrame
    published: DataFrame
    made: DataFrame


def prefetch_rows(
    spark: SparkSession, kind: StructType, result: Address, base_version: int, sources: Sources
) -> PrefetchedRows | None:
    """
    Read what a small change set will be held against, while it is computed.

    Args:
        spark: Our session.
        kind: The columns of the change set: `op`, `key`, `before`, `after`.
        result: The result table.
        base_version: Its version.
        sources: The sources of the join as the epoch pinned them.

    Returns:
        All of it; None if the sources changed nothing, or so much that not all rows are looked at, or where it costs
        less to read them with the change set.
    """
    touched = None if sources.are_small else sources.touched()
    if touched is None or touched.count() >= sources.share:
        return None
    staged = _Staged(spark.createDataFrame([], kind), 0, sources)
    keys = touched.select(F.col("key").cast(staged.numbered_key))
    try:
        held, made = staged.looked_up(keys, keys, read(spark, result, base_version))
    except LiteralsMiss:
        return None  # which the gate finds once more, and reports
    assert made is not None, "there are sources"
    return PrefetchedRows(keys, held, driver_copy(made))


def gate_change_set(
    spark: SparkSession,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    sources: Sources | None = None,
    prefetched: PrefetchedRows | None = None,
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
        prefetched: What was read of both already.

    Returns:
        The verdict. A gate that cannot be evaluated raises; it never passes.
    """
    staged = _Staged(changes, rows, sources, prefetched)
    try:
        lines = staged.with_rows(staged.lines(), read(spark, result, base_version))
    except LiteralsMiss as found:
        return Verdict((str(found),))
    rules = RULES if sources is None else RULES | SOURCE_RULES
    broken = staged.broken()
    batch = lines.select(
        *(F.expr(comparable(f"key.k{n}", f.dataType)).alias(f"key_{n}") for n, f in enumerate(staged.key)),
        *(F.expr(f"coalesce({broken[name]}, FALSE)").alias(name) for name in rules),
    )
    plain = is_alike_in_pandas(field.dataType for field in staged.key)
    return judged(batch, staged.names, rules, in_process=plain and rows <= limits.JUDGED_IN_PROCESS)


@dataclass(frozen=True)
class _Staged:
    """
    A staged change set, and what it is held against.

    Args:
        changes: `op`, `key`, `before`, `after`.
        rows: How many rows it has.
        sources: The sources of the join, if they are looked at.
        prefetched: What was read of them already.
    """

    changes: DataFrame
    rows: int
    sources: Sources | None
    prefetched: PrefetchedRows | None = None

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
        """The key columns under the names that they have in `key` of lines."""
        return StructType([StructField(f"k{n}", field.dataType) for n, field in enumerate(self.key)])

    @property
    def share(self) -> int:
        """Of how many staged rows one is computed once more."""
        return max(self.rows // limits.RECOMPUTED_ROWS, 1)

    @property
    def _recomputed(self) -> str:
        return f"pmod(xxhash64(key), {self.share}) = 0"

    def _brought(self, rows: DataFrame) -> DataFrame:
        """Bring rows to the driver, unless they are many or it costs less to read their few files once more."""
        is_small = self.sources is not None and self.sources.are_small
        return driver_copy(rows) if self.rows <= limits.CHANGES_VIA_DRIVER and not is_small else rows

    def lines(self) -> DataFrame:
        """
        Give the staged changes and, to be looked at beside them, the keys of rows that the sources may have changed.

        Returns:
            `key` (struct<k0, …>), `op`, `before`, `after`, and `staged`, which is true or null.
        """
        with ThreadPoolExecutor() as beside:
            looking = beside.submit(self._touched)
            own = numbered(quote("key", name) for name in self.names)
            lines = self._brought(self.changes).selectExpr(f"{own} AS key", "op", "before", "after", "TRUE AS staged")
            touched = looking.result()
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
        Put beside lines the published row of their key, `held`, and the one that the join makes of its sources, `made`.

        Args:
            lines: The lines.
            published: The result.
        """
        held, made = self._beside_each(lines, published)
        if made is not None:
            lines = self._beside(lines, made, "made")
        return self._beside(lines, held, "held")

    def _beside_each(self, lines: DataFrame, published: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        keys, prefetched = self._keys(lines), self.prefetched
        if prefetched is not None and keys.join(prefetched.keys, on="key", how="left_anti").isEmpty():
            return prefetched.published, prefetched.made
        chosen = self._keys(lines.where(f"staged IS NULL OR {self._recomputed}"))
        return self.looked_up(keys, chosen, published)

    def looked_up(self, keys: DataFrame, chosen: DataFrame, published: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """
        Give published rows, as `held`, and those that the join makes of its sources, as `made`.

        Args:
            keys: The keys of the first.
            chosen: The keys of the second.
            published: The result.

        Returns:
            Both; None in the place of the second where no sources are looked at.

        Raises:
            LiteralsMiss: Literals do not find the rows that they should.
        """
        known = None
        if self.sources is None or not self.sources.are_small:
            chosen = driver_copy(chosen.distinct())
            known = trusted(chosen) if self.sources is None else self.sources.pruning(chosen)
            if self.share == 1:
                own = numbered(map(quote, self.names))
                published = with_keys(published, self.names, own, chosen, known)
            else:
                predicate = trusted(keys).predicate(self.names)
                published = published if predicate is None else published.where(predicate)
        with ThreadPoolExecutor() as beside:
            held = row_struct(self.row.fieldNames())
            holding = beside.submit(self._brought, published.selectExpr(f"{held} AS held"))
            made = None
            if self.sources is not None:
                values = {f.name: f"CAST({quote(f.name)} AS {type_sql(f.dataType)})" for f in self.row}
                made = self.sources.joined(chosen, known).selectExpr(f"{struct(values)} AS made")
            return holding.result(), made

    def broken(self) -> dict[str, str]:
        """Give for each rule the SQL that tells whether a line breaks it; those about the sources need `made`."""
        keeps = (same(f"key.k{n}", f"after.{quote(f.name)}", f.dataType) for n, f in enumerate(self.key))
        # Staged rows are compared exactly; a published row may have the entries of a map in another order.
        exactly = [identical(image, self.row) for image in ("made", "after")]
        return {
            "unnecessary_tombstone": "op = 'delete' AND held IS NULL",
            "update_of_nothing": "op = 'update' AND held IS NULL",
            "insert_of_present": "op = 'insert' AND held IS NOT NULL",
            "changes_nothing": f"op = 'update' AND {same('held', 'after', self.row)}",
            "before_differs": f"staged AND NOT {same('held', 'before', self.row)}",
            "loses_its_key": f"after IS NOT NULL AND NOT ({' AND '.join(keeps)})",
            "not_joined": f"staged AND {self._recomputed} AND NOT ({exactly[0]} <=> {exactly[1]})",
            "left_out": f"staged IS NULL AND NOT {same('made', 'held', self.row)}",
        }

    def _keys(self, lines: DataFrame) -> DataFrame:
        """Give the keys of lines but those with a null, which match nothing; the first rule speaks of them."""
        return lines.where(" AND ".join(f"key.k{n} IS NOT NULL" for n in range(len(self.names)))).select("key")

    def _beside(self, lines: DataFrame, rows: DataFrame, name: str) -> DataFrame:
        """Put rows, as structs under a name, beside the lines of their keys."""
        same_key = " AND ".join(f"key.k{n} = {quote(name, part)}" for n, part in enumerate(self.names))
        return lines.join(rows, on=F.expr(same_key), how="left")
