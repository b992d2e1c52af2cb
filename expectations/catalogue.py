"""
What expectations there are, by name, with their arguments: known without importing Great Expectations.

That takes seconds, which only a gate may take.

    python -m expectations.catalogue > expectations/catalogue.json
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("catalogue.json")

ROW_BY_ROW = ("ColumnMapExpectation", "ColumnPairMapExpectation", "MulticolumnMapExpectation")
"""What Great Expectations calls expectations that judge rows."""

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
"""Of these the ones that judge a row by others, or a column."""

OF_OTHER_TABLES = frozenset({"expect_query_results_to_match_comparison", "expect_table_row_count_to_equal_other_table"})
"""Expectations about tables that a gate does not have."""

MACHINERY = ("batch_id", "catch_exceptions", "id", "metadata", "rendered_content", "result_format", "windows")
"""Arguments that are for Great Expectations' own use."""

COLUMNS = ("column", "column_A", "column_B", "column_list")
"""The arguments that name columns which have to be there."""

FORMS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping",
    "string": "a text",
}


Declared = Sequence[Mapping[str, Mapping[str, Any]]]
"""The expectations of a join, each a mapping of its name to its arguments."""


class ArgumentFault(NamedTuple):
    """What is wrong with an argument: its name, and the names that would be right where there is none of that name."""

    argument: str
    problem: str
    known: tuple[str, ...] = ()


def names() -> tuple[str, ...]:
    """Name all expectations that a pipeline file may have."""
    return tuple(_catalogue())


def is_row_level(name: str, arguments: Mapping[str, Any]) -> bool:
    """
    Tell whether an expectation judges each row by itself, so that a change set can be held to it.

    Args:
        name: Its name.
        arguments: Its arguments; a share of rows, `mostly`, is one of the whole table.
    """
    return bool(_catalogue()[name]["row_level"]) and arguments.get("mostly", 1) == 1


def each(declared: Declared) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give each expectation of a join, its name and its arguments."""
    return ((name, arguments) for one in declared for name, arguments in one.items())


def of_rows(declared: Declared) -> Declared:
    """Give those that judge each row by itself."""
    return [{name: arguments} for name, arguments in each(declared) if is_row_level(name, arguments)]


def of_whole(declared: Declared) -> Declared:
    """Give those that judge a table as a whole."""
    return [{name: arguments} for name, arguments in each(declared) if not is_row_level(name, arguments)]


def described(name: str, arguments: Mapping[str, Any]) -> str:
    """Write an expectation in one line."""
    return f"{name}({', '.join(f'{key}: {value}' for key, value in arguments.items())})"


def columns_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the columns that arguments name."""
    found = (arguments[name] for name in COLUMNS if name in arguments)
    return tuple(column for named in found for column in ([named] if isinstance(named, str) else named))


def argument_faults(name: str, arguments: Mapping[str, Any]) -> Iterator[ArgumentFault]:
    """
    Say what is wrong with the arguments of an expectation.

    Args:
        name: Its name, one of `names`.
        arguments: What the pipeline file says.
    """
    from jsonschema import Draft202012Validator

    schema = _catalogue()[name]["arguments"]
    plain = {key: _plain(value) for key, value in arguments.items()}
    known = tuple(schema["properties"])
    yield from (ArgumentFault(key, "no such argument", known) for key in plain if key not in known)
    yield from (ArgumentFault(key, "is missing") for key in schema["required"] if key not in plain)
    for error in Draft202012Validator(schema).iter_errors(plain):
        if error.path:
            yield ArgumentFault(str(error.path[0]), _problem(error.validator, error.validator_value))


def _plain(value: Any) -> Any:
    """Write dates, which YAML knows and JSON does not, as texts."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, date) else value


def _problem(rule: str, value: Any) -> str:
    """Say in words what a rule of the schema asks for."""
    if rule == "type":
        forms = [FORMS[form] for form in ([value] if isinstance(value, str) else value)]
        return f"must be {' or '.join(forms)}"
    if rule == "enum":
        return f"must be one of {', '.join(map(str, value))}"
    words = {"minimum": "at least", "maximum": "at most", "minLength": "not empty, of length", "minItems": "of length"}
    return f"must be {words.get(rule, rule)} {value:g}"


@cache
def _catalogue() -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return found


def made() -> dict[str, dict[str, Any]]:
    """Make the catalogue from the Great Expectations that is installed."""
    import great_expectations.expectations  # noqa: F401  (registers them)
    from great_expectations.expectations.registry import (
        get_expectation_impl,
        list_registered_expectation_implementations,
    )

    found = {}
    for name in sorted(list_registered_expectation_implementations()):
        made_by = get_expectation_impl(name)
        if name in OF_OTHER_TABLES or not made_by.__module__.startswith("great_expectations."):
            continue
        judges_rows = any(base.__name__ in ROW_BY_ROW for base in made_by.__mro__)
        found[name] = {"row_level": judges_rows and name not in OF_A_WHOLE, "arguments": _arguments(made_by.schema())}
    return found


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the schema of an expectation to what a person gives."""
    given = {name: form for name, form in schema["properties"].items() if name not in MACHINERY}
    properties = {name: _form(form, schema["definitions"]) for name, form in given.items()}
    required = schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _form(argument: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce the schema of an argument to the plain forms that it may have."""
    choices = [*_choices(argument, definitions)]
    forms = sorted({choice["type"] for choice in choices if "type" in choice})
    plain = [form for form in forms if form != "object"] or forms  # a mapping names a parameter, which nobody gives
    made: dict[str, Any] = {"type": plain[0] if len(plain) == 1 else plain} if plain else {}
    for choice in choices:
        if choice.get("type") in plain:
            made |= {rule: choice[rule] for rule in ("enum", "minimum", "maximum", "minLength") if rule in choice}
    return made


def _choices(argument: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Give each schema of which an argument may meet one."""
    if "$ref" in argument:
        argument = definitions[argument["$ref"].rpartition("/")[2]]
    several = [choice for kind in ("anyOf", "oneOf", "allOf") for choice in argument.get(kind, ())]
    for choice in several:
        yield from _choices(choice, definitions)
    if not several:
        yield argument


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(known)}" for name, known in made().items())
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
