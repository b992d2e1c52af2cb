"""What is expected of the tables of a join by its kind: suites as values, in the form of the pipeline file."""

from collections.abc import Mapping, Sequence
from typing import Any

Suite = list[dict[str, dict[str, Any]]]
"""Expectations, each a mapping of its name to its arguments."""


def of_table(key: Sequence[str]) -> Suite:
    """Expect of a result with a key that each row has it, and none that of another."""
    return [
        {"expect_key_to_be_present": {"key_columns": [*key]}},
        {"expect_one_change_per_key": {"key_columns": [*key]}},
    ]


def of_changes(key: Sequence[str], before: Mapping[str, str], operation: str, version: str, known: str) -> Suite:
    """
    Expect of the changes of a result with a key that each changes something, and none that of another of its commit.

    Args:
        key: The columns of the key.
        before: The columns of the result that can be compared, each with the one that has its value before.
        operation: The column that says what a change does.
        version: The column that says which commit made it.
        known: The column that says whether the key was there before.
    """
    changes = {"key_columns": [*key], "operation_column": operation, "tombstones": ["delete"]}
    compared = {"value_columns": [*before], "before_columns": [*before.values()]}
    return [
        {"expect_key_to_be_present": {"key_columns": [*key]}},
        {"expect_one_change_per_key": {"key_columns": [*key, version]}},
        {"expect_no_unnecessary_tombstone": {**changes, "order_columns": [version], "present_before_column": known}},
        {"expect_no_repeated_value": {**changes, **compared, "present_before_column": known}},
    ]


def of_stream(position: Sequence[str]) -> Suite:
    """Expect of a result to which rows are added that each has its place in the order."""
    return [{"expect_key_to_be_present": {"key_columns": [*position]}}]


def of_two_streams(outer_sides: Sequence[int], rows: tuple[str, str]) -> Suite:
    """
    Expect that a row that stands alone is alone: once, and never with a match as well.

    Args:
        outer_sides: The sides whose rows are kept although they meet none, 0 and 1.
        rows: The columns that say of which row of the left, and of the right side, a row is made.
    """
    return [
        {"expect_no_padded_row_with_match": {"row_columns": [rows[side]], "partner_columns": [rows[1 - side]]}}
        for side in outer_sides
    ]


def of_changelog(
    key: Sequence[str],
    values: Sequence[str],
    operation: str,
    position: Sequence[str],
    *,
    strict: bool = True,
    before: Mapping[str, str] | None = None,
    known: str = "",
) -> Suite:
    """
    Expect of a changelog that its rows have places that differ, and that each changes something.

    Args:
        key: The columns of the key.
        values: The other columns of the result; those that can be compared.
        operation: The column that says what a row does.
        position: The columns that order the rows.
        strict: Whether none may change nothing; Kafka Streams emits some that do (KIP-77).
        before: For each of the values the column that has what it was before the first row, where the changelog is
            not looked at from its beginning.
        known: The column that says whether the key was there then.
    """
    changes = {"key_columns": [*key], "operation_column": operation, "tombstones": ["tombstone"]}
    in_order = {**changes, "order_columns": [*position]}
    suite: Suite = [
        {"expect_key_to_be_present": {"key_columns": [*key]}},
        {"expect_positions_to_grow": {"key_columns": [*key], "position_columns": [*position]}},
    ]
    if strict:
        first = {"present_before_column": known} if known else {}
        suite.append({"expect_no_unnecessary_tombstone": {**in_order, **first}})
        suite.append({"expect_no_tombstone_after_tombstone": in_order})
        if values:
            compared = {"before_columns": [before[name] for name in values], **first} if before and known else {}
            suite.append({"expect_no_repeated_value": {**in_order, "value_columns": [*values], **compared}})
    return suite
