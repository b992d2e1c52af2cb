"""Expectations about joined rows: each row shows its partner."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal

from great_expectations.compatibility import pydantic
from pyspark.sql import Column

from expectations.own.base import RowsExpectation
from expectations.own.metrics import RowsMetric, broken_in_spark
from expectations.own.values import all_null, any_null, column, is_true, shared

Names = Sequence[str]


class NoPaddedRowWithMatch(RowsMetric):
    """Find the null-padded rows whose own values occur in another row."""

    condition_metric_name = "own_rows.no_padded_row_with_match"
    condition_value_keys = ("row_columns", "partner_columns")

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(row_columns: Names, partner_columns: Names) -> Column:
        padded = all_null(partner_columns) & ~all_null(row_columns)
        return padded & shared(row_columns)


class ExpectNoPaddedRowWithMatch(RowsExpectation):
    """
    Expect a null-padded row to be the only row with its own values.

    A row is null-padded if all of its partner columns are null. No other row has the same values in the row columns,
    neither with a partner nor null-padded. The values are compared null-safely. Rows with only nulls in the row columns
    are ignored: they are padded on the other side. Only the null-padded rows are reported.
    """

    row_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that identify the row.")
    partner_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of its partner.")

    map_metric = NoPaddedRowWithMatch.condition_metric_name
    args_keys = NoPaddedRowWithMatch.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "a row whose partner $partner_columns is null is the only row with its $row_columns"


class ForeignKeyAnswered(RowsMetric):
    """Find the rows that show another partner than their reference leads to."""

    condition_metric_name = "own_rows.foreign_key_answered"
    condition_value_keys = ("reference_columns", "answer_columns", "partner_columns", "how", "found_column")

    @staticmethod
    @broken_in_spark(window=False)
    def _spark(
        reference_columns: Names,
        answer_columns: Names,
        partner_columns: Names,
        how: str,
        found_column: str | None,
    ) -> Column:
        exists = ~all_null(partner_columns) if found_column is None else is_true(found_column)
        answered = ~any_null(reference_columns) & exists
        broken = ~answered if how == "inner" else ~answered & ~all_null(answer_columns)
        pairs = zip(answer_columns, partner_columns, strict=True)
        return broken | (answered & reduce(or_, (~column(shown).eqNullSafe(column(its)) for shown, its in pairs)))


class ExpectForeignKeyToBeAnswered(RowsExpectation):
    """
    Expect each row to show the partner that its reference leads to.

    Each answer column equals its partner column, null-safely. A reference with a null part has no partner. A row
    without a partner has nulls in all answer columns; an inner join has no such row. NaN equals NaN, and 0.0 equals
    -0.0.

    Args:
        partner_columns: The columns with the result of a look-up of the partner, one for each answer column; null
            without a partner.
        found_column: A boolean column with whether the look-up found a partner; null counts as false. Without this
            argument a partner was found if any partner column is not null.
    """

    reference_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that refer to a partner.")
    answer_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that show the partner.")
    partner_columns: list[pydantic.StrictStr] = pydantic.Field(description="The result of a look-up of the partner.")
    how: Literal["left", "inner"] = pydantic.Field(default="left", description="How the rows were joined.")
    found_column: pydantic.StrictStr | None = pydantic.Field(
        default=None, description="Whether the look-up found a partner."
    )

    map_metric = ForeignKeyAnswered.condition_metric_name
    args_keys = ForeignKeyAnswered.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = (
        "reference $reference_columns leads to a partner as in a join of type $how:"
        " $answer_columns equals the partner's $partner_columns"
    )
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (("found_column", "; a partner exists if $found_column is true"),)

    @pydantic.root_validator(skip_on_failure=True)
    @classmethod
    def _validate_pairs(cls, given: dict[str, Any]) -> dict[str, Any]:
        if len(given["answer_columns"]) != len(given["partner_columns"]):
            raise ValueError("partner_columns does not name as many columns as answer_columns")
        return given
