"""Expectations of joined rows: each shows the partner that it has."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal

from great_expectations.compatibility import pydantic
from pyspark.sql import Column

from expectations.own.base import RowsExpectation
from expectations.own.metrics import RowsMetric, broken_in_spark
from expectations.own.values import (
    all_null,
    any_null,
    column,
    is_true,
    shared,
)

Names = Sequence[str]


class NoPaddedRowWithMatch(RowsMetric):
    """Find the null-padded rows that are not the only ones of their kind."""

    condition_metric_name = "own_rows.no_padded_row_with_match"
    condition_value_keys = ("row_columns", "partner_columns")

    @staticmethod
    @broken_in_spark(window=True)
    def _spark(row_columns: Names, partner_columns: Names) -> Column:
        padded = all_null(partner_columns) & ~all_null(row_columns)
        return padded & shared(row_columns)


class ExpectNoPaddedRowWithMatch(RowsExpectation):
    """
    Expect a null-padded row to be the only one of its row.

    A row is null-padded if all that it shows of a partner is null. No other row with the same values of its own has
    a partner, and none is null-padded too. The values are compared null-safely; rows whose own values are all null
    say nothing (they are padded on the other side). Only the null-padded rows are reported.

    Args:
        row_columns: The columns that name the row; at least one.
        partner_columns: The columns that it shows of its partner; at least one.

    Raises:
        pydantic.ValidationError: An argument is unknown, missing, or names no column.
    """

    row_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that name the row.")
    partner_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns of its partner.")

    map_metric = NoPaddedRowWithMatch.condition_metric_name
    args_keys = NoPaddedRowWithMatch.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = "a row whose partner $partner_columns is null is the only one with its $row_columns"


class ForeignKeyAnswered(RowsMetric):
    """Find the rows that show another partner than the one that they refer to."""

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
        there = ~all_null(partner_columns) if found_column is None else is_true(found_column)
        answered = ~any_null(reference_columns) & there
        broken = ~answered if how == "inner" else ~answered & ~all_null(answer_columns)
        pairs = zip(answer_columns, partner_columns, strict=True)
        return broken | (answered & reduce(or_, (~column(shown).eqNullSafe(column(its)) for shown, its in pairs)))


class ExpectForeignKeyToBeAnswered(RowsExpectation):
    """
    Expect each row to show the partner that its reference leads to.

    Each answer equals the partner's, null-safely. A reference with a null in it leads nowhere; it, and one that finds
    no partner, is answered with nulls, and in an inner join such a row is not there. NaN equals NaN, 0.0 equals -0.0.

    Args:
        reference_columns: The columns that refer to a partner; at least one.
        answer_columns: The columns that show it; at least one.
        partner_columns: What a look-up of the partner gives, one for each answer, null where there is none.
        how: `left` or `inner`.
        found_column: A boolean column, whether the look-up found a partner; null counts as false. Without it one was
            found where a column of the partner is not null.

    Raises:
        pydantic.ValidationError: An argument is unknown, missing, names no column, or does not fit another.
    """

    reference_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that refer to a partner.")
    answer_columns: list[pydantic.StrictStr] = pydantic.Field(description="The columns that show the partner.")
    partner_columns: list[pydantic.StrictStr] = pydantic.Field(description="What a look-up of the partner gives.")
    how: Literal["left", "inner"] = pydantic.Field(default="left", description="How the rows were joined.")
    found_column: pydantic.StrictStr | None = pydantic.Field(
        default=None, description="Whether the look-up found a partner."
    )

    map_metric = ForeignKeyAnswered.condition_metric_name
    args_keys = ForeignKeyAnswered.condition_value_keys
    success_keys = ("mostly", *args_keys)
    sentence: ClassVar[str] = (
        "reference $reference_columns is answered as by a join of type $how:"
        " $answer_columns shows the partner's $partner_columns"
    )
    clauses: ClassVar[tuple[tuple[str, str], ...]] = (("found_column", "; there is one where $found_column is true"),)

    @pydantic.root_validator(skip_on_failure=True)
    @classmethod
    def _validate_pairs(cls, given: dict[str, Any]) -> dict[str, Any]:
        if len(given["answer_columns"]) != len(given["partner_columns"]):
            raise ValueError("partner_columns names not as many columns as answer_columns")
        return given
