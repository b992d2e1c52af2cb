"""
Our own expectations: about keys, about changes, which each have an effect, and about joined rows.

What several share: a null part of a key equals a null. Rows are taken in the order of `order_columns`, where a null
comes first; without an order each row is the first of its key. Rows of a key with equal values in these columns are
reported, and the row after them is not judged. A row with a null operation is not a tombstone. NaN equals NaN, and 0.0
equals -0.0.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, Literal

import pandas as pd
from great_expectations.compatibility import pydantic
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.base import RowsExpectation
from expectations.own.values import (
    Flags,
    all_null,
    any_null,
    any_null_rows,
    column,
    is_one_of,
    is_true,
    rows_before,
    shared,
    shared_rows,
)

Name = pydantic.StrictStr
Names = list[pydantic.StrictStr]
Value = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictStr
"""The types of arguments: a column, columns, and a value of a column."""

KEY: Any = pydantic.Field(description="The columns of the key.")
ORDER: Any = pydantic.Field(default=[], description="The order of a key's rows.")
OPERATION: Any = pydantic.Field(description="The column with the operation of the row.")
TOMBSTONES: Any = pydantic.Field(default=["delete", "tombstone"], description="The values of a tombstone.")
PRESENT_BEFORE: Any = pydantic.Field(default=None, description="Whether the key existed before its first row.")


def _side_of_key(side: str) -> Any:
    words = f"The columns of the key that are null only together where a row lacks the {side} side."
    return pydantic.Field(default=[], description=words)


class ExpectKeyToBePresent(RowsExpectation):
    """Expect no part of the key to be null; a float NaN is null in a pandas frame, and a value in Spark."""

    key_columns: Names = KEY

    sentence = "key $key_columns is present in every row"

    @staticmethod
    def _broken(key_columns: Names) -> Column:
        return any_null(key_columns)

    @staticmethod
    def _broken_in_pandas(frame: pd.DataFrame, key_columns: Names) -> Flags:
        return any_null_rows(frame, key_columns)


class ExpectPartOfKeyToBePresent(RowsExpectation):
    """
    Expect some part of the key not to be null, and the parts from one side to be null only together.

    A row that lacks one side of a join has nulls for the key of that side. No row lacks both sides. The columns of a
    side are empty if the key of a row of that side may itself have nulls.
    """

    key_columns: Names = KEY
    left_columns: Names = _side_of_key("left")
    right_columns: Names = _side_of_key("right")

    sentence = (
        "some part of key $key_columns is present in every row"
        "[, $left_columns all or none of them][, $right_columns all or none of them]"
    )

    @staticmethod
    def _broken(key_columns: Names, left_columns: Names | None, right_columns: Names | None) -> Column:
        sides = [side for side in (left_columns, right_columns) if side]
        return reduce(or_, (any_null(side) & ~all_null(side) for side in sides), all_null(key_columns))


class ExpectOneChangePerKey(RowsExpectation):
    """Expect no two rows to have the same key; null parts count as equal. All rows of a repeated key are reported."""

    key_columns: Names = KEY

    sentence = "no two rows have the same key $key_columns"
    reads_other_rows = True

    @staticmethod
    def _broken(key_columns: Names) -> Column:
        return shared(key_columns)

    @staticmethod
    def _broken_in_pandas(frame: pd.DataFrame, key_columns: Names) -> Flags:
        return shared_rows(frame, key_columns)


class ExpectPositionsToGrow(RowsExpectation):
    """
    Expect the positions of the rows of a key, compared as tuples, to increase strictly.

    Without an order, no two rows of a key have the same position. A position with a null part is reported; in
    comparisons the null is less than any value.
    """

    key_columns: Names = KEY
    position_columns: Names = pydantic.Field(description="The columns of the position.")
    order_columns: Names = ORDER

    sentence = (
        "position $position_columns increases from row to row of each key $key_columns"
        "[, in the order of $order_columns]"
    )
    reads_other_rows = True

    @staticmethod
    def _broken(key_columns: Names, position_columns: Names, order_columns: Names | None) -> Column:
        missing = any_null(position_columns)
        if not order_columns:
            return missing | shared([*key_columns, *position_columns])
        step = rows_before(key_columns, order_columns)
        position = F.struct(*(column(name).alias(f"part_{index}") for index, name in enumerate(position_columns)))
        grows = position > step.before(position)
        return missing | step.tied | ~(step.first | step.unsure | grows)


class ExpectNoUnnecessaryTombstone(RowsExpectation):
    """
    Expect a tombstone to remove an existing row.

    The row exists if the previous row of the key is not a tombstone. For the first row of a key, the boolean
    `present_before_column` states whether the key existed before; a null counts as false, and without this argument it
    did not exist.
    """

    key_columns: Names = KEY
    operation_column: Name = OPERATION
    tombstones: list[Value] = TOMBSTONES
    order_columns: Names = ORDER
    present_before_column: Name | None = PRESENT_BEFORE

    sentence = (
        "a tombstone, where $operation_column is one of $tombstones, removes an existing row of key $key_columns"
        "[, in the order of $order_columns]"
        "[; $present_before_column states whether the key existed before its first row]"
    )
    reads_other_rows = True

    @staticmethod
    def _broken(
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


class ExpectNoTombstoneAfterTombstone(RowsExpectation):
    """Expect no two tombstones of a key to follow each other."""

    key_columns: Names = KEY
    operation_column: Name = OPERATION
    tombstones: list[Value] = TOMBSTONES
    order_columns: Names = pydantic.Field(description="The order of a key's rows.")

    sentence = (
        "a key $key_columns has no two consecutive tombstones, where $operation_column is one of $tombstones,"
        " in the order of $order_columns"
    )
    reads_other_rows = True

    @staticmethod
    def _broken(key_columns: Names, operation_column: str, tombstones: Sequence[Any], order_columns: Names) -> Column:
        deletes = is_one_of(operation_column, tombstones)
        step = rows_before(key_columns, order_columns)
        return step.tied | (~step.unsure & deletes & ~step.first & step.before(deletes))


class ExpectNoRepeatedValue(RowsExpectation):
    """
    Expect a row that is not a tombstone to change a value.

    The values differ, null-safely, from the values of the previous row of the key. A row after a tombstone always
    changes a value. The first row of a key is compared with its own `before_columns`, one for each value column, if the
    key existed before; else it always changes a value. The boolean `present_before_column` states whether the key
    existed; a null counts as false, and without this argument it existed if any of the `before_columns` is not null.
    """

    key_columns: Names = KEY
    value_columns: Names = pydantic.Field(description="The columns of the value.")
    operation_column: Name = OPERATION
    tombstones: list[Value] = TOMBSTONES
    order_columns: Names = ORDER
    before_columns: Names | None = pydantic.Field(default=None, description="The value before the first row.")
    present_before_column: Name | None = PRESENT_BEFORE

    sentence = (
        "a row of key $key_columns that is not a tombstone, where $operation_column is none of $tombstones,"
        " changes $value_columns[, in the order of $order_columns]"
        "[; a first row is compared with $before_columns][ where $present_before_column is true]"
    )
    reads_other_rows = True

    @pydantic.root_validator(skip_on_failure=True)
    @classmethod
    def _validate_before(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        before = arguments["before_columns"]
        if before is not None and len(before) != len(arguments["value_columns"]):
            raise ValueError("before_columns does not name as many columns as value_columns")
        if before is None and arguments["present_before_column"] is not None:
            raise ValueError("present_before_column has no effect without before_columns")
        return arguments

    @staticmethod
    def _broken(
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


class ExpectNoPaddedRowWithMatch(RowsExpectation):
    """
    Expect a null-padded row to be the only row with its own values.

    A row is null-padded if all of its partner columns are null. No other row has the same values in the row columns,
    neither with a partner nor null-padded. Rows with only nulls in the row columns are ignored: they are padded on the
    other side. Only the null-padded rows are reported.
    """

    row_columns: Names = pydantic.Field(description="The columns that identify the row.")
    partner_columns: Names = pydantic.Field(description="The columns of its partner.")

    sentence = "a row whose partner $partner_columns is null is the only row with its $row_columns"
    reads_other_rows = True

    @staticmethod
    def _broken(row_columns: Names, partner_columns: Names) -> Column:
        return all_null(partner_columns) & ~all_null(row_columns) & shared(row_columns)


class ExpectForeignKeyToBeAnswered(RowsExpectation):
    """
    Expect each row to show the partner that its reference leads to.

    Each answer column equals its partner column, null-safely. A reference with a null part has no partner. A row
    without a partner has nulls in all answer columns; an inner join has no such row. The look-up found a partner if the
    boolean `found_column` is true, or without this argument if any partner column is not null.
    """

    reference_columns: Names = pydantic.Field(description="The columns that refer to a partner.")
    answer_columns: Names = pydantic.Field(description="The columns that show the partner.")
    partner_columns: Names = pydantic.Field(description="The result of a look-up of the partner.")
    how: Literal["left", "inner"] = pydantic.Field(default="left", description="How the rows were joined.")
    found_column: Name | None = pydantic.Field(default=None, description="Whether the look-up found a partner.")

    sentence = (
        "reference $reference_columns leads to a partner as in a join of type $how:"
        " $answer_columns equals the partner's $partner_columns[; a partner exists if $found_column is true]"
    )

    @pydantic.root_validator(skip_on_failure=True)
    @classmethod
    def _validate_pairs(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if len(arguments["answer_columns"]) != len(arguments["partner_columns"]):
            raise ValueError("partner_columns does not name as many columns as answer_columns")
        return arguments

    @staticmethod
    def _broken(
        reference_columns: Names, answer_columns: Names, partner_columns: Names, how: str, found_column: str | None
    ) -> Column:
        exists = ~all_null(partner_columns) if found_column is None else is_true(found_column)
        answered = ~any_null(reference_columns) & exists
        broken = ~answered if how == "inner" else ~answered & ~all_null(answer_columns)
        pairs = zip(answer_columns, partner_columns, strict=True)
        return broken | (answered & reduce(or_, (~column(shown).eqNullSafe(column(its)) for shown, its in pairs)))
