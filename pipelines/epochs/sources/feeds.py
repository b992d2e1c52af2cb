"""Read the change feeds of the sources of an epoch, and net them to one change for each key."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable, Remedy
from lakehouse.feed.feed import distortion
from lakehouse.tables.table import FEED_COLUMNS, Table
from lakehouse.values.net_changes import net, null_key
from pipelines.binding.bound import BoundJoin, as_input, rows_of
from pipelines.binding.workspace import Rows, Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.language import Input

NOTHING_READ = {"read": 0, "null_keys": 0}
"""The counts of a source whose feed is not read."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """
    The changes of an input in an epoch.

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

    def source(self, place: int) -> str:
        """Return the name of the source that an input reads."""
        return self.input_of(place).source

    def has_changes(self, place: int) -> bool:
        """Return whether the feed of the source of an input has something to read."""
        return self.ranges[self.source(place)].has_changes

    def columns(self, place: int) -> dict[str, DataType]:
        """Return the columns of an input whose changes count, with their types: those that the join uses."""
        is_query = self.input_of(place).query is not None
        return self._columns_of_queries[place] if is_query else self._columns_of_source(place)

    @cached_property
    def _columns_of_queries(self) -> dict[int, dict[str, DataType]]:
        """The columns of the inputs that are subqueries, whose types only Spark knows, by input."""
        columns = {}
        for place, item in enumerate(each.ungrouped for each in self.bound.join.inputs):
            if item.query is not None:
                schema = rows_of(self.workspace, item, self.table(place), self.table(place).version).schema
                columns[place] = {name: schema[name].dataType for name in item.columns}
        return columns

    def _columns_of_source(self, place: int) -> dict[str, DataType]:
        return {name: self.table(place).schema[name].dataType for name in self.bound.used_by_feed(place)}

    def input_of(self, place: int) -> Input:
        """Return an input whose rows are single rows of its source: for one that groups rows, what it groups."""
        return self.bound.join.inputs[place].ungrouped

    def table(self, place: int) -> Table:
        """Return the pinned table of an input."""
        return self.bound.table(place)

    def keep(self, place: int, name: str, frame: DataFrame) -> DataFrame:
        """Keep rows of an input under a name, and return them from where they are."""
        return self.scratch.keep(f"{name}_{place}", frame)

    def read(self, place: int) -> tuple[DataFrame, Observation]:
        """
        Return the feed of an input, and an observation that counts the rows of its source's feed for `counted`.

        An image that the filter of the input does not take is absent from it.
        """
        table, item = self.table(place), self.input_of(place)
        versions = self.ranges[item.source]
        columns, keyless = self._columns_of_source(place), null_key(item.source_key, may_be_absent=item.may_be_absent)
        after, to = versions.read_after, versions.to_version
        feed = self.workspace.feeds.read(item.source, table, after, to, list(columns), self._rows)
        seen = Observation()
        feed = feed.observe(
            seen,
            F.count(F.lit(1)).alias("read"),
            F.count(F.expr(f"IF({keyless}, 1, NULL)")).alias("null_keys"),
            F.count_if(F.expr(distortion(columns))).alias("distorted"),
            F.count_if(F.expr("_change_type = 'update_preimage'")).alias("before_updates"),
            F.count_if(F.expr("_change_type = 'update_postimage'")).alias("after_updates"),
        )
        if item.query is None:
            return feed, seen
        if item.query.where is not None:  # Spark drops an observation below a filter that it finds to be never true
            feed = self.keep(place, "feed", feed)
        return as_input(feed, item, FEED_COLUMNS), seen

    def counted(self, place: int, seen: Observation) -> Mapping[str, int]:
        """
        Return the counts read and null_keys of a feed whose rows have been evaluated.

        Raises:
            Distorted: The feed distorts rows.
            FeedUnavailable: The feed lacks rows as they were before updates.
        """
        counts: dict[str, int] = dict(seen.get)
        source, table = self.source(place), self.table(place)
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
        self.workspace.feeds.refuse_distorted(table, versions.read_after, versions.to_version, number)
        return counts

    def net(self, place: int, rows: DataFrame) -> tuple[DataFrame | None, DataFrame | None]:
        """Net rows of a feed; return the changes, and those of repeated keys, as in `Changes`."""
        columns, item, made = self.columns(place), self.input_of(place), Observation()
        types = [columns[name] for name in item.key]
        changes = net(rows, item.key, types, columns, may_be_absent=item.may_be_absent)
        changes = changes.observe(made, F.count(F.lit(1)).alias("changes"), F.max("copies").alias("copies"))
        kept = self.keep(place, "changes", changes)
        twice = kept.where("copies > 1") if (made.get["copies"] or 0) > 1 else None
        return kept if made.get["changes"] else None, twice


def net_changes(feeds: SourceFeeds, place: int) -> Changes:
    """Net the feed of an input over the whole epoch."""
    feed, seen = feeds.read(place)
    changes, twice = feeds.net(place, feed)
    return Changes(counts=feeds.counted(place, seen), net=changes, twice=twice)


def read_changes(bound: BoundJoin, places: Iterable[int], read: Callable[[int], Changes]) -> dict[int, Changes]:
    """Read the changes of inputs in parallel, with errors that name the source."""

    def read_one(place: int) -> Changes:
        with reading(bound.join.name, bound.join.inputs[place].source):
            return read(place)

    each = list(places)
    with ThreadPoolExecutor() as executor:
        return dict(zip(each, executor.map(read_one, each), strict=True))
