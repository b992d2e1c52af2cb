"""The binding of a join to its current tables: real column names, key types, columns of the result."""

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
from lakehouse.errors.errors import Fault, PipelineFileError
from lakehouse.tables.table import Table, find
from lakehouse.values.compare import char_type, common_type, incomparable, plain_schema
from lakehouse.values.recorded import STATE
from pipelines.binding.bound import IDENTITY_TYPE, BoundJoin, rows_of
from pipelines.binding.input_tables import get_input, get_log
from pipelines.binding.schema_diff import Found, result_columns
from pipelines.binding.streams import fitted, stream_inputs
from pipelines.binding.workspace import Workspace
from pipelines.joins.meaning import meaning
from pipelines.language import (
    CHANGELOG_COLUMNS,
    ROW_COLUMNS,
    STREAM_COLUMNS,
    Link,
    Pairing,
    ResolvedQuery,
    bind,
    fingerprint,
    is_stream,
    reads,
    statement_of,
)
from pipelines.language.names import nearest
from pipelines.language.sql.padding import padded_comparisons
from pipelines.plan.sharing import is_read_once, is_single_store

KEYED = ("table", "global_table")
"""The kinds of sources whose key may have parts that are null."""
WITHOUT_IT = "leave the column out or extract what you need"


def bind_join(workspace: Workspace, name: str, found: Found | None = None) -> BoundJoin:
    """
    Pin a join's sources to their newest versions and resolve its statement against their columns.

    Other joins that it reads are sources too, pinned to the versions that their last committed epochs made. Once the
    result exists, its columns fix the columns that `*` stands for.

    Args:
        found: Returns the result and its history in the ledger, if the caller reads both anyway; None: read them here.

    Raises:
        LakejoinError: A source does not exist, or a join that is read has no committed epoch.
        PipelineFileError: A column is unknown, or has a type that cannot be compared.
    """
    file, statement = workspace.file, statement_of(workspace.file, name)
    definition = fingerprint(file, name, workspace.deviations)
    found = found or (lambda: (find(workspace.engine, workspace.table(name)), workspace.ledger.of(name)))
    with ThreadPoolExecutor() as side_by_side:
        star_columns = side_by_side.submit(result_columns, statement, definition, found)
        inputs = side_by_side.map(lambda source: get_input(workspace, source), statement.sources)
        tables = dict(zip(statement.sources, inputs, strict=True))
    join = bind(statement, {each: table.schema.fieldNames() for each, table in tables.items()}, star_columns.result())
    streams, times = stream_inputs(workspace, statement, tables) if statement.reads_stream else ((), {})
    is_read = any(name in reads(workspace.file, other) for other in workspace.file.joins)
    if join.window is None and not is_read:
        join = replace(join, looking_up=(), carried=())  # no other join reads the watermarks of the result
    join = fitted(workspace, join, tables)
    types, schema = _key_types(workspace, join, tables), _result_schema(workspace, join, tables)
    if join.pairing is not None:
        types = (*types, _value_types(workspace, join, join.pairing, tables))
    _must_expect_columns(workspace, name, schema.fieldNames())
    changelog = workspace.changelog(name)
    if changelog is not None:
        _must_be_free(workspace, join)
    return BoundJoin(
        join=join,
        definition=definition,
        sources=tuple(tables[source] for source in join.sources),
        types=types,
        columns=_columns(join, schema, has_stream=bool(streams)),
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


def _must_expect_columns(workspace: Workspace, name: str, columns: Sequence[str]) -> None:
    faults = []
    for place, declared in enumerate(workspace.file.joins[name].expectations):
        for expectation, arguments in declared.items():
            where = f"joins.{name}.expectations.{place}.{expectation}"
            unknown = [column for column in columns_of(arguments) if column not in columns]
            hints = (nearest(column, columns) or f"the columns are {', '.join(columns)}" for column in unknown)
            faults += [
                Fault(where, f"`{column}` is not a column of the result", hint)
                for column, hint in zip(unknown, hints, strict=True)
            ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)


def _must_be_free(workspace: Workspace, join: ResolvedQuery) -> None:
    """Check that no output has the name of a column that the changelog adds."""
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
    """Return the types in which keys are compared, for each input; the inputs that key the result have the same."""
    path = f"joins.{join.name}.sql"
    faults = [
        Fault(path, f"{item.alias}.{column} is {kind.simpleString()}, which cannot be compared", WITHOUT_IT)
        for item in join.inputs
        for column, kind in _types(item.columns, tables[item.source]).items()
        if incomparable(StructType([tables[item.source].schema[column]]))
    ]
    faults += [*_padding_faults(join, tables), *_null_faults(workspace, tables)]
    compared = _Compared(path)
    own = _key_of(join, tables, join.members[0])
    for label, kind in own:
        if common_type(kind, kind) is None:
            faults.append(Fault(path, f"{label} is {kind.simpleString()}, which cannot be a key", "choose another key"))
    member_types = tuple(kind for _, kind in own)
    for place in join.sharing:
        before = [(label, kind) for (label, _), kind in zip(own, member_types, strict=True)]
        member_types = compared.types(before, _key_of(join, tables, place))
    types = dict.fromkeys(join.members, member_types)
    for place in join.members[1:]:
        if place not in join.sharing:  # it has a part of the key of its own
            part = _key_of(join, tables, place)
            types[place] = compared.types(part, part)
    for link in join.links:
        kinds = _reference_types(workspace, join, link, tables)
        labels = [label.replace("`", "") for label in link.expressions]
        types[link.input] = compared.types([*zip(labels, kinds, strict=True)], _key_of(join, tables, link.input))
    faults += compared.faults
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return tuple(types.get(place, ()) for place in range(len(join.inputs)))


def _key_of(join: ResolvedQuery, tables: Mapping[str, Table], place: int) -> list[tuple[str, DataType]]:
    item = join.inputs[place]
    return [(f"{item.alias}.{name}", kind) for name, kind in _types(item.key, tables[item.source]).items()]


class _Compared:
    """Compares the types of keys; `faults` has a fault for each pair of types that have no common type."""

    def __init__(
        self,
        path: str,
        what: str = "keys",
        hint: str = "give both the same type in their tables, or cast the reference to the type of the key",
    ) -> None:
        self._path, self._what, self._hint = path, what, hint
        self.faults: list[Fault] = []

    def types(self, one: Sequence[tuple[str, DataType]], other: Sequence[tuple[str, DataType]]) -> tuple[DataType, ...]:
        """Return the types in which values of one key, or of a reference, and of another key are compared."""
        found = []
        for (here, mine), (there, theirs) in zip(one, other, strict=True):
            kind = common_type(mine, theirs)
            found.append(kind or theirs)
            if kind is None:
                problem = f"ON: {here} is {mine.simpleString()} and {there} is {theirs.simpleString()}: values"
                problem = f"{problem} of these types do not compare one to one, as {self._what} must"
                self.faults.append(Fault(self._path, problem, self._hint))
        return tuple(found)


def _padding_faults(join: ResolvedQuery, tables: Mapping[str, Table]) -> Iterator[Fault]:
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


def _null_faults(workspace: Workspace, tables: Mapping[str, Table]) -> Iterator[Fault]:
    """Yield a fault for each source in which parts of the key may be null, if the file does not say what that means."""
    for name, table in tables.items():
        source = workspace.file.sources.get(name)
        if source is None or source.nullable_key is not None or source.kind not in KEYED:
            continue
        if {column.lower() for column in table.nullable_key}.intersection(column.lower() for column in source.key):
            yield Fault(
                f"sources.{name}",
                "the table is the result of a join in which a row may lack a side: parts of its key may be null",
                "write `nullable_key: true` if such rows are rows like others, or `nullable_key: false` to skip them",
            )


def _types(columns: Sequence[str], table: Table) -> dict[str, DataType]:
    return {column: table.schema[column].dataType for column in columns}


def _value_types(
    workspace: Workspace, join: ResolvedQuery, pairing: Pairing, tables: Mapping[str, Table]
) -> tuple[DataType, ...]:
    sides = []
    for link, values in zip(pairing.links, pairing.values, strict=True):
        kinds = _expression_types(workspace, join, link.over, values, tables)
        sides.append([*zip((value.replace("`", "") for value in values), kinds, strict=True)])
    compared = _Compared(f"joins.{join.name}.sql", "their values", "cast one of them to the type of the other")
    types = compared.types(*sides)
    if compared.faults:
        raise PipelineFileError(workspace.file.pipeline, compared.faults)
    return tuple(
        StructType([StructField("value", kind)]) if is_null_safe else kind
        for kind, is_null_safe in zip(types, pairing.null_safe, strict=True)
    )


def _reference_types(
    workspace: Workspace, join: ResolvedQuery, link: Link, tables: Mapping[str, Table]
) -> list[DataType]:
    if not link.overs:
        return _expression_types(workspace, join, link.over, link.expressions, tables)
    parts = zip(link.overs, link.expressions, strict=True)
    return [kind for place, part in parts for kind in _expression_types(workspace, join, place, [part], tables)]


def _expression_types(
    workspace: Workspace, join: ResolvedQuery, place: int, expressions: Sequence[str], tables: Mapping[str, Table]
) -> list[DataType]:
    item = join.inputs[place]
    table = tables[item.source]
    try:
        rows = rows_of(workspace, item, table, table.version).alias(item.alias)
        return [field.dataType for field in rows.select(*(F.expr(part) for part in expressions)).schema]
    except AnalysisException as error:
        raise _refused_by_spark(workspace, join, error) from error


def _result_schema(workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]) -> StructType:
    try:
        pinned = [(item, tables[item.source]) for item in join.inputs]
        schema = meaning([rows_of(workspace, item, table, table.version) for item, table in pinned], join).schema
    except AnalysisException as error:
        raise _refused_by_spark(workspace, join, error) from error
    faults = [
        Fault(f"joins.{join.name}.sql", f"SELECT: {name} has a type that cannot be compared", "cast it")
        for name in incomparable(schema)
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return schema


def _refused_by_spark(workspace: Workspace, join: ResolvedQuery, error: AnalysisException) -> PipelineFileError:
    fault = Fault(f"joins.{join.name}.sql", f"Spark rejects the statement: {str(error).strip().splitlines()[0]}")
    return PipelineFileError(workspace.file.pipeline, [fault])
