"""Read the changes of every commit of the sources, in one order, for an incremental epoch with a changelog."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.table import Table, read
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import as_feed, key_struct, net
from lakehouse.values.sqltext import numbered
from pipelines.binding.bound import BoundJoin
from pipelines.binding.sources import bind_ktable
from pipelines.binding.workspace import Rows
from pipelines.epochs.sources.feeds import NOTHING_READ, Changes, SourceFeeds
from pipelines.epochs.sources.lookups import pruning_of
from pipelines.epochs.sources.reading import EpochSources
from pipelines.joins.changelog import logged_changes
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

    def has_changes(self, source: str) -> bool:
        """Return whether a source changed; its changelog may have rows although its result has no net change."""
        log = self._bound.logs.get(source)
        return self._feeds.has_changes(source) or (
            log is not None and self._feeds.ranges[log.address.label].has_changes
        )

    def is_row_by_row(self, source: str) -> bool:
        """Return whether each row of a source is a change of its own."""
        known = self._workspace.file.sources.get(source)
        return self._row_by_row and known is not None and known.kind == "changelog"

    def with_net(self, source: str) -> Changes:
        """Read the changes of each commit of a source, and net them over the whole epoch."""
        commits = self._one_by_one(source)
        if not self._feeds.has_changes(source):
            return Changes(counts=NOTHING_READ, commits=commits)
        feed, seen = self._feeds.read(source)
        twice = None
        if commits is None:
            commits, twice = self._each_commit(source, feed)
            feed = as_feed(commits)
        changes, twice_in_all = self._feeds.net(source, feed)
        twice = twice if twice_in_all is None else twice_in_all
        return Changes(counts=self._feeds.counted(source, seen), net=changes, commits=commits, twice=twice)

    def of_each_commit(self, source: str) -> Changes:
        """Read the changes of each commit of a source alone."""
        if source in self._bound.logs or self.is_row_by_row(source):
            return Changes(counts=NOTHING_READ, commits=self._one_by_one(source))
        feed, seen = self._feeds.read(source)
        commits, twice = self._each_commit(source, feed)
        return Changes(counts=self._feeds.counted(source, seen), commits=commits, twice=twice)

    def _one_by_one(self, source: str) -> DataFrame | None:
        """Return the changes of a source one by one, if it is another join or read row by row."""
        log = self._bound.logs.get(source)
        if log is not None:
            return self._feeds.keep(source, "commits", self._logged(source, log))
        raw = self._raw_changes(source) if self.is_row_by_row(source) else None
        return None if raw is None else self._feeds.keep(source, "commits", raw)

    def _each_commit(self, source: str, feed: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """Net each commit of a feed by itself; return the changes, and those of repeated keys."""
        columns, item = self._feeds.columns(source), self._feeds.input_of(source)
        types, scope = [columns[name] for name in item.key], ["_commit_version", "_commit_timestamp"]
        each = net(feed, item.key, types, columns, scope, may_be_absent=item.may_be_absent)
        each = each.withColumnsRenamed({"_commit_version": "version", "_commit_timestamp": "at"})
        made = Observation()
        kept = self._feeds.keep(source, "commits", each.observe(made, F.max("copies").alias("copies")))
        return kept, kept.where("copies > 1") if (made.get["copies"] or 0) > 1 else None

    def _logged(self, source: str, log: Table) -> DataFrame:
        """Return the changes in another join's changelog, each with the row that it replaced."""
        columns, key = self._feeds.columns(source), self._feeds.input_of(source).key
        held = self._workspace.ledger.of(source)
        epoch = held.epoch_of_changelog(self._feeds.ranges[log.address.label].from_version)
        rows = read(self._workspace.spark, log.address, log.version)
        fresh = self._feeds.keep(source, "logged", rows.where(F.col("_epoch") > epoch))
        types = [columns[name] for name in key]
        keys = fresh.select(F.expr(key_struct(key, types)).alias("key")).distinct()
        predicate = pruning_of(self._bound, keys, self._bound.join.places(source)[0]).predicate(key)
        before = rows.where(F.col("_epoch") <= epoch)
        return logged_changes(fresh, before if predicate is None else before.where(predicate), key, columns)

    def _raw_changes(self, source: str) -> DataFrame | None:
        """Return the changes of a changelog source row by row, as Kafka Streams sees them, not netted by its KTable."""
        versions, table = self._feeds.ranges[source], self._feeds.table(source)
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
        found = accepted(candidate_rows, changes, list(self._feeds.columns(source)))
        places = [ktable.spec.key.index(name) for name in self._feeds.input_of(source).key]
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


def in_order_of_time(sources: EpochSources, bound: BoundJoin, read: Mapping[str, Changes]) -> "Commits | None":
    """Return the commits of all sources in one order; None if no source changed."""
    commits = {source: changes.commits for source, changes in read.items() if changes.commits is not None}
    if not commits:
        return None
    changed = {bound.join.sources.index(source): each for source, each in commits.items()}
    return Commits(sources, bound, commits, sources.materialize("order", positions(changed)))


class Commits:
    """
    The sources of one epoch commit by commit, for a timeline.

    Args:
        commits: The changes of each commit, by source.
        order: The commits in their order, as `positions` returns them.
    """

    def __init__(
        self, sources: EpochSources, bound: BoundJoin, commits: Mapping[str, DataFrame], order: DataFrame
    ) -> None:
        self._sources = sources
        self._commits = commits
        self._bound = bound
        self._keys: dict[int, DataFrame] = {}
        self.order = order

    def changes(self, place: int) -> DataFrame | None:
        """Return the changes of each commit of an input: `key`, `position`, `old`, `new`; None if it has none."""
        source = self._bound.join.inputs[place].source
        if source not in self._commits:
            return None
        changes = placed(self._commits[source], self.order, self._bound.join.sources.index(source))
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
    named = join.inputs[join.places(item.source)[0]].key
    kinds = zip(item.key, bound.types[place], strict=True)
    parts = (f"CAST(key.k{named.index(name)} AS {type_sql(kind)})" for name, kind in kinds)
    return F.expr(numbered(parts)).alias("key")
