"""
What expectations there are, by name, with their arguments: known without importing Great Expectations.

That takes seconds, which only a gate may take. `expectations.cataloguing` makes the list.
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
"""The arguments that name columns which have to be there, and how those of ours end."""

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
    found = (given for name, given in arguments.items() if name in COLUMNS or name.endswith(OUR_COLUMNS))
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
