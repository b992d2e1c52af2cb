"""
Read the new rows of a stream once more, for the gate.

The gate takes nothing from the joins or from their reader, because it would repeat their mistakes. With them it shares
only the feeds, and the recorded progress of the joins that make a stream. The epoch has refused already what it cannot
read, such as rows without a time.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from lakehouse.tables.table import Table, commits_since, read_rows
from lakehouse.values.recorded import micros
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.streams.source_progress import upstream_progress
from pipelines.language import STREAM_COLUMNS
from pipelines.language.names import ALWAYS, HAS_VALUE, POSITION, UNORDERED, VERSION
from pipelines.language.sql.syntax import DAY
from pipelines.plan.values import SourceRange

CAUSED_AT = STREAM_COLUMNS[1]
"""The column of a join's result with the time of the change that caused a row."""


def plain_rows(workspace: Workspace, epoch: Epoch[BoundJoin], index: int = 0) -> DataFrame:
    """
    Read the new rows of a stream: its snapshot in a first load, afterwards the rows that its commits inserted.

    Args:
        index: The index of the stream in FROM.

    Returns:
        The columns of the stream that the join uses, POSITION (bigint), VERSION (of the commit) and HAS_VALUE. A join
        with tables ignores rows without a value, except left joins under `kafka-0.10.0` (KIP-77).
    """
    bound, plan = epoch.bound, epoch.plan
    stream, table = bound.streams[index], bound.table(index)
    (versions,) = (part for part in plan.sources if part.name == stream.source)
    if plan.strategy == "incremental":
        rows = _inserted(workspace, epoch, index, versions)
    else:
        rows = read_rows(workspace.spark, table, table.version)
        column = stream.order if bound.times else stream.event_time
        # Several streams are compared with each other, and the dates of one stream only among themselves.
        in_order = time_as_number if bound.join.window is not None and not bound.times else position_of
        position = str(UNORDERED) if column is None else in_order(quote(column), table.schema[column].dataType)
        position = position if bound.times else f"coalesce({position}, {UNORDERED})"
        rows = rows.withColumns({VERSION: F.lit(table.version), POSITION: F.expr(position)})
    has_value = f"NOT coalesce({stream.null_value.sql}, FALSE)"
    if bound.join.window is None:
        is_left_of_old = bound.semantics == "kafka-0.10.0" and all(step.how != "inner" for step in bound.join.steps)
        rows = rows.where("TRUE" if is_left_of_old else has_value)
    names = map(quote, bound.join.inputs[index].columns)
    return rows.selectExpr(
        *names,
        f"CAST({POSITION} AS BIGINT) AS {POSITION}",
        f"CAST({VERSION} AS BIGINT) AS {VERSION}",
        f"{has_value} AS {HAS_VALUE}",
    )


def position_of(column: str, data_type: DataType) -> str:
    """Return the SQL of the position of a time: days of a date, else as `time_as_number`."""
    return f"unix_date({column})" if isinstance(data_type, DateType) else time_as_number(column, data_type)


def time_as_number(column: str, data_type: DataType, *, by_date: bool = False) -> str:
    """
    Return the SQL of a time, itself SQL, as a number: microseconds since 1970, or the integer itself.

    Args:
        by_date: Whether only dates are compared: then each day has 24 hours.
    """
    if isinstance(data_type, DateType) and by_date:
        return f"unix_date({column}) * {DAY}L"
    if isinstance(data_type, TimestampNTZType):  # a timestamp without a zone counts as UTC
        return f"unix_micros(CAST(concat(CAST({column} AS STRING), 'Z') AS TIMESTAMP))"
    if isinstance(data_type, (DateType, TimestampType)):
        return f"unix_micros(CAST({column} AS TIMESTAMP))"
    return f"CAST({column} AS BIGINT)"


def _inserted(workspace: Workspace, epoch: Epoch[BoundJoin], index: int, versions: SourceRange) -> DataFrame:
    """Return the inserted rows of a stream with POSITION and VERSION, without those of commits that rewrote rows."""
    bound, plan = epoch.bound, epoch.plan
    stream, table = bound.streams[index], bound.table(index)
    upstream = None
    names = list(bound.used(stream.source))
    if stream.source in bound.made:
        clock, history = plan.stream.clocks.get(stream.source, ALWAYS), bound.made[stream.source]
        upstream = upstream_progress(history, versions.epochs, table.schema, workspace.file.timezone, clock)
        names.append(CAUSED_AT)
    if not versions.has_changes:
        nothing = read_rows(workspace.spark, table, table.version).where("FALSE")
        return nothing.withColumns({VERSION: F.lit(0), POSITION: F.lit(0)})
    feed = workspace.feeds.read(stream.source, table, versions.read_after, versions.to_version, names, "inserted")
    rows = feed.where("_change_type = 'insert'")
    if stream.ignore_changes:
        by_row = ("DELETE", "MERGE", "UPDATE")
        commits = commits_since(workspace.engine, table, versions.read_after)
        read = [commit for commit in commits if commit.changes_data and commit.version <= versions.to_version]
        others = [commit.version for commit in read if commit.operation not in by_row]
        if others:
            rewrites = feed.where(F.col("_commit_version").isin(others)).where("_change_type <> 'insert'")
            rows = rows.join(rewrites.select("_commit_version").distinct(), on="_commit_version", how="left_anti")
    time = "unix_micros(_commit_timestamp)"
    if upstream is not None:
        time = upstream.time_sql(CAUSED_AT)
    elif stream.source in bound.times:
        column = bound.times[stream.source]
        time = position_of(quote(column), table.schema[column].dataType)
    elif bound.join.window is not None:
        time = _never_earlier(workspace, table, versions, plan.stream.clocks.get(stream.source))
    return rows.withColumns({VERSION: F.col("_commit_version"), POSITION: F.expr(time)})


def _never_earlier(workspace: Workspace, table: Table, versions: SourceRange, clock: int | None) -> str:
    """Return the SQL of the time of a commit of a stream: at least the time of the commit before it."""
    latest, cases, at = clock, "", "unix_micros(_commit_timestamp)"
    for commit in commits_since(workspace.engine, table, versions.read_after):
        if commit.changes_data and commit.version <= versions.to_version:
            latest = micros(commit.at) if latest is None else max(latest, micros(commit.at))
            cases += f" WHEN {commit.version} THEN {latest}L"
    return f"CASE _commit_version{cases} ELSE {at} END" if cases else at
