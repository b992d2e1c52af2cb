"""
The pipeline file as values.

What later versions will do is part of the model, so that it is recognised, and refused in words: "not yet supported".
"""

import zoneinfo
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pipelines.spec.names import checked_name, nearest, same_names

SourceKind = Literal["table", "global_table", "stream", "changelog"]
Semantics = Literal["strict", "kafka", "kafka-0.10.2", "kafka-0.10.0"]
Refresh = Literal["auto", "incremental", "full"]
OnFailedGate = Literal["fail", "warn"]

Value = TypeVar("Value")


def only(supported: Value, what: str) -> Callable[[Value], Value]:
    """
    Make the validator of an option of which one value is built.

    Args:
        supported: The value that works now.
        what: The option, as the sentence "... is not yet supported" needs it.

    Returns:
        A function that gives its argument back or raises ValueError.
    """

    def check(value: Value) -> Value:
        if value != supported:
            raise ValueError(f"{what} is not yet supported")
        return value

    return check


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
    raise ValueError("a key is one column name or a list of them; put quotes around a name that YAML reads otherwise")


Name = Annotated[StrictStr, AfterValidator(checked_name)]
Text = Annotated[StrictStr, Field(min_length=1)]
Expectations = list[dict[StrictStr, dict[StrictStr, Any]]]


class Part(BaseModel):
    """What all parts of the file have in common: no unknown options, and no change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Storage(Part):
    """Where results and ledger lie: one folder, or a schema of the catalog and a folder for the stages."""

    path: Text | None = None
    schema_name: Text | None = Field(default=None, alias="schema")
    stage: Text | None = None

    @model_validator(mode="after")
    def _one_form(self) -> "Storage":
        folder = self.path is not None and self.schema_name is None and self.stage is None
        catalog = self.path is None and self.schema_name is not None and self.stage is not None
        if not folder and not catalog:
            raise ValueError("storage is either `path`, or `schema` together with `stage`")
        return self


class Source(Part):
    """A table that joins read; `key` names the columns that hold at most one row for each value."""

    key: Annotated[tuple[StrictStr, ...], BeforeValidator(key_columns)]
    kind: SourceKind = "table"
    table: Text | None = None
    path: Text | None = None
    watermarks: dict[StrictStr, Text] = {}
    order_by: Text | None = None
    tombstone: Text | None = None
    null_value: Text | None = None
    ignore_changes: StrictBool = False

    @model_validator(mode="after")
    def _fits(self) -> "Source":
        if self.table is not None and self.path is not None:
            raise ValueError("a source has `table` or `path`, not both")
        owners = {"watermarks": "stream", "null_value": "stream", "ignore_changes": "stream", "tombstone": "changelog"}
        strangers = [f"`{option}`" for option, kind in owners.items() if getattr(self, option) and self.kind != kind]
        if strangers:
            raise ValueError(f"{', '.join(strangers)}: not an option of a source of kind {self.kind}")
        if self.kind == "table" and self.order_by is not None:
            raise ValueError("`order_by` of a table is not yet supported")
        return self


class Join(Part):
    """One result: its statement, and how it is kept."""

    sql: StrictStr
    semantics: Annotated[Semantics, AfterValidator(only("strict", "semantics other than strict"))] = "strict"
    changelog: Annotated[StrictBool, AfterValidator(only(False, "the exact changelog, `changelog: true`,"))] = False
    refresh: Refresh = "auto"
    on_failed_gate: OnFailedGate = "fail"
    expectations: Annotated[Expectations, AfterValidator(only([], "a gate of your own"))] = []


class PipelineFile(Part):
    """A whole pipeline file."""

    pipeline: Name
    storage: Storage
    sources: dict[Name, Source]
    joins: dict[Name, Join]
    timezone: StrictStr = "UTC"
    optimizations: Literal["all", "none"] = "all"

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, timezone: str) -> str:
        if timezone != "UTC" and timezone not in zoneinfo.available_timezones():
            hint = nearest(timezone, zoneinfo.available_timezones())
            raise ValueError(f"`{timezone}` is no time zone name, as `Europe/Oslo` is" + (f"; {hint}" if hint else ""))
        return timezone

    @field_validator("optimizations", mode="before")
    @classmethod
    def _no_rule_names(cls, optimizations: object) -> object:
        if isinstance(optimizations, list):
            raise ValueError("optimizations by name are not yet supported; write `all` or `none`")
        return optimizations

    @field_validator("joins")
    @classmethod
    def _names_apart(cls, joins: dict[str, Join], info: ValidationInfo) -> dict[str, Join]:
        clauses = same_names([*info.data.get("sources", ()), *joins])
        if clauses:
            raise ValueError("; ".join(clauses))
        return joins
