"""The binding of a join to its current tables: real column names, key types, columns of the result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark.sql.types import LongType, StructField, StructType

from expectations.catalogue import columns_of
from lakehouse.errors.errors import Fault
from lakehouse.tables.creation import with_statistics
from lakehouse.tables.table import Table, find
from lakehouse.values.compare import is_collated, plain_schema, skips_files
from lakehouse.values.recorded import STATE
from pipelines.binding.bound import IDENTITY_TYPE, BoundJoin, Found, result_columns
from pipelines.binding.input_tables import get_input, get_log
from pipelines.binding.join_types import JoinTypes
from pipelines.binding.sources import fitted, stream_inputs
from pipelines.binding.workspace import Workspace
from pipelines.language import (
    CHANGELOG_COLUMNS,
    ROW_COLUMNS,
    STREAM_COLUMNS,
    ResolvedQuery,
    bind,
    fingerprint,
    is_stream,
    reads,
    statement_of,
)
from pipelines.language.names import unknown_output
from pipelines.plan.sharing import is_read_once, is_single_store


def resolved(
    workspace: Workspace, name: str, found: Found | None = None, *, keeps_stars: bool = True
) -> tuple[ResolvedQuery, dict[str, Table], str]:
    """
    Pin a join's sources to their newest versions and resolve its statement against the names of their columns.

    Spark starts only for tables whose log delta-rs may not read. Once the result exists, its columns fix the columns
    that `*` stands for.

    Args:
        found: Returns the result and its history in the ledger, if the caller reads both anyway; None: read them here.
        keeps_stars: Whether `*` stands for the columns of the existing result, not for all columns of its source.

    Returns:
        The query, its tables by source, and the fingerprint of its definition.

    Raises:
        LakejoinError: A source does not exist, or a join that is read has no committed epoch.
        PipelineFileError: A column is unknown.
    """
    statement = statement_of(workspace.file, name)
    definition = fingerprint(workspace.file, name, workspace.deviations)
    found = found or (lambda: (find(workspace.engine, workspace.table(name)), workspace.ledger.of(name)))
    with ThreadPoolExecutor() as side_by_side:
        star_columns = side_by_side.submit(result_columns, statement, definition, found) if keeps_stars else None
        inputs = side_by_side.map(lambda source: get_input(workspace, source), statement.sources)
        tables = dict(zip(statement.sources, inputs, strict=True))
    columns = {each: table.schema.fieldNames() for each, table in tables.items()}
    return bind(statement, columns, star_columns.result() if star_columns else None), tables, definition


def bind_join(workspace: Workspace, name: str, found: Found | None = None, *, keeps_stars: bool = True) -> BoundJoin:
    """
    Pin a join's sources, resolve its statement as `resolved` does, and determine types and columns of the result.

    Other joins that it reads are sources too, pinned to the versions that their last committed epochs made.

    Raises:
        LakejoinError: A source does not exist, or a join that is read has no committed epoch.
        PipelineFileError: A column is unknown, or has a type that cannot be compared.
    """
    file, statement = workspace.file, statement_of(workspace.file, name)
    join, tables, definition = resolved(workspace, name, found, keeps_stars=keeps_stars)
    streams, times = stream_inputs(workspace, statement, tables) if statement.reads_stream else ((), {})
    is_read = any(name in reads(workspace.file, other) for other in workspace.file.joins)
    if join.window is None and not is_read:
        join = replace(join, looking_up=(), carried=())  # no other join reads the watermarks of the result
    join = fitted(workspace, join, tables)
    binding = JoinTypes(workspace, join, tables)
    types, schema = binding.key_types(), binding.result_schema()
    if join.pairing is not None:
        types = (*types, binding.value_types(join.pairing))
    changelog = workspace.changelog(name)
    binding.refuse(_expectation_faults(workspace, name, schema.fieldNames()))
    binding.refuse([] if changelog is None else _changelog_faults(join))
    columns = _columns(join, schema, has_stream=bool(streams))
    binding.refuse(layout_faults(name, file.joins[name].cluster_by, columns))
    return BoundJoin(
        join=join,
        definition=definition,
        sources=tuple(tables[source] for source in join.sources),
        types=types,
        columns=columns,
        result=workspace.table(name),
        changelog=changelog,
        semantics=file.joins[name].semantics,
        logs=_logs(workspace, name, tables) if changelog is not None or streams else {},
        streams=streams,
        times=times,
        state=None if join.window is None else workspace.table(name + STATE),
        is_single_store=is_single_store(file, name),
        is_read_once=is_read_once(file, name),
        is_read=is_read,
        made={side.source: workspace.ledger.of(side.source) for side in statement.sides if side.is_result},
        statement=file.joins[name].sql,
        cluster_by=file.joins[name].cluster_by,
    )


def _columns(join: ResolvedQuery, schema: StructType, *, has_stream: bool) -> StructType:
    ordered = [schema[key] for key in join.key] + [field for field in schema if field.name not in join.key]
    added = [StructField(column, LongType()) for column in STREAM_COLUMNS if has_stream]
    added += [StructField(column, IDENTITY_TYPE) for column in ROW_COLUMNS if join.window is not None]
    return plain_schema([*ordered, *added])


def _logs(workspace: Workspace, name: str, tables: Mapping[str, Table]) -> dict[str, Table]:
    """Return the changelogs of the joins of tables that a join reads, at the versions of their results."""
    read = (source for source in reads(workspace.file, name) if not is_stream(workspace.file, source))
    return {source: get_log(workspace, source, tables[source]) for source in read}


def has_faults(workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]) -> bool:
    """Return whether the names or types of columns have a fault that `bind_join` would report, as far as logs show."""
    columns = [output.name for output in join.outputs]
    changelog = [] if workspace.changelog(join.name) is None else _changelog_faults(join)
    of_columns = JoinTypes(workspace, join, tables).column_faults()
    return any(True for _ in (*of_columns, *changelog, *_expectation_faults(workspace, join.name, columns)))


def _expectation_faults(workspace: Workspace, name: str, columns: Sequence[str]) -> Iterator[Fault]:
    for index, declared in enumerate(workspace.file.joins[name].expectations):
        for expectation, arguments in declared.items():
            for column in columns_of(arguments):
                if column not in columns:
                    path = f"joins.{name}.expectations.{index}.{expectation}"
                    yield Fault(path, *unknown_output(column, columns))


def layout_faults(name: str, cluster_by: Iterable[str], columns: StructType) -> Iterator[Fault]:
    """Yield a fault for each column of a join's `cluster_by` by which Delta cannot skip files of the result."""
    path, known = f"joins.{name}.cluster_by", columns.fieldNames()
    for column in cluster_by:
        of = columns[column].dataType if column in known else None
        if of is None:
            yield Fault(path, *unknown_output(column, known))
        elif not skips_files(of) or is_collated(of):
            problem = f"`{column}` is {of.simpleString()}, by which no file is skipped"
            yield Fault(path, problem, "choose another column")
        elif column not in with_statistics(columns):
            yield Fault(path, f"`{column}` is not among the columns with statistics, the first 32", "SELECT it earlier")


def _changelog_faults(join: ResolvedQuery) -> Iterator[Fault]:
    for output in join.outputs:
        if output.name.lower() in CHANGELOG_COLUMNS:
            problem = f"SELECT: `{output.name}` is a column of the changelog"
            yield Fault(f"joins.{join.name}.sql", problem, "give it another name")
