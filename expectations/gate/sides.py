"""The two sides of a join in which rows match in any number: reads their rows by key and by value, for the gate."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.gate.by_key import KEY, NO_LITERALS, driver_copy, trusted, with_keys
from expectations.gate.paired import Paired
from expectations.gate.sources import Rows, Sources
from lakehouse import limits
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import key_struct
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, row_struct

VALUE, WANTED = (f"_lakejoin_{name}" for name in ("value", "wanted"))
"""Working columns: the value of a row, and the values to find."""


class Sides:
    """
    The rows of both sides; 0 is the left side, 1 the right side.

    Args:
        sources: The sources of the join.
        paired: The inputs whose rows match in any number.
    """

    def __init__(self, sources: Sources, paired: Paired) -> None:
        self._sources, self._paired = sources, paired

    def with_key(self, side: int, keys: DataFrame) -> DataFrame:
        """Return the rows of one side with one of the keys."""
        item = self._sources.inputs[self._paired.places[side]]
        known = NO_LITERALS if self._sources.size <= limits.LITERAL_BYTES else self.trusted(side, keys)
        return with_keys(item.keyed, item.key, key_struct(item.key, item.types), keys, known)

    def values_ever(self, side: int, keys: DataFrame) -> DataFrame:
        """Return the distinct values that the rows of one side with the keys have, or had before, as WANTED."""
        place, over = self._paired.places[side], self._paired.over[side]
        item, inputs = self._sources.inputs[place], self._sources.inputs
        rows = self.with_key(side, keys)
        now = self.values(side, rows, [one.keyed for one in inputs])
        read = [item] if over == place else inputs[: self._paired.places[1]]
        if all(one.old is None for one in read):
            return now
        old_rows = with_keys(_before(item, rows), item.key, key_struct(item.key, item.types), keys, NO_LITERALS)
        return now.unionAll(self.values(side, old_rows, [_before(one, one.keyed) for one in inputs])).distinct()

    def values(self, side: int, rows: DataFrame, tables: Sequence[DataFrame]) -> DataFrame:
        """Return the distinct values of some rows of one side, as WANTED; the tables are those that they look up."""
        place, over = self._paired.places[side], self._paired.over[side]
        if over != place:
            statement, (_, right) = self._sources.statement, self._paired.places
            known = [rows if number == place else table for number, table in enumerate(tables[:right])]
            row = row_struct(self._sources.inputs[over].rows.columns, f"{quote(statement.aliases[over])}.")
            rows = statement.up_to(right, row).over(known).select("key.*")
        return driver_copy(self._valued(side, rows).select(F.col(VALUE).alias(WANTED)).distinct())

    def _valued(self, side: int, rows: DataFrame) -> DataFrame:
        """Add their VALUE to the rows that give one side its values; leave out rows without one."""
        parts = self._paired.values[side]
        alias = self._sources.statement.aliases[self._paired.over[side]]
        cast = (f"CAST({sql} AS {type_sql(kind)})" for sql, kind in zip(parts, self._paired.types, strict=True))
        named = rows.alias(alias).where("NOT (" + " OR ".join(f"({sql}) IS NULL" for sql in parts) + ")")
        return named.withColumn(VALUE, F.expr(numbered(cast)))

    def with_value(self, side: int, values: DataFrame) -> DataFrame:
        """Return the rows of one side that have one of the values, and maybe others."""
        place, over = self._paired.places[side], self._paired.over[side]
        alias = quote(self._sources.statement.aliases[over])
        rows = self._sources.inputs[over].keyed
        columns = {f"{alias}.{quote(name)}": name for name in rows.columns}
        named = [columns.get(sql) for sql in self._paired.values[side]]
        if None not in named and self._sources.size > limits.LITERAL_BYTES:  # columns, whose literals skip files
            predicate = trusted(values.select(F.col(WANTED).alias("key"))).predicate([name or "" for name in named])
            rows = rows if predicate is None else rows.where(predicate)
        valued = self._valued(side, rows)
        found = valued.join(F.broadcast(values), on=F.expr(f"{VALUE} = {WANTED}"), how="left_semi").drop(VALUE)
        if over == place:
            return found
        keys = self._sources.referring_to(over, found.select(self.key(over)))
        return self.with_key(side, driver_copy(keys.distinct()))

    def trusted(self, side: int, keys: DataFrame) -> Pruning:
        """Return the pruning of keys of rows of one side."""
        return trusted(keys, may_be_absent=self._sources.inputs[self._paired.places[side]].may_be_absent)

    def key(self, place: int) -> Column:
        """Return the key of a row of an input."""
        return F.expr(self.key_sql(place)).alias("key")

    def key_sql(self, place: int) -> str:
        """Return the SQL of the key of a row of an input."""
        item = self._sources.inputs[place]
        return key_struct(item.key, item.types)


def _before(item: Rows, rows: DataFrame) -> DataFrame:
    """Return rows of an input as they were before the epoch: those that did not change, and all old ones of others."""
    if item.changed is None or item.old is None:
        return rows
    changed = item.changed.select(F.col("key").alias(KEY))
    own = F.expr(key_struct(item.key, item.types))
    return rows.withColumn(KEY, own).join(changed, on=KEY, how="left_anti").drop(KEY).unionByName(item.old())
