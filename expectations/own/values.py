"""
How rows compare: alike in Spark and in the pandas frame of a small batch.

Null equals null and comes before every value; 0.0 equals -0.0. In a pandas frame None, NaN, NaT and NA are all null. A
float NaN beside nulls cannot be told from them there; in Spark it is a value, equal to itself and above all others.
Columns that are compared with each other should have one type; in pandas, integers beside nulls should be `Int64`,
since as floats they are no longer exact.
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

from lakehouse.sqltext import quote

Flags = npt.NDArray[np.bool_]
"""One truth value for each row of a pandas frame."""

Numbers = npt.NDArray[np.int64]
"""One number for each row of a pandas frame."""


def column(name: str) -> Column:
    """Name a column of a Spark frame, whatever characters its name has."""
    return F.col(quote(name))


def any_null(names: Sequence[str]) -> Column:
    """Tell whether one of the columns is null."""
    return reduce(or_, (column(name).isNull() for name in names))


def all_null(names: Sequence[str]) -> Column:
    """Tell whether all of the columns are null."""
    return reduce(and_, (column(name).isNull() for name in names))


def is_true(name: str) -> Column:
    """Tell whether a boolean column is true; null counts as false."""
    return F.coalesce(column(name), F.lit(False))


def is_one_of(name: str, values: Sequence[Any]) -> Column:
    """Tell whether a column holds one of the values; null is none of them."""
    return F.coalesce(column(name).isin(list(values)), F.lit(False))


def shared(names: Sequence[str]) -> Column:
    """Tell whether another row is equal in the columns."""
    return F.count(F.lit(1)).over(Window.partitionBy(*map(column, names))) > 1


def any_null_rows(frame: pd.DataFrame, names: Sequence[str]) -> Flags:
    """Tell for each row whether one of the columns is null."""
    return np.asarray(frame[list(names)].isna().any(axis="columns"), dtype=bool)


def shared_rows(frame: pd.DataFrame, names: Sequence[str]) -> Flags:
    """Tell for each row whether another row is equal in the columns."""
    return np.asarray(pd.Series(numbered(frame, names)).duplicated(keep=False), dtype=bool)


def numbered(frame: pd.DataFrame, names: Sequence[str]) -> Numbers:
    """Number the rows so that two have the same number if and only if they are equal in the columns."""
    codes = pd.DataFrame({place: _codes(frame[name]) for place, name in enumerate(names)})
    return np.asarray(codes.groupby(list(codes.columns), sort=False).ngroup(), dtype=np.int64)


def _codes(values: pd.Series) -> Numbers:
    """Number the values of a column; -1 is null."""
    if pd.api.types.is_float_dtype(values.dtype):
        values = values + 0.0  # makes -0.0 0.0, which the codes of Arrow columns tell apart
    return np.asarray(pd.factorize(values)[0], dtype=np.int64)


@dataclass(frozen=True)
class RowsBefore:
    """
    The row before each row of a Spark frame, among the rows of its key in their order.

    Without an order every row is the first of its key. Rows of a key at one place have no order between them: they
    are `tied`, and the row after them has no row before that could be named: it is `unsure`.
    """

    window: WindowSpec | None
    first: Column
    tied: Column
    unsure: Column

    def before(self, values: Column) -> Column:
        """Give what the row before has; null where there is none."""
        return F.lit(None) if self.window is None else F.lag(values).over(self.window)


def rows_before(key: Sequence[str], order: Sequence[str]) -> RowsBefore:
    """
    Find the row before each row.

    Args:
        key: The columns that name a row over time.
        order: The columns that order the rows of a key; none if each row stands for itself.
    """
    if not order:
        return RowsBefore(None, first=F.lit(True), tied=F.lit(False), unsure=F.lit(False))
    window = Window.partitionBy(*map(column, key)).orderBy(*(column(name).asc_nulls_first() for name in order))
    place = F.struct(*(column(name).alias(f"place_{number}") for number, name in enumerate(order)))
    last, last_but_one, following = (F.lag(place, 1), F.lag(place, 2), F.lead(place, 1))
    return RowsBefore(
        window,
        first=last.over(window).isNull(),
        tied=last.over(window).eqNullSafe(place) | following.over(window).eqNullSafe(place),
        unsure=last_but_one.over(window).isNotNull() & last_but_one.over(window).eqNullSafe(last.over(window)),
    )
