"""Expectations about keys: a key is present, occurs once, and has increasing positions."""

from collections.abc import Sequence
from typing import ClassVar

import pandas as pd
from great_expectations.compatibility import pydantic
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.base import RowsExpectation
from expectations.own.metrics import RowsMetric, broken_in_pandas, broken_in_spark
from expectations.own.values import Flags, all_null, any_null, any_null_rows, column, rows_before, shared, shared_rows


class KeyPresent(RowsMetric):
    """Find the rows with a null part of the key."""

    condition_metric_name = "own_rows.key_present"
    condition_value_keys = ("key_columns",)

    @staticmethod
    @broken_in_pandas
    def _pandas(frame: pd.DataFrame, key_columns: Sequence[str]) -> Flags:
        return any_null_rows(frame, key_columns)

    @staticmethod
    @broken_in_spark(window=False)
    def _spark(key_columns: Sequence[str]) -> Column:
        return any_null(key_columns)


class ExpectKeyToBePresent(RowsExpectation):
    """Expect no part of the key to be null; a float NaN is null in a pandas frame, and a value in Spark."""

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")

    map_metric = KeyPresent.condition_metric_name
    args_keys = ("key_columns",)
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "key $key_columns is present in every row"


class PartOfKeyPresent(RowsMetric):
    """Find the rows that have no part of the key, or a part of the key of one side only."""

    condition_metric_name = "own_rows.part_of_key_present"
    condition_value_keys = ("key_columns", "left_columns", "right_columns")

    @staticmethod
    @broken_in_spark(window=False)
    def _spark(
        key_columns: Sequence[str], left_columns: Sequence[str] | None, right_columns: Sequence[str] | None
    ) -> Column:
        broken = all_null(key_columns)
        for side in (left_columns, right_columns):
            if side:
                broken = broken | (any_null(side) & ~all_null(side))
        return broken


class ExpectPartOfKeyToBePresent(RowsExpectation):
    """
    Expect some part of the key not to be null, and the parts from one side to be null only together.

    A row that lacks one side of a join has nulls for the key of that side. No row lacks both sides. The columns of a
    side are empty if the key of a row of that side may itself have nulls.
    """

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")
    left_columns: list[pydantic.StrictStr] = pydantic.Field(
        default=[], description="The columns of the key that are null only together where a row lacks the left side."
    )
    right_columns: list[pydantic.StrictStr] = pydantic.Field(
        default=[], description="The columns of the key that are null only together where a row lacks the right side."
    )

    map_metric = PartOfKeyPresent.condition_metric_name
    args_keys = ("key_columns", "left_columns", "right_columns")
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "some part of key $key_columns is present in every row"
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (
        ("left_columns", ", $left_columns all or none of them"),
        ("right_columns", ", $right_columns all or none of them"),
    )


class OneChangePerKey(RowsMetric):
    """Find the rows whose key occurs in another row."""

    condition_metric_name = "own_rows.one_change_per_key"
    condition_value_keys = ("key_columns",)

    @staticmethod
    @broken_in_pandas
    def _pandas(frame: pd.DataFrame, key_columns: Sequence[str]) -> Flags:
        return shared_rows(frame, key_columns)

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(key_columns: Sequence[str]) -> Column:
        return shared(key_columns)


class ExpectOneChangePerKey(RowsExpectation):
    """Expect no two rows to have the same key; null parts count as equal. All rows of a repeated key are reported."""

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")

    map_metric = OneChangePerKey.condition_metric_name
    args_keys = ("key_columns",)
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "no two rows have the same key $key_columns"


class PositionsGrow(RowsMetric):
    """Find the rows whose position does not increase within their key."""

    condition_metric_name = "own_rows.positions_grow"
    condition_value_keys = ("key_columns", "position_columns", "order_columns")

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(
        key_columns: Sequence[str], position_columns: Sequence[str], order_columns: Sequence[str] | None
    ) -> Column:
        missing = any_null(position_columns)
        if not order_columns:
            return missing | shared([*key_columns, *position_columns])
        step = rows_before(key_columns, order_columns)
        position = F.struct(*(column(name).alias(f"part_{place}") for place, name in enumerate(position_columns)))
        grows = position > step.before(position)
        return missing | step.tied | ~(step.first | step.unsure | grows)


class ExpectPositionsToGrow(RowsExpectation):
    """
    Expect the positions of the rows of a key, compared as tuples, to increase strictly.

    With an order, the position of each row is greater than the position of the row before it. Rows of a key with equal
    values in the order columns are reported, and the row after them is not compared. A null comes first in the order.
    Without an order, no two rows of a key have the same position. A position with a null part is reported; in
    comparisons the null is less than any value.
    """

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")
    position_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the position.")
    order_columns: list[pydantic.StrictStr] = pydantic.Field(default=[], description="The order of a key's rows.")

    map_metric = PositionsGrow.condition_metric_name
    args_keys = ("key_columns", "position_columns", "order_columns")
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "position $position_columns increases from row to row of each key $key_columns"
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (("order_columns", ", in the order of $order_columns"),)
