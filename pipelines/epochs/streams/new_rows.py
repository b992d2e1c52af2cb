"""Read the new rows of a stream in an epoch."""

from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType

from lakehouse.errors.errors import CannotContinue
from lakehouse.feed.feed import distortion
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import Table, commits_since, read_rows
from lakehouse.values.recorded import micros
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.streams.source_progress import UpstreamProgress, upstream_progress
from pipelines.joins.lookup import ignores_null_values
from pipelines.joins.watermarks import as_number
from pipelines.language.names import ALWAYS, HAS_VALUE, POSITION, STREAM_COLUMNS, UNORDERED, VERSION
from pipelines.plan.values import SourceRange

CAUSED_AT = STREAM_COLUMNS[1]
"""The column of a join's result with the time of the change that caused a row."""

ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE")
"""Operations whose deleted or updated rows `ignore_changes` skips; of other operations it skips the whole commit."""

IS_NEW = "_change_type = 'insert'"


class NewRows:
    """
    The new rows of a stream in an epoch: in a first load its snapshot, afterwards its feed.

    Args:
        index: The index of the stream in FROM.
        is_observed: Whether the rows are counted while `frame` is read, which must happen before `facts`; otherwise by
            a query, which costs less for many rows.

    `frame` has the columns of the stream that the join uses, POSITION, VERSION (of the commit) and HAS_VALUE. In a join
    with tables it leaves out ignored rows without a value. Once `frame` has been read, `facts` returns the counts.
    """

    def __init__(
        self, workspace: Workspace, epoch: Epoch[BoundJoin], index: int = 0, *, is_observed: bool = True
    ) -> None:
        self._workspace, self._bound, self._plan = workspace, epoch.bound, epoch.plan
        bound, reads_feed = epoch.bound, epoch.plan.strategy == "incremental"
        self._stream = bound.streams[index]
        self.table: Table = bound.table(index)
        self.upstream = self._upstream()
        rows, self._skipped_rows = self._feed() if reads_feed else (self._snapshot(), 0)
        no_value = f"coalesce({self._stream.null_value.sql}, FALSE)"
        is_dropped = bound.join.window is None and ignores_null_values(bound.join, bound.semantics)
        stays = f"NOT {no_value}" if is_dropped else "TRUE"
        aggregates = self._aggregates(index, no_value, stays)
        self._observation = Observation()
        self._counted = None if is_observed else rows.agg(*aggregates)
        rows = rows.observe(self._observation, *aggregates) if is_observed else rows
        rows = rows.where(f"{IS_NEW} AND {stays}")
        names = map(quote, bound.join.inputs[index].columns)
        further = (POSITION, f"_commit_version AS {VERSION}", f"NOT {no_value} AS {HAS_VALUE}")
        self.frame = rows.selectExpr(*names, *further)

    def _aggregates(self, index: int, no_value: str, stays: str) -> list[Column]:
        """Return what is counted of the rows that are read."""
        bound, clocks = self._bound, self._plan.stream.clocks
        beside = [] if bound.is_self_join else [name for name in bound.join.sources if name != self.source]
        others = [clocks[name] for name in beside if name in clocks]
        cut = max(others, default=ALWAYS)
        # At equal times rows of the left stream come first.
        behind = "<=" if bound.join.window is not None and index == 0 and others else "<"
        reads_feed = self._plan.strategy == "incremental"
        facts = {
            "ignored": "count_if(_change_type IN ('delete', 'update_postimage'))",
            "read": f"count_if({IS_NEW})",
            "new": f"count_if({IS_NEW} AND {stays})",
            "null_values": f"count_if({IS_NEW} AND {no_value})",
            "behind_cut": f"count_if({IS_NEW} AND {POSITION} {behind} {cut})",
            "untimed": f"count_if({IS_NEW} AND {POSITION} IS NULL)",
            "newest": f"max(IF({IS_NEW}, {POSITION}, NULL))",
            "altered": f"min(IF({IS_NEW}, NULL, _commit_version))",
            "distorted": f"count_if({distortion(self._kinds) if reads_feed else 'FALSE'})",
        }
        return [F.expr(sql).alias(name) for name, sql in facts.items()]

    @cached_property
    def _seen(self) -> dict[str, Any]:
        return dict(self._observation.get) if self._counted is None else self._counted.collect()[0].asDict()

    @property
    def source(self) -> str:
        """The name of the stream in the file."""
        return self._stream.source

    @property
    def number(self) -> int:
        """The number of rows in `frame`, which has been read."""
        return int(self._seen["new"])

    @property
    def newest_time(self) -> int | None:
        """The greatest time of the rows and of upstream positions; None if nothing is new."""
        newest: int | None = self._seen["newest"]
        upstream_times = [] if self.upstream is None else [position.time for position in self.upstream.positions]
        return max([*upstream_times, *([] if newest is None else [newest])], default=None)

    def facts(self) -> dict[str, int]:
        """
        Check the rows that were read, and return their counts: read, null_values, behind_cut, ignored_changes.

        Raises:
            CannotContinue: A commit changed or deleted rows, or the column that orders rows is null in some of them.
            Distorted: The feed distorts rows.
        """
        seen = self._seen
        if self._plan.strategy == "incremental":
            at = self._range
            self._workspace.feeds.refuse_distorted(self.table, at.read_after, at.to_version, seen["distorted"])
        if seen["altered"] is not None and not self._stream.ignore_changes:
            raise self._altered(seen["altered"])
        refuse_untimed(self._stream.source, self._stream.order, seen["untimed"])
        counts = {name: int(seen[name]) for name in ("read", "null_values", "behind_cut")}
        return {**counts, "ignored_changes": self._skipped_rows + int(seen["ignored"])}

    def _upstream(self) -> UpstreamProgress | None:
        """Return the recorded progress of the join that makes the stream; None if no join makes it."""
        if self.source not in self._bound.made:
            return None
        clock = self._plan.stream.clocks.get(self.source, ALWAYS) if self._plan.strategy == "incremental" else None
        history, timezone = self._bound.made[self.source], self._workspace.file.timezone
        return upstream_progress(history, self._range.epochs, self.table.schema, timezone, clock)

    @property
    def _kinds(self) -> dict[str, DataType]:
        """The columns of the stream that the join uses, with their types."""
        return {name: self.table.schema[name].dataType for name in self._bound.used(self.source)}

    @property
    def _range(self) -> SourceRange:
        (versions,) = (part for part in self._plan.sources if part.name == self.source)
        return versions

    def _snapshot(self) -> DataFrame:
        """Read the snapshot of the stream, which knows no commits; a column orders its rows, or nothing does."""
        rows = read_rows(self._workspace.spark, self.table, self.table.version)
        column = self._stream.order if self._bound.times else self._stream.event_time
        position = str(UNORDERED)
        if column is not None:
            data_type = self.table.schema[column].dataType
            # Two streams may mix dates, timestamps, and timestamps without a zone.
            has_window = self._bound.join.window is not None and not self._bound.times
            position = (as_number if has_window else as_time)(quote(column), data_type)
            if not self._bound.times:  # a column that only sorts the load may be null
                position = f"coalesce({position}, {UNORDERED})"
        return rows.select(
            *(F.col(quote(name)) for name in self._bound.used(self._stream.source)),
            F.lit("insert").alias("_change_type"),
            F.lit(self.table.version).cast("bigint").alias("_commit_version"),
            F.expr(f"CAST({position} AS BIGINT)").alias(POSITION),
        )

    def _feed(self) -> tuple[DataFrame, int]:
        """Read the feed of the stream; return its rows, and the number of those in commits that are skipped."""
        versions, spark = self._range, self._workspace.spark
        names = [*self._bound.used(self.source), *([] if self.upstream is None else [CAUSED_AT])]
        if not versions.has_changes:
            rows = (
                read_rows(spark, self.table, self.table.version)
                .where("false")
                .select(
                    *(F.col(quote(name)) for name in names),
                    F.lit("insert").alias("_change_type"),
                    F.lit(0).cast("bigint").alias("_commit_version"),
                    F.current_timestamp().alias("_commit_timestamp"),
                )
            )
        else:
            at = (versions.read_after, versions.to_version)
            rows = self._workspace.feeds.read(self.source, self.table, *at, names, "inserted")
        skipped = self._skipped(rows, versions.read_after) if self._stream.ignore_changes else {}
        if skipped:
            rows = rows.where(~F.col("_commit_version").isin(list(skipped)))
        if self.upstream is not None:
            return rows.withColumn(POSITION, F.expr(self.upstream.time_sql(CAUSED_AT))), sum(skipped.values())
        column = self._bound.times.get(self._stream.source)
        data_type = None if column is None else self.table.schema[column].dataType
        position = self._time_of_commit() if column is None or data_type is None else as_time(quote(column), data_type)
        return rows.withColumn(POSITION, F.expr(f"CAST({position} AS BIGINT)")), sum(skipped.values())

    def commits(self) -> list[tuple[Commit, int]]:
        """Return the new commits with data, each with its time, which is at least the time of the commit before it."""
        versions, latest = self._range, self._plan.stream.clocks.get(self.source, ALWAYS)
        found = []
        for commit in commits_since(self._workspace.engine, self.table, versions.read_after):
            if commit.changes_data and commit.version <= versions.to_version:
                latest = max(latest, micros(commit.at))
                found.append((commit, latest))
        return found

    def _time_of_commit(self) -> str:
        """Return the SQL of the time of a commit's rows: of two streams that of `commits`, else the timestamp."""
        own = "unix_micros(_commit_timestamp)"
        known = [] if self._bound.join.window is None else self.commits()
        raised = [f"WHEN {commit.version} THEN {time}L" for commit, time in known if micros(commit.at) < time]
        return f"CASE _commit_version {' '.join(raised)} ELSE {own} END" if raised else own

    def _skipped(self, rows: DataFrame, after: int) -> dict[int, int]:
        """Find the commits that replace rows by other operations than ROW_BY_ROW, and count the rows of each."""
        commits = commits_since(self._workspace.engine, self.table, after)
        doubtful = [
            commit.version
            for commit in commits
            if commit.changes_data and not commit.only_adds and commit.operation not in ROW_BY_ROW
        ]
        if not doubtful:
            return {}
        deleted = F.count(F.expr("IF(_change_type = 'insert', NULL, 1)")).alias("deleted")
        counted = rows.where(F.col("_commit_version").isin(doubtful)).groupBy("_commit_version")
        found = counted.agg(F.count(F.lit(1)).alias("rows"), deleted).where("deleted > 0")
        return {row["_commit_version"]: row["rows"] for row in found.collect()}

    def _altered(self, version: int) -> CannotContinue:
        commits = commits_since(self._workspace.engine, self.table, version - 1)
        operation = next(commit.operation for commit in commits if commit.version == version)
        skip = "set `ignore_changes: true` on the source to skip such rows and count them, or "
        return CannotContinue(
            self._stream.source,
            "a commit of this stream changed or deleted rows",
            expected="only appended rows",
            found=f"{operation} in version {version}",
            hint=("" if self.upstream is not None else skip)
            + f"run `lakejoin backfill --reset --select {self._bound.join.name}` to recreate the result",
        )


def as_time(column: str, data_type: DataType) -> str:
    """Return the SQL of a time in the order of a join with a stream: microseconds, days, or the number itself."""
    return f"unix_date({column})" if isinstance(data_type, DateType) else as_number(column, data_type)


def refuse_untimed(source: str, column: str | None, number: int) -> None:
    """
    Check that every row has a value in the column that orders it.

    Raises:
        CannotContinue: Some rows have none.
    """
    if number:
        raise CannotContinue(
            source,
            f"`{column}` is null in rows that it should order",
            expected="a value in every row, as `order_by` requires",
            found=f"{number} rows without one",
            hint="correct the rows, or remove `order_by` to order the join by the times of the commits",
        )
