"""The two sides of a join in which rows match in any number: reads their rows by key and by value, for the gate."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from expectations.gate.by_key import KEY, NO_LITERALS, InputTable, driver_copy, trusted
from expectations.gate.sources import GateSources
from lakehouse import limits
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import all_or_any_null, wrong_key
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, row_struct

VALUE, WANTED = (f"_lakejoin_{name}" for name in ("value", "wanted"))
"""Working columns: the value of a row, and the values to find."""


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

    def values_ever(self, side: int, keys: DataFrame) -> DataFrame:
        """Return the distinct values that the rows of one side with the keys have, or had before, as WANTED."""
        table, inputs, rows = self.table(side), self._sources.inputs, self.with_key(side, keys)
        now = self.values(side, rows, [one.keyed for one in inputs])
        is_own = self._paired.over[side] == self._paired.inputs[side]
        if all(one.old is None for one in ([table] if is_own else inputs[: self._paired.inputs[1]])):
            return now
        old_rows = table.joined(_before(table, rows), keys)
        return now.unionAll(self.values(side, old_rows, [_before(one, one.keyed) for one in inputs])).distinct()

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
        cast = (f"CAST({sql} AS {type_sql(kind)})" for sql, kind in zip(parts, self._paired.types, strict=True))
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
        keys = self._sources.referring_to(over, rows.selectExpr(f"{table.key_sql} AS key"))
        return self.with_key(side, driver_copy(keys.distinct()))

    def literals(self, side: int, keys: DataFrame) -> Pruning:
        """Return the pruning of keys of rows of one side."""
        return trusted(keys, may_be_absent=self.table(side).may_be_absent)


def _before(table: InputTable, rows: DataFrame) -> DataFrame:
    """Return rows of an input as they were before the epoch: those that did not change, and all old ones of others."""
    if table.changed is None or table.old is None:
        return rows
    changed = table.changed.select(F.col("key").alias(KEY))
    unchanged = rows.withColumn(KEY, F.expr(table.key_sql)).join(changed, on=KEY, how="left_anti").drop(KEY)
    return unchanged.unionByName(table.old())
