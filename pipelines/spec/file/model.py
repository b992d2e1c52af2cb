"""The pipeline file as values."""

import zoneinfo
from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from pipelines.spec.file.option_rules import clashes, source_misfits, storage_misfit
from pipelines.spec.file.options import (
    KEY_SCHEMA,
    MISFIT,
    Choice,
    Expectations,
    Lateness,
    Name,
    OnFailedGate,
    Optimizations,
    Refresh,
    Semantics,
    SourceKind,
    Text,
    hinted,
    key_columns,
)
from pipelines.spec.file.rules import ALL, NONE, Rule
from pipelines.spec.names import nearest


class Part(BaseModel):
    """What all parts of the file have in common: no unknown options, and no change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _form(*given: str) -> JsonDict:
    """Describe storage that has these options and no others."""
    kinds: JsonDict = {name: {"type": "string" if name in given else "null"} for name in ("path", "schema", "stage")}
    return {"required": [*given], "properties": kinds}


class Storage(Part):
    """Where results and ledger lie: one folder, or a schema of the catalog and a folder for the stages."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_form("path"), _form("schema", "stage")]})

    path: Text | None = None
    """One folder for all: embedded use."""
    schema_name: Text | None = Field(default=None, alias="schema")
    """Schema of the catalog, as `main.aviation`; together with `stage`."""
    stage: Text | None = None
    """Folder for the change sets of unfinished epochs, on a file system that the driver sees; with `schema`."""

    @model_validator(mode="after")
    def _one_form(self) -> "Storage":
        if misfit := storage_misfit(self.model_dump(by_alias=True)):
            raise hinted(*misfit, kind=MISFIT)
        return self


class Source(Part):
    """A table that joins read; `key` names the columns that hold at most one row for each value."""

    key: Annotated[tuple[StrictStr, ...], BeforeValidator(key_columns), WithJsonSchema(KEY_SCHEMA)]
    """The key: one column, or a list of them."""
    kind: Annotated[SourceKind, Choice] = "table"
    """
    What it is. `table`: at most one row for a key. `changelog`: upserts and tombstones, which are only added; read as a
    table. `stream`: events, which are only added. `global_table`: a table that streams look up as it is now.
    """
    table: Text | None = None
    """Name of the table in the catalog; without it and `path`, the source lies in the storage under its name."""
    path: Text | None = None
    """Folder of the table, relative to the pipeline file."""
    watermarks: dict[StrictStr, Lateness] = {}
    """
    Of a stream: time columns, each with the lateness that is allowed: an interval, as `15 minutes`, or, of a column of
    integers, a number. The first orders the rows of a first load.
    """
    order_by: Text | None = None
    """
    Of a changelog: the column that orders its rows; of each key the row with the greatest counts. Where all inputs of a
    join with a stream have it: the time that orders them, in place of that of their commits.
    """
    tombstone: Text | None = None
    """Of a changelog: SQL over its columns that is true for a row that deletes its key."""
    null_value: Text | None = None
    """Of a stream: SQL over its columns that is true for a row without a value, which takes no part and is counted."""
    ignore_changes: StrictBool = False
    """Of a stream: skip rows that are updated or deleted, and count them, instead of refusing to go on."""

    @model_validator(mode="after")
    def _fits(self) -> "Source":
        for misfit in source_misfits(self.model_dump(), self.kind):
            raise hinted(*misfit, kind=MISFIT)
        return self


