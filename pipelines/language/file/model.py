"""The models of the pipeline file, and its JSON schema."""

import json
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

from pipelines.language.file.options import (
    ALL,
    CLUSTER_SCHEMA,
    KEY_SCHEMA,
    MISFIT,
    NONE,
    Choice,
    Expectations,
    Feed,
    KeyColumns,
    Lateness,
    Name,
    OnFailedGate,
    OnRecreatedSource,
    OnSchemaChange,
    Optimizations,
    Refresh,
    Rule,
    Semantics,
    SourceKind,
    SparkSettings,
    Text,
    clashes,
    cluster_columns,
    hinted,
    key_columns,
    source_misfits,
    storage_misfit,
)
from pipelines.language.names import nearest


class Block(BaseModel):
    """The base of all parts of the file: unknown options are errors, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _form(*names: str) -> JsonDict:
    kinds: JsonDict = {name: {"type": "string" if name in names else "null"} for name in ("path", "schema", "stage")}
    return {"required": [*names], "properties": kinds}


class Storage(Block):
    """The location of results and ledger: one folder, or a schema of the catalog with a folder for stages."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_form("path"), _form("schema", "stage")]})

    path: Text | None = None
    """One folder for everything, or the URI of one."""
    schema_name: Text | None = Field(default=None, alias="schema")
    """Schema of the catalog, for example `main.aviation`; requires `stage`."""
    stage: Text | None = None
    """Folder for the change sets of unfinished epochs, or its URI; the driver and Spark see it. Requires `schema`."""

    @model_validator(mode="after")
    def _one_form(self) -> "Storage":
        if misfit := storage_misfit(self.model_dump(by_alias=True)):
            raise hinted(*misfit, kind=MISFIT)
        return self


class Source(Block):
    """A table that joins read; each value of its `key` columns identifies at most one row."""

    key: Annotated[tuple[StrictStr, ...], BeforeValidator(key_columns), WithJsonSchema(KEY_SCHEMA)]
    """The key: one column, or a list of them."""
    kind: Annotated[SourceKind, Choice] = "table"
    """
    The kind of source. `table`: at most one row for each key. `changelog`: append-only upserts and tombstones, read as
    a table. `stream`: append-only events. `global_table`: a table that streams look up at its newest version.
    """
    table: Text | None = None
    """Name of the table in the catalog. Without `table` and `path`, the source is in the storage under its name."""
    path: Text | None = None
    """Folder of the table, relative to the pipeline file."""
    watermarks: dict[StrictStr, Lateness] = {}
    """
    For a stream: time columns, each with its allowed lateness: an interval such as `15 minutes`, or a number for an
    integer column. The first column orders the rows of an initial load.
    """
    order_by: Text | None = None
    """
    For a changelog: the column that orders its rows; the row with the greatest value determines the state of its key.
    If all inputs of a join with a stream set it: the time that orders their rows, instead of the commit time.
    """
    tombstone: Text | None = None
    """For a changelog: a SQL condition over its columns that is true for rows that delete their key."""
    ignore_deletes: StrictBool = False
    """
    For a changelog: skip and count deleted rows, instead of failing, where old rows of the log are trimmed: no key is
    deleted by it.
    """
    null_value: Text | None = None
    """For a stream: a SQL condition over its columns that is true for rows without a value: ignored, but counted."""
    on_recreated_source: Annotated[OnRecreatedSource, Choice] = "fail"
    """
    What a join of tables does whose source was created again, or restored from a copy: `fail` stops it until a
    backfill, `reconcile` compares the result with the new table by itself. Under `refresh: full` it always reconciles.
    """
    nullable_key: StrictBool | None = None
    """
    For a table: whether parts of its key may be null, as in the result of a join of any cardinality, where a null says
    which side a row lacks. `true`: such rows are rows like others; `false`: they have no key, and are skipped and
    counted. A table that says of itself that parts of its key may be null needs one of the two.
    """
    ignore_changes: StrictBool = False
    """For a stream: skip and count updated and deleted rows, instead of failing."""

    @model_validator(mode="after")
    def _fits(self) -> "Source":
        for misfit in source_misfits(self.model_dump(), self.kind):
            raise hinted(*misfit, kind=MISFIT)
        return self


