"""A join of the pipeline file bound to the tables as they are: real columns, key types, the result's columns."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    LongType,
    StructField,
    StructType,
)

from expectations.catalogue import columns_of
from lakehouse.entries import STATE
from lakehouse.errors import Fault, PipelineFileError
from lakehouse.tables import Table, find
from lakehouse.values import char_type, common_type, incomparable, plain_schema
from pipelines.binding.bound import IDENTITY_TYPE, BoundJoin, rows_of
from pipelines.binding.input_tables import get_input, get_log
from pipelines.binding.schema_diff import Found, result_columns
from pipelines.binding.streams import fitted, stream_inputs
from pipelines.binding.workspace import Workspace
from pipelines.joins.meaning import meaning
from pipelines.plan.sharing import is_read_once, is_single_store
from pipelines.spec import (
    CHANGELOG_COLUMNS,
    ROW_COLUMNS,
    STREAM_COLUMNS,
    Link,
    ResolvedQuery,
    Stream,
    bind,
    fingerprint,
    is_stream,
    reads,
    statement_of,
)
from pipelines.spec.names import nearest
from pipelines.spec.sql.padding import padded_comparisons

WITHOUT_IT = "leave the column out or extract what you need"


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
        begun_with = side_by_side.submit(result_columns, statement, definition, found)
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


def _must_be_free(workspace: Workspace, join: ResolvedQuery) -> None:
    """See that no output is called as a column that the changelog adds."""
    faults = [
        Fault(f"joins.{join.name}.sql", f"SELECT: `{output.name}` is a column of the changelog", "give it another name")
        for output in join.outputs
        if output.name.lower() in CHANGELOG_COLUMNS
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)


def _key_types(
    workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]
) -> tuple[tuple[DataType, ...], ...]:
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


def _padding_faults(join: ResolvedQuery, tables: Mapping[str, Table]) -> Iterator[Fault]:
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


def _expression_types(
    workspace: Workspace, join: ResolvedQuery, link: Link, tables: Mapping[str, Table]
) -> list[DataType]:
    item = join.inputs[link.over]
    table = tables[item.source]
    try:
        rows = rows_of(workspace, item, table, table.version).alias(item.alias)
        return [field.dataType for field in rows.select(*(F.expr(part) for part in link.expressions)).schema]
    except AnalysisException as error:
        raise _refused_by_spark(workspace, join, error) from error


def _result_schema(workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]) -> StructType:
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


def _refused_by_spark(workspace: Workspace, join: ResolvedQuery, error: AnalysisException) -> PipelineFileError:
    fault = Fault(f"joins.{join.name}.sql", f"Spark refuses it: {str(error).strip().splitlines()[0]}")
    return PipelineFileError(workspace.file.pipeline, [fault])
