"""Checksums by which tables are compared in one pass over each, without sorting or shuffling their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from lakehouse import limits
from lakehouse.values.compare import comparable, hash_of, is_collated
from lakehouse.values.recorded import Checksum
from lakehouse.values.sqltext import quote

PARTS = 2**16
"""Parts into which the hash of the key divides the rows of a table, each with its own checksum."""

FLAGS = 60
"""Columns whose nulls one number marks."""

_LOW_BITS = 2**24 - 1
"""The bits of a row's hash that a running checksum adds up: the sum of 500 billion rows fits into a bigint."""

OLD_HASH, NEW_HASH = "_lakejoin_old_hash", "_lakejoin_new_hash"
HASHES = (OLD_HASH, NEW_HASH)
"""The columns of a change set with the hashes of a row before and after; 0 where no row exists."""

MOVES = {
    "checksum_rows": "count_if(op = 'insert') - count_if(op = 'delete')",
    "checksum_xor": f"coalesce(bit_xor({OLD_HASH} ^ {NEW_HASH}), 0L)",
    "checksum_sum": f"coalesce(sum(({NEW_HASH} & {_LOW_BITS}L) - ({OLD_HASH} & {_LOW_BITS}L)), 0L)",
}
"""How a change set moves the checksum of its table: aggregates over `with_hashes`, as SQL by name."""

_WHOLE = {
    "rows": "count(1)",
    "xor": f"coalesce(bit_xor({NEW_HASH}), 0L)",
    "sum": f"coalesce(sum({NEW_HASH} & {_LOW_BITS}L), 0L)",
}
"""The checksum of whole rows: aggregates over their hashes, as SQL by name."""


def whole_facts(columns: Sequence[StructField]) -> dict[str, str]:
    """
    Return the number of whole rows and, if their table has one, the rest of its checksum, as aggregates over the rows:
    SQL by the name of a field of `Checksum`.
    """
    if not has_checksum(columns):
        return {"rows": _WHOLE["rows"]}
    return {name: sql.replace(NEW_HASH, row_hash(columns)) for name, sql in _WHOLE.items()}


def row_hash(columns: Sequence[StructField], prefix: str = "") -> str:
    """
    Write the SQL of a row's hash (bigint): the same for rows that are equal under `<=>`, column by column.

    The columns are hashed in the order of their names, so that their order in a table does not matter. `xxhash64` skips
    nulls, so that (5, null) and (null, 5) have the same hash: numbers that mark the null columns are hashed too, and
    `hash_of` marks the nulls within nested values. Text under a collation is hashed by its bytes: equal rows may then
    have different hashes. The prefix precedes the names of the columns in the SQL, such as `after.`.
    """
    return hash_in_order(sorted(columns, key=lambda field: field.name.lower()), prefix)


def hash_in_order(columns: Sequence[StructField], prefix: str = "") -> str:
    """Write the SQL of the hash of some columns as `row_hash` does, but in the given order."""
    names = [f"{prefix}{quote(field.name)}" for field in columns]
    values = [
        hash_of(name, field.dataType) if isinstance(field.dataType, (ArrayType, MapType, StructType)) else name
        for name, field in zip(names, columns, strict=True)
    ]
    nulls = [
        " + ".join(f"IF({name} IS NULL, {2**n}L, 0L)" for n, name in enumerate(names[first:][:FLAGS]))
        for first in range(0, len(names), FLAGS)
    ]
    return f"xxhash64({', '.join((*values, *nulls))})"


def has_checksum(columns: Sequence[StructField]) -> bool:
    """Return whether a table has a running checksum: equal rows must have equal hashes, also text under a collation."""
    return not any(is_collated(field.dataType) for field in columns)


def with_hashes(changes: DataFrame, columns: Sequence[StructField]) -> DataFrame:
    """Add the columns of HASHES to a change set (`op`, `before`, `after`)."""
    old, new = (row_hash(columns, f"{image}.") for image in ("before", "after"))
    return changes.selectExpr(
        "*", f"IF(op = 'insert', 0L, {old}) AS {OLD_HASH}", f"IF(op = 'delete', 0L, {new}) AS {NEW_HASH}"
    )