class Join(Part):
    """One result: its statement, and how it is kept."""

    sql: Text
    """
    The statement: SELECT ... FROM a source or join JOIN another ON or USING ... WHERE ..., in Spark SQL. One of several
    streams is kept in parts: `<name>__1`, `<name>__2` and so on, and the result.
    """
    semantics: Annotated[Semantics, Choice] = "strict"
    """
    Which rows the changelog, or a join of two streams, has: `strict`: what differs, nothing else; the others: those of
    Kafka Streams.
    """
    changelog: StrictBool = False
    """Also keep the row-by-row changelog, as `<result>__changelog`."""
    refresh: Annotated[Refresh, Choice] = "auto"
    """`auto`: from the change feeds, in full where a feed has a gap; `incremental`: never in full; `full`: always."""
    max_versions: Annotated[StrictInt, Field(ge=1)] | None = None
    """Of a join with a stream: so many commits of each source make an epoch; a run takes as many epochs as it needs."""
    max_bytes: Annotated[StrictInt, Field(ge=1)] | None = None
    """Of a join with a stream: so many bytes of new files of each source make an epoch, and always one commit."""
    max_buffered_rows: Annotated[StrictInt, Field(ge=1)] | None = None
    """
    Of a join of two streams, and of each part of one of several: an epoch in which more rows would wait than this stops
    before anything is published.
    """
    on_failed_gate: Annotated[OnFailedGate, Choice] = "fail"
    """What becomes of an epoch that fails one of your own `expectations`; lakejoin's own always stop it."""
    expectations: Expectations = []
    """
    Expectations of Great Expectations, as `- expect_column_values_to_be_between: {column: seats, min_value: 1}`. Those
    that judge rows gate each epoch, those about a whole table are for `validate`.
    """


class PipelineFile(Part):
    """A whole pipeline file."""

    pipeline: Name
    """Its name."""
    storage: Storage
    """Where results and ledger lie, and sources that do not say otherwise."""
    sources: Annotated[dict[Name, Source], Field(min_length=1)]
    """The tables that joins read, each under the name that statements use."""
    joins: Annotated[dict[Name, Join], Field(min_length=1)]
    """The results, each under the name of its table."""
    timezone: StrictStr = "UTC"
    """Time zone of the session that the joins run in; part of their definition."""
    optimizations: Optimizations = "all"
    """
    Which rules of the optimiser may be used: `all`, `none` or a list of their names. `single_store_self_join`: a stream
    joined with itself by an inner join is read once, and its rows wait once. `share_change_reads`: so is one
    that any other join joins with itself, and the changes of a source of which several joins of a run take the same
    versions. Results never depend on them.
    """

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, timezone: str) -> str:
        if timezone != "UTC" and timezone not in zoneinfo.available_timezones():
            hint = nearest(timezone, zoneinfo.available_timezones())
            raise hinted(f"`{timezone}` is no time zone name", hint or "`Europe/Oslo` is one")
        return timezone

    @field_validator("joins")
    @classmethod
    def _names_apart(cls, joins: dict[str, Join], info: ValidationInfo) -> dict[str, Join]:
        for clash in clashes(info.data.get("sources", ()), joins):
            raise hinted(clash.problem, "", kind=MISFIT)
        return joins

    _wholes: dict[str, str] = PrivateAttr(default_factory=dict)

    def __hash__(self) -> int:
        """Hash by the names of the joins in their order, which a cache must tell apart although `==` does not."""
        return hash((self.pipeline, *self.joins))

    def split(self, parts: Mapping[str, Mapping[str, Join]]) -> "PipelineFile":
        """
        Put the parts of joins in the place of these.

        Args:
            parts: Of some joins the joins that they become, each after those that it reads, itself last.
        """
        if not parts:
            return self
        made = {name: parts.get(name, {name: join}) for name, join in self.joins.items()}
        file = self.model_copy(
            update={"joins": {part: join for parts in made.values() for part, join in parts.items()}}
        )
        file._wholes = {part: name for name, parts in made.items() for part in parts}
        return file

    def part_of(self, name: str) -> str:
        """Name the join of which another one is a part: itself for one that is none."""
        return self._wholes.get(name, name)

    def parts(self, name: str) -> tuple[str, ...]:
        """Name the parts of a join in their order, itself last."""
        return tuple(part for part in self.joins if self.part_of(part) == name)

    def uses(self, rule: Rule) -> bool:
        """Tell whether the optimiser may use a rule."""
        if self.optimizations in (ALL, NONE):
            return self.optimizations == ALL
        return rule in self.optimizations
