"""
The options of the pipeline file: their types, and rules across options.

The rules check the content of a file as it is written, so that their errors appear together with all other errors in
the file. The models apply the same rules, for values that are created without a file.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, WithJsonSchema
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from lakehouse.errors.errors import printable
from lakehouse.values.locations import SERVED, is_served
from lakehouse.values.recorded import CLUSTERING_COLUMNS
from pipelines.language.file.document import PATTERN
from pipelines.language.names import checked_name, nearest
from pipelines.language.sql.syntax import lateness

MISFIT = "misfit"
"""The type of the pydantic error for options that are valid alone but not together."""

_REACHED = f"write a folder that the driver sees, such as a mounted one, or a URI that begins with {', '.join(SERVED)}"

Rule = Literal["single_store_self_join", "share_change_reads"]
RULES: tuple[Rule, ...] = get_args(Rule)
"""
The rules of the optimizer, which `pipelines.plan.sharing` describes. They never change a result, so they are not part
of a join's definition.
"""

ALL, NONE = "all", "none"
"""The values that replace a list of rules."""

SourceKind = Literal["table", "global_table", "stream", "changelog"]
Semantics = Literal["strict", "kafka", "kafka-0.10.2", "kafka-0.10.0"]
Refresh = Literal["auto", "incremental", "full"]
Feed = Literal["exact", "any"]
KeyColumns = Literal["select", "append"]
OnSchemaChange = Literal["ignore", "append", "fail"]
OnFailedGate = Literal["fail", "warn"]
OnRecreatedSource = Literal["fail", "reconcile"]


def _or_variable(schema: JsonDict) -> None:
    """Extend the schema of a choice so that editors also accept a variable."""
    choices: JsonDict = {name: schema.pop(name) for name in ("type", "enum")}
    schema["anyOf"] = [choices, {"type": "string", "pattern": PATTERN}]


Choice = Field(json_schema_extra=_or_variable)


def hinted(problem: str, hint: str, kind: str = "hinted") -> PydanticCustomError:
    """Create a validation error with a hint."""
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "hint": hint})


KEY_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "uniqueItems": True},
    ]
}


CLUSTER_SCHEMA = {
    "anyOf": [KEY_SCHEMA["anyOf"][0], {**KEY_SCHEMA["anyOf"][1], "maxItems": CLUSTERING_COLUMNS}],
}


def key_columns(value: object) -> object:
    """Convert one column name, or a list of names, to a tuple of names; raise what pydantic reports for others."""
    return _columns(value, "a key", "the key")


def cluster_columns(value: object) -> object:
    """Convert the columns of `cluster_by` as `key_columns` does; Delta clusters by at most four."""
    names = _columns(value, "`cluster_by`", "`cluster_by`")
    if len(names) > CLUSTERING_COLUMNS:
        raise ValueError(f"Delta clusters a table by at most {CLUSTERING_COLUMNS} columns")
    return names


def _columns(value: object, what: str, where: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else value
    if isinstance(names, tuple) and all(isinstance(name, str) for name in names):
        if not all(names) or not names:
            raise ValueError(f"{what} needs at least one column, each with a name")
        if len({name.lower() for name in names}) < len(names):
            raise ValueError(f"a column is in {where} twice")
        return names
    raise hinted(f"{what} is one column name or a list of them", "quote a name that YAML reads as another type")


Name = Annotated[StrictStr, AfterValidator(checked_name)]
Text = Annotated[StrictStr, Field(min_length=1)]


def lateness_text(written: object) -> object:
    """Convert an integer lateness to a string, and check that a string is a length of time."""
    text = str(written) if isinstance(written, int) and not isinstance(written, bool) else written
    if isinstance(text, str):
        try:
            lateness(text)
        except ValueError as error:
            raise hinted(str(error), "an interval such as `15 minutes`; for an integer column, a number") from error
    return text


Lateness = Annotated[
    StrictStr,
    BeforeValidator(lateness_text),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}]}),
]
KNOWN_RULES = f"the rules are {', '.join(RULES)}"


def rule_names(value: object) -> object:
    """Check the rules that the optimizer may use: `all`, `none` or a list of names, each once and at least one."""
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
            raise hinted(f"`{name}` cannot be in a list", f"write `optimizations: {name}`, or list rules")
        if name not in RULES:
            shown = printable(str(name))
            raise hinted(f"unknown rule `{shown}`", nearest(str(name), RULES) or KNOWN_RULES)
        if value.count(name) > 1:
            raise hinted(f"`{name}` is in the list twice", "list it once")
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


def spark_settings(value: object) -> object:
    """Check the names of settings of Spark, and write their values as text, as Spark takes them."""
    if not isinstance(value, Mapping):
        raise hinted("must be a mapping of settings of Spark", "for example `spark.driver.memory: 8g`")
    for name in value:
        if misfit := unfit_setting(str(name)):
            raise hinted(*misfit)
    for name, setting in value.items():
        if not isinstance(setting, str | int | float):
            raise hinted(f"`{name}` needs one value: text, a number, true or false", "quote a value that is no text")
    return {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}


SparkSettings = Annotated[
    dict[StrictStr, StrictStr],
    BeforeValidator(spark_settings),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": r"^spark\."},
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]
Expectations = list[dict[StrictStr, dict[StrictStr, Any]]]
"""Expectations of Great Expectations, each a mapping from its name to its arguments."""

OWNERS = {
    **dict.fromkeys(("watermarks", "null_value", "ignore_changes"), "stream"),
    **dict.fromkeys(("tombstone", "ignore_deletes"), "changelog"),
}
"""Options that only one kind of source has."""


class Misfit(NamedTuple):
    """Options that do not fit together, and how to correct them."""

    problem: str
    hint: str = ""


def unfit_setting(name: str) -> Misfit | None:
    """Return why a setting of Spark cannot be given; None if it can."""
    if name.startswith("spark."):
        return None
    shown = printable(name)
    return Misfit(f"`{shown}` is not a setting of Spark", "their names begin with `spark.`: `spark.driver.memory`")


class Clash(NamedTuple):
    """A name that is already taken: its part of the file, the name, and the problem."""

    part: str
    name: str
    problem: str


def storage_misfit(options: Mapping[str, Any]) -> Misfit | None:
    """
    Check that storage, with options named as in the file, has one of its two forms, and lies where lakejoin can write
    files of its own; return the problem, or None.
    """
    named = {name for name in ("path", "schema", "stage") if options.get(name) is not None}
    if named in ({"path"}, {"schema", "stage"}):
        location = str(options.get("path") or options.get("stage"))
        return None if is_served(location) else Misfit(f"lakejoin cannot write files to `{location}`", _REACHED)
    return Misfit(
        "storage needs either `path`, or `schema` together with `stage`",
        "write {path: ./lake} for one folder, or {schema: main.aviation, stage: /Volumes/...} for a catalog",
    )


def source_misfits(options: Mapping[str, Any], kind: str | None) -> Iterator[Misfit]:
    """Find the options of a source that exclude each other; its kind is None if it is unknown."""
    if options.get("table") is not None and options.get("path") is not None:
        yield Misfit("a source has `table` or `path`, not both")
    if kind is None:
        return
    foreign = [f"`{option}`" for option, owner in OWNERS.items() if options.get(option) and kind != owner]
    if kind != "table" and options.get("on_recreated_source") == "reconcile":
        foreign.append("`on_recreated_source`")
    if kind not in ("table", "global_table") and options.get("nullable_key") is not None:
        foreign.append("`nullable_key`")
    if foreign:
        yield Misfit(f"{', '.join(foreign)}: not an option of a source of kind {kind}")
    if kind == "changelog" and options.get("order_by") is None:
        yield Misfit("a source of kind changelog needs `order_by`", "name the column that orders the rows of a key")


def clashes(sources: Collection[str], joins: Collection[str]) -> Iterator[Clash]:
    """Find names that differ only in case, which Spark cannot distinguish, and joins with the name of a source."""
    taken: dict[str, str] = {}
    for part, name in (*(("sources", name) for name in sources), *(("joins", name) for name in joins)):
        first = taken.setdefault(name.lower(), name)
        if first != name:
            yield Clash(part, name, f"`{first}` and `{name}` differ only in case")
        elif part == "joins" and first in sources:
            yield Clash(part, name, f"`{name}` names a source and a join")
