"""Read the tables of a join with a stream, with the versions of their rows within an epoch."""

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.values.net_changes import key_struct
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.commits import CommitReader, key_at
from pipelines.epochs.sources.feeds import SourceFeeds, read_changes
from pipelines.epochs.sources.reading import EpochSources
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.new_rows import as_time, refuse_untimed
from pipelines.joins.kernel import refers_to
from pipelines.joins.timeline import timed, versions
from pipelines.language import Link
from pipelines.language.names import ALWAYS


class StreamSources:
    """
    The sources of one epoch of a join with a stream: the changes of the tables, each with its position in time.

    The changes of every commit are read, row by row for a changelog source, and none for a global table. `newest_time`
    holds the greatest time of the changes of each changed source, and `behind_cut` the number of changes of tables that
    came later than rows of the stream that should have met them.
    """

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace, self._bound, self._plan = workspace, epoch.bound, epoch.plan
        self._clocks = epoch.plan.stream.clocks
        self._feeds = SourceFeeds(workspace, epoch, scratch, "commit by commit")
        self._reader = CommitReader(self._feeds, row_by_row=True)
        read = read_changes(self._bound, filter(self._has_changes, self._bound.join.feeds), self._reader.of_each_commit)
        # The keys are known before a table is read, and its other rows need not be checked.
        self.looked_up = EpochSources(self._feeds, read, copies_tables=False)
        self.twice = {place: each.twice for place, each in read.items() if each.twice is not None}
        self.newest_time: dict[str, int] = {}
        self.behind_cut = 0
        commits = {place: each.commits for place, each in read.items() if each.commits is not None}
        self._commits = {self._feeds.source(place): self._ordered(place, each) for place, each in commits.items()}

    def versions(self, link: Link, rows: DataFrame) -> DataFrame:
        """Return the versions of a table's rows that rows of the stream may meet."""
        index = link.input
        item, types, table = self._bound.join.inputs[index], self._bound.types[index], self._bound.table(index)
        if self.is_met_whole(index):
            held = rows_of(self._workspace, item, table, table.version)
        else:
            keys = rows.select(F.expr(refers_to(link, self._bound.types)).alias("key")).where("key IS NOT NULL")
            wanted = self.looked_up.materialize(f"wanted_{index}", keys.distinct())
            held = self.looked_up.rows({index: lambda: wanted})[index]
        changed = self._commits.get(item.source)
        if changed is None:
            return versions(None, held, item, types, beginning=ALWAYS)
        changes = changed.select(key_at(self._bound, index), "position", "version", "old", "new")
        if self.is_met_whole(index):
            # Versions would hide two rows of a changed key; for other keys the look-up itself shows duplicates.
            keys = held.select(F.expr(key_struct(item.key, types)).alias("key"))
            self.looked_up.check_later(index, keys.join(changes.select("key"), on="key", how="left_semi"))
        return versions(changes, held, item, types, beginning=ALWAYS, ties=["version"])

    def is_met_whole(self, index: int) -> bool:
        """Return whether a table is read whole: it is no larger than the new files of the stream, or it is small."""
        return not self._feeds.scratch.via_driver and (
            self._bound.table(index).size <= self._plan.stream.new_bytes or self.looked_up.is_read_whole(index)
        )

    def is_sent_to_all(self, index: int) -> bool:
        """Return whether a table is broadcast: it is a global table, or it is small and so are its changes."""
        item, table = self._bound.join.inputs[index], self._bound.table(index)
        known = self._workspace.file.sources.get(item.source)
        if known is not None and known.kind == "global_table":
            return True
        changed = self._feeds.ranges[item.source].changed_rows if item.source in self._commits else 0
        return table.size <= limits.BROADCAST_BYTES and (
            self._feeds.scratch.via_driver or (changed is not None and changed <= limits.ROWS_ON_DRIVER)
        )

    def _has_changes(self, place: int) -> bool:
        assert self._bound.stream is not None
        source = self._feeds.source(place)
        known = self._workspace.file.sources.get(source)
        is_unchanging = source == self._bound.stream.source or (known is not None and known.kind == "global_table")
        return self._plan.strategy == "incremental" and not is_unchanging and self._reader.has_changes(place)

    def _ordered(self, place: int, commits: DataFrame) -> DataFrame:
        """Compute the position of each change of a table in time, and record the greatest one."""
        source = self._feeds.source(place)
        column = self._bound.times.get(source)
        time = "unix_micros(at)"
        if column is not None:
            data_type = self._feeds.table(place).schema[column].dataType
            own = "ord" if self._reader.is_row_by_row(source) else f"coalesce(new.{quote(column)}, old.{quote(column)})"
            time = as_time(own, data_type)
        else:
            own = "at"
        assert self._bound.stream is not None
        cut = self._clocks.get(self._bound.stream.source, ALWAYS)
        seen, floor = Observation(), self._clocks.get(source, ALWAYS)
        if column is None and self._reader.is_row_by_row(source):
            # Commit times of one table ascend already; each row is a version here, too many for `timed`.
            raised = commits.withColumn("position", F.expr(f"greatest({time}, CAST({floor} AS BIGINT))"))
        else:
            raised = timed(commits, time, floor)
        changes = raised.observe(
            seen,
            F.max("position").alias("latest"),
            F.count(F.expr(f"IF(position <= {cut}, 1, NULL)")).alias("behind_cut"),
            F.count(F.expr(f"IF({own} IS NULL, 1, NULL)")).alias("untimed"),
        )
        kept = self._feeds.keep(place, "ordered", changes)
        refuse_untimed(source, column, seen.get["untimed"])
        if seen.get["latest"] is not None:
            self.newest_time[source] = seen.get["latest"]
        self.behind_cut += seen.get["behind_cut"]
        return kept
