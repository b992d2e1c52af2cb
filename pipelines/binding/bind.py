"""The binding of a join to its current tables: real column names, key types, columns of the result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType

from expectations.catalogue import columns_of
from lakehouse.errors.errors import Fault, PipelineFileError
from lakehouse.tables.creation import with_statistics
from lakehouse.tables.table import Table, find
from lakehouse.values.compare import char_type, common_type, incomparable, is_collated, plain_schema, skips_files
from lakehouse.values.recorded import STATE
from pipelines.binding.bound import IDENTITY_TYPE, BoundJoin, Found, result_columns, rows_of
from pipelines.binding.input_tables import get_input, get_log
from pipelines.binding.sources import fitted, stream_inputs
from pipelines.binding.workspace import Workspace
from pipelines.joins.meaning import meaning
from pipelines.language import (
    CHANGELOG_COLUMNS,
    ROW_COLUMNS,
    STREAM_COLUMNS,
    Input,
    Link,
    Pairing,
    ResolvedQuery,
    bind,
    fingerprint,
    is_stream,
    reads,
    statement_of,
)
from pipelines.language.names import unknown_output
from pipelines.language.sql.padding import padded_comparisons
from pipelines.plan.sharing import is_read_once, is_single_store

KEYED = ("table", "global_table")
"""The kinds of sources whose key may have parts that are null."""
WITHOUT_IT = "leave the column out or extract what you need"
NULLABLE = (
    "the table is the result of a join in which a row may lack a side: parts of its key may be null",
    "write `nullable_key: true` if such rows are rows like others, or `nullable_key: false` to skip them",
)


def resolved(
    workspace: Workspace, name: str, found: Found | None = None
) -> tuple[ResolvedQuery, dict[str, Table], str]:
    """
    Pin a join's sources to their newest versions and resolve its statement against the names of their columns.

    Spark starts only for tables whose log delta-rs may not read. Once the result exists, its columns fix the columns
    that `*` stands for.

    Args:
        found: Returns the result and its history in the ledger, if the caller reads both anyway; None: read them here.

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
        star_columns = side_by_side.submit(result_columns, statement, definition, found)
        inputs = side_by_side.map(lambda source: get_input(workspace, source), statement.sources)
        tables = dict(zip(statement.sources, inputs, strict=True))
    columns = {each: table.schema.fieldNames() for each, table in tables.items()}
    return bind(statement, columns, star_columns.result()), tables, definition


def bind_join(workspace: Workspace, name: str, found: Found | None = None) -> BoundJoin:
    """
    Pin a join's sources, resolve its statement as `resolved` does, and determine types and columns of the result.

    Other joins that it reads are sources too, pinned to the versions that their last committed epochs made.

    Raises:
        LakejoinError: A source does not exist, or a join that is read has no committed epoch.
        PipelineFileError: A column is unknown, or has a type that cannot be compared.
    """
    file, statement = workspace.file, statement_of(workspace.file, name)
    join, tables, definition = resolved(workspace, name, found)
    streams, times = stream_inputs(workspace, statement, tables) if statement.reads_stream else ((), {})
    is_read = any(name in reads(workspace.file, other) for other in workspace.file.joins)
    if join.window is None and not is_read:
        join = replace(join, looking_up=(), carried=())  # no other join reads the watermarks of the result
    join = fitted(workspace, join, tables)
    binding = _Binding(workspace, join, tables)
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
    of_columns = _Binding(workspace, join, tables).column_faults()
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


