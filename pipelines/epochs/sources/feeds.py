"""Read the change feeds of the sources of an epoch, and net them to one change for each key."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable, Remedy
from lakehouse.feed.feed import distortion
from lakehouse.tables.table import Table
from lakehouse.values.net_changes import net, null_key
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Rows, Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.language import Input

NOTHING_READ = {"read": 0, "null_keys": 0}
"""The counts of a source whose feed is not read."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """
    The changes of one source in an epoch.

    Args:
        counts: read (feed rows) and null_keys (feed rows without a key).
        net: `key`, `old`, `new`: one row for each key that the epoch changes; None if it changes none, or if nobody
            needs them.
        commits: The changes of each commit: also `version` and `at`; None if nobody needs them.
        twice: Those changes whose key occurs more than once, with `copies`; None if no key does.
    """

    counts: Mapping[str, int]
    net: DataFrame | None = None
    commits: DataFrame | None = None
    twice: DataFrame | None = None


class SourceFeeds:
    """The change feeds of the sources of one epoch; the scratch keeps changes while it is computed."""

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch, rows: Rows) -> None:
        self.workspace, self.epoch, self.bound, self.scratch = workspace, epoch, epoch.bound, scratch
        self.ranges = {versions.name: versions for versions in epoch.plan.sources}
        self._rows = rows

    def has_changes(self, source: str) -> bool:
        """Return whether the feed of a source has something to read."""
        return self.ranges[source].has_changes

    def columns(self, source: str) -> dict[str, DataType]:
        """Return the columns of a source that the join uses, with their types."""
        return {name: self.table(source).schema[name].dataType for name in self.bound.used(source)}

    def input_of(self, source: str) -> Input:
        """Return the first input that reads a source."""
        return self.bound.join.inputs[self.bound.join.places(source)[0]]

    def table(self, source: str) -> Table:
        """Return the pinned table of a source."""
        return self.bound.sources[self.bound.join.sources.index(source)]

    def keep(self, source: str, name: str, frame: DataFrame) -> DataFrame:
        """Keep rows of a source under a name, and return them from where they are."""
        return self.scratch.keep(f"{name}_{self.bound.join.sources.index(source)}", frame)

    def read(self, source: str) -> tuple[DataFrame, Observation]:
        """Return the feed of a source, with an observation that counts its rows for `counted`."""
        table, versions, item = self.table(source), self.ranges[source], self.input_of(source)
        columns, keyless = self.columns(source), null_key(item.key, may_be_absent=item.may_be_absent)
        after, to = versions.read_after, versions.to_version
        feed = self.workspace.feeds.read(source, table, after, to, list(columns), self._rows)
        seen = Observation()
        feed = feed.observe(
            seen,
            F.count(F.lit(1)).alias("read"),
            F.count(F.expr(f"IF({keyless}, 1, NULL)")).alias("null_keys"),
            F.count_if(F.expr(distortion(columns))).alias("distorted"),
            F.count_if(F.expr("_change_type = 'update_preimage'")).alias("before_updates"),
            F.count_if(F.expr("_change_type = 'update_postimage'")).alias("after_updates"),
        )
        return feed, seen

    def counted(self, source: str, seen: Observation) -> Mapping[str, int]:
        """
        Return the counts read and null_keys of a feed whose rows have been evaluated.

        Raises:
            Distorted: The feed distorts rows.
            FeedUnavailable: The feed lacks rows as they were before updates.
        """
        counts: dict[str, int] = dict(seen.get)
        versions = self.ranges[source]
        number, before, after = (counts.pop(name) for name in ("distorted", "before_updates", "after_updates"))
        if before != after:
            raise FeedUnavailable(
                source,
                "its change feed lacks rows as they were before or after an update: another tool wrote it",
                expected="both rows of each update",
                found=f"{before:,} rows before updates and {after:,} after them in versions {versions.read_after + 1} "
                f"to {versions.to_version}",
                hint=Remedy("{reconcile}"),
            )
        self.workspace.feeds.refuse_distorted(self.table(source), versions.read_after, versions.to_version, number)
        return counts

    def net(self, source: str, rows: DataFrame) -> tuple[DataFrame | None, DataFrame | None]:
        """Net rows of a feed; return the changes, and those of repeated keys, as in `Changes`."""
        columns, item, made = self.columns(source), self.input_of(source), Observation()
        types = [columns[name] for name in item.key]
        changes = net(rows, item.key, types, columns, may_be_absent=item.may_be_absent)
        changes = changes.observe(made, F.count(F.lit(1)).alias("changes"), F.max("copies").alias("copies"))
        kept = self.keep(source, "changes", changes)
        twice = kept.where("copies > 1") if (made.get["copies"] or 0) > 1 else None
        return kept if made.get["changes"] else None, twice


def net_changes(feeds: SourceFeeds, source: str) -> Changes:
    """Net the feed of a source over the whole epoch."""
    feed, seen = feeds.read(source)
    changes, twice = feeds.net(source, feed)
    return Changes(counts=feeds.counted(source, seen), net=changes, twice=twice)


def read_changes(join: str, sources: Iterable[str], read: Callable[[str], Changes]) -> dict[str, Changes]:
    """Read the changes of sources in parallel, with errors that name the source."""

    def read_one(source: str) -> Changes:
        with reading(join, source):
            return read(source)

    names = list(sources)
    with ThreadPoolExecutor() as executor:
        return dict(zip(names, executor.map(read_one, names), strict=True))
