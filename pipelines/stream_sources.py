"""What an epoch of a join with a stream reads: the rows that came to the stream, and tables as they were meanwhile."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, TimestampType

from lakehouse.changes import key_struct
from lakehouse.errors import CannotContinue
from lakehouse.feed import read_feed
from lakehouse.sqltext import quote
from lakehouse.tables import Table, commits_since, read
from pipelines.binding import BoundJoin, rows_of
from pipelines.commits import CommitSources, key_at
from pipelines.joins.kernel import refers_to
from pipelines.joins.stream_table import ALWAYS, POSITION, ignores_null_values, whole
from pipelines.joins.versions import timed, versions
from pipelines.plan import EpochPlan
from pipelines.spec import Link
from pipelines.spec.semantics import UNORDERED
from pipelines.workspace import Workspace

SENT_TO_ALL = 8 * 2**20
"""A table of so many bytes goes to the rows of the stream; with a larger one both sides are shuffled."""

CHANGES_SENT = 100_000
"""With so many changes it does."""

ROW_BY_ROW = ("DELETE", "MERGE", "UPDATE")
"""Operations of which `ignore_changes` skips the rows that are deleted or updated; of others it skips the commit."""


class StreamSources(CommitSources):
    """
    The sources of one epoch of a join with a stream, with the arguments and counts of `EpochSources`.

    Of its tables the changes of every commit are read, those of a changelog source row by row; of a global table none.
    Afterwards `reached` has the greatest time of the changes of each source that had some, and `behind_cut` how many of
    the tables' changes came later than rows of the stream that should have met them.
    """

    def __init__(self, workspace: Workspace, bound: BoundJoin, plan: EpochPlan, *args: Any, **kwargs: Any) -> None:
        super().__init__(workspace, bound, plan, *args, **kwargs)
        self._clocks = plan.clocks
        self.reached: dict[str, int] = {}
        self.behind_cut = 0

    def read_changes(self) -> None:
        """Read the changes of the tables, side by side, and give each its place in time."""
        super().read_changes()
        for source, commits in self._commits.items():
            self._commits[source] = self._placed(source, commits)

    def versions(self, link: Link, rows: DataFrame) -> DataFrame:
        """Give the versions of a table's rows that rows of the stream may meet."""
        place = link.input
        item, types, table = self._bound.join.inputs[place], self._bound.types[place], self._bound.table(place)
        if self.is_met_whole(place):
            held = rows_of(self._workspace, item, table, table.version)
        else:
            keys = rows.select(F.expr(refers_to(link, self._bound.types)).alias("key")).where("key IS NOT NULL")
            wanted = self.kept(f"wanted_{place}", keys.distinct())
            held = self.rows({place: lambda: wanted})[place]
        changed = self._commits.get(item.source)
        if changed is None:
            return whole(held, item, types)
        changes = changed.select(key_at(self._bound, place), "position", "version", "old", "new")
        if self.is_met_whole(place):
            # Two rows of a key that changes would pass for one: of all others the look-up would show it.
            keys = held.select(F.expr(key_struct(item.key, types)).alias("key"))
            self.unchecked.append((place, keys.join(changes.select("key"), on="key", how="left_semi")))
        return versions(changes, held, item, types, beginning=ALWAYS, ties=["version"])

    def is_met_whole(self, place: int) -> bool:
        """Tell whether a table is read whole: where it holds less than what comes to the stream, or is small."""
        return not self._few and (
            self._bound.table(place).size <= self._plan.stream_bytes or self._is_read_whole(place)
        )

    def is_sent_to_all(self, place: int) -> bool:
        """Tell whether a table goes to the rows of the stream: it is small, and so are its changes; or it is global."""
        item, table = self._bound.join.inputs[place], self._bound.table(place)
        known = self._workspace.file.sources.get(item.source)
        if known is not None and known.kind == "global_table":
            return True
        changed = self._ranges[item.source].changed_rows if item.source in self._commits else 0
        return table.size <= SENT_TO_ALL and (self._few or (changed is not None and changed <= CHANGES_SENT))

    def _has_changes(self, source: str) -> bool:
        assert self._bound.stream is not None
        known = self._workspace.file.sources.get(source)
        stands_still = source == self._bound.stream.source or (known is not None and known.kind == "global_table")
        return self._plan.strategy == "incremental" and not stands_still and super()._has_changes(source)

    def _net(self, source: str) -> Mapping[str, int]:
        """Net each commit; what they come to in all is nobody's affair here."""
        if self._bound.logs.get(source) is not None or self._is_row_by_row(source):
            self._keep_log(source)
            return {"read": 0, "null_keys": 0, "copies": 0}
        feed, seen = self._feed(source)
        self._each_commit(source, feed)
        return {**seen.get, "copies": 0}

    def _is_row_by_row(self, source: str) -> bool:
        known = self._workspace.file.sources.get(source)
        return known is not None and known.kind == "changelog"

    def _placed(self, source: str, commits: DataFrame) -> DataFrame:
        """Give the changes of a table their place in time, and see how far that goes."""
        column = self._bound.times.get(source)
        time = "unix_micros(at)"
        if column is not None:
            kind = self._table(source).schema[column].dataType
            own = "ord" if self._is_row_by_row(source) else f"coalesce(new.{quote(column)}, old.{quote(column)})"
            time = as_time(own, kind)
        else:
            own = "at"
        assert self._bound.stream is not None
        cut = self._clocks.get(self._bound.stream.source, ALWAYS)
        seen, floor = Observation(), self._clocks.get(source, ALWAYS)
        if column is None and self._is_row_by_row(source):
            # Commits of one table have ascending times; each row is a version here, too many to compare with all.
            raised = commits.withColumn("position", F.expr(f"greatest({time}, CAST({floor} AS BIGINT))"))
        else:
            raised = timed(commits, time, floor)
        changes = raised.observe(
            seen,
            F.max("position").alias("reached"),
            F.count(F.expr(f"IF(position <= {cut}, 1, NULL)")).alias("behind_cut"),
            F.count(F.expr(f"IF({own} IS NULL, 1, NULL)")).alias("untimed"),
        )
        kept = self._kept_of(source, "placed", changes)
        _refuse_untimed(source, column, seen.get["untimed"])
        if seen.get["reached"] is not None:
            self.reached[source] = seen.get["reached"]
        self.behind_cut += seen.get["behind_cut"]
        return kept


