"""
The rows that changes can affect: found along the references, by key, and in joins of any cardinality by value.

    changed rows of each input ──► rows of other inputs that refer to them ──► … ──► rows that key the result
    rows of one side of a join ──► their values, now and before ──► rows of the other side that have one of them
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from expectations.gate.by_key import KEY, NO_LITERALS, InputTable, driver_copies, driver_copy, sample_of, trusted
from expectations.gate.sources import GateSources, Reference
from lakehouse import limits
from lakehouse.values.compare import is_collated, type_sql
from lakehouse.values.driver_rows import TooLarge, to_driver
from lakehouse.values.net_changes import all_or_any_null, wrong_key
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, row_struct

VALUE, WANTED = (f"_lakejoin_{name}" for name in ("value", "wanted"))
"""Working columns: the value of a row, and the values to find."""


def touched(sources: GateSources) -> DataFrame | None:
    """
    Return the keys (`key`) of result rows that the changes of the sources can affect, or of a share of these.

    The result is None if no source changed, or if the keys are too large for the driver.
    """
    by_input = affected(sources)
    frames = [by_input[member].select("key") for member in sources.members if member in by_input]
    if not frames:
        return None
    keys = reduce(DataFrame.unionAll, frames).distinct()
    try:  # collected, so that no later plan reads the sources again
        return keys if sources.are_small else to_driver(keys).frame
    except TooLarge:
        return None


def affected(sources: GateSources) -> dict[int, DataFrame]:
    """
    Return for each input `key` and `cause` of its rows that changed, or that refer to a row that changed, step by step.

    If the sources are large, these are the keys of a share of the rows for each changed source.
    """
    changed = {n: table.changed for n, table in enumerate(sources.inputs) if table.changed is not None}
    if not sources.are_small:
        changed = {index: sample_of(keys, sources.salt, sources.share) for index, keys in changed.items()}
    by_input = {
        index: keys.select("key", F.lit(index).alias("cause"))
        for index, keys in zip(changed, _collected(sources, *changed.values()), strict=True)
    }
    for index in reversed(dict.fromkeys(reference.over for reference in sources.references)):
        references = [each for each in sources.references if each.over == index and each.input in by_input]
        if references:
            referring = _referring(sources, index, references, by_input)
            (keys,) = _collected(sources, _share_of_causes(sources, referring))
            by_input[index] = by_input[index].unionAll(keys) if index in by_input else keys
    return by_input


def referring_to(sources: GateSources, index: int, keys: DataFrame) -> DataFrame:
    """
    Find the keys (`key`) of rows of the input that keys the result which refer to some rows of an input, step by step.

    The input is given by its index in FROM, its rows by their keys (`key`). The result may hold other keys, too.
    """
    references = {reference.input: reference for reference in sources.references}
    keys = keys.select("key", F.lit(index).alias("cause"))
    while index in references:
        (keys,) = _collected(sources, keys.distinct())
        over = references[index].over
        keys, index = _referring(sources, over, [references[index]], {index: keys}), over
    return keys.select("key")


def _collected(sources: GateSources, *frames: DataFrame) -> list[DataFrame]:
    """Collect frames to the driver; return those of small sources as they are."""
    return list(frames) if sources.are_small else driver_copies(frames)


def _share_of_causes(sources: GateSources, keys: DataFrame) -> DataFrame:
    """Sample from keys (`key`, `cause`) the share of each cause; return all keys for small sources."""
    if sources.are_small:
        return keys
    each = F.row_number().over(Window.partitionBy("cause").orderBy(F.xxhash64("key", F.lit(sources.salt))))
    return keys.withColumn("number", each).where(f"number <= {sources.share}").drop("number")


def _referring(
    sources: GateSources, index: int, references: Sequence[Reference], by_input: Mapping[int, DataFrame]
) -> DataFrame:
    """
    Find `key` and `cause` of the rows of an input that refer to some keys (`key` and `cause`, by referenced input).

    One scan finds those of all references that a hash compares. A collision adds a row that need not be checked.
    """
    hashed = [reference for reference in references if _is_hashed(sources, reference)]
    groups = [hashed] if hashed else []
    groups += [[reference] for reference in references if reference not in hashed]
    return reduce(DataFrame.unionAll, (_referring_by(sources, index, group, by_input) for group in groups))


def _referring_by(
    sources: GateSources, index: int, references: Sequence[Reference], by_input: Mapping[int, DataFrame]
) -> DataFrame:
    """Find the rows that refer to some keys by one reference, or by several that a hash compares."""

    def compared(number: int, key: str) -> str:
        return f"xxhash64({number}, {key})" if _is_hashed(sources, references[number]) else key

    table = sources.inputs[index]
    rows = table.keyed.alias(sources.statement.aliases[index])
    refers_to = (
        compared(n, sources.referenced_key(reference, reference.own)) for n, reference in enumerate(references)
    )
    referring = rows.selectExpr(f"{table.key_sql} AS key", f"explode(array({', '.join(refers_to)})) AS refers_to")
    keys = [
        by_input[reference.input].selectExpr(f"{compared(n, _parts_of_key(reference))} AS refers_to", "cause")
        for n, reference in enumerate(references)
    ]
    causes = F.broadcast(reduce(DataFrame.unionAll, keys))
    return referring.join(causes, on="refers_to", how="inner").select("key", "cause")


def _is_hashed(sources: GateSources, reference: Reference) -> bool:
    """Return whether equal keys have equal hashes, which is not so for text under a collation."""
    return not any(map(is_collated, sources.inputs[reference.input].types))


def _parts_of_key(reference: Reference) -> str:
    """Return the SQL of the parts of `key` that the input that refers has itself; mostly all."""
    return numbered(f"key.k{part}" for part in reference.own) if reference.own else "key"


@dataclass(frozen=True)
class Paired:
    """
    The two inputs whose rows match in any number.

    Args:
        inputs: The indexes in FROM of the left and of the right input.
        over: For each of them the index in FROM of the input whose columns give its rows their values: itself, or for
            the left input one that it looks up before.
        values: For each of them the Spark SQL of what the equalities of ON compare, over the aliases.
        types: The types in which these are compared.
        keys: For each of them the names of its key in the result.
        outer: For each of them whether its unmatched rows are in the result, with nulls for the key of the other one.
        may_be_absent: For each of them whether parts of the key of a row may be null, but not all of them.
    """

    inputs: tuple[int, int]
    over: tuple[int, int]
    values: tuple[tuple[str, ...], tuple[str, ...]]
    types: tuple[DataType, ...]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    outer: tuple[bool, bool]
    may_be_absent: tuple[bool, bool] = (False, False)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key of the result."""
        return self.keys[0] + self.keys[1]

    @property
    def keyless(self) -> str:
        """The SQL condition of a line with a wrong key: half of one side, neither side, or a side that may not lack."""
        parts, first = [f"key.k{part}" for part in range(len(self.key))], len(self.keys[0])
        sides = [parts[:first], parts[first:]]
        lacking = [
            all_or_any_null(side, are_all=True)
            for side, may_lack in zip(sides, self.outer[::-1], strict=True)
            if not may_lack
        ]
        return " OR ".join([wrong_key(sides, self.may_be_absent), *lacking])


