"""Read the sources of an incremental epoch: their changes, and rows by literals that prune files."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse import limits
from lakehouse.changes import key_struct, net, null_key
from lakehouse.conditions import reading
from lakehouse.direct_rows import Selection, read_directly
from lakehouse.distorted import distortion
from lakehouse.pruning import Pruning, pruning
from lakehouse.small import DriverRows, TooLarge, to_driver
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Table
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.shared_feeds import Rows
from pipelines.binding.workspace import Workspace
from pipelines.epochs.duplicate_keys import EXAMPLES, Duplicate, refuse_keys
from pipelines.joins.kernel import null_reference, reference
from pipelines.plan.values import EpochPlan
from pipelines.spec import Input, Link


class EpochSources:
    """
    The sources of one epoch.

    Args:
        workspace: Where they are.
        bound: The join.
        plan: The versions that the epoch accounts for.
        stage: Where changes and keys are materialized while the epoch is computed.
        via_driver: Whether all rows between feeds and change set pass through the driver instead; rows that prove too
            many for it raise `TooLarge`.

    `counts` holds the feed rows read, the feed rows without a key, the rows looked up and the source files read for
    these. `twice` holds the changes of sources that have a changed key more than once. `unchecked` holds the keys of
    looked-up rows that are not yet checked for duplicates, with the place of their input.
    """

    _use: Rows = "netted"

    def __init__(
        self,
        workspace: Workspace,
        bound: BoundJoin,
        plan: EpochPlan,
        stage: Stage,
        *,
        via_driver: bool,
    ) -> None:
        self._workspace = workspace
        self._bound = bound
        self._stage = stage
        self._via_driver = via_driver
        self._plan = plan
        self._ranges = {versions.name: versions for versions in plan.sources}
        self._changed: dict[str, DataFrame] = {}
        self._looked_up_already: dict[tuple[int, int], tuple[DataFrame, DataFrame]] = {}
        self._copies: dict[int, DataFrame] = {}
        self._prunings: dict[int, tuple[DataFrame, Pruning]] = {}
        self._counts = {"read": 0, "null_keys": 0, "looked_up": 0}
        self._files: set[str] = set()
        self._scans: list[DataFrame] = []
        self.unchecked: list[tuple[int, DataFrame]] = []
        self.twice: dict[str, DataFrame] = {}

    @property
    def counts(self) -> dict[str, int]:
        """The counts of what was read so far: read, null_keys, looked_up, files."""
        files = self._files.union(*(scan.inputFiles() for scan in self._scans))
        return {**self._counts, "files": len(files)}

    def read_changes(self) -> None:
        """Net the feeds in parallel; a source without changes costs no query."""
        changed = [source for source in self._bound.join.sources if self._has_changes(source)]
        with ThreadPoolExecutor() as executor:
            for source, seen in zip(changed, executor.map(self._netted, changed), strict=True):
                self._counts["read"] += seen["read"]
                self._counts["null_keys"] += seen["null_keys"]
                if (seen["copies"] or 0) > 1:
                    self.twice[source] = self._changed[source].where("copies > 1")

    def _has_changes(self, source: str) -> bool:
        return self._ranges[source].has_changes

    def changes(self, place: int) -> DataFrame | None:
        """Return the net changes of an input: `key`, `old`, `new`; None if it has none."""
        item, changes = self._bound.join.inputs[place], self._changed.get(self._bound.join.inputs[place].source)
        if changes is None:
            return None
        key = key_struct(item.key, self._bound.types[place], "IF(new IS NULL, old, new).")
        return changes.select(F.expr(key).alias("key"), "old", "new")

    def changed_keys(self, place: int) -> DataFrame | None:
        """Return the keys of the changes of an input, each once."""
        changes = self.changes(place)
        return None if changes is None else changes.select("key")

    def referring(self, place: int, wanted: Sequence[tuple[Link, DataFrame]]) -> DataFrame:
        """
        Return the keys of the rows of an input that refer to one of the keys, at the pinned version.

        One query finds them; all references by one column with few keys share one scan.
        """
        item, key = self._bound.join.inputs[place], self._key(place)
        listed, others = list[Selection](), list[tuple[Link, DataFrame, str | None]]()
        for link, keys in wanted:
            known, columns = self.pruning(keys), _plain_columns(link, item)
            predicate = known.predicate(columns) if columns else None
            if known.keys == 0:
                continue
            if columns and predicate is not None and known.exact:
                listed.append((known, columns))
            else:
                others.append((link, keys, predicate))
        direct = self._read_directly(place, item.key, listed) if listed else None
        found = [] if direct is None else [direct.frame.where(f"NOT {null_key(item.key)}").select(key)]
        if found and not others:
            return found[0]
        rows = self._rows_with_key(place).alias(item.alias)
        scans = list[DataFrame]()
        for link, keys, predicate in others:
            pruned = rows.where(f"NOT {null_reference(link)}")
            scans.append(pruned if predicate is None else pruned.where(predicate))
            of_keys = self._with_one_of(scans[-1], reference(link, self._bound.types[link.input]), keys)
            found.append(of_keys.select(key))
        if listed and direct is None:
            scans.append(rows.where(" OR ".join(f"({known.predicate(columns)})" for known, columns in listed)))
            found.append(scans[-1].select(key))
        if not found:
            return rows.where(F.lit(False)).select(key)
        referring = reduce(DataFrame.unionAll, found)
        if not self._via_driver:
            self._scans += scans
            return referring
        kept = to_driver(referring)
        self._files.update(kept.files)
        return kept.frame

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Return the rows of inputs with one of the keys, at the pinned version; other rows, too, if cheaper."""
        with ThreadPoolExecutor() as executor:
            return dict(zip(wanted, executor.map(self._looked_up, wanted, wanted.values()), strict=True))

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Materialize a frame on the driver or in the stage, and return it from there."""
        if self._via_driver:
            return to_driver(frame).frame
        self._stage.put(name, frame)
        return self._stage.get(self._workspace.spark, name, frame.schema)

    def pruning(self, keys: DataFrame) -> Pruning:
        """Return the pruning of keys; compute it once for each frame."""
        known = self._prunings.get(id(keys))
        if known is None:
            known = self._prunings[id(keys)] = (keys, pruning(keys.select("key")))
        return known[1]

    def _key(self, place: int) -> Column:
        """Return the key of an input's row, in the form that both sides of a join use."""
        return F.expr(key_struct(self._bound.join.inputs[place].key, self._bound.types[place])).alias("key")

    def _rows_with_key(self, place: int) -> DataFrame:
        """Read the rows of an input that have a key, at the pinned version."""
        item, table = self._bound.join.inputs[place], self._bound.table(place)
        return rows_of(self._workspace, item, table, table.version).where(f"NOT {null_key(item.key)}")

    def _looked_up(self, place: int, keys: Callable[[], DataFrame]) -> DataFrame:
        if not self._via_driver and self._is_read_whole(place):
            rows = self._rows_with_key(place)
            self._scans.append(rows)
            self.unchecked.append((place, rows.select(self._key(place))))
            return rows
        if self._via_driver and self._is_copied_whole(place):
            with suppress(TooLarge):
                return self._copied(place)
        wanted = keys()
        known = self._looked_up_already.get((place, id(wanted)))
        if known is None:
            known = self._looked_up_already[place, id(wanted)] = (wanted, self._found(place, wanted))
        return known[1]

    def _found(self, place: int, wanted: DataFrame) -> DataFrame:
        item = self._bound.join.inputs[place]
        direct = self._read_directly(place, item.columns, [(self.pruning(wanted), item.key)])
        if direct is not None:
            return self._kept(place, direct if self.pruning(wanted).exact else self._of_keys(place, direct, wanted))
        pruned = self._pruned(self._rows_with_key(place), place, wanted)
        if not self._via_driver:
            self._scans.append(pruned)
            names = (F.col(quote(name)) for name in item.key)
            self.unchecked.append((place, self._exactly(pruned.select(*names), place, wanted).select(self._key(place))))
            return self._exactly(pruned, place, wanted)
        return self._kept(place, to_driver(self._exactly(pruned, place, wanted)))

    def _read_directly(self, place: int, columns: Sequence[str], selections: Sequence[Selection]) -> DriverRows | None:
        """Read rows of an input by keys without Spark, if delta-rs can read them and they pass through the driver."""
        table = self._bound.table(place)
        if not self._via_driver:
            return None
        direct = read_directly(self._workspace.spark, table, table.version, columns, selections)
        if direct is not None:
            self._files.update(direct.files)
        return direct

    def _of_keys(self, place: int, rows: DriverRows, keys: DataFrame) -> DriverRows:
        """Filter rows that were read to exactly those with one of the keys."""
        key = self._bound.join.inputs[place].key
        return to_driver(self._exactly(rows.frame.where(f"NOT {null_key(key)}"), place, keys))

    def _is_copied_whole(self, place: int) -> bool:
        """
        Return whether copying a referenced table to the driver costs less than looking up keys in it.

        The tables that it refers to must be copied whole, too, since its rows refer to more of their keys than needed.
        The join may see rows to which no row refers, as it does when it is computed over whole tables.
        """
        join = self._bound.join
        further = (link.input for link in join.links if link.over == place)
        most = min(limits.SMALL_BYTES, limits.WHOLE_BYTES)
        is_small = place not in join.members and self._bound.table(place).size <= most
        return is_small and all(map(self._is_copied_whole, further))

    def _copied(self, place: int) -> DataFrame:
        """Copy a table to the driver, without computing first which of its keys are needed."""
        if place not in self._copies:
            self._copies[place] = self._kept(place, to_driver(self._rows_with_key(place)))
        return self._copies[place]

    def _kept(self, place: int, found: DriverRows) -> DataFrame:
        """Count rows that were looked up, and return them."""
        item = self._bound.join.inputs[place]
        self._files.update(found.files)
        if found.distinct(item.key) == found.rows.num_rows:
            self._counts["looked_up"] += found.rows.num_rows
        else:
            self.unchecked.append((place, found.frame.select(self._key(place))))
        return found.frame

    def _is_read_whole(self, place: int) -> bool:
        """
        Return whether a table is small enough to be read whole.

        Inputs that key the result are read whole together or not at all: a row of one input without the rows of the
        others with its key would make a row that never existed, and an expression could fail on it.
        """
        members = self._bound.join.members
        together = members if place in members else (place,)
        return all(self._bound.table(other).size <= limits.SMALL_BYTES for other in together)

    def _pruned(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        """Filter rows by literals of the keys, which skip files; some rows without one of the keys may remain."""
        predicate = self.pruning(keys).predicate(self._bound.join.inputs[place].key)
        return rows if predicate is None else rows.where(predicate)

    def _exactly(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        """Filter rows to exactly those with one of the keys."""
        if self.pruning(keys).exact:
            return rows
        key = key_struct(self._bound.join.inputs[place].key, self._bound.types[place], "source.")
        return self._with_one_of(rows.alias("source"), key, keys)

    def _with_one_of(self, rows: DataFrame, key: str, keys: DataFrame) -> DataFrame:
        """Filter rows to those whose key, given as SQL, is among the keys; broadcast a small number of keys."""
        known = F.broadcast(keys) if self.pruning(keys).keys is not None else keys
        return rows.join(known.select("key").alias("wanted"), on=F.expr(f"{key} = wanted.key"), how="left_semi")

    def _netted(self, source: str) -> Mapping[str, int]:
        """Net the feed of a source, with errors that name the source."""
        with reading(self._bound.join.name, source):
            return self._net(source)

    def _net(self, source: str) -> Mapping[str, int]:
        kinds, key = self._kinds(source), self.key_of(source)
        made = Observation()
        feed, seen = self._feed(source)
        changes = net(self._as_netted(source, feed), key, [kinds[name] for name in key], kinds)
        changes = changes.observe(made, F.count(F.lit(1)).alias("changes"), F.max("copies").alias("copies"))
        kept = self._materialize_of(source, "changes", changes)
        if made.get["changes"]:
            self._changed[source] = kept
        return {**self._counted(source, seen), **made.get}

    def _feed(self, source: str) -> tuple[DataFrame, Observation]:
        """Read the feed of a source, with an observation that counts its rows: all, without a key, distorted."""
        table, versions, key = self._table(source), self._ranges[source], self.key_of(source)
        after, to = versions.read_after, versions.to_version
        kinds = self._kinds(source)
        feed = self._workspace.feeds.read(source, table, after, to, list(kinds), self._use)
        seen = Observation()
        feed = feed.observe(
            seen,
            F.count(F.lit(1)).alias("read"),
            F.count(F.expr(f"IF({null_key(key)}, 1, NULL)")).alias("null_keys"),
            F.count_if(F.expr(distortion(kinds))).alias("distorted"),
        )
        return feed, seen

    def _counted(self, source: str, seen: Observation) -> Mapping[str, int]:
        """
        Return the counts of a feed that has been read.

        Raises:
            Distorted: The feed distorts rows.
        """
        counts: dict[str, int] = dict(seen.get)
        versions = self._ranges[source]
        number = counts.pop("distorted")
        self._workspace.feeds.refuse_distorted(self._table(source), versions.read_after, versions.to_version, number)
        return counts

    def _as_netted(self, source: str, feed: DataFrame) -> DataFrame:
        """Return the rows that net to the changes of a source, from its feed."""
        return feed

    def _materialize_of(self, source: str, name: str, frame: DataFrame) -> DataFrame:
        return self.materialize(f"{name}_{self._bound.join.sources.index(source)}", frame)

    def _kinds(self, source: str) -> dict[str, DataType]:
        """Return the columns of a source that the join uses, with their types."""
        return {name: self._table(source).schema[name].dataType for name in self._bound.used(source)}

    def key_of(self, source: str) -> tuple[str, ...]:
        """Return the key columns of a source."""
        return self._bound.join.inputs[self._bound.join.places(source)[0]].key

    def _table(self, source: str) -> Table:
        return self._bound.sources[self._bound.join.sources.index(source)]


def _plain_columns(link: Link, item: Input) -> list[str] | None:
    """Return the columns of a reference that consists of columns alone; None for any other reference."""
    named = {f"{quote(item.alias)}.{quote(column)}": column for column in item.columns}
    columns = [named.get(expression) for expression in link.expressions]
    return None if None in columns else [column for column in columns if column is not None]


def check_looked_up(bound: BoundJoin, sources: EpochSources) -> int:
    """
    Check that no source holds a looked-up key twice, by the key columns alone, with one query for all sources.

    Returns:
        The number of rows that were checked.
    """
    keys = [(place, held.groupBy("key").agg(F.count(F.lit(1)).alias("copies"))) for place, held in sources.unchecked]
    if not keys:
        return 0
    totals = [
        found.agg(F.lit(number).alias("number"), F.sum("copies").alias("rows"), F.max("copies").alias("copies"))
        for number, (_, found) in enumerate(keys)
    ]
    looked_up = 0
    for row in reduce(DataFrame.unionAll, totals).collect():
        looked_up += row["rows"] or 0
        if (row["copies"] or 0) > 1:
            place, found = keys[row["number"]]
            parts = [F.col(f"key.k{part}").cast("string") for part in range(len(bound.types[place]))]
            twice = found.where("copies > 1").select(F.array(*parts), "copies").limit(EXAMPLES)
            examples = [Duplicate(key, f"{copies} rows") for key, copies in twice.collect()]
            refuse_keys(bound.table(place).address.label, bound.join.inputs[place].key, examples)
    return looked_up
