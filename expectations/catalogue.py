"""
The catalogue of expectations and their arguments, which needs no import of Great Expectations.

That import takes seconds, which only a gate can afford. `expectations.cataloguing` generates the catalogue.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("catalogue.json")

COLUMNS = ("column", "column_A", "column_B", "column_list")
OUR_COLUMNS = ("_column", "_columns")
"""The arguments that name columns which must exist, and the endings of such arguments in our own expectations."""

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
    """An error in an argument: its name, the problem, and for an unknown argument the known names."""

    argument: str
    problem: str
    known: tuple[str, ...] = ()


def names() -> tuple[str, ...]:
    """Return the names of all expectations that a pipeline file may use."""
    return tuple(_catalogue())


def is_row_level(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether an expectation judges each row by itself; with `mostly`, a share of rows, it does not."""
    return bool(_catalogue()[name]["row_level"]) and arguments.get("mostly", 1) == 1


def each(declared: Declared) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the expectations of a join, as names and arguments."""
    return ((name, arguments) for expectation in declared for name, arguments in expectation.items())


def of_rows(declared: Declared) -> Declared:
    """Return the expectations that judge each row by itself."""
    return [{name: arguments} for name, arguments in each(declared) if is_row_level(name, arguments)]


def of_whole(declared: Declared) -> Declared:
    """Return the expectations that judge a table as a whole."""
    return [{name: arguments} for name, arguments in each(declared) if not is_row_level(name, arguments)]


def described(name: str, arguments: Mapping[str, Any]) -> str:
    """Format an expectation in one line."""
    return f"{name}({', '.join(f'{key}: {value}' for key, value in arguments.items())})"


def columns_of(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that the arguments name."""
    values = (value for name, value in arguments.items() if name in COLUMNS or name.endswith(OUR_COLUMNS))
    return tuple(column for value in values for column in ([value] if isinstance(value, str) else value))


def argument_faults(name: str, arguments: Mapping[str, Any]) -> Iterator[ArgumentFault]:
    """Find the errors in the arguments, as in the pipeline file, of one of the expectations of `names`."""
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
    """Convert dates to strings, because YAML has dates and JSON has none."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.isoformat() if isinstance(value, date) else value


def _problem(rule: str, value: Any) -> str:
    if rule == "type":
        forms = [FORMS[form] for form in ([value] if isinstance(value, str) else value)]
        return f"must be {' or '.join(forms)}"
    if rule == "enum":
        return f"must be one of {', '.join(map(str, value))}"
    words = {
        "minimum": "at least",
        "maximum": "at most",
        "minLength": "of length at least",
        "minItems": "of length at least",
    }
    return f"must be {words.get(rule, rule)} {value:g}"


@cache
def _catalogue() -> Mapping[str, Mapping[str, Any]]:
    catalogue: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return catalogue