def after_changes(before: Checksum | None, facts: Mapping[str, int]) -> Checksum | None:
    """Return the checksum of a table after a change set, for which MOVES were evaluated; None if it was not known."""
    rows, xor, low = (facts[name] for name in MOVES)
    return None if before is None else Checksum(before.rows + rows, before.xor ^ xor, before.sum + low)


def checksum_of(rows: DataFrame) -> Checksum:
    """Compute the checksum of a table, or of a part of it, in one pass."""
    hashes = rows.selectExpr(f"{row_hash(list(rows.schema))} AS {NEW_HASH}")
    return Checksum(**hashes.selectExpr(*(f"{sql} AS {name}" for name, sql in _WHOLE.items())).collect()[0].asDict())


class Watched:
    """Rows whose checksum is taken while they are written."""

    def __init__(self, rows: DataFrame, columns: Sequence[StructField]) -> None:
        self._seen = Observation()
        hashed = rows.withColumn(NEW_HASH, F.expr(row_hash(columns)))
        aggregates = (F.expr(sql).alias(name) for name, sql in _WHOLE.items())
        self.rows = hashed.observe(self._seen, *aggregates).drop(NEW_HASH)

    @property
    def checksum(self) -> Checksum:
        """The checksum of `rows`, which have been written."""
        return Checksum(**self._seen.get)


def part_of(columns: Sequence[StructField], key: Sequence[str]) -> str:
    """Write the SQL of the number of the part to which a row belongs by its key, from 0 to `PARTS` - 1."""
    keys = (comparable(quote(field.name), field.dataType) for field in columns if field.name in key)
    return f"pmod(xxhash64({', '.join(keys)}), {PARTS})"


@dataclass(frozen=True)
class Compared:
    """How two tables compare: the rows of the first, the parts in which they differ, the checksum of the other."""

    rows: int
    differing: tuple[int, ...]
    other: Checksum

    def predicate(self, columns: Sequence[StructField], key: Sequence[str]) -> str:
        """Write the Spark SQL predicate for the rows in the parts that differ, or for all rows if these are many."""
        if len(self.differing) > limits.LISTED_KEYS:
            return "true"
        listed = ", ".join(map(str, self.differing))
        return f"{part_of(columns, key)} IN ({listed})" if listed else "false"


def compare_checksums(one: DataFrame, other: DataFrame, key: Sequence[str]) -> Compared:
    """
    Compare two tables with the same columns by the number, the `bit_xor` and the sum of the hashes of rows of each
    part, to which the key assigns a row. Where columns are hashes of others, `other` also has the column NEW_HASH: the
    hashes of its whole rows.
    """
    columns = list(one.schema)
    by = row_hash(columns)
    whole = NEW_HASH if NEW_HASH in other.columns else by
    sides = (
        frame.selectExpr(
            f"{weight} AS weight", f"{part_of(columns, key)} AS part", f"{by} AS hash", f"{of_other} AS whole"
        )
        for weight, frame, of_other in ((1, one, "0L"), (-1, other, whole))
    )
    # What both tables have cancels out. The sum of whole hashes would overflow.
    parts = (
        reduce(DataFrame.unionAll, sides)
        .groupBy("part")
        .agg(
            F.count_if(F.expr("weight = 1")).alias("rows"),
            F.expr(f"sum(weight) <> 0 OR bit_xor(hash) <> 0 OR sum(weight * (hash & {2**32 - 1}L)) <> 0").alias(
                "differs"
            ),
            F.count_if(F.expr("weight = -1")).alias("other_rows"),
            F.bit_xor("whole").alias("other_xor"),
            F.expr(f"sum(whole & {_LOW_BITS}L)").alias("other_sum"),
        )
    )
    totals = ("sum(rows)", "sum(other_rows)", "bit_xor(other_xor)", "sum(other_sum)")
    names = ("rows", "other_rows", "other_xor", "other_sum")
    row = parts.selectExpr(
        *(f"coalesce({sql}, 0L) AS {name}" for sql, name in zip(totals, names, strict=True)),
        "collect_list(IF(differs, part, NULL)) AS differing",
    ).collect()[0]
    checksum = Checksum(row["other_rows"], row["other_xor"], row["other_sum"])
    return Compared(row["rows"], tuple(sorted(row["differing"])), checksum)
