"""
Generate the catalogue of expectations: the expectations of the installed Great Expectations, and our own.

    python -m expectations.cataloguing > expectations/catalogue.json
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import great_expectations.expectations  # noqa: F401  (registers them)
from great_expectations.expectations.registry import get_expectation_impl, list_registered_expectation_implementations

from expectations.own.base import RowsExpectation

ROW_BY_ROW = ("ColumnMapExpectation", "ColumnPairMapExpectation", "MulticolumnMapExpectation")
"""The base classes of expectations that judge rows in Great Expectations."""

OF_A_WHOLE = frozenset(
    {
        "expect_column_value_z_scores_to_be_less_than",
        "expect_column_values_to_be_decreasing",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_increasing",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_be_unique",
        "expect_column_values_to_not_be_outliers",
        "expect_compound_columns_to_be_unique",
    }
)
"""The subclasses of these in Great Expectations that judge a row by other rows, or a column as a whole."""

OF_OTHER_TABLES = frozenset({"expect_query_results_to_match_comparison", "expect_table_row_count_to_equal_other_table"})
"""Expectations about other tables, which a gate cannot read."""

MACHINERY = ("batch_id", "catch_exceptions", "id", "metadata", "rendered_content", "result_format", "windows")
"""Arguments for the internal use of Great Expectations."""

FIXED = ("column_list", "ignore_row_if", "mostly")
"""Arguments that our own expectations inherit from Great Expectations and that must keep their defaults."""


def generate() -> dict[str, dict[str, Any]]:
    """Generate the catalogue from the installed Great Expectations and our own expectations."""
    catalogue = {}
    for name in sorted(list_registered_expectation_implementations()):
        expectation = get_expectation_impl(name)
        is_ours = issubclass(expectation, RowsExpectation)
        if name in OF_OTHER_TABLES or not (is_ours or expectation.__module__.startswith("great_expectations.")):
            continue
        is_row_by_row = any(base.__name__ in ROW_BY_ROW for base in expectation.__mro__) and name not in OF_A_WHOLE
        if issubclass(expectation, RowsExpectation):
            is_row_by_row = not expectation.reads_other_rows
        arguments = _arguments(expectation.schema(), FIXED if is_ours else ())
        catalogue[name] = {"row_level": is_row_by_row, "arguments": arguments}
    return catalogue


def _arguments(schema: Mapping[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    """Reduce the schema of an expectation to the arguments that a user sets."""
    arguments = {name: form for name, form in schema["properties"].items() if name not in (*MACHINERY, *fixed)}
    properties = {name: _form(form, schema["definitions"]) for name, form in arguments.items()}
    required = schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _form(argument: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    choices = [*_choices(argument, definitions)]
    forms = sorted({choice["type"] for choice in choices if "type" in choice})
    plain = [form for form in forms if form != "object"] or forms  # a mapping is a suite parameter, never set by users
    argument_type: dict[str, Any] = {"type": plain[0] if len(plain) == 1 else plain} if plain else {}
    for choice in choices:
        if choice.get("type") in plain:
            argument_type |= {
                rule: choice[rule] for rule in ("enum", "minimum", "maximum", "minLength") if rule in choice
            }
    return argument_type


def _choices(argument: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in argument:
        argument = definitions[argument["$ref"].rpartition("/")[2]]
    several = [choice for combined in ("anyOf", "oneOf", "allOf") for choice in argument.get(combined, ())]
    for choice in several:
        yield from _choices(choice, definitions)
    if not several:
        yield argument


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in generate().items())
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