class Arrived:
    """
    The rows that came to a stream in an epoch: of a first load its snapshot, then its feed.

    Args:
        workspace: Where the stream is.
        bound: The join.
        plan: The epoch.

    Its `frame` has the columns of the stream that the join uses, and POSITION; of rows that have a value, or meet
    tables without one too. Once these were read, `facts` tells what was seen.
    """

    def __init__(self, workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> None:
        assert bound.stream is not None
        self._workspace, self._bound, self._plan = workspace, bound, plan
        self._stream = bound.stream
        self._seen = Observation()
        self.table: Table = bound.table(0)
        self.ignored = 0
        rows = self._feed() if plan.strategy == "incremental" else self._snapshot()
        cut = max((clock for name, clock in plan.clocks.items() if name != self._stream.source), default=ALWAYS)
        takes_part = "_change_type = 'insert'"
        no_value = f"coalesce({self._stream.null_value.sql}, FALSE)"
        stays = f"NOT {no_value}" if ignores_null_values(bound.join, bound.semantics) else "TRUE"
        rows = rows.observe(
            self._seen,
            F.count(F.expr("IF(_change_type IN ('delete', 'update_postimage'), 1, NULL)")).alias("ignored"),
            F.count(F.expr(f"IF({takes_part}, 1, NULL)")).alias("read"),
            F.count(F.expr(f"IF({takes_part} AND {stays}, 1, NULL)")).alias("came"),
            F.count(F.expr(f"IF({takes_part} AND {no_value}, 1, NULL)")).alias("null_values"),
            F.count(F.expr(f"IF({takes_part} AND {POSITION} < {cut}, 1, NULL)")).alias("behind_cut"),
            F.count(F.expr(f"IF({takes_part} AND {POSITION} IS NULL, 1, NULL)")).alias("untimed"),
            F.max(F.expr(f"IF({takes_part}, {POSITION}, NULL)")).alias("reached"),
            F.min(F.expr("IF(_change_type = 'insert', NULL, _commit_version)")).alias("altered"),
        )
        rows = rows.where(f"{takes_part} AND {stays}")
        names = dict.fromkeys((*bound.join.inputs[0].columns, POSITION))
        self.frame = rows.select(*(F.col(quote(name)) for name in names))

    @property
    def number(self) -> int:
        """How many rows the frame has."""
        return int(self._seen.get["came"])

    @property
    def reached(self) -> int | None:
        """The greatest time of the rows; None where there are none."""
        reached: int | None = self._seen.get["reached"]
        return reached

    def facts(self) -> dict[str, int]:
        """
        Tell what was seen: read, null_values, ignored_changes, behind_cut; and check it.

        Raises:
            CannotContinue: A commit changed or deleted rows, or rows have nothing that orders them.
        """
        seen = dict(self._seen.get)
        if seen["altered"] is not None and not self._stream.ignore_changes:
            raise self._altered(seen["altered"])
        _refuse_untimed(self._stream.source, self._stream.order, seen["untimed"])
        counts = {name: int(seen[name]) for name in ("read", "null_values", "behind_cut")}
        return {**counts, "ignored_changes": self.ignored + int(seen["ignored"])}

    def _snapshot(self) -> DataFrame:
        """Read the stream as it is, which knows nothing of commits; its rows have the order of a column, or none."""
        rows = read(self._workspace.spark, self.table.address, self.table.version)
        column = self._stream.order if self._bound.times else self._stream.event_time
        position = str(UNORDERED)
        if column is not None:
            position = as_time(quote(column), self.table.schema[column].dataType)
            if not self._bound.times:  # one that only sorts the load may be missing
                position = f"coalesce({position}, {UNORDERED})"
        return rows.select(
            *(F.col(quote(name)) for name in self._bound.used(self._stream.source)),
            F.lit("insert").alias("_change_type"),
            F.lit(self.table.version).cast("bigint").alias("_commit_version"),
            F.expr(f"CAST({position} AS BIGINT)").alias(POSITION),
        )

    def _feed(self) -> DataFrame:
        (versions,) = (part for part in self._plan.sources if part.name == self._stream.source)
        spark, names = self._workspace.spark, self._bound.used(self._stream.source)
        if not versions.has_changes:
            rows = (
                read(spark, self.table.address, self.table.version)
                .where("false")
                .select(
                    *(F.col(quote(name)) for name in names),
                    F.lit("insert").alias("_change_type"),
                    F.lit(0).cast("bigint").alias("_commit_version"),
                    F.current_timestamp().alias("_commit_timestamp"),
                )
            )
        else:
            rows = read_feed(spark, self.table.address, versions.read_after, versions.to_version, names)
        skipped = self._skipped(rows, versions.read_after) if self._stream.ignore_changes else {}
        if skipped:
            self.ignored = sum(skipped.values())
            rows = rows.where(~F.col("_commit_version").isin(list(skipped)))
        column = self._bound.times.get(self._stream.source)
        kind = None if column is None else self.table.schema[column].dataType
        position = "unix_micros(_commit_timestamp)" if column is None or kind is None else as_time(quote(column), kind)
        return rows.withColumn(POSITION, F.expr(f"CAST({position} AS BIGINT)"))

    def _skipped(self, rows: DataFrame, after: int) -> dict[int, int]:
        """Find the commits that replace rows otherwise than row by row, and count the rows of each."""
        commits = commits_since(self._workspace.spark, self.table, after)
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
        commits = commits_since(self._workspace.spark, self.table, version - 1)
        operation = next(commit.operation for commit in commits if commit.version == version)
        return CannotContinue(
            self._stream.source,
            "a commit of this stream changed or deleted rows",
            expected="rows that are only added",
            found=f"{operation} in version {version}",
            hint=f"`ignore_changes: true` on the source skips such rows and counts them; or `lakejoin backfill --reset "
            f"--select {self._bound.join.name}` begins the result anew",
        )


def as_time(column: str, kind: DataType) -> str:
    """Give the SQL of a time in the order of a join with a stream: microseconds, days, or the number itself."""
    if isinstance(kind, TimestampType):
        return f"unix_micros({column})"
    return f"unix_date({column})" if isinstance(kind, DateType) else f"CAST({column} AS BIGINT)"


def _refuse_untimed(source: str, column: str | None, number: int) -> None:
    if number:
        raise CannotContinue(
            source,
            f"`{column}` is null in rows that it should order",
            expected="a value in every row, as `order_by` says",
            found=f"{number} rows without one",
            hint="correct the rows, or order the join by the times of the commits, without `order_by`",
        )
