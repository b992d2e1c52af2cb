"""
Look up rows of the sources of an incremental epoch: those with some keys, and those that refer to some keys.

Literals of the keys skip files. Where the keys of an input and the references from it can be listed, one scan reads all
its touched rows.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse import limits
from lakehouse.values.driver_rows import DriverRows, TooLarge, to_driver
from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.pruning import Pruning, null_safe_pruning, pruning
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.joins.kernel import null_reference, reference
from pipelines.language import Input, Link


@dataclass(frozen=True)
class Found:
    """
    What a look-up in an input found.

    Args:
        rows: The rows, or only their keys.
        number: The number of rows, if no key occurs twice; else 0.
        files: The files that were read.
        scans: Frames that read files when an action runs; they then know which.
        unchecked: The keys of rows that may hold a key twice; None for none.
    """

    place: int
    rows: DataFrame
    number: int = 0
    files: Sequence[str] = ()
    scans: Sequence[DataFrame] = ()
    unchecked: DataFrame | None = None


class LookUps:
    """
    The look-ups of one epoch; `found` holds what was looked up so far.

    Args:
        via_driver: Whether rows pass through the driver; rows that prove too many for it raise `TooLarge`.
        copies: Whether small tables to which others refer may be copied whole instead.
    """

    def __init__(self, workspace: Workspace, bound: BoundJoin, *, via_driver: bool, copies: bool) -> None:
        self._workspace = workspace
        self._bound = bound
        self._via_driver = via_driver
        self._copies = copies
        self._prunings: dict[DataFrame, Pruning] = {}
        self._whole: dict[int, Found] = {}
        self._of_keys: dict[tuple[int, DataFrame], Found] = {}
        self.found: list[Found] = []

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Return the rows of inputs with one of the keys, at the pinned version; other rows, too, if cheaper."""
        with ThreadPoolExecutor() as executor:
            each = dict(zip(wanted, executor.map(self._looked_up, wanted, wanted.values()), strict=True))
        self.found += [found for found in each.values() if found not in self.found]
        return {place: found.rows for place, found in each.items()}

    def referring(self, place: int, wanted: Sequence[tuple[Link, DataFrame]], changed: DataFrame | None) -> DataFrame:
        """
        Return the keys of the rows of an input that refer to one of the keys, and maybe of rows that changed.

        All references by one column with few keys share one scan at the pinned version. If no other scan of the input
        is needed, it reads whole rows, which `rows` then returns. `changed` has the changed keys of the input, if any.
        """
        item, key = self._bound.join.inputs[place], self._key(place)
        exact, others = list[str](), list[tuple[Link, DataFrame, str | None]]()
        for link, keys in wanted:
            known, columns = self.pruning(keys, link.input), _plain_columns(link, item)
            predicate = known.predicate(columns) if columns else None
            if known.keys == 0:
                continue
            if predicate is not None and known.exact:
                exact.append(f"({predicate})")
            else:
                others.append((link, keys, predicate))
        rows = self._rows_with_key(place).alias(item.alias)
        own = self._own_predicates(place, changed) if exact and not others else None
        if own is not None:
            touched = to_driver(rows.where(" OR ".join([*exact, *own])))
            self._whole[place] = self._kept(place, touched)
            return touched.frame.select(key)
        parts, scans = list[DataFrame](), list[DataFrame]()
        for link, keys, predicate in others:
            pruned = rows.where(f"NOT {null_reference(link)}")
            scans.append(pruned if predicate is None else pruned.where(predicate))
            key_of_row = reference(link, self._bound.types[link.input])
            of_keys = self._with_one_of(scans[-1], key_of_row, keys, self.pruning(keys, link.input))
            parts.append(of_keys.select(key))
        if exact:
            scans.append(rows.where(" OR ".join(exact)))
            parts.append(scans[-1].select(key))
        if not parts:
            return rows.where(F.lit(False)).select(key)
        keys_found = reduce(DataFrame.unionAll, parts)
        if not self._via_driver:
            self.found.append(Found(place, keys_found, scans=scans))
            return keys_found
        kept = to_driver(keys_found)
        self.found.append(Found(place, kept.frame, files=kept.files))
        return kept.frame

    def grouped(
        self, place: int, types: Sequence[DataType], values: DataFrame, keys: DataFrame
    ) -> tuple[DataFrame, DataFrame]:
        """
        Return rows that an input groups, at the pinned version: those in one of the groups, and maybe others; and the
        keys (`key`) of those that have one of the keys: a key that several rows have occurs several times.

        Args:
            types: The types in which the keys of rows are compared.
            values: The keys of the groups, each once; `keys` has those of the rows.
        """
        item, table = self._bound.join.inputs[place], self._bound.table(place)
        rows, own = rows_of(self._workspace, item.ungrouped, table, table.version), item.ungrouped
        of_groups, of_rows = self.pruning(values, place), (null_safe_pruning if own.may_be_absent else pruning)(keys)
        in_group, has_key = of_groups.predicate(item.key), of_rows.predicate(own.key)
        key = F.expr(key_struct(own.key, types)).alias("key")
        if self._via_driver and of_groups.exact and of_rows.exact and in_group and has_key:
            with suppress(TooLarge):  # one scan for both
                read = to_driver(rows.where(f"({in_group}) OR ({has_key})"))
                self.found.append(Found(place, read.frame, files=read.files))
                return read.frame, read.frame.where(has_key).select(key)
        pruned = rows if in_group is None else rows.where(in_group)
        self.found.append(Found(place, pruned, scans=[pruned]))
        with_key = (rows if has_key is None else rows.where(has_key)).alias("source")
        of_keys = self._with_one_of(with_key, key_struct(own.key, types, "source."), keys, of_rows)
        return self._exactly(pruned, place, values), of_keys.select(key)

    def pruning(self, keys: DataFrame, place: int | None) -> Pruning:
        """Return the pruning of keys of an input, or None for keys without nulls; compute it once for each frame."""
        if keys not in self._prunings:
            self._prunings[keys] = pruning_of(self._bound, keys, place)
        return self._prunings[keys]

    def is_read_whole(self, place: int) -> bool:
        """
        Return whether a table is small enough to be read whole.

        Inputs that key the result are read whole together or not at all: a row of one input without the rows of the
        others with its key would make a row that never existed, and an expression could fail on it.
        """
        members = self._bound.join.members
        together = members if place in members else (place,)
        return all(self._bound.table(other).size <= limits.SMALL_BYTES for other in together)

    def _looked_up(self, place: int, keys: Callable[[], DataFrame]) -> Found:
        if place in self._whole:
            return self._whole[place]
        if not self._via_driver and self.is_read_whole(place):
            rows = self._rows_with_key(place)
            return Found(place, rows, scans=[rows], unchecked=rows.select(self._key(place)))
        if self._via_driver and self._is_copied_whole(place):
            with suppress(TooLarge):
                self._whole[place] = self._copied(place)
                return self._whole[place]
        wanted = keys()
        if (place, wanted) not in self._of_keys:
            self._of_keys[place, wanted] = self._with_keys(place, wanted)
        return self._of_keys[place, wanted]

    def _own_predicates(self, place: int, changed: DataFrame | None) -> list[str] | None:
        """
        Return the predicates of the changed rows of an input, if they and the rows that refer are all that is needed.

        They are if no other input has the key of the result. The changelog of an epoch needs more: the rows with keys
        whose changes cancel out. Keys of several parts would select further rows.

        Returns:
            None if the input has to be scanned again.
        """
        if not self._via_driver or self._bound.changelog is not None or tuple(self._bound.join.members) != (place,):
            return None
        if changed is None:
            return []
        known = self.pruning(changed, place)
        predicate = known.predicate(self._bound.join.inputs[place].key)
        return [f"({predicate})"] if predicate is not None and known.exact else None

    def _with_keys(self, place: int, wanted: DataFrame) -> Found:
        item = self._bound.join.inputs[place]
        pruned = self._pruned(self._rows_with_key(place), place, wanted)
        if self._via_driver:
            return self._kept(place, to_driver(self._exactly(pruned, place, wanted)))
        names = (F.col(quote(name)) for name in item.key)
        unchecked = self._exactly(pruned.select(*names), place, wanted).select(self._key(place))
        return Found(place, self._exactly(pruned, place, wanted), scans=[pruned], unchecked=unchecked)

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
        return self._copies and is_small and all(map(self._is_copied_whole, further))

    def _copied(self, place: int) -> Found:
        return self._kept(place, to_driver(self._rows_with_key(place)))

    def _kept(self, place: int, rows: DriverRows) -> Found:
        if rows.distinct(self._bound.join.inputs[place].key) == rows.rows.num_rows:
            return Found(place, rows.frame, rows.rows.num_rows, rows.files)
        return Found(place, rows.frame, files=rows.files, unchecked=rows.frame.select(self._key(place)))

    def _key(self, place: int) -> Column:
        return F.expr(key_struct(self._bound.join.inputs[place].key, self._bound.types[place])).alias("key")

    def _rows_with_key(self, place: int) -> DataFrame:
        """Read the rows of an input that have a key, at the pinned version."""
        item, table = self._bound.join.inputs[place], self._bound.table(place)
        keyless = null_key(item.key, may_be_absent=item.may_be_absent)
        return rows_of(self._workspace, item, table, table.version).where(f"NOT {keyless}")

    def _pruned(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        """Filter rows by literals of the keys, which skip files; some rows without one of the keys may remain."""
        predicate = self.pruning(keys, place).predicate(self._bound.join.inputs[place].key)
        return rows if predicate is None else rows.where(predicate)

    def _exactly(self, rows: DataFrame, place: int, keys: DataFrame) -> DataFrame:
        known = self.pruning(keys, place)
        if known.exact:
            return rows
        key = key_struct(self._bound.join.inputs[place].key, self._bound.types[place], "source.")
        return self._with_one_of(rows.alias("source"), key, keys, known)

    def _with_one_of(self, rows: DataFrame, key: str, keys: DataFrame, known: Pruning) -> DataFrame:
        """Filter rows to those whose key, given as SQL, is among the keys; broadcast a small number of keys."""
        wanted = F.broadcast(keys) if known.keys is not None else keys
        return rows.join(wanted.select("key").alias("wanted"), on=F.expr(f"{key} = wanted.key"), how="left_semi")


def pruning_of(bound: BoundJoin, keys: DataFrame, place: int | None) -> Pruning:
    """Compute the pruning of keys of an input, some parts of which may be null; None for keys without nulls."""
    has_nulls = place is not None and bound.join.may_have_nulls(place)
    return (null_safe_pruning if has_nulls else pruning)(keys.select("key"))


def _plain_columns(link: Link, item: Input) -> list[str] | None:
    """Return the columns of a reference that consists of columns alone; None for any other reference."""
    named = {f"{quote(item.alias)}.{quote(column)}": column for column in item.columns}
    columns = [named.get(expression) for expression in link.expressions]
    return None if None in columns else [column for column in columns if column is not None]
