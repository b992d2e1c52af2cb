"""Read the changes of every commit of the sources, in one order, for an incremental epoch with a changelog."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.table import Table, read
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import as_feed, key_struct, net
from lakehouse.values.sqltext import numbered
from pipelines.binding.bound import BoundJoin, as_logged_input
from pipelines.binding.sources import bind_ktable
from pipelines.binding.workspace import Rows
from pipelines.epochs.sources.feeds import NOTHING_READ, Changes, SourceFeeds
from pipelines.epochs.sources.lookups import pruning_of
from pipelines.epochs.sources.reading import EpochSources
from pipelines.joins.changelog import OP, TOMBSTONE, logged_changes
from pipelines.joins.ktable import accepted, candidates
from pipelines.joins.timeline import placed, positions
from pipelines.language import Link
from pipelines.language.names import VERSION
from pipelines.plan.values import SourceRange


class CommitReader:
    """
    Reads the changes of each commit of the sources: those of another join from its changelog.

    Args:
        row_by_row: Whether a changelog source is read as Kafka Streams sees it: row by row, not netted by its KTable.
    """

    def __init__(self, feeds: SourceFeeds, *, row_by_row: bool) -> None:
        self._feeds, self._workspace, self._bound = feeds, feeds.workspace, feeds.bound
        self._row_by_row = row_by_row

    def has_changes(self, place: int) -> bool:
        """Return whether an input changed; its changelog may have rows although its result has no net change."""
        log = self._log(place)
        return self._feeds.has_changes(place) or (log is not None and self._feeds.ranges[log.address.label].has_changes)

    def _log(self, place: int) -> Table | None:
        return self._bound.logs.get(self._feeds.source(place))

    def is_row_by_row(self, source: str) -> bool:
        """Return whether each row of a source is a change of its own."""
        known = self._workspace.file.sources.get(source)
        return self._row_by_row and known is not None and known.kind == "changelog"

    def with_net(self, place: int) -> Changes:
        """Read the changes of each commit of an input, and net them over the whole epoch."""
        commits = self._one_by_one(place)
        if not self._feeds.has_changes(place):
            return Changes(counts=NOTHING_READ, commits=commits)
        feed, seen = self._feeds.read(place)
        twice = None
        if commits is None:
            commits, twice = self._each_commit(place, feed)
            feed = as_feed(commits)
        changes, twice_in_all = self._feeds.net(place, feed)
        twice = twice if twice_in_all is None else twice_in_all
        return Changes(counts=self._feeds.counted(place, seen), net=changes, commits=commits, twice=twice)

    def of_each_commit(self, place: int) -> Changes:
        """Read the changes of each commit of an input alone."""
        if self._log(place) is not None or self.is_row_by_row(self._feeds.source(place)):
            return Changes(counts=NOTHING_READ, commits=self._one_by_one(place))
        feed, seen = self._feeds.read(place)
        commits, twice = self._each_commit(place, feed)
        return Changes(counts=self._feeds.counted(place, seen), commits=commits, twice=twice)

    def _one_by_one(self, place: int) -> DataFrame | None:
        """Return the changes of an input one by one, if it is another join or read row by row."""
        log = self._log(place)
        if log is not None:
            return self._feeds.keep(place, "commits", self._logged(place, log))
        raw = self._raw_changes(place) if self.is_row_by_row(self._feeds.source(place)) else None
        return None if raw is None else self._feeds.keep(place, "commits", raw)

    def _each_commit(self, place: int, feed: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Net each commit of a feed by itself; return the changes, and those of repeated keys."""
        columns, item = self._feeds.columns(place), self._feeds.input_of(place)
        types, scope = [columns[name] for name in item.key], ["_commit_version", "_commit_timestamp"]
        each = net(feed, item.key, types, columns, scope, may_be_absent=item.may_be_absent)
        each = each.withColumnsRenamed({"_commit_version": "version", "_commit_timestamp": "at"})
        made = Observation()
        kept = self._feeds.keep(place, "commits", each.observe(made, F.max("copies").alias("copies")))
        return kept, kept.where("copies > 1") if (made.get["copies"] or 0) > 1 else None

    def _logged(self, place: int, log: Table) -> DataFrame:
        """Return the changes in another join's changelog, each with the row that it replaced."""
        columns, item = self._feeds.columns(place), self._feeds.input_of(place)
        held = self._workspace.ledger.of(item.source)
        epoch = held.epoch_of_changelog(self._feeds.ranges[log.address.label].from_version)
        rows = as_logged_input(read(self._workspace.spark, log.address, log.version), item, OP, TOMBSTONE)
        fresh = self._feeds.keep(place, "logged", rows.where(F.col("_epoch") > epoch))
        types = [columns[name] for name in item.key]
        keys = fresh.select(F.expr(key_struct(item.key, types)).alias("key")).distinct()
        predicate = pruning_of(self._bound, keys, place).predicate(item.key)
        before = rows.where(F.col("_epoch") <= epoch)
        before = before if predicate is None else before.where(predicate)
        changes = logged_changes(fresh, before, item.key, columns)
        return changes if item.query is None else changes.where("old IS NOT NULL OR new IS NOT NULL")

    def _raw_changes(self, place: int) -> DataFrame | None:
        """Return the changes of a changelog source row by row, as Kafka Streams sees them, not netted by its KTable."""
        source = self._feeds.source(place)
        versions, table = self._feeds.ranges[source], self._feeds.table(place)
        ktable = bind_ktable(self._workspace, source)
        history = self._workspace.ledger.of(source)
        after, to = (history.read_up_to(version) for version in (versions.from_version, versions.to_version))
        if after >= to or self._was_reconciled(history, versions):
            return None  # only maintenance commits are new, or a reconciliation changed the KTable
        raw = self._inspected_feed(ktable.source, after, to, ktable.spec.columns, "inserted")
        raw = raw.withColumnsRenamed({"_commit_version": VERSION})
        times = raw.groupBy(VERSION).agg(F.max("_commit_timestamp").alias("at"))
        candidate_rows = candidates(raw.drop("_change_type", "_commit_timestamp"), ktable.spec).join(times, on=VERSION)
        kinds = {field.name: field.dataType for field in ktable.columns}
        held = replace(table, where="", schema=ktable.columns)
        feed = self._inspected_feed(held, versions.read_after, versions.to_version, list(kinds), "netted")
        changes = net(feed, ktable.spec.key, [kinds[name] for name in ktable.spec.key], kinds)
        found = accepted(candidate_rows, changes, list(self._feeds.columns(place)))
        places = [ktable.spec.key.index(name) for name in self._feeds.input_of(place).key]
        return found.withColumn("key", F.expr(numbered(f"key.k{place}" for place in places)))

    def _was_reconciled(self, history: JoinHistory, versions: SourceRange) -> bool:
        """Return whether an epoch in a version range of a KTable reconciled the KTable with its source."""
        ends = (history.at_result(version) for version in (versions.from_version, versions.to_version))
        after, until = (0 if entry is None else entry.epoch for entry in ends)
        return any(entry.strategy == "reconcile" for entry in history.between(after, until))

    def _inspected_feed(self, table: Table, after: int, to: int, columns: Sequence[str], rows: Rows) -> DataFrame:
        """Read a feed that no other join reads, with distorted rows repaired."""
        self._workspace.feeds.inspect("", table, after, to, columns)
        return self._workspace.feeds.read("", table, after, to, columns, rows)