@dataclass(frozen=True)
class _Binding:
    """A join and the tables of its inputs, by source: the types of its keys, its values and its columns."""

    workspace: Workspace
    join: ResolvedQuery
    tables: Mapping[str, Table]

    @property
    def _path(self) -> str:
        return f"joins.{self.join.name}.sql"

    def refuse(self, faults: Iterable[Fault]) -> None:
        """Raise `PipelineFileError` with all faults, if any exist."""
        if every := list(faults):
            raise PipelineFileError(self.workspace.file.pipeline, every)

    def key_types(self) -> tuple[tuple[DataType, ...], ...]:
        """Return the types in which keys are compared, for each input; the inputs that key the result have the same."""
        join = self.join
        faults = self.column_faults()
        compared = _Compared(self._path)
        own = self._key_of(join.members[0])
        for label, data_type in own:
            if common_type(data_type, data_type) is None:
                problem = f"{label} is {data_type.simpleString()}, which cannot be a key"
                faults.append(Fault(self._path, problem, "choose another key"))
        member_types = tuple(data_type for _, data_type in own)
        for index in join.sharing:
            before = [(label, data_type) for (label, _), data_type in zip(own, member_types, strict=True)]
            member_types = compared.types(before, self._key_of(index))
        types = dict.fromkeys(join.members, member_types)
        for index in join.members[1:]:
            if index not in join.sharing:  # it has a part of the key of its own
                part = self._key_of(index)
                types[index] = compared.types(part, part)
        for link in join.links:
            labels = [label.replace("`", "") for label in link.expressions]
            references = [*zip(labels, self._reference_types(link), strict=True)]
            types[link.input] = compared.types(references, self._key_of(link.input))
        self.refuse([*faults, *compared.faults])
        return tuple(types.get(index, ()) for index in range(len(join.inputs)))

    def value_types(self, pairing: Pairing) -> tuple[DataType, ...]:
        """Return the types in which the values of a pairing are compared."""
        sides = []
        for link, values in zip(pairing.links, pairing.values, strict=True):
            labels = [value.replace("`", "") for value in values]
            sides.append([*zip(labels, self._expression_types(link.over, values), strict=True)])
        compared = _Compared(self._path, "their values", "cast one of them to the type of the other")
        types = compared.types(*sides)
        self.refuse(compared.faults)
        return tuple(
            StructType([StructField("value", data_type)]) if is_null_safe else data_type
            for data_type, is_null_safe in zip(types, pairing.null_safe, strict=True)
        )

    def result_schema(self) -> StructType:
        """Return the columns of the SELECT list."""
        try:
            schema = meaning([self._rows_of(item) for item in self.join.inputs], self.join).schema
        except AnalysisException as error:
            raise self._refused_by_spark(error) from error
        problem = "has a type that cannot be compared"
        self.refuse(Fault(self._path, f"SELECT: {name} {problem}", "cast it") for name in incomparable(schema))
        return schema

    def _incomparable(self) -> Iterator[Fault]:
        for item in self.join.inputs:
            for column in item.columns:
                field = self.tables[item.source].schema[column]
                if incomparable(StructType([field])):
                    shown = f"{item.alias}.{column} is {field.dataType.simpleString()}"
                    yield Fault(self._path, f"{shown}, which cannot be compared", WITHOUT_IT)

    def column_faults(self) -> list[Fault]:
        """Return the faults that each column has by itself."""
        return [*self._incomparable(), *self._padding_faults(), *self._null_faults()]

    def _padding_faults(self) -> Iterator[Fault]:
        chars: dict[tuple[str, ...], str] = {
            (item.alias, field.name): declared
            for item in self.join.inputs
            for field in self.tables[item.source].schema
            if (declared := char_type(field)) is not None
        }
        clauses = [
            *(("SELECT", output.expression) for output in self.join.outputs),
            *(("ON", step.on) for step in self.join.steps),
            *([] if self.join.where is None else [("WHERE", self.join.where)]),
        ]
        for clause, sql in clauses if chars else ():
            for found in padded_comparisons(sql, chars):
                yield Fault(self._path, f"{clause}: {found.problem}", found.hint)

    def _null_faults(self) -> Iterator[Fault]:
        """Yield a fault for each source whose key may have nulls if the file does not say what they mean."""
        for name, table in self.tables.items():
            source = self.workspace.file.sources.get(name)
            if source is None or source.nullable_key is not None or source.kind not in KEYED:
                continue
            if {column.lower() for column in table.nullable_key}.intersection(column.lower() for column in source.key):
                yield Fault(f"sources.{name}", *NULLABLE)

    def _key_of(self, index: int) -> list[tuple[str, DataType]]:
        item = self.join.inputs[index]
        return [(f"{item.alias}.{name}", self.tables[item.source].schema[name].dataType) for name in item.key]

    def _reference_types(self, link: Link) -> list[DataType]:
        if not link.overs:
            return self._expression_types(link.over, link.expressions)
        parts = zip(link.overs, link.expressions, strict=True)
        return [self._expression_types(index, [part])[0] for index, part in parts]

    def _expression_types(self, index: int, expressions: Sequence[str]) -> list[DataType]:
        item = self.join.inputs[index]
        try:
            rows = self._rows_of(item).alias(item.alias)
            return [field.dataType for field in rows.select(*map(F.expr, expressions)).schema]
        except AnalysisException as error:
            raise self._refused_by_spark(error) from error

    def _rows_of(self, item: Input) -> DataFrame:
        table = self.tables[item.source]
        return rows_of(self.workspace, item, table, table.version)

    def _refused_by_spark(self, error: AnalysisException) -> PipelineFileError:
        fault = Fault(self._path, f"Spark rejects the statement: {str(error).strip().splitlines()[0]}")
        return PipelineFileError(self.workspace.file.pipeline, [fault])


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
        types = []
        for (here, mine), (there, theirs) in zip(one, other, strict=True):
            common = common_type(mine, theirs)
            types.append(common or theirs)
            if common is None:
                problem = f"ON: {here} is {mine.simpleString()} and {there} is {theirs.simpleString()}: values"
                problem = f"{problem} of these types do not compare one to one, as {self._what} must"
                self.faults.append(Fault(self._path, problem, self._hint))
        return tuple(types)
