"""What a join with a stream needs to know of it and of what orders its inputs, beside names, keys and types."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql.types import ByteType, DateType, IntegerType, LongType, ShortType, TimestampType

from lakehouse.errors import Fault, PipelineFileError
from lakehouse.tables import Table
from pipelines.conditions import condition_faults
from pipelines.spec import Statement, Stream, bind_stream, is_ordered_by_column, stream_misfits
from pipelines.spec.names import nearest
from pipelines.workspace import Workspace

TIMES = (ByteType, ShortType, IntegerType, LongType, TimestampType, DateType)
"""The types of columns that order a stream and the tables that it meets."""


def stream_inputs(
    workspace: Workspace, statement: Statement, tables: Mapping[str, Table]
) -> tuple[Stream, dict[str, str]]:
    """
    Resolve what the file says of a join's stream, and of what orders it and the tables that it meets.

    Args:
        workspace: Where to work.
        statement: The statement of the join.
        tables: The tables of its inputs, by name.

    Returns:
        The stream, and the column that orders each source: none where their commits do.

    Raises:
        PipelineFileError: With every column that is unknown or of a type that cannot serve, and options that do not go
            with a stream.
    """
    file, name = workspace.file, statement.sides[0].source
    misfits = list(stream_misfits(statement, file.joins[statement.name], file.sources))
    faults = [Fault(f"joins.{statement.name}.{option}", *misfit) for option, misfit in misfits]
    stream = bind_stream(name, file.sources[name], tables[name].schema.fieldNames())
    faults += condition_faults(workspace, name, "null_value", stream.null_value.sql, tables[name])
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
                problem = f"{named} is {kinds[side.source].simpleString()}, which is no time of a join with a stream"
                faults.append(Fault(path, problem, "an integer, a timestamp or a date"))
        if len({kind.simpleString() for kind in kinds.values()}) > 1:
            listed = ", ".join(f"{name}.{times[name]} {kind.simpleString()}" for name, kind in kinds.items())
            faults.append(Fault(f"joins.{statement.name}", f"order_by: {listed}", "give them one type"))
    if faults:
        raise PipelineFileError(file.pipeline, faults)
    if stream.event_time is not None and not isinstance(tables[name].schema[stream.event_time].dataType, TIMES):
        stream = replace(stream, event_time=None)
    return stream, times
