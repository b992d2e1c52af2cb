"""The suites for the tables of a join, by the kind of join: values in the form of the pipeline file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Suite = list[dict[str, dict[str, Any]]]
"""Expectations, each a mapping of its name to its arguments."""


@dataclass(frozen=True)
class KeyOfSide:
    """The columns that one side gives to the key, whether a row may lack it, and whether some of them may be null."""

    columns: tuple[str, ...]
    may_lack: bool = False
    may_have_nulls: bool = False


KeyOfResult = tuple[KeyOfSide] | tuple[KeyOfSide, KeyOfSide]
"""The key of a result: as a whole, or that of the left and that of the right side."""


def key_of(sides: KeyOfResult) -> list[str]:
    """Return the columns of a key."""
    return [name for side in sides for name in side.columns]


def of_table(sides: KeyOfResult) -> Suite:
    """Return the suite for a result with a key: each row has a key, and no two rows have the same."""
    return [*_present(sides), {"expect_one_change_per_key": {"key_columns": key_of(sides)}}]


def _present(sides: KeyOfResult) -> Suite:
    """Return the suite for the parts of a key that are present in every row."""
    suite: Suite = []
    for side in sides:
        if not side.may_lack:
            name = "expect_part_of_key_to_be_present" if side.may_have_nulls else "expect_key_to_be_present"
            suite.append({name: {"key_columns": [*side.columns]}})
    if any(side.may_lack for side in sides):
        whole = {
            argument: [*side.columns]
            for argument, side in zip(("left_columns", "right_columns"), sides, strict=False)
            if not side.may_have_nulls
        }
        suite.append({"expect_part_of_key_to_be_present": {"key_columns": key_of(sides), **whole}})
    return suite


def of_changes(sides: KeyOfResult, before: Mapping[str, str], operation: str, version: str, known: str) -> Suite:
    """
    Return the suite for changes of a result with a key: each has an effect, and a commit has at most one of each key.

    Args:
        before: The columns of the result, each with the column of its value before the change; empty if one of them
            cannot be compared, so that nothing shows that a change has an effect.
        version: The column with the version of its commit.
        known: The column with whether the key existed before.
    """
    key = key_of(sides)
    changes = {"key_columns": key, "operation_column": operation, "tombstones": ["delete"]}
    compared = {"value_columns": [*before], "before_columns": [*before.values()]}
    repeated: Suite = [{"expect_no_repeated_value": {**changes, **compared, "present_before_column": known}}]
    return [
        *_present(sides),
        {"expect_one_change_per_key": {"key_columns": [*key, version]}},
        {"expect_no_unnecessary_tombstone": {**changes, "order_columns": [version], "present_before_column": known}},
        *(repeated if before else ()),
    ]


def of_stream(position: Sequence[str]) -> Suite:
    """Return the suite for a result that is a stream: each row has a position in the order."""
    return [{"expect_key_to_be_present": {"key_columns": [*position]}}]


def of_two_streams(outer_sides: Sequence[int], rows: tuple[str, str]) -> Suite:
    """
    Return the suite for a result of two streams: an unmatched row occurs once, and never with a match as well.

    The outer sides are 0 for left and 1 for right, the rows the columns that identify the left and the right row.
    """
    return [
        {"expect_no_padded_row_with_match": {"row_columns": [rows[side]], "partner_columns": [rows[1 - side]]}}
        for side in outer_sides
    ]


def of_changelog(
    sides: KeyOfResult,
    values: Sequence[str],
    operation: str,
    position: Sequence[str],
    *,
    strict: bool = True,
    before: Mapping[str, str] | None = None,
    known: str = "",
) -> Suite:
    """
    Return the suite for a changelog: the rows of a key have different positions, and each row has an effect.

    Args:
        values: The other columns of the result; none if one of them cannot be compared.
        position: The columns that order the rows.
        strict: Whether each row must have an effect; Kafka Streams also emits rows without one (KIP-77).
        before: For each column of `values`, the column of its value before the first row. Needed where the changelog is
            not validated from its beginning.
        known: The column with whether the key existed before the first row.
    """
    key = key_of(sides)
    changes = {"key_columns": key, "operation_column": operation, "tombstones": ["tombstone"]}
    in_order = {**changes, "order_columns": [*position]}
    suite = [*_present(sides), {"expect_positions_to_grow": {"key_columns": key, "position_columns": [*position]}}]
    if strict:
        first = {"present_before_column": known} if known else {}
        suite.append({"expect_no_unnecessary_tombstone": {**in_order, **first}})
        suite.append({"expect_no_tombstone_after_tombstone": in_order})
        if values:
            compared = {"before_columns": [before[name] for name in values], **first} if before and known else {}
            suite.append({"expect_no_repeated_value": {**in_order, "value_columns": [*values], **compared}})
    return suite