class Join(Block):
    """One result: its statement, and how it is maintained."""

    sql: Text
    """
    The statement in Spark SQL: SELECT ... FROM a source or join JOIN another ON or USING ... WHERE .... A statement of
    several streams is stored in parts: `<name>__1`, `<name>__2` and so on, and the result.
    """
    key_columns: Annotated[KeyColumns, Choice] = "select"
    """
    For a join of tables: where the key columns of the result come from. `select`: the SELECT list names them all.
    `append`: those that it does not name are added, under the names that `lakejoin explain` shows.
    """
    semantics: Annotated[Semantics, Choice] = "strict"
    """
    The rows that the changelog, or a join of two streams, emits. `strict`: only rows that change the result. The other
    values: the rows that Kafka Streams emits.
    """
    changelog: StrictBool = False
    """Also keep the row-by-row changelog, as `<result>__changelog`."""
    refresh: Annotated[Refresh, Choice] = "auto"
    """
    `auto`: from the change feeds; in full if a feed has a gap, or if that is estimated to take less time.
    `incremental`: never in full. `full`: always.
    """
    feed: Annotated[Feed, Choice] = "exact"
    """
    For a join of tables: what the change feed of the result holds. `exact`: only rows that differ. `any`: an epoch that
    is computed in full overwrites the result, so that its feed also holds rows that do not differ.
    """
    on_schema_change: Annotated[OnSchemaChange, Choice] = "ignore"
    """
    For a join of tables: what a run does if a source that `*` stands for has a new column. `ignore`: `*` stands for the
    columns of the result. `append`: the result gets the column, filled for all rows. `fail`: the join stops.
    """
    cluster_by: Annotated[tuple[StrictStr, ...], BeforeValidator(cluster_columns), WithJsonSchema(CLUSTER_SCHEMA)] = ()
    """
    For a join of tables: one column of the result or a list of at most four, by which the result is laid out instead of
    by its key, so that changes of the rows that they refer to touch few of its files.
    """
    max_versions: Annotated[StrictInt, Field(ge=1)] | None = None
    """The maximum commits of each source that one epoch reads from the feeds. A run may take several epochs."""
    max_bytes: Annotated[StrictInt, Field(ge=1)] | None = None
    """
    The maximum size of new files of each source that one epoch reads from the feeds, in bytes. An epoch takes at least
    one commit.
    """
    max_buffered_rows: Annotated[StrictInt, Field(ge=1)] | None = None
    """
    For a join of two streams, and for each part of a join of several: the maximum number of buffered rows. An epoch
    that would exceed it fails before it publishes anything.
    """
    on_failed_gate: Annotated[OnFailedGate, Choice] = "fail"
    """What to do with an epoch that fails your `expectations`. Expectations of lakejoin itself always stop it."""
    expectations: Expectations = []
    """
    Expectations of Great Expectations, such as `- expect_column_values_to_be_between: {column: seats, min_value: 1}`.
    Expectations about rows gate each epoch; expectations about a whole table run in `validate`.
    """


class PipelineFile(Block):
    """A whole pipeline file."""

    pipeline: Name
    """The name of the pipeline."""
    storage: Storage
    """The location of results and ledger, and of sources without `table` or `path`."""
    sources: Annotated[dict[Name, Source], Field(min_length=1)]
    """The tables that joins read, by the name that statements use."""
    joins: Annotated[dict[Name, Join], Field(min_length=1)]
    """The joins, by the name of their result table."""
    timezone: StrictStr = "UTC"
    """Time zone of the session that runs the joins; part of their definition."""
    spark: SparkSettings = {}
    """
    Settings of the Spark that a command starts, beside those of `spark-defaults.conf` and instead of lakejoin's own:
    `spark.master`, `spark.remote`, `spark.driver.memory` and so on. Under spark-submit, over SPARK_REMOTE and on
    Databricks those count that can be set while Spark runs. A session that a program passes keeps its own settings.
    """
    threads: Annotated[StrictInt, Field(ge=1)] | None = None
    """
    How many joins that do not read each other `run`, `backfill`, `verify` and `validate` work on at the same time. By
    default as many as the machine has cores, at most 4.
    """
    optimizations: Optimizations = "all"
    """
    The rules that the optimizer may use: `all`, `none` or a list of rule names. `single_store_self_join`: read a stream
    that an inner join joins with itself once, and buffer its rows once. `share_change_reads`: read a stream that any
    other join joins with itself once, and read the changes of a source once for all joins of a run that take the same
    versions. The rules never change results.
    """

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, timezone: str) -> str:
        if timezone != "UTC" and timezone not in zoneinfo.available_timezones():
            hint = nearest(timezone, zoneinfo.available_timezones())
            raise hinted(f"`{timezone}` is not a time zone name", hint or "for example `Europe/Oslo`")
        return timezone

    @field_validator("joins")
    @classmethod
    def _names_apart(cls, joins: dict[str, Join], info: ValidationInfo) -> dict[str, Join]:
        for clash in clashes(info.data.get("sources", ()), joins):
            raise hinted(clash.problem, "", kind=MISFIT)
        return joins

    _wholes: dict[str, str] = PrivateAttr(default_factory=dict)

    def __hash__(self) -> int:
        """Hash the names of the joins in their order: a cache must distinguish orders, although `==` does not."""
        return hash((self.pipeline, *self.joins))

    def split(self, parts: Mapping[str, Mapping[str, Join]]) -> "PipelineFile":
        """Return a file in which the parts of joins, each after those that it reads, replace these joins."""
        if not parts:
            return self
        made = {name: parts.get(name, {name: join}) for name, join in self.joins.items()}
        file = self.model_copy(
            update={"joins": {part: join for parts in made.values() for part, join in parts.items()}}
        )
        file._wholes = {part: name for name, parts in made.items() for part in parts}
        return file

    def part_of(self, name: str) -> str:
        """Return the name of the join that a part belongs to; for any other join, its own name."""
        return self._wholes.get(name, name)

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names of the parts of a join in their order, the join itself last."""
        return tuple(part for part in self.joins if self.part_of(part) == name)

    def uses(self, rule: Rule) -> bool:
        """Return whether the optimizer may use a rule."""
        if self.optimizations in (ALL, NONE):
            return self.optimizations == ALL
        return rule in self.optimizations


def schema() -> str:
    """Return the JSON schema of the options and their types, with a final line break; `lakejoin check` checks more."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PipelineFile.model_json_schema(by_alias=True),
        "title": "lakejoin pipeline file",
    }
    return json.dumps(content, indent=2) + "\n"
