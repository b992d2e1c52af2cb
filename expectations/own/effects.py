"""Expectations that each change has an effect: it changes a value, or it is a tombstone that removes a row."""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, ClassVar

from great_expectations.compatibility import pydantic
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.base import RowsExpectation, Value
from expectations.own.metrics import RowsMetric, broken_in_spark
from expectations.own.values import all_null, column, is_one_of, is_true, rows_before

Names = Sequence[str]


class NoRepeatedValue(RowsMetric):
    """Find the rows that are not tombstones and change nothing."""

    condition_metric_name = "own_rows.no_repeated_value"
    condition_value_keys = (
        "key_columns",
        "value_columns",
        "operation_column",
        "tombstones",
        "order_columns",
        "before_columns",
        "present_before_column",
    )

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(
        key_columns: Names,
        value_columns: Names,
        operation_column: str,
        tombstones: Sequence[Any],
        order_columns: Names,
        before_columns: Names | None,
        present_before_column: str | None,
    ) -> Column:
        deletes = is_one_of(operation_column, tombstones)
        step = rows_before(key_columns, order_columns)
        same = (column(name).eqNullSafe(step.before(column(name))) for name in value_columns)
        repeats = reduce(and_, same, ~step.before(deletes))
        at_first = F.lit(False)
        if before_columns:
            known = ~all_null(before_columns) if present_before_column is None else is_true(present_before_column)
            pairs = zip(value_columns, before_columns, strict=True)
            at_first = reduce(and_, (column(now).eqNullSafe(column(old)) for now, old in pairs), known)
        return step.tied | (~step.unsure & ~deletes & F.when(step.first, at_first).otherwise(repeats))


class ExpectNoRepeatedValue(RowsExpectation):
    """
    Expect a row that is not a tombstone to change a value.

    The values differ, null-safely, from the values of the previous row of the key. A row after a tombstone always
    changes a value. The first row of a key is compared with its own `before_columns` if the key existed before; else it
    always changes a value. Without an order each row is the first of its key. Rows of a key with equal values in the
    order columns are reported, and the row after them is not judged. A null comes first in the order. NaN equals NaN,
    and 0.0 equals -0.0.

    Args:
        before_columns: The columns of the value before the first row of a key, one for each value column.
        present_before_column: A boolean column with whether the key existed before; null counts as false. Without this
            argument the key existed if any of the `before_columns` is not null.
    """

    key_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the key.")
    value_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of the value.")
    operation_column: pydantic.StrictStr = pydantic.Field(description="The column with the operation of the row.")
    tombstones: list[Value] = pydantic.Field(default=["delete", "tombstone"], description="The values of a tombstone.")
    order_columns: list[pydantic.StrictStr] = pydantic.Field(default=[], description="The order of a key's rows.")
    before_columns: list[pydantic.StrictStr] | None = pydantic.Field(
        default=None, description="The value before the first row."
    )
    present_before_column: pydantic.StrictStr | None = pydantic.Field(
        default=None, description="Whether the key existed before its first row."
    )

    map_metric = NoRepeatedValue.condition_metric_name
    args_keys = NoRepeatedValue.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = (
        "a row of key $key_columns that is not a tombstone, where $operation_column is none of $tombstones,"
        " changes $value_columns"
    )
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (
        ("order_columns", ", in the order of $order_columns"),
        ("before_columns", "; a first row is compared with $before_columns"),
        ("present_before_column", " where $present_before_column is true"),
    )

    @pydantic.root_validator(skip_on_failure=True)
    @classmethod
    def _validate_before(cls, given: dict[str, Any]) -> dict[str, Any]:
        before = given["before_columns"]
        if before is not None and len(before) != len(given["value_columns"]):
            raise ValueError("before_columns does not name as many columns as value_columns")
        if before is None and given["present_before_column"] is not None:
            raise ValueError("present_before_column has no effect without before_columns")
        return given


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
