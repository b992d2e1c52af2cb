"""Read the sources of an incremental epoch: their changes, and the rows that the changes make necessary."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable
from lakehouse.errors.remedies import Remedy
from lakehouse.feed.distorted import distortion
from lakehouse.tables.table import Table
from lakehouse.values.net_changes import key_struct, net, null_key
from lakehouse.values.pruning import Pruning
from pipelines.binding.bound import BoundJoin
from pipelines.binding.shared_feeds import Rows
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.duplicate_keys import EXAMPLES, Duplicate, refuse_keys
from pipelines.epochs.sources.lookups import LookUps
from pipelines.epochs.sources.scratch import Scratch
from pipelines.spec import Input, Link


class EpochSources:
    """
    The sources of one epoch.

    Args:
        workspace: Where they are.
        epoch: The epoch.
        scratch: Where changes and keys are kept while the epoch is computed.

    `counts` holds the feed rows read, the feed rows without a key, the rows looked up and the source files read for
    these. `twice` holds the changes of sources that have a changed key more than once.
    """

    _use: Rows = "netted"
    _copies_tables = True

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace = workspace
        self._bound = epoch.bound
        self._scratch = scratch
        self._via_driver = scratch.via_driver
        self._plan = epoch.plan
        self._ranges = {versions.name: versions for versions in epoch.plan.sources}
        self._changed: dict[str, DataFrame] = {}
        self._lookups = LookUps(workspace, epoch.bound, via_driver=scratch.via_driver, copies=self._copies_tables)
        self._counts = {"read": 0, "null_keys": 0}
        self._unchecked: list[tuple[int, DataFrame]] = []
        self.twice: dict[str, DataFrame] = {}

    @property
    def counts(self) -> dict[str, int]:
        """The counts of what was read so far: read, null_keys, looked_up, files."""
        found = self._lookups.found
        files = {
            file for each in found for file in (*each.files, *(f for scan in each.scans for f in scan.inputFiles()))
        }
        return {**self._counts, "looked_up": sum(each.number for each in found), "files": len(files)}

    @property
    def unchecked(self) -> list[tuple[int, DataFrame]]:
        """The keys of looked-up rows that may be held twice, with the place of their input."""
        looked_up = [(each.place, each.unchecked) for each in self._lookups.found if each.unchecked is not None]
        return [*looked_up, *self._unchecked]

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
        """Return the keys of the rows of an input that refer to one of the keys, at the pinned version."""
        return self._lookups.referring(place, wanted, self.changed_keys(place))

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Return the rows of inputs with one of the keys, at the pinned version; other rows, too, if cheaper."""
        return self._lookups.rows(wanted)

    def pruning(self, keys: DataFrame, place: int | None = None) -> Pruning:
        """Return the pruning of keys, in which an input may have nulls; compute it once for each frame."""
        return self._lookups.pruning(keys, place)

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Keep the rows of a frame, and return them from where they are."""
        return self._scratch.keep(name, frame)

    def _netted(self, source: str) -> Mapping[str, int]:
        """Net the feed of a source, with errors that name the source."""
        with reading(self._bound.join.name, source):
            return self._net(source)

    def _net(self, source: str) -> Mapping[str, int]:
        kinds, key, may_be_absent = self._kinds(source), self.key_of(source), self._input_of(source).may_be_absent
        made = Observation()
        feed, seen = self._feed(source)
        types = [kinds[name] for name in key]
        changes = net(self._as_netted(source, feed), key, types, kinds, may_be_absent=may_be_absent)
        changes = changes.observe(made, F.count(F.lit(1)).alias("changes"), F.max("copies").alias("copies"))
        kept = self._materialize_of(source, "changes", changes)
        if made.get["changes"]:
            self._changed[source] = kept
        return {**self._counted(source, seen), **made.get}

    def _feed(self, source: str) -> tuple[DataFrame, Observation]:
        """Read the feed of a source, with an observation that counts its rows, some kinds of them one by one."""
        table, versions, item = self._table(source), self._ranges[source], self._input_of(source)
        after, to = versions.read_after, versions.to_version
        kinds, keyless = self._kinds(source), null_key(item.key, may_be_absent=item.may_be_absent)
        feed = self._workspace.feeds.read(source, table, after, to, list(kinds), self._use)
        seen = Observation()
        feed = feed.observe(
            seen,
            F.count(F.lit(1)).alias("read"),
            F.count(F.expr(f"IF({keyless}, 1, NULL)")).alias("null_keys"),
            F.count_if(F.expr(distortion(kinds))).alias("distorted"),
            F.count_if(F.expr("_change_type = 'update_preimage'")).alias("before_updates"),
            F.count_if(F.expr("_change_type = 'update_postimage'")).alias("after_updates"),
        )
        return feed, seen

    def _counted(self, source: str, seen: Observation) -> Mapping[str, int]:
        """
        Return the counts of a feed that has been read.

        Raises:
            Distorted: The feed distorts rows.
            FeedUnavailable: The feed lacks rows as they were before updates.
        """
        counts: dict[str, int] = dict(seen.get)
        versions = self._ranges[source]
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
        return self._input_of(source).key

    def _input_of(self, source: str) -> Input:
        """Return the first input that reads a source."""
        return self._bound.join.inputs[self._bound.join.places(source)[0]]

    def _table(self, source: str) -> Table:
        return self._bound.sources[self._bound.join.sources.index(source)]


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
