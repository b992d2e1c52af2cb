"""The binding of streams: how their rows are read, what orders the inputs, and the units of times and bounds."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse.errors.errors import Fault, PipelineFileError
from lakehouse.tables.table import Table
from lakehouse.values.compare import INTEGRAL
from pipelines.binding.condition_check import condition_faults
from pipelines.binding.workspace import Workspace
from pipelines.language import (
    ResolvedQuery,
    Statement,
    Stream,
    Window,
    Within,
    bind_result,
    bind_stream,
    is_ordered_by_column,
    stream_misfits,
)
from pipelines.language.names import nearest
from pipelines.language.sql.lengths import DAY

TIMES = (ByteType, ShortType, IntegerType, LongType, TimestampType, DateType)
"""The types of columns that can order a stream and the tables that it is joined with."""


def stream_inputs(
    workspace: Workspace, statement: Statement, tables: Mapping[str, Table]
) -> tuple[tuple[Stream, ...], dict[str, str]]:
    """
    Resolve the options of a join's streams, and the column that orders each source: none if commits order them.

    Raises:
        PipelineFileError: Lists every column that is unknown or has an unsuitable type, and every option that a join
            with a stream does not allow.
    """
    file, sides = workspace.file, [side for side in statement.sides if side.kind == "stream"]
    misfits = list(stream_misfits(statement, file.joins[statement.name], file.sources))
    faults = [Fault(f"joins.{statement.name}.{option}", *misfit) for option, misfit in misfits]
    streams = [
        bind_result(side, tables[side.source].schema.fieldNames())
        if side.is_result
        else bind_stream(side.source, file.sources[side.source], tables[side.source].schema.fieldNames())
        for side in sides
    ]
    for source, stream in {stream.source: stream for stream in streams if stream.source in file.sources}.items():
        faults += condition_faults(workspace, source, "null_value", stream.null_value.sql, tables[source])
    times: dict[str, str] = {}
    if is_ordered_by_column(statement, file.sources):
        kinds = {}
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
            kinds[side.source] = tables[side.source].schema[times[side.source]].dataType
            if not isinstance(kinds[side.source], TIMES):
                problem = f"{named} is {kinds[side.source].simpleString()}, which cannot order a join with a stream"
                faults.append(Fault(path, problem, "use an integer, a timestamp or a date"))
        if len({kind.simpleString() for kind in kinds.values()}) > 1:
            listed = ", ".join(f"{name}.{times[name]} {kind.simpleString()}" for name, kind in kinds.items())
            faults.append(Fault(f"joins.{statement.name}", f"order_by: types differ: {listed}", "give them one type"))
    if faults:
        raise PipelineFileError(file.pipeline, faults)
    ordering = (*TIMES, TimestampNTZType) if statement.is_windowed else TIMES
    return tuple(_timed(stream, tables[stream.source], ordering) for stream in streams), times


def fitted(workspace: Workspace, join: ResolvedQuery, tables: Mapping[str, Table]) -> ResolvedQuery:
    """
    Convert the bounds and the lateness of a join of two streams to the units of its times.

    These are microseconds, or for integer columns the units of the column. Any other join is returned unchanged.

    Raises:
        PipelineFileError: Lists every time whose type does not match its lateness or its bounds.
    """
    window = join.window
    kinds = [tables[join.inputs[mark.time.input].source].schema[mark.time.column].dataType for mark in join.watermarks]
    faults = list(_misfits_of_times(join, kinds))
    faults += [] if window is None else _misfits_of_bounds(join, window, kinds)
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    if window is None:
        return join
    by_date = all(isinstance(kind, DateType) for kind in kinds)
    has_zone = not by_date and workspace.file.timezone != "UTC"
    within = tuple(_in_units(bound, kinds[bound.greater], has_zone=has_zone) for bound in window.bounds)
    watermarks = tuple(
        # A local day may be shorter or longer than 24 hours: allow one more day for values of a date column.
        mark._replace(lateness=mark.lateness + DAY) if has_zone and mark.lateness and _is_date(kind) else mark
        for mark, kind in zip(window.watermarks, kinds, strict=True)
    )
    return replace(join, window=replace(window, watermarks=watermarks, bounds=within, by_date=by_date))


def _misfits_of_times(join: ResolvedQuery, kinds: list[DataType]) -> Iterator[Fault]:
    names = [f"{join.inputs[mark.time.input].alias}.{mark.time.column}" for mark in join.watermarks]
    for mark, name, kind in zip(join.watermarks, names, kinds, strict=True):
        source, shown = join.inputs[mark.time.input].source, f"{name} is {kind.simpleString()}"
        if not isinstance(kind, (*TIMES, TimestampNTZType)):
            yield Fault(
                f"sources.{source}.watermarks", f"{shown}, which is not a time", "use an integer, a timestamp or a date"
            )
        elif mark.unit == "interval" and isinstance(kind, INTEGRAL):
            yield Fault(f"sources.{source}.watermarks", f"{shown}, but its lateness is an interval", "write a number")
        elif mark.unit == "number" and not isinstance(kind, INTEGRAL):
            yield Fault(
                f"sources.{source}.watermarks",
                f"{shown}, but its lateness is a number",
                "write an interval, such as 15 minutes",
            )


def _misfits_of_bounds(join: ResolvedQuery, window: Window, kinds: list[DataType]) -> Iterator[Fault]:
    names = [f"{join.inputs[mark.time.input].alias}.{mark.time.column}" for mark in window.watermarks]
    path = f"joins.{join.name}.sql"
    for bound in window.bounds:
        ends = kinds[bound.greater], kinds[bound.lesser]
        shown = " and ".join(f"{names[n]} {kinds[n].simpleString()}" for n in (bound.greater, bound.lesser))
        if len({_family(kind) for kind in ends}) > 1:
            yield Fault(path, f"ON: {shown} are times of different kinds", "give both the same type")
        elif bound.unit == "interval" and isinstance(ends[0], INTEGRAL):
            yield Fault(path, f"ON: {shown} are compared with an interval", "compare them with a number")
        elif bound.unit == "number" and not (isinstance(ends[0], INTEGRAL) or all(_is_date(kind) for kind in ends)):
            yield Fault(path, f"ON: {shown} are compared with a number", "compare them with an interval")


def _in_units(bound: Within, kind: DataType, *, has_zone: bool) -> Within:
    """Convert the allowance of a bound; add a day if days vary in length, as bounds only limit the buffered rows."""
    allowance, has_days = bound.allowance, bound.has_days
    if bound.unit == "number" and isinstance(kind, DateType):
        allowance, has_days = allowance * DAY, True
    if isinstance(kind, DateType):
        has_days = True
    is_wider = has_days and has_zone and not isinstance(kind, (*INTEGRAL, TimestampNTZType))
    return bound._replace(allowance=allowance + DAY if is_wider else allowance)


def _family(kind: DataType) -> str:
    """Return the kind of a time: only times of one kind are numbers on the same axis."""
    if isinstance(kind, INTEGRAL):
        return "integer"
    return "timestamp_ntz" if isinstance(kind, TimestampNTZType) else "timestamp"


def _is_date(kind: DataType) -> bool:
    return isinstance(kind, DateType)


def _timed(stream: Stream, table: Table, kinds: tuple[type[DataType], ...]) -> Stream:
    """Remove the event time of a stream if its type cannot order a first load."""
    if stream.event_time is None or isinstance(table.schema[stream.event_time].dataType, kinds):
        return stream
    return replace(stream, event_time=None)