def in_order_of_time(sources: EpochSources, bound: BoundJoin, read: Mapping[int, Changes]) -> "Commits | None":
    """Return the commits of all sources in one order; None if no input changed."""
    commits = {place: changes.commits for place, changes in read.items() if changes.commits is not None}
    if not commits:
        return None
    of_sources: dict[int, list[DataFrame]] = {}
    for place, each in commits.items():  # inputs with the same source change by the same commits
        of_sources.setdefault(source_number(bound, place), []).append(each.select("version", "at"))
    changed = {number: reduce(DataFrame.unionAll, parts) for number, parts in of_sources.items()}
    return Commits(sources, bound, commits, sources.materialize("order", positions(changed)))


def source_number(bound: BoundJoin, place: int) -> int:
    """Return the number of the source of an input, in the order of FROM."""
    return bound.join.sources.index(bound.join.inputs[place].source)


class Commits:
    """
    The sources of one epoch commit by commit, for a timeline.

    Args:
        commits: The changes of each commit, by the input whose feed has them.
        order: The commits in their order, as `positions` returns them.
    """

    def __init__(
        self, sources: EpochSources, bound: BoundJoin, commits: Mapping[int, DataFrame], order: DataFrame
    ) -> None:
        self._sources = sources
        self._commits = commits
        self._bound = bound
        self._keys: dict[int, DataFrame] = {}
        self.order = order

    def changes(self, place: int) -> DataFrame | None:
        """Return the changes of each commit of an input: `key`, `position`, `old`, `new`; None if it has none."""
        feed = self._bound.join.feed_of(place)
        if feed not in self._commits:
            return None
        changes = placed(self._commits[feed], self.order, source_number(self._bound, place))
        return changes.select(key_at(self._bound, place), "position", "old", "new")

    def changed_keys(self, place: int) -> DataFrame | None:
        """Return the keys of the changes of an input, each once."""
        changes = self.changes(place)
        if changes is None:
            return None
        if place not in self._keys:
            self._keys[place] = self.materialize(f"keys_{place}", changes.select("key").distinct())
        return self._keys[place]

    def referring(self, place: int, wanted: Sequence[tuple[Link, DataFrame]]) -> DataFrame:
        """Return the keys of the rows of an input that refer to one of the keys, at the pinned version."""
        return self._sources.referring(place, wanted)

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Return the rows of inputs with one of the keys, at the pinned version."""
        return self._sources.rows(wanted)

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Materialize a frame on the driver or in the stage, and return it from there."""
        return self._sources.materialize(f"timeline_{name}", frame)


def key_at(bound: BoundJoin, place: int) -> Column:
    """Return the key of a change in the types of an input, cast from `key`: a change without effect holds no row."""
    join, item = bound.join, bound.join.inputs[place]
    named = join.inputs[join.feed_of(place)].key
    kinds = zip(item.key, bound.types[place], strict=True)
    parts = (f"CAST(key.k{named.index(name)} AS {type_sql(kind)})" for name, kind in kinds)
    return F.expr(numbered(parts)).alias("key")
