"""The values that options of the pipeline file may have, and what is said of others."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, WithJsonSchema
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from lakehouse.errors import printable
from pipelines.spec.file.rules import ALL, NONE, RULES, Rule
from pipelines.spec.file.variables import PATTERN
from pipelines.spec.names import checked_name, nearest
from pipelines.spec.sql.lengths import lateness

MISFIT = "misfit"
"""The type of pydantic's error for values that are right one by one and not together."""


SourceKind = Literal["table", "global_table", "stream", "changelog"]
Semantics = Literal["strict", "kafka", "kafka-0.10.2", "kafka-0.10.0"]
Refresh = Literal["auto", "incremental", "full"]
OnFailedGate = Literal["fail", "warn"]


def _or_variable(schema: JsonDict) -> None:
    """Let an editor take a variable where one of a few texts belongs."""
    choices: JsonDict = {name: schema.pop(name) for name in ("type", "enum")}
    schema["anyOf"] = [choices, {"type": "string", "pattern": PATTERN}]


Choice = Field(json_schema_extra=_or_variable)


def hinted(problem: str, hint: str, kind: str = "hinted") -> PydanticCustomError:
    """
    Make the error of a validator that knows what would be right.

    Args:
        problem: What is wrong.
        hint: What would be right.
        kind: The type of the error.

    Returns:
        The error to raise.
    """
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "hint": hint})


KEY_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True},
    ]
}


def key_columns(value: object) -> object:
    """
    Read one column name, or a list of them, as the tuple that the model holds.

    Args:
        value: What the file says.

    Returns:
        A tuple of names.

    Raises:
        ValueError: If there is no name, or one twice.
    """
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else value
    if isinstance(names, tuple) and all(isinstance(name, str) for name in names):
        if not all(names) or not names:
            raise ValueError("a key needs at least one column, each with a name")
        if len({name.lower() for name in names}) < len(names):
            raise ValueError("a column is in the key twice")
        return names
    raise hinted("a key is one column name or a list of them", "put quotes around a name that YAML reads otherwise")


Name = Annotated[StrictStr, AfterValidator(checked_name)]
Text = Annotated[StrictStr, Field(min_length=1)]


def lateness_text(written: object) -> object:
    """
    Check how late the values of a column may come.

    Args:
        written: What the file says.

    Returns:
        Its text.

    Raises:
        PydanticCustomError: It is no length of time.
    """
    text = str(written) if isinstance(written, int) and not isinstance(written, bool) else written
    if isinstance(text, str):
        try:
            lateness(text)
        except ValueError as error:
            raise hinted(str(error), "as an example: 15 minutes; of a column of integers a number") from error
    return text


Lateness = Annotated[
    StrictStr,
    BeforeValidator(lateness_text),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}]}),
]
KNOWN_RULES = f"the rules are {', '.join(RULES)}"


def rule_names(value: object) -> object:
    """
    Read which rules of the optimiser may be used: `all`, `none` or a list of names.

    Args:
        value: What the file says.

    Returns:
        The names of the rules, for a list; else the value.

    Raises:
        PydanticCustomError: It is neither, or a name in the list is no rule, is there twice, or none is.
    """
    if value in (ALL, NONE):
        return value
    if isinstance(value, str):
        hint = f"write `[{value}]`" if value in RULES else nearest(value, (ALL, NONE, *RULES))
        raise hinted("must be `all`, `none` or a list of rules", hint or KNOWN_RULES)
    if not isinstance(value, list | tuple):
        raise hinted("must be `all`, `none` or a list of rules", KNOWN_RULES)
    if not value:
        raise hinted("the list is empty", "write `none`")
    for name in value:
        if name in (ALL, NONE):
            raise hinted(f"`{name}` stands alone, not in a list", f"write `optimizations: {name}`, or name rules")
        if name not in RULES:
            shown = printable(str(name))
            raise hinted(f"there is no rule `{shown}`", nearest(str(name), RULES) or KNOWN_RULES)
        if value.count(name) > 1:
            raise hinted(f"`{name}` is in the list twice", "name it once")
    return tuple(value)


RULES_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": [ALL, NONE]},
        {"type": "string", "pattern": PATTERN},
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string", "enum": [*RULES]}, {"type": "string", "pattern": PATTERN}]},
            "minItems": 1,
            "uniqueItems": True,
        },
    ]
}
Optimizations = Annotated[
    Literal["all", "none"] | tuple[Rule, ...], BeforeValidator(rule_names), WithJsonSchema(RULES_SCHEMA)
]
Expectations = list[dict[StrictStr, dict[StrictStr, Any]]]
"""Expectations of Great Expectations, each a mapping of its name to its arguments."""
