"""What an incremental epoch reads: the changes of its sources, and rows of them by literals that prune files."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.changes import as_feed, key_struct, net, null_key
from lakehouse.feed import read_feed
from lakehouse.pruning import Pruning, pruning
from lakehouse.small import brought
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Table, read
from lakehouse.values import type_sql
from pipelines.binding import BoundJoin, rows_of
from pipelines.joins.changelog import logged_changes
from pipelines.joins.kernel import null_reference, reference
from pipelines.joins.latest import VERSION, accepted, offers
from pipelines.joins.versions import placed
from pipelines.ktable import bind_ktable
from pipelines.plan import EpochPlan
from pipelines.spec import Input, Link
from pipelines.workspace import Workspace

SMALL = 4 * 2**20
"""Where changes are many, a table of so many bytes is read whole: to find out which rows are wanted costs more."""


class EpochSources:
    """
    The sources of one epoch.

    Args:
        workspace: Where they are.
        bound: The join.
        plan: The versions that the epoch accounts for.
        stage: Where changes and keys are kept while it is computed.
        few: Everything on the way to the change set passes through the driver instead; what turns out to be too much
            for it raises `TooMuch`.
        by_commit: The changes of each commit are kept too, for `Commits`.

    Afterwards `counts` has the feed rows read, those of them without a key, the rows looked up and the files of source
    tables read for them; `commits` the changes of each commit, by source; `twice` the changes of sources that have a
    changed key more than once, and `unchecked` the keys of looked-up rows of which nobody has seen yet that each is
    there once, with the place of their input.
    """

    def __init__(
        self,
        workspace: Workspace,
        bound: BoundJoin,
        plan: EpochPlan,
        stage: Stage,
        *,
        few: bool,
        by_commit: bool = False,
    ) -> None:
        self._workspace = workspace
        self._bound = bound
        self._stage = stage
        self._few = few
        self._by_commit = by_commit
        self._ranges = {versions.name: versions for versions in plan.sources}
        self._changed: dict[str, DataFrame] = {}
        self._looked_up_already: dict[tuple[int, int], tuple[DataFrame, DataFrame]] = {}
        self._prunings: dict[int, tuple[DataFrame, Pruning]] = {}
        self._counts = {"read": 0, "null_keys": 0, "looked_up": 0}
        self._files: set[str] = set()
        self._scans: list[DataFrame] = []
        self.commits: dict[str, DataFrame] = {}
        self.unchecked: list[tuple[int, DataFrame]] = []
        self.twice: dict[str, DataFrame] = {}

    @property
    def counts(self) -> dict[str, int]:
        """Give what was read so far: read, null_keys, looked_up, files."""
        files = self._files.union(*(scan.inputFiles() for scan in self._scans))
        return {**self._counts, "files": len(files)}

    def read_changes(self) -> None:
        """Net the feeds, side by side; a source without changes costs no query."""
        changed = [source for source in self._bound.join.sources if self._has_changes(source)]
        with ThreadPoolExecutor() as side_by_side:
            for source, seen in zip(changed, side_by_side.map(self._net, changed), strict=True):
                self._counts["read"] += seen["read"]
                self._counts["null_keys"] += seen["null_keys"]
                if (seen["copies"] or 0) > 1:
                    self.twice[source] = self._changed[source].where("copies > 1")

    def _has_changes(self, source: str) -> bool:
        """Tell whether a source changed, if only in between: a changelog has rows where the result nets to none."""
        log = self._bound.logs.get(source)
        return self._ranges[source].has_changes or (log is not None and self._ranges[log.address.label].has_changes)

    def changes(self, place: int) -> DataFrame | None:
        """Give the net changes of an input: `key`, `old`, `new`; None if there are none."""
        changes = self._changed.get(self._bound.join.inputs[place].source)
        return None if changes is None else changes.select(self.key_of_change(place), "old", "new")

    def changed_keys(self, place: int) -> DataFrame | None:
        """Give the keys of the changes of an input, each once."""
        changes = self.changes(place)
        return None if changes is None else changes.select("key")

    def key_of_change(self, place: int) -> Column:
        """Give the key of a change, from its rows, as an input of the join compares it."""
        key = key_struct(self._bound.join.inputs[place].key, self._bound.types[place], "IF(new IS NULL, old, new).")
        return F.expr(key).alias("key")

    def referring(self, link: Link, keys: DataFrame) -> DataFrame:
        """Give the keys of the rows that refer to one of the keys, at the pinned version."""
        join = self._bound.join
        item = join.inputs[link.over]
        wanted = self.pruning(keys)
        table = self._bound.table(link.over)
        rows = rows_of(self._workspace, item, table, table.version).alias(item.alias)
        key = F.expr(key_struct(item.key, self._bound.types[link.over])).alias("key")
        if wanted.keys == 0:
            return rows.where(F.lit(False)).select(key)
        rows = rows.where(f"NOT {null_reference(link)}").where(f"NOT {null_key(item.key)}")
        columns = _plain_columns(link, item)
        predicate = wanted.predicate(columns) if columns else None
        if predicate is not None:
            rows = rows.where(predicate)
        scanned = rows
        if predicate is None or not wanted.exact:
            rows = self._with_one_of(rows, reference(link, self._bound.types[link.input]), keys)
        if self._few:
            found = brought(rows.select(key))
            self._files.update(found.files)
            return found.frame
        self._scans.append(scanned)
        return rows.select(key)

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Give the rows of inputs with one of the keys, at the pinned version, side by side; others where cheaper."""
        with ThreadPoolExecutor() as side_by_side:
            return dict(zip(wanted, side_by_side.map(self._looked_up, wanted, wanted.values()), strict=True))

    def kept(self, name: str, frame: DataFrame) -> DataFrame:
        """Take a frame's rows to the driver or into the stage and give them from there."""
        if self._few:
            return brought(frame).frame
        self._stage.put(name, frame)
        return self._stage.get(self._workspace.spark, name, frame.schema)

    def pruning(self, keys: DataFrame) -> Pruning:
        """Learn what keys prune to; the same frame is asked once."""
        known = self._prunings.get(id(keys))
        if known is None:
            known = self._prunings[id(keys)] = (keys, pruning(keys.select("key")))
        return known[1]

    def _looked_up(self, place: int, keys: Callable[[], DataFrame]) -> DataFrame:
        item, table = self._bound.join.inputs[place], self._bound.table(place)
        rows = rows_of(self._workspace, item, table, table.version).where(f"NOT {null_key(item.key)}")
        key = F.expr(key_struct(item.key, self._bound.types[place])).alias("key")
        if not self._few and self._is_read_whole(place):
            self._scans.append(rows)
            self.unchecked.append((place, rows.select(key)))
            return rows
        wanted = keys()
        known = self._looked_up_already.get((place, id(wanted)))
        if known is None:
            known = self._looked_up_already[place, id(wanted)] = (wanted, self._found(place, rows, key, wanted))
        return known[1]

    def _found(self, place: int, rows: DataFrame, key: Column, wanted: DataFrame) -> DataFrame:
        item = self._bound.join.inputs[place]
        pruned = self._pruned(rows, place, wanted)
        if not self._few:
            self._scans.append(pruned)
            names = (F.col(quote(name)) for name in item.key)
            self.unchecked.append((place, self._exactly(pruned.select(*names), place, wanted).select(key)))
            return self._exactly(pruned, place, wanted)
        found = brought(self._exactly(pruned, place, wanted))
        self._files.update(found.files)
        if found.distinct(item.key) == found.rows.num_rows:
            self._counts["looked_up"] += found.rows.num_rows
        else:
            self.unchecked.append((place, found.frame.select(key)))
        return found.frame

    def _is_read_whole(self, place: int) -> bool:
        """
        Tell whether a table is so small that it is read whole.

        Inputs that key the result are read whole together or not at all: a row of one without those of the others with
        its key would make a row that never was, and an expression could fail on it.
        """
        members = self._bound.join.members
        together = members if place in members else (place,)
        return all(self._bound.table(other).size <= SMALL for other in together)

    def _pruned(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        """Leave out rows without one of the keys by literals, which skip files."""
        predicate = self.pruning(keys).predicate(self._bound.join.inputs[place].key)
        return rows if predicate is None else rows.where(predicate)

    def _exactly(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        """Keep the rows with one of the keys and no others."""
        if self.pruning(keys).exact:
            return rows
        key = key_struct(self._bound.join.inputs[place].key, self._bound.types[place], "source.")
        return self._with_one_of(rows.alias("source"), key, keys)

    def _with_one_of(self, rows: DataFrame, key: str, keys: DataFrame) -> DataFrame:
        """Keep the rows whose key, given as SQL, is among the keys; where these are few, they go to the rows."""
        known = F.broadcast(keys) if self.pruning(keys).keys is not None else keys
        return rows.join(known.select("key").alias("wanted"), on=F.expr(f"{key} = wanted.key"), how="left_semi")

    def _net(self, source: str) -> Mapping[str, int]:
        number = self._bound.join.sources.index(source)
        log = self._bound.logs.get(source)
        if log is not None:
            self.commits[source] = self.kept(f"commits_{number}", self._logged(source, log))
        row_by_row = self._by_commit and self._bound.semantics != "strict" and self._is_changelog(source)
        if row_by_row:
            self.commits[source] = self.kept(f"commits_{number}", self._raw_changes(source))
        if not self._ranges[source].has_changes:
            return {"read": 0, "null_keys": 0, "copies": 0}
        table, versions = self._table(source), self._ranges[source]
        kinds, key = self._kinds(source), self._key(source)
        after, to = versions.read_after, versions.to_version
        feed = read_feed(self._workspace.spark, table.address, after, to, list(kinds), table.where)
        seen, made = Observation(), Observation()
        feed = feed.observe(
            seen,
            F.count(F.lit(1)).alias("read"),
            F.count(F.expr(f"IF({null_key(key)}, 1, NULL)")).alias("null_keys"),
        )
        if self._by_commit and log is None and not row_by_row:
            feed = as_feed(self._each_commit(source, feed))
        changes = net(feed, key, [kinds[name] for name in key], kinds)
        changes = changes.observe(made, F.count(F.lit(1)).alias("changes"), F.max("copies").alias("copies"))
        kept = self.kept(f"changes_{number}", changes)
        if made.get["changes"]:
            self._changed[source] = kept
        return {**seen.get, **made.get}

    def _each_commit(self, source: str, feed: DataFrame) -> DataFrame:
        """Net each commit of a feed by itself."""
        kinds, key = self._kinds(source), self._key(source)
        each = net(feed, key, [kinds[name] for name in key], kinds, ["_commit_version", "_commit_timestamp"])
        each = each.withColumnsRenamed({"_commit_version": "version", "_commit_timestamp": "at"})
        made = Observation()
        each = each.observe(made, F.max("copies").alias("copies"))
        kept = self.commits[source] = self.kept(f"commits_{self._bound.join.sources.index(source)}", each)
        if (made.get["copies"] or 0) > 1:
            self.twice[source] = kept.where("copies > 1")
        return kept

    def _logged(self, source: str, log: Table) -> DataFrame:
        """Give the changes of another join as its changelog has them, each with what it replaced."""
        kinds, key = self._kinds(source), self._key(source)
        held = self._workspace.ledger.of(source)
        epoch = held.epoch_of_changelog(self._ranges[log.address.label].from_version)
        rows = read(self._workspace.spark, log.address, log.version)
        fresh = self.kept(f"logged_{self._bound.join.sources.index(source)}", rows.where(F.col("_epoch") > epoch))
        types = [kinds[name] for name in key]
        predicate = self.pruning(fresh.select(F.expr(key_struct(key, types)).alias("key")).distinct()).predicate(key)
        before = rows.where(F.col("_epoch") <= epoch)
        return logged_changes(fresh, before if predicate is None else before.where(predicate), key, kinds)

    def _is_changelog(self, source: str) -> bool:
        known = self._workspace.file.sources.get(source)
        return known is not None and known.kind == "changelog"

    def _raw_changes(self, source: str) -> DataFrame:
        """Give the changes of a changelog source row by row, as Kafka Streams sees them, not netted by its KTable."""
        spark, versions, table = self._workspace.spark, self._ranges[source], self._table(source)
        ktable = bind_ktable(self._workspace, source)
        history = self._workspace.ledger.of(source)
        after, to = (history.read_up_to(version) for version in (versions.from_version, versions.to_version))
        raw = read_feed(spark, ktable.source.address, after, to, ktable.spec.columns)
        raw = raw.withColumnsRenamed({"_commit_version": VERSION})
        times = raw.groupBy(VERSION).agg(F.max("_commit_timestamp").alias("at"))
        offered = offers(raw.drop("_change_type", "_commit_timestamp"), ktable.spec).join(times, on=VERSION)
        kinds = {field.name: field.dataType for field in ktable.columns}
        feed = read_feed(spark, table.address, versions.read_after, versions.to_version, list(kinds))
        changes = net(feed, ktable.spec.key, [kinds[name] for name in ktable.spec.key], kinds)
        found = accepted(offered, changes, list(self._kinds(source)))
        places = [ktable.spec.key.index(name) for name in self._key(source)]
        key = ", ".join(f"'k{part}', key.k{place}" for part, place in enumerate(places))
        return found.withColumn("key", F.expr(f"named_struct({key})"))

    def _kinds(self, source: str) -> dict[str, DataType]:
        """Give the columns of a source that the join uses, with their types."""
        return {name: self._table(source).schema[name].dataType for name in self._bound.used(source)}

    def _key(self, source: str) -> tuple[str, ...]:
        return self._bound.join.inputs[self._bound.join.places(source)[0]].key

    def _table(self, source: str) -> Table:
        return self._bound.sources[self._bound.join.sources.index(source)]


class Commits:
    """
    The sources of one epoch commit by commit, for a timeline.

    Args:
        sources: The sources, their changes read.
        bound: The join.
        order: The commits in their order, as `positions` gives them.
    """

    def __init__(self, sources: EpochSources, bound: BoundJoin, order: DataFrame) -> None:
        self._sources = sources
        self._join = bound.join
        self._types = bound.types
        self.order = order

    def changes(self, place: int) -> DataFrame | None:
        """Give the changes of each commit of an input: `key`, `position`, `old`, `new`; None if there are none."""
        source = self._join.inputs[place].source
        if source not in self._sources.commits:
            return None
        changes = placed(self._sources.commits[source], self.order, self._join.sources.index(source))
        return changes.select(self._key(place), "position", "old", "new")

    def _key(self, place: int) -> Column:
        """Give the key of a change as an input compares it; one that changes nothing has no row to take it from."""
        join, item = self._join, self._join.inputs[place]
        named = join.inputs[join.places(item.source)[0]].key
        parts = ", ".join(
            f"'k{part}', CAST(key.k{named.index(name)} AS {type_sql(kind)})"
            for part, (name, kind) in enumerate(zip(item.key, self._types[place], strict=True))
        )
        return F.expr(f"named_struct({parts})").alias("key")

    def changed_keys(self, place: int) -> DataFrame | None:
        """Give the keys of the changes of an input, each once."""
        changes = self.changes(place)
        return None if changes is None else self.kept(f"keys_{place}", changes.select("key").distinct())

    def referring(self, link: Link, keys: DataFrame) -> DataFrame:
        """Give the keys of the rows that refer to one of the keys, at the pinned version."""
        return self._sources.referring(link, keys)

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Give the rows of inputs with one of the keys, at the pinned version."""
        return self._sources.rows(wanted)

    def kept(self, name: str, frame: DataFrame) -> DataFrame:
        """Take a frame's rows to the driver or into the stage and give them from there."""
        return self._sources.kept(f"timeline_{name}", frame)


def _plain_columns(link: Link, item: Input) -> list[str] | None:
    """Name the columns that hold a reference, if it is one of columns and nothing else."""
    named = {f"{quote(item.alias)}.{quote(column)}": column for column in item.columns}
    columns = [named.get(expression) for expression in link.expressions]
    return None if None in columns else [column for column in columns if column is not None]
