"""Expectations about tombstones: each tombstone removes a row."""

from collections.abc import Sequence
from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.base import RowsExpectation, Value
from expectations.own.metrics import RowsMetric, broken_in_spark
from expectations.own.values import is_one_of, is_true, rows_before

Names = Sequence[str]


class NoUnnecessaryTombstone(RowsMetric):
    """Find the tombstones of keys without a row."""

    condition_metric_name = "own_rows.no_unnecessary_tombstone"
    condition_value_keys = ("key_columns", "operation_column", "tombstones", "order_columns", "present_before_column")

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(
        key_columns: Names,
        operation_column: str,
        tombstones: Sequence[Any],
        order_columns: Names,
        present_before_column: str | None,
    ) -> Column:
        deletes = is_one_of(operation_column, tombstones)
        step = rows_before(key_columns, order_columns)
        known = F.lit(False) if present_before_column is None else is_true(present_before_column)
        existed = F.when(step.first, known).otherwise(~step.before(deletes))
        return step.tied | (~step.unsure & deletes & ~existed)


class ExpectNoUnnecessaryTombstone(RowsExpectation):
    """
    Expect a tombstone to remove an existing row.

    The row exists if the previous row of the key, in the order, is not a tombstone. For the first row of a key, the
    boolean `present_before_column` states whether the key existed before; a null counts as false, and without this
    argument it did not exist. Without an order each row is the first of its key. Rows of a key with equal values in the
    order columns are reported, and the row after them is not judged. A null comes first in the order. A row with a null
    operation is not a tombstone.
    """

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")
    operation_column: pydantic.StrictStr = pydantic.Field(description="The column with the operation of the row.")
    tombstones: list[Value] = pydantic.Field(default=["delete", "tombstone"], description="The values of a tombstone.")
    order_columns: list[pydantic.StrictStr] = pydantic.Field(default=[], description="The order of a key's rows.")
    present_before_column: pydantic.StrictStr | None = pydantic.Field(
        default=None, description="Whether the key existed before its first row."
    )

    map_metric = NoUnnecessaryTombstone.condition_metric_name
    args_keys = NoUnnecessaryTombstone.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = (
        "a tombstone, where $operation_column is one of $tombstones, removes an existing row of key $key_columns"
    )
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (
        ("order_columns", ", in the order of $order_columns"),
        ("present_before_column", "; $present_before_column states whether the key existed before its first row"),
    )


class NoTombstoneAfterTombstone(RowsMetric):
    """Find the tombstones that follow a tombstone."""

    condition_metric_name = "own_rows.no_tombstone_after_tombstone"
    condition_value_keys = ("key_columns", "operation_column", "tombstones", "order_columns")

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(key_columns: Names, operation_column: str, tombstones: Sequence[Any], order_columns: Names) -> Column:
        deletes = is_one_of(operation_column, tombstones)
        step = rows_before(key_columns, order_columns)
        return step.tied | (~step.unsure & deletes & ~step.first & step.before(deletes))


class ExpectNoTombstoneAfterTombstone(RowsExpectation):
    """
    Expect no two tombstones of a key to follow each other.

    Rows of a key with equal values in the order columns are reported, and the row after them is not judged. A null
    comes first in the order. A row with a null operation is not a tombstone.
    """

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")
    operation_column: pydantic.StrictStr = pydantic.Field(description="The column with the operation of the row.")
    tombstones: list[Value] = pydantic.Field(default=["delete", "tombstone"], description="The values of a tombstone.")
    order_columns: list[pydantic.StrictStr] = pydantic.Field(description="The order of a key's rows.")

    map_metric = NoTombstoneAfterTombstone.condition_metric_name
    args_keys = NoTombstoneAfterTombstone.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = (
        "a key $key_columns has no two consecutive tombstones, where $operation_column is one of $tombstones,"
        " in the order of $order_columns"
    )
