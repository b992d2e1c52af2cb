"""
Compare rows, with the same semantics in Spark and in the pandas frame of a small batch.

Null equals null and comes before every value; 0.0 equals -0.0. In a pandas frame None, NaN, NaT and NA are all null, so
a float NaN cannot be distinguished from a null. In Spark NaN is a value, equal to itself and greater than all others.
Columns that are compared with each other should have the same type. In pandas, integers with nulls should be `Int64`,
because floats are not exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import Column, Window, WindowSpec
from pyspark.sql import functions as F

from lakehouse.values.sqltext import quote

Flags = npt.NDArray[np.bool_]
"""One boolean for each row of a pandas frame."""


def column(name: str) -> Column:
    """Return a column of a Spark frame by its name, which may contain any characters."""
    return F.col(quote(name))


def any_null(names: Sequence[str]) -> Column:
    """Return whether any of the columns is null."""
    return reduce(or_, (column(name).isNull() for name in names))


def all_null(names: Sequence[str]) -> Column:
    """Return whether all of the columns are null."""
    return reduce(and_, (column(name).isNull() for name in names))


def is_true(name: str) -> Column:
    """Return whether a boolean column is true; null counts as false."""
    return F.coalesce(column(name), F.lit(False))


def is_one_of(name: str, values: Sequence[Any]) -> Column:
    """Return whether a column holds one of the values; null counts as false."""
    return F.coalesce(column(name).isin(list(values)), F.lit(False))


def shared(names: Sequence[str]) -> Column:
    """Return whether another row has equal values in the columns."""
    return F.count(F.lit(1)).over(Window.partitionBy(*map(column, names))) > 1


def any_null_rows(frame: pd.DataFrame, names: Sequence[str]) -> Flags:
    """Return for each row whether any of the columns is null."""
    return np.asarray(frame[list(names)].isna().any(axis="columns"), dtype=bool)


def shared_rows(frame: pd.DataFrame, names: Sequence[str]) -> Flags:
    """Return for each row whether another row has equal values in the columns."""
    codes = pd.DataFrame({index: _codes(frame[name]) for index, name in enumerate(names)})
    return np.asarray(codes.duplicated(keep=False), dtype=bool)


def _codes(values: pd.Series) -> npt.NDArray[np.int64]:
    """Number the values of a column; -1 is null."""
    if pd.api.types.is_float_dtype(values.dtype):
        values = values + 0.0  # converts -0.0 to 0.0, because the codes of Arrow columns distinguish them
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


@dataclass(frozen=True)
class RowsBefore:
    """
    The previous row of each row of a Spark frame, among the rows of its key in their order.

    Without an order every row is the first of its key. Rows of a key with equal values in the order columns are `tied`.
    The row after them is `unsure`, because its previous row is ambiguous.
    """

    window: WindowSpec | None
    first: Column
    tied: Column
    unsure: Column

    def before(self, values: Column) -> Column:
        """Return the values of the previous row; null for the first row."""
        return F.lit(None) if self.window is None else F.lag(values).over(self.window)


def rows_before(key: Sequence[str], order: Sequence[str]) -> RowsBefore:
    """Find the previous row of each row with the same key; without an order each row is the first of its key."""
    if not order:
        return RowsBefore(None, first=F.lit(True), tied=F.lit(False), unsure=F.lit(False))
    window = Window.partitionBy(*map(column, key)).orderBy(*(column(name).asc_nulls_first() for name in order))
    position = F.struct(*(column(name).alias(f"part_{index}") for index, name in enumerate(order)))
    last, last_but_one, following = (F.lag(position, 1), F.lag(position, 2), F.lead(position, 1))
    return RowsBefore(
        window,
        first=last.over(window).isNull(),
        tied=last.over(window).eqNullSafe(position) | following.over(window).eqNullSafe(position),
        unsure=last_but_one.over(window).isNotNull() & last_but_one.over(window).eqNullSafe(last.over(window)),
    )
