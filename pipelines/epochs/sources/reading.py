"""The sources of an incremental epoch: their changes, and the rows that the changes make necessary."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.net_changes import fields_of, key_struct
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.epochs.sources.duplicate_keys import EXAMPLES, Duplicate, refuse_keys
from pipelines.epochs.sources.feeds import Changes, SourceFeeds
from pipelines.epochs.sources.lookups import LookUps
from pipelines.joins.groups import changed_groups
from pipelines.language import Grouping, Link


class EpochSources:
    """
    The sources of one epoch, as `kernel.Sources`.

    Args:
        read: The changes of the inputs whose feeds are read, `ResolvedQuery.feeds`, as far as they have some.
        copies_tables: Whether small tables to which others refer may be copied whole instead of looked up by key.
    """

    def __init__(self, feeds: SourceFeeds, read: Mapping[int, Changes], *, copies_tables: bool = True) -> None:
        self._bound, self._scratch, self._read = feeds.bound, feeds.scratch, read
        self._lookups = LookUps(feeds.workspace, feeds.bound, via_driver=feeds.scratch.via_driver, copies=copies_tables)
        self._unchecked: list[tuple[int, DataFrame]] = []
        self._groups: dict[int, DataFrame] = {}

    @property
    def counts(self) -> dict[str, int]:
        """The counts of what was read so far: read, null_keys, looked_up, files."""
        found = self._lookups.found
        files = {
            file for each in found for file in (*each.files, *(f for scan in each.scans for f in scan.inputFiles()))
        }
        by_source = {self._bound.join.inputs[place].source: changes.counts for place, changes in self._read.items()}
        seen = {name: sum(counts[name] for counts in by_source.values()) for name in ("read", "null_keys")}
        return {**seen, "looked_up": sum(each.number for each in found), "files": len(files)}

    @property
    def unchecked(self) -> list[tuple[int, DataFrame]]:
        """The keys of looked-up rows that may be held twice, with the place of their input."""
        looked_up = [(each.place, each.unchecked) for each in self._lookups.found if each.unchecked is not None]
        return [*looked_up, *self._unchecked]

    def check_later(self, place: int, keys: DataFrame) -> None:
        """Add keys of rows of an input that may be held twice to those that are unchecked."""
        self._unchecked.append((place, keys))

    def changes(self, place: int) -> DataFrame | None:
        """Return the net changes of an input: `key`, `old`, `new`; None if it has none."""
        item, read = self._bound.join.inputs[place], self._read.get(self._bound.join.feed_of(place))
        changes = None if read is None else read.net
        if changes is None:
            return None
        if item.grouping is not None:
            if place not in self._groups:
                self._groups[place] = self._changed_groups(place, item.grouping, changes)
            return self._groups[place]
        key = key_struct(item.key, self._bound.types[place], "IF(new IS NULL, old, new).")
        return changes.select(F.expr(key).alias("key"), "old", "new")

    def _changed_groups(self, place: int, grouping: Grouping, changes: DataFrame) -> DataFrame:
        """Return the changes of an input that groups rows, from the changes of these."""
        item = self._bound.join.inputs[place]
        types, images = self._bound.types[place], changes.selectExpr("explode(array(old, new)) AS row")
        has_key = " AND ".join(f"row.{quote(name)} IS NOT NULL" for name in item.key)
        values = images.where(has_key).select(F.expr(key_struct(item.key, types, "row.")).alias("key"))
        values = self.materialize(f"values_{place}", values.distinct())
        types_of_rows = [field.dataType for field in fields_of(changes, "key")]
        keys = changes.where("new IS NOT NULL").select("key")
        held, with_one_of = self._lookups.grouped(place, types_of_rows, values, keys)
        self.check_later(place, with_one_of)
        return self.materialize(f"groups_{place}", changed_groups(changes, held, item, grouping, types, types_of_rows))

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

    def is_read_whole(self, place: int) -> bool:
        """Return whether a table is small enough to be read whole."""
        return self._lookups.is_read_whole(place)

    def pruning(self, keys: DataFrame, place: int | None = None) -> Pruning:
        """Return the pruning of keys, in which an input may have nulls; compute it once for each frame."""
        return self._lookups.pruning(keys, place)

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Keep the rows of a frame, and return them from where they are."""
        return self._scratch.keep(name, frame)


def check_looked_up(bound: BoundJoin, sources: EpochSources) -> int:
    """
    Check by one query of the key columns that no source holds a looked-up key twice; return the number of rows checked.

    Raises:
        DuplicateKey: A source holds one twice.
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
            parts = [F.col(f"key.{name}").cast("string") for name in fields_of(found, "key").fieldNames()]
            twice = found.where("copies > 1").select(F.array(*parts), "copies").limit(EXAMPLES)
            examples = [Duplicate(key, f"{copies} rows") for key, copies in twice.collect()]
            refuse_keys(bound.table(place).address.label, bound.join.inputs[place].source_key, examples)
    return looked_up