class Sides:
    """The rows of both sides; 0 is the left side, 1 the right side."""

    def __init__(self, sources: GateSources, paired: Paired) -> None:
        self._sources, self._paired = sources, paired

    def table(self, side: int) -> InputTable:
        """Return the input of one side."""
        return self._sources.inputs[self._paired.inputs[side]]

    def with_key(self, side: int, keys: DataFrame) -> DataFrame:
        """Return the rows of one side with one of the keys."""
        literals = NO_LITERALS if self._sources.size <= limits.LITERAL_BYTES else self.literals(side, keys)
        return self.table(side).with_keys(keys, literals)

    def literals(self, side: int, keys: DataFrame) -> Pruning:
        """Return the pruning of keys of rows of one side."""
        return trusted(keys, may_be_absent=self.table(side).may_be_absent)

    def values_ever(self, side: int, keys: DataFrame) -> DataFrame:
        """Return the distinct values that the rows of one side with the keys have, or had before, as WANTED."""
        table, inputs, rows = self.table(side), self._sources.inputs, self.with_key(side, keys)
        now = self.values(side, rows, [each.keyed for each in inputs])
        is_own = self._paired.over[side] == self._paired.inputs[side]
        if all(each.old is None for each in ([table] if is_own else inputs[: self._paired.inputs[1]])):
            return now
        old_rows = table.joined(_before(table, rows), keys)
        return now.unionAll(self.values(side, old_rows, [_before(each, each.keyed) for each in inputs])).distinct()

    def values(self, side: int, rows: DataFrame, tables: Sequence[DataFrame]) -> DataFrame:
        """Return the distinct values of some rows of one side, as WANTED; the tables are those that they look up."""
        index, over = self._paired.inputs[side], self._paired.over[side]
        if over != index:
            statement, (_, right) = self._sources.statement, self._paired.inputs
            read = [rows if number == index else table for number, table in enumerate(tables[:right])]
            row = row_struct(self._sources.inputs[over].rows.columns, f"{quote(statement.aliases[over])}.")
            rows = statement.up_to(right, row).over(read).select("key.*")
        return driver_copy(self._valued(side, rows).select(F.col(VALUE).alias(WANTED)).distinct())

    def _valued(self, side: int, rows: DataFrame) -> DataFrame:
        """Add their VALUE to the rows that give one side its values; leave out rows without one."""
        parts = self._paired.values[side]
        alias = self._sources.statement.aliases[self._paired.over[side]]
        cast = (f"CAST({sql} AS {type_sql(of)})" for sql, of in zip(parts, self._paired.types, strict=True))
        with_value = rows.alias(alias).where("NOT (" + " OR ".join(f"({sql}) IS NULL" for sql in parts) + ")")
        return with_value.withColumn(VALUE, F.expr(numbered(cast)))

    def with_value(self, side: int, values: DataFrame) -> DataFrame:
        """Return the rows of one side that have one of the values, and maybe others."""
        over = self._paired.over[side]
        table, alias = self._sources.inputs[over], quote(self._sources.statement.aliases[over])
        rows = table.keyed
        columns = {f"{alias}.{quote(name)}": name for name in rows.columns}
        names = [columns.get(sql) for sql in self._paired.values[side]]
        if None not in names and self._sources.size > limits.LITERAL_BYTES:  # columns, whose literals skip files
            predicate = trusted(values.select(F.col(WANTED).alias("key"))).predicate([name or "" for name in names])
            rows = rows if predicate is None else rows.where(predicate)
        same_value = F.expr(f"{VALUE} = {WANTED}")
        rows = self._valued(side, rows).join(F.broadcast(values), on=same_value, how="left_semi").drop(VALUE)
        if over == self._paired.inputs[side]:
            return rows
        keys = referring_to(self._sources, over, rows.selectExpr(f"{table.key_sql} AS key"))
        return self.with_key(side, driver_copy(keys.distinct()))


def _before(table: InputTable, rows: DataFrame) -> DataFrame:
    """Return rows of an input as they were before the epoch: those that did not change, and all old ones of others."""
    if table.changed is None or table.old is None:
        return rows
    changed = table.changed.select(F.col("key").alias(KEY))
    unchanged = rows.withColumn(KEY, F.expr(table.key_sql)).join(changed, on=KEY, how="left_anti").drop(KEY)
    return unchanged.unionByName(table.old())
