"""The binding of streams and changelog sources: their options, what orders their rows, and the units of times."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse.errors.errors import Fault, ForeignWriter, NotLoaded, PipelineFileError
from lakehouse.ledger.entries import Entry
from lakehouse.tables.table import Table, at_rest, get, read_rows
from lakehouse.values.compare import INTEGRAL, char_type, common_type, contains, incomparable, plain_schema
from lakehouse.values.recorded import STATE
from lakehouse.values.sqltext import Address, quote
from pipelines.binding.run_versions import result_table, source_table
from pipelines.binding.workspace import Workspace
from pipelines.language import (
    Changelog,
    PipelineFile,
    ResolvedQuery,
    Statement,
    Stream,
    Window,
    Within,
    bind_changelog,
    bind_result,
    bind_stream,
    changelog_fingerprint,
    is_ordered_by_column,
    option_misfits,
)
from pipelines.language.join.sources import condition_path
from pipelines.language.names import DELETED, ORDER, nearest
from pipelines.language.sql.padding import padded_comparisons
from pipelines.language.sql.syntax import DAY

TIMES = (ByteType, ShortType, IntegerType, LongType, TimestampType, DateType)
"""The types of columns that can order a stream and the tables that it is joined with."""


def stream_inputs(
    workspace: Workspace, statement: Statement, tables: Mapping[str, Table]
) -> tuple[tuple[Stream, ...], dict[str, str]]:
    """
    Resolve the options of a join's streams, and the column that orders each source: none if commits order them.

    The error, `PipelineFileError`, has every unsuitable column, and every option that a join with a stream does not
    allow.
    """
    file, sides = workspace.file, [side for side in statement.sides if side.kind == "stream"]
    misfits = list(option_misfits(statement, file.joins[statement.name], file.sources))
    faults = [Fault(f"joins.{statement.name}.{option}", *misfit) for option, misfit in misfits]
    streams = [
        bind_result(side, tables[side.source].schema.fieldNames())
        if side.is_result
        else bind_stream(side.source, file.sources[side.source], tables[side.source].schema.fieldNames())
        for side in sides
    ]
    for source, stream in {stream.source: stream for stream in streams if stream.source in file.sources}.items():
        faults += condition_faults(workspace, source, "null_value", stream.null_value.sql, tables[source])
    times = _times(statement, file, tables, faults) if is_ordered_by_column(statement, file.sources) else {}
    if faults:
        raise PipelineFileError(file.pipeline, faults)
    ordering = (*TIMES, TimestampNTZType) if statement.is_windowed else TIMES
    return tuple(_timed(stream, tables[stream.source], ordering) for stream in streams), times


def _times(
    statement: Statement, file: PipelineFile, tables: Mapping[str, Table], faults: list[Fault]
) -> dict[str, str]:
    """Return the column of `order_by` of each source that has a time, and add to the faults if it is unsuitable."""
    times: dict[str, str] = {}
    types: dict[str, str] = {}
    for side in statement.sides:
        named = file.sources[side.source].order_by if side.kind != "global_table" else None
        if named is None:
            continue
        real = {column.lower(): column for column in tables[side.source].schema.fieldNames()}
        path = f"sources.{side.source}.order_by"
        if named.lower() not in real:
            faults.append(Fault(path, f"{side.source} has no column `{named}`", nearest(named, real.values())))
            continue
        times[side.source] = real[named.lower()]
        data_type = tables[side.source].schema[times[side.source]].dataType
        types[side.source] = data_type.simpleString()
        if not isinstance(data_type, TIMES):
            problem = f"{named} is {types[side.source]}, which cannot order a join with a stream"
            faults.append(Fault(path, problem, "use an integer, a timestamp or a date"))
    if len({*types.values()}) > 1:
        listed = ", ".join(f"{name}.{times[name]} {data_type}" for name, data_type in types.items())
        faults.append(Fault(f"joins.{statement.name}", f"order_by: types differ: {listed}", "give them one type"))
    return times


def fitted(workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]) -> ResolvedQuery:
    """
    Convert the bounds and the lateness of a join of two streams to the units of its times.

    These are microseconds, or for integer columns the units of the column. `PipelineFileError` has every time whose
    type does not match its lateness or its bounds.
    """
    window = join.window
    times = [watermark.time for watermark in join.watermarks]
    data_types = [tables[join.inputs[time.input].source].schema[time.column].dataType for time in times]
    faults = list(_misfits_of_times(join, data_types))
    faults += [] if window is None else _misfits_of_bounds(join, window, data_types)
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    if window is None:
        return join
    dates = [isinstance(data_type, DateType) for data_type in data_types]
    has_zone = not all(dates) and workspace.file.timezone != "UTC"
    within = tuple(_in_units(bound, data_types[bound.greater], has_zone=has_zone) for bound in window.bounds)
    # A local day may be shorter or longer than 24 hours: allow one more day for values of a date column.
    watermarks = tuple(
        each._replace(lateness=each.lateness + DAY) if has_zone and each.lateness and is_date else each
        for each, is_date in zip(window.watermarks, dates, strict=True)
    )
    return replace(join, window=replace(window, watermarks=watermarks, bounds=within, by_date=all(dates)))


def _misfits_of_times(join: ResolvedQuery, data_types: list[DataType]) -> Iterator[Fault]:
    for watermark, data_type in zip(join.watermarks, data_types, strict=True):
        side = join.inputs[watermark.time.input]
        path = f"sources.{side.source}.watermarks"
        shown = f"{side.alias}.{watermark.time.column} is {data_type.simpleString()}"
        if not isinstance(data_type, (*TIMES, TimestampNTZType)):
            yield Fault(path, f"{shown}, which is not a time", "use an integer, a timestamp or a date")
        elif watermark.unit == "interval" and isinstance(data_type, INTEGRAL):
            yield Fault(path, f"{shown}, but its lateness is an interval", "write a number")
        elif watermark.unit == "number" and not isinstance(data_type, INTEGRAL):
            yield Fault(path, f"{shown}, but its lateness is a number", "write an interval, such as 15 minutes")


def _misfits_of_bounds(join: ResolvedQuery, window: Window, data_types: list[DataType]) -> Iterator[Fault]:
    times = [watermark.time for watermark in window.watermarks]
    path = f"joins.{join.name}.sql"
    for bound in window.bounds:
        ends = bound.greater, bound.lesser
        types = [data_types[end] for end in ends]
        shown = " and ".join(
            f"{join.inputs[times[end].input].alias}.{times[end].column} {data_types[end].simpleString()}"
            for end in ends
        )
        is_number = all(isinstance(data_type, (*INTEGRAL, DateType)) for data_type in types)
        if len({_family(data_type) for data_type in types}) > 1:
            yield Fault(path, f"ON: {shown} are times of different kinds", "give both the same type")
        elif bound.unit == "interval" and isinstance(types[0], INTEGRAL):
            yield Fault(path, f"ON: {shown} are compared with an interval", "compare them with a number")
        elif bound.unit == "number" and not is_number:
            yield Fault(path, f"ON: {shown} are compared with a number", "compare them with an interval")


def _in_units(bound: Within, data_type: DataType, *, has_zone: bool) -> Within:
    """Convert the allowance of a bound; add a day if days vary in length, as bounds only limit the buffered rows."""
    allowance, has_days = bound.allowance, bound.has_days
    if isinstance(data_type, DateType):
        allowance, has_days = allowance * DAY if bound.unit == "number" else allowance, True
    is_wider = has_days and has_zone and not isinstance(data_type, (*INTEGRAL, TimestampNTZType))
    return bound._replace(allowance=allowance + DAY if is_wider else allowance)


def _family(data_type: DataType) -> str:
    """Return the family of a time: only times of one family are numbers on the same axis."""
    if isinstance(data_type, INTEGRAL):
        return "integer"
    return "timestamp_ntz" if isinstance(data_type, TimestampNTZType) else "timestamp"


def _timed(stream: Stream, table: Table, data_types: tuple[type[DataType], ...]) -> Stream:
    """Remove the event time of a stream if its type cannot order a first load."""
    if stream.event_time is None or isinstance(table.schema[stream.event_time].dataType, data_types):
        return stream
    return replace(stream, event_time=None)


@dataclass(frozen=True, kw_only=True)
class BoundKTable:
    """
    A changelog source with all facts that depend on its table, which is pinned.

    Args:
        spec: How its rows are read, over real column names.
        definition: The fingerprint of its definition in the pipeline file.
        columns: The KTable's columns: the key, the other columns of the source, `_deleted` and `_order`.
        result: The address of the KTable.
    """

    spec: Changelog
    definition: str
    source: Table
    columns: StructType
    result: Address

    @property
    def sources(self) -> tuple[Table, ...]:
        """The table that it reads, as a tuple for the sake of `BoundJoin.sources`."""
        return (self.source,)

    def over(self, change: Callable[[Table], Table]) -> "BoundKTable":
        """Return the KTable over its source as a function changes it."""
        return replace(self, source=change(self.source))

    def used(self, source: str) -> tuple[str, ...]:
        """Return the columns of the source that the KTable uses: all of them."""
        return self.spec.columns

    @property
    def statement(self) -> str:
        """No statement defines it, but the options of its source."""
        return ""

    @property
    def columns_remedy(self) -> str:
        """The remedy if the columns of the KTable differ from those of its source."""
        return _rebuild(self.result)


def ktable_address(workspace: Workspace, source: str) -> Address:
    """Return the address of the KTable of a source."""
    return workspace.table(source + STATE)


def bind_ktable(workspace: Workspace, source: str) -> BoundKTable:
    """Pin a changelog source to its newest version and resolve its options in the file against its columns."""
    table = source_table(workspace, source)
    changelog = bind_changelog(source, workspace.file.sources[source], table.schema.fieldNames())
    faults = [*_type_faults(changelog, table)]
    faults += condition_faults(workspace, source, "tombstone", changelog.tombstone, table)
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    own = [StructField(DELETED, BooleanType()), StructField(ORDER, table.schema[changelog.order].dataType)]
    return BoundKTable(
        spec=changelog,
        definition=changelog_fingerprint(workspace.file, source, workspace.deviations),
        source=table,
        columns=plain_schema([*(table.schema[name] for name in changelog.columns), *own]),
        result=ktable_address(workspace, source),
    )


def pinned_ktable(workspace: Workspace, source: str) -> Table:
    """
    Return the KTable of a source as joins read it: without deleted rows, at its last committed epoch.

    It is at the version in the ledger, or a later one if only commits without data lie between: Delta can read old
    versions only for a limited time. `NotLoaded` says that it has no committed epoch, `ForeignWriter` that it is
    another table.
    """
    table = result_table(workspace, source, partial(_ktable_at, workspace, source))
    if table is None:
        raise NotLoaded(
            source,
            "this changelog source is not loaded yet",
            expected="a committed epoch: joins read the KTable that lakejoin builds from this source",
            hint="run `lakejoin run`, which loads it before the joins that read it",
        )
    shown = StructType([field for field in table.schema if field.name not in (DELETED, ORDER)])
    address = replace(table.address, label=source)  # joins know only the source's name
    return replace(table, address=address, schema=shown, where=f"NOT {quote(DELETED)}")


def _ktable_at(workspace: Workspace, source: str, entry: Entry) -> Table:
    table = get(workspace.engine, ktable_address(workspace, source))
    if table.id != entry.result.id:
        raise ForeignWriter(
            table.address.label,
            "the KTable of a changelog source was replaced by another table",
            expected=f"the table with id {entry.result.id}",
            found=f"id {table.id}",
            hint=_rebuild(table.address),
        )
    assert entry.result.version is not None
    return at_rest(workspace.engine, table, entry.result.version)


def _rebuild(address: Address) -> str:
    return (
        f"drop {address.path or address.table} and run `lakejoin backfill`, which loads it again from the current "
        "source and reconciles the joins that read it"
    )


def _type_faults(changelog: Changelog, table: Table) -> Iterator[Fault]:
    path = f"sources.{changelog.source}"
    for name in incomparable(table.schema):
        yield Fault(path, f"{name} is {_type(table, name)}, which cannot be compared", "store it as a string")
    for name in changelog.columns:
        declared = char_type(table.schema[name])
        if declared is not None:
            problem = f"{name} is {declared.upper()}, and the KTable of a changelog source cannot have CHAR columns"
            yield Fault(path, problem, f"ALTER TABLE {table.address.sql} ALTER COLUMN {quote(name)} TYPE STRING")
    for name in changelog.key:
        data_type = table.schema[name].dataType
        if common_type(data_type, data_type) is None:
            yield Fault(f"{path}.key", f"{name} is {_type(table, name)}, which cannot be a key", "choose another key")
    if contains(table.schema[changelog.order].dataType, MapType):
        problem = f"{changelog.order} is {_type(table, changelog.order)}, which cannot be ordered"
        yield Fault(f"{path}.order_by", problem, "choose another column")


def _type(table: Table, name: str) -> str:
    return table.schema[name].dataType.simpleString()


TRUE_FOR = {"tombstone": "rows that delete their key", "null_value": "rows without a value"}


def condition_faults(workspace: Workspace, source: str, option: str, sql: str, table: Table) -> Iterator[Fault]:
    """Yield the faults of a condition over real columns: Spark rejects it, pads CHAR values, or gets no boolean."""
    path = condition_path(source, option)
    named = {field.name: char_type(field) for field in table.schema}
    chars: dict[tuple[str, ...], str] = {(name,): declared for name, declared in named.items() if declared is not None}
    for found in padded_comparisons(sql, chars) if chars else ():
        yield Fault(path, found.problem, found.hint)
    try:
        data_type = read_rows(workspace.spark, table, table.version).select(F.expr(sql)).schema[0].dataType
    except AnalysisException as error:
        yield Fault(path, f"Spark rejects the condition: {str(error).strip().splitlines()[0]}")
        return
    if not isinstance(data_type, BooleanType):
        yield Fault(
            path,
            f"it is {data_type.simpleString()}, not boolean",
            f"write a condition that is true for {TRUE_FOR[option]}",
        )
