"""A join of the pipeline file bound to the tables as they are: real columns, key types, the result's columns."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from expectations.catalogue import columns_of
from lakehouse.address import Address
from lakehouse.commit_log import mark_of
from lakehouse.entries import STATE, JoinHistory, SourceVersions
from lakehouse.errors import Fault, PipelineFileError, SourceRecreated
from lakehouse.sqltext import quote
from lakehouse.tables import Table, find, read_rows
from lakehouse.values import char_type, common_type, incomparable, plain_schema
from pipelines.joins.meaning import meaning
from pipelines.ktable import BoundKTable
from pipelines.plan.sharing import is_read_once, is_single_store
from pipelines.shape import Found, begun_anew, gained, held_columns
from pipelines.spec import (
    CHANGELOG_COLUMNS,
    ROW_COLUMNS,
    STREAM_COLUMNS,
    Input,
    Link,
    Semantics,
    Stream,
    TableJoin,
    bind,
    fingerprint,
    is_stream,
    reads,
    statement_of,
)
from pipelines.spec.names import nearest
from pipelines.spec.sql.padding import padded_comparisons
from pipelines.stream_inputs import fitted, stream_inputs
from pipelines.upstream import get_input, get_log
from pipelines.workspace import Workspace

IDENTITY_TYPE = StructType(
    [StructField("version", LongType()), StructField("hash", LongType()), StructField("number", IntegerType())]
)
"""What tells a row of a stream apart: the version that brought it, a hash of its columns, its number among equals."""

WITHOUT_IT = "leave the column out or extract what you need"


@dataclass(frozen=True)
class BoundJoin:
    """
    A join with everything that its tables tell.

    Args:
        join: The join over real column names.
        definition: Fingerprint of its definition in the pipeline file.
        sources: The source tables at their pinned versions, each once, in the order of FROM.
        types: For each input the types in which the parts of its key are compared.
        columns: The result's columns: the key, then the others in the order of the SELECT list.
        result: Where the result lies.
        changelog: Where its changelog lies, if it keeps one.
        semantics: Which rows the changelog has.
        logs: The changelogs of the joins among the sources, at their pinned versions, where their order counts: where a
            changelog is kept, and with a stream.
        streams: How the rows of the streams are read, in the order of FROM; none for a join of tables.
        state: Where the rows lie that wait, in a join of two streams.
        is_single_store: Whether they wait once for both sides of a stream that is joined with itself (KIP-862).
        is_read_once: Whether such a stream is read once for both sides.
        is_read: Whether another join reads the result.
        made: What the ledger knows of the joins that make streams among the sources, by name.
        times: With a stream: the column that orders the rows of each source, where all have one; else their commits do.
    """

    join: TableJoin
    definition: str
    sources: tuple[Table, ...]
    types: tuple[tuple[DataType, ...], ...]
    columns: StructType
    result: Address
    changelog: Address | None = None
    semantics: Semantics = "strict"
    logs: Mapping[str, Table] = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)
    state: Address | None = None
    is_single_store: bool = False
    is_read_once: bool = False
    is_read: bool = False
    made: Mapping[str, JoinHistory] = field(default_factory=dict)

    @property
    def is_self_join(self) -> bool:
        """Tell whether a stream is joined with itself."""
        return self.join.window is not None and self.join.window.is_self_join

    @property
    def stream(self) -> Stream | None:
        """The first stream; None for a join of tables."""
        return self.streams[0] if self.streams else None

    def table(self, place: int) -> Table:
        """Give the source table of an input."""
        return self.sources[self.join.sources.index(self.join.inputs[place].source)]

    @property
    def anew(self) -> str:
        """Say what gives the result other columns."""
        return begun_anew(self.join.name, [self.result] if self.changelog is None else [self.result, self.changelog])

    @property
    def reshaped(self) -> str:
        """Say what helps where the result has other columns than the statement makes."""
        new = ", ".join(f"{source}.{quote(column)}" for source, column in self.join.passed_over)
        told = f" (there is {new} now)" if new else ""
        return f"write a SELECT list that makes the columns as they are{told}, or {self.anew}"

    @property
    def newest(self) -> dict[str, int]:
        """The versions at which the sources were found, by name."""
        return {table.address.label: max(table.version, *(c.version for c in table.commits)) for table in self.sources}

    def used(self, source: str) -> tuple[str, ...]:
        """Name the columns of a source that the join uses, the key first."""
        inputs = [self.join.inputs[place] for place in self.join.places(source)]
        further = [column for stream in self.streams if stream.source == source for column in stream.columns]
        time = [self.times[source]] if source in self.times else []
        named = (*inputs[0].key, *(column for item in inputs for column in item.columns), *further, *time)
        return tuple(dict.fromkeys(named))


Bound = BoundJoin | BoundKTable
"""What an epoch is computed for."""


def notes_on(bound: Bound | None) -> tuple[str, ...]:
    """Say which columns the sources of a join have gained that its result does not take over."""
    return gained(bound.join.passed_over, bound.anew) if isinstance(bound, BoundJoin) else ()


def bind_join(workspace: Workspace, name: str, found: Found | None = None) -> BoundJoin:
    """
    Pin a join's sources to their newest versions and resolve its statement against their columns.

    Other joins that it reads are sources too, pinned to what their last committed epochs made. What `*` stands for is
    fixed by the columns of the result, once there is one.

    Args:
        workspace: Where to work.
        name: The join.
        found: Gives the result and what the ledger knows of it, where somebody looks at both anyway.

    Raises:
        LakejoinError: A source does not exist, or a join has no committed epoch.
        PipelineFileError: A column is unknown, or of a type that cannot be compared.
    """
    statement = statement_of(workspace.file, name)
    definition = fingerprint(workspace.file, name, workspace.deviations)
    found = found or (lambda: (find(workspace.spark, workspace.table(name)), workspace.ledger.of(name)))
    with ThreadPoolExecutor() as side_by_side:
        begun_with = side_by_side.submit(held_columns, statement, definition, found)
        inputs = side_by_side.map(lambda source: get_input(workspace, source), statement.sources)
        tables = dict(zip(statement.sources, inputs, strict=True))
    columns = {source: table.schema.fieldNames() for source, table in tables.items()}
    join = bind(statement, columns, begun_with.result())
    streams: tuple[Stream, ...] = ()
    times: Mapping[str, str] = {}
    if statement.reads_stream:
        streams, times = stream_inputs(workspace, statement, tables)
    is_read = any(name in reads(workspace.file, other) for other in workspace.file.joins)
    if join.window is None and not is_read:
        join = replace(join, looking_up=(), carried=())  # nobody asks how far the times of the stream are
    join = fitted(workspace, join, tables)
    sources = tuple(tables[source] for source in join.sources)
    types = _key_types(workspace, join, tables)
    schema = _result_schema(workspace, join, tables)
    ordered = [schema[key] for key in join.key] + [field for field in schema if field.name not in join.key]
    _must_expect_columns(workspace, name, schema.fieldNames())
    changelog = workspace.changelog(name)
    if changelog is not None:
        _must_be_free(workspace, join)
    added = [StructField(column, LongType()) for column in STREAM_COLUMNS if streams]
    added += [StructField(column, IDENTITY_TYPE) for column in ROW_COLUMNS if join.window is not None]
    read = reads(workspace.file, name) if changelog is not None or streams else ()
    logs = {
        source: get_log(workspace, source, tables[source]) for source in read if not is_stream(workspace.file, source)
    }
    return BoundJoin(
        join,
        definition,
        sources,
        types,
        plain_schema([*ordered, *added]),
        workspace.table(name),
        changelog,
        workspace.file.joins[name].semantics,
        logs,
        streams,
        times,
        None if join.window is None else workspace.table(name + STATE),
        statement.is_self_join and is_single_store(workspace.file, name),
        statement.is_self_join and is_read_once(workspace.file, name),
        is_read,
        {side.source: workspace.ledger.of(side.source) for side in statement.sides if side.is_result},
    )


def rows_of(workspace: Workspace, side: Input, table: Table, version: int) -> DataFrame:
    """Read a source at a version, with only the columns that the join uses."""
    rows = read_rows(workspace.spark, table, version)
    return rows.selectExpr(*map(quote, side.columns))


def _must_expect_columns(workspace: Workspace, name: str, columns: Sequence[str]) -> None:
    """See that the expectations of a join are about columns that its result has."""
    faults = []
    for place, declared in enumerate(workspace.file.joins[name].expectations):
        for expectation, arguments in declared.items():
            where = f"joins.{name}.expectations.{place}.{expectation}"
            strange = [column for column in columns_of(arguments) if column not in columns]
            hints = (nearest(column, columns) or f"there are {', '.join(columns)}" for column in strange)
            faults += [
                Fault(where, f"`{column}` is no column of the result", hint)
                for column, hint in zip(strange, hints, strict=True)
            ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)


def _must_be_free(workspace: Workspace, join: TableJoin) -> None:
    """See that no output is called as a column that the changelog adds."""
    faults = [
        Fault(f"joins.{join.name}.sql", f"SELECT: `{output.name}` is a column of the changelog", "give it another name")
        for output in join.outputs
        if output.name.lower() in CHANGELOG_COLUMNS
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)


def _key_types(workspace: Workspace, join: TableJoin, tables: Mapping[str, Table]) -> tuple[tuple[DataType, ...], ...]:
    """Find the types in which keys are compared: one for all inputs that key the result, one for each reference."""
    path = f"joins.{join.name}.sql"
    faults = [
        Fault(path, f"{item.alias}.{column} is {kind.simpleString()}, which has no comparison", WITHOUT_IT)
        for item in join.inputs
        for column, kind in _types(item.columns, tables[item.source]).items()
        if incomparable(StructType([tables[item.source].schema[column]]))
    ]
    faults += _padding_faults(join, tables)
    types: dict[int, tuple[DataType, ...]] = {}

    def compare(place: int, pairs: Sequence[tuple[str, DataType, str, DataType]]) -> None:
        kinds = []
        for here, one, there, other in pairs:
            kind = common_type(one, other)
            kinds.append(kind or other)
            if kind is None:
                problem = f"ON: {here} is {one.simpleString()} and {there} is {other.simpleString()}: these do not"
                hint = "give both one type in their tables, or cast the reference to that of the key"
                faults.append(Fault(path, f"{problem} compare one to one as a key", hint))
        types[place] = tuple(kinds)

    def named(place: int) -> list[tuple[str, DataType]]:
        item = join.inputs[place]
        kinds = _types(item.key, tables[item.source])
        return [(f"{item.alias}.{name}", kind) for name, kind in kinds.items()]

    first, *others = join.members
    for label, kind in named(first):
        if common_type(kind, kind) is None:
            faults.append(Fault(path, f"{label} is {kind.simpleString()}, which cannot be a key", "choose another key"))
    types[first] = tuple(kind for _, kind in named(first))
    for place in others:
        before = zip(named(first), types[first], strict=True)
        compare(place, [(label, kind, *own) for ((label, _), kind), own in zip(before, named(place), strict=True)])
        types[first] = types[place]
    types.update(dict.fromkeys(others, types[first]))
    for link in join.links:
        kinds = _expression_types(workspace, join, link, tables)
        pairs = zip(link.expressions, kinds, named(link.input), strict=True)
        compare(link.input, [(label.replace("`", ""), kind, *own) for label, kind, own in pairs])
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return tuple(types.get(place, ()) for place in range(len(join.inputs)))


def _padding_faults(join: TableJoin, tables: Mapping[str, Table]) -> Iterator[Fault]:
    """Refuse the comparisons of a statement in which Spark pads CHAR columns."""
    chars: dict[tuple[str, ...], str] = {
        (item.alias, field.name): kind
        for item in join.inputs
        for field in tables[item.source].schema
        if (kind := char_type(field)) is not None
    }
    clauses = [
        *(("SELECT", output.expression) for output in join.outputs),
        *(("ON", step.on) for step in join.steps),
        *([] if join.where is None else [("WHERE", join.where)]),
    ]
    for clause, sql in clauses if chars else ():
        for found in padded_comparisons(sql, chars):
            yield Fault(f"joins.{join.name}.sql", f"{clause}: {found.problem}", found.hint)


def _types(columns: Sequence[str], table: Table) -> dict[str, DataType]:
    return {column: table.schema[column].dataType for column in columns}


def _expression_types(workspace: Workspace, join: TableJoin, link: Link, tables: Mapping[str, Table]) -> list[DataType]:
    item = join.inputs[link.over]
    table = tables[item.source]
    try:
        rows = rows_of(workspace, item, table, table.version).alias(item.alias)
        return [field.dataType for field in rows.select(*(F.expr(part) for part in link.expressions)).schema]
    except AnalysisException as error:
        raise _refused_by_spark(workspace, join, error) from error


def _result_schema(workspace: Workspace, join: TableJoin, tables: Mapping[str, Table]) -> StructType:
    try:
        pinned = [(item, tables[item.source]) for item in join.inputs]
        schema = meaning([rows_of(workspace, item, table, table.version) for item, table in pinned], join).schema
    except AnalysisException as error:
        raise _refused_by_spark(workspace, join, error) from error
    faults = [
        Fault(f"joins.{join.name}.sql", f"SELECT: {name} has a type without comparison", "cast it")
        for name in incomparable(schema)
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return schema


def _refused_by_spark(workspace: Workspace, join: TableJoin, error: AnalysisException) -> PipelineFileError:
    fault = Fault(f"joins.{join.name}.sql", f"Spark refuses it: {str(error).strip().splitlines()[0]}")
    return PipelineFileError(workspace.file.pipeline, [fault])


def at_recorded(bound: BoundJoin, recorded: Sequence[SourceVersions], backfill: str = "backfill") -> BoundJoin:
    """
    Put the sources, and the changelogs of joins among them, back to the versions that an epoch read.

    A changelog that it did not read is left out: the join keeps one only since then.

    Args:
        bound: The join, with its sources as they are now.
        recorded: What the epoch read.
        backfill: The command that helps where that is not possible.

    Raises:
        SourceRecreated: One is another table by now, or was put back from a copy.
    """
    versions = {source.name: source for source in recorded}

    def put(table: Table) -> Table:
        before = versions[table.address.label]
        if before.id != table.id:
            raise SourceRecreated(
                bound.join.name,
                f"{table.address.label} was dropped and created again",
                expected=f"the table with id {before.id}",
                found=f"id {table.id}",
                hint=f"run `lakejoin {backfill} --select {bound.join.name}`",
            )
        if mark_of(table, before.to_version).contradicts(before.commit):
            raise SourceRecreated(
                bound.join.name,
                f"{table.address.label} was put back from a copy, or its log was changed",
                expected=f"under version {before.to_version} the commit that the epoch read",
                found="another commit under that version",
                hint=f"run `lakejoin {backfill} --select {bound.join.name}`",
            )
        return replace(table, version=before.to_version)

    logs = {name: put(log) for name, log in bound.logs.items() if log.address.label in versions}
    return replace(bound, sources=tuple(map(put, bound.sources)), logs=logs)
