"""
The incremental step of a join whose rows match in any number: touched rows, their partners, and unmatched rows.

    changes ──► touched rows of both sides ──► their values ──► partners: rows of the other side with such a value
                       │                                           │
                       └──► meaning of both images, in which one of two rows that match is touched ──► difference

A changed order of a customer with 1,000 orders makes one pair, not a thousand. An untouched partner on an outer side is
in the result without a match only if it matches no untouched row either; that is looked up where it matters: where the
partner matches touched rows in exactly one of the two images.

Partners are the rows of the other side that have a value which a touched row has, or had within the epoch. The value of
a row of the left side may be that of a row which it looks up before. Untouched rows look up rows that did not change.
"""

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import quote, row_struct
from pipelines.joins.difference import IMAGE, NEW, OLD, difference
from pipelines.joins.kernel import (
    KeyTypes,
    Sources,
    add_looked_up,
    affected_keys,
    images,
    null_reference,
    reference,
    referring_keys,
)
from pipelines.joins.meaning import TOUCHED, UNMATCHED, meaning
from pipelines.language import Output, ResolvedQuery

KEY = "key"


class Partners:
    """The touched rows of both sides of a pairing, by the keys of each side that has some, and their partners."""

    def __init__(
        self, join: ResolvedQuery, types: KeyTypes, sources: Sources, touched: Mapping[int, DataFrame]
    ) -> None:
        self._join, self._pairing, self._types = join, join.paired, types
        self._sources, self._touched = sources, touched
        self._looked_up: list[dict[int, DataFrame]] = []

    def _rows(self, keys: Mapping[int, DataFrame]) -> Mapping[int, DataFrame]:
        """Read rows of the sides with some keys at the end of the epoch; others, too, if that is cheaper."""
        read = self._sources.rows({index: partial(_same, wanted) for index, wanted in keys.items()})
        items = {index: self._join.inputs[index] for index in read}
        keyless = {index: null_key(item.key, may_be_absent=item.may_be_absent) for index, item in items.items()}
        return {index: rows.where(f"NOT {keyless[index]}") for index, rows in read.items()}

    def _partner_rows(self, valued: Mapping[int, DataFrame]) -> dict[int, DataFrame]:
        """Return by side its untouched rows that have a value of touched rows of the other side."""
        others = {self._pairing.other(index): index for index in valued}
        partners = {index: self._partners(index, valued[others[index]]) for index in sorted(others)}
        rows = self._rows(partners)
        return {index: self._with_keys(index, rows[index], keys) for index, keys in partners.items()}

    def _partners(self, index: int, valued: DataFrame) -> DataFrame:
        """Return the keys of the untouched rows of a side that have a value of `valued`, rows of the other side."""
        values = self._values(self._pairing.other(index), valued, f"values_of_partners_{index}")
        keys = self._with_value(index, values, f"partners_through_{index}")
        return self._sources.materialize(f"partners_{index}", self._untouched(index, keys).distinct())

    def _with_value(self, index: int, values: DataFrame, name: str) -> DataFrame:
        """Return the keys of the rows of a side with one of the values at the end of the epoch, and maybe of others."""
        link = self._pairing.links[self._pairing.side(index)]
        keys = self._sources.referring(link.over, [(link, values)])
        return referring_keys(link.over, keys, self._join, self._sources, name)

    def _matching_untouched(self, index: int, rows: DataFrame, candidates: DataFrame) -> DataFrame:
        """Return the candidate keys of partners whose rows match an untouched row of the other side."""
        other = self._pairing.other(index)
        partners = self._with_keys(index, rows, candidates)
        valued = self._valued(index, partners, f"valued_candidates_{index}")
        values = self._values(index, valued, f"values_of_candidates_{index}")
        keys = self._untouched(other, self._with_value(other, values, f"others_through_{index}")).distinct()
        keys = self._sources.materialize(f"others_{index}", keys)
        others = self._with_keys(other, self._rows({other: keys})[other], keys)
        return self._matching_keys(index, partners, other, others, "matching_untouched")

    def _valued(self, index: int, rows: DataFrame, name: str) -> DataFrame:
        """Return the rows from which rows of a side, in images or untouched, have their values: mostly these rows."""
        over = self._pairing.links[self._pairing.side(index)].over
        if over == index:
            return rows
        return self._rows_of(over, self._with_look_ups(index, rows, name))

    def _rows_of(self, index: int, structs: DataFrame) -> DataFrame:
        """Return the rows of an input from structs, whose alias may be the name of one of their columns."""
        return structs.select(f"{quote(self._join.inputs[index].alias)}.*")

    def _with_look_ups(self, index: int, rows: DataFrame, name: str) -> DataFrame:
        """
        Return rows of a side as a struct named by its alias, for the left side with structs of what ON uses besides.

        Rows of the left side that a look-up before the pairing leaves out are left out. Rows without an image are
        untouched: what they look up is the same in both images.
        """
        item, has_images = self._join.inputs[index], IMAGE in rows.columns
        imaged = rows if has_images else rows.withColumn(IMAGE, F.lit(NEW))
        if index != self._pairing.left:
            structs = imaged.select(IMAGE, F.expr(row_struct(item.columns)).alias(item.alias))
        else:
            structs = self._joined(imaged, f"{name}_of_{self._pairing.side(index)}")
        return structs if has_images else structs.drop(IMAGE)

    def _joined(self, rows: DataFrame, name: str) -> DataFrame:
        """Join rows of the left side, in images, with what they look up before the pairing."""
        needed = (self._join.inputs[index] for index in (self._pairing.left, *self._pairing.looked_up))
        structs = (Output(item.alias, row_struct(item.columns, f"{quote(item.alias)}.")) for item in needed)
        before = self._join.up_to(self._pairing.right, tuple(structs))
        state = self._state(rows)
        if state is None:
            state = {self._pairing.left: rows}
            add_looked_up(state, before, self._types, self._sources, name)
            self._looked_up.append(state)
        return meaning([state[index] for index in range(len(before.inputs))], before, [IMAGE])

    def _state(self, rows: DataFrame) -> dict[int, DataFrame] | None:
        """Return rows of the left side and those that they have looked up, by input; None if they have not yet."""
        return next((state for state in self._looked_up if state[self._pairing.left] is rows), None)

    def _matching_keys(
        self, index: int, rows: DataFrame, other: int, others: DataFrame, name: str, also: Sequence[str] = ()
    ) -> DataFrame:
        """Return the keys of rows of one side that match rows of the other side, with columns of the latter."""
        if self._join.matches_looked_up:
            rows, others = (
                self._with_look_ups(side, frame, f"{name}_{index}") for side, frame in ((index, rows), (other, others))
            )
        one, another = (self._join.inputs[side].alias for side in (index, other))
        joined = rows.alias(one).join(others.alias(another), on=F.expr(self._pairing.on), how="inner")
        key = key_struct(self._join.inputs[index].key, self._types[index], f"{quote(one)}.")
        further = (F.col(quote(another, name)).alias(name) for name in also)
        return joined.select(F.expr(key).alias(KEY), *further)

    def _values(self, index: int, valued: DataFrame, name: str) -> DataFrame:
        """Return the distinct values of rows of a side as `key`, materialized under a name; a null has no value."""
        link = self._pairing.links[self._pairing.side(index)]
        rows = valued.alias(self._join.inputs[link.over].alias).where(f"NOT {null_reference(link)}")
        value = F.expr(reference(link, self._types[link.input])).alias(KEY)
        return self._sources.materialize(name, rows.select(value).distinct())

    def _with_keys(self, index: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        return self._by_key(index, rows, keys, "left_semi")

    def _by_key(self, index: int, rows: DataFrame, keys: DataFrame, how: str) -> DataFrame:
        same_key = f"{key_struct(self._join.inputs[index].key, self._types[index], 'row.')} = known.key"
        return rows.alias("row").join(keys.alias("known"), on=F.expr(same_key), how=how)

    def _untouched(self, index: int, keys: DataFrame) -> DataFrame:
        return self._without(keys, self._touched[index]) if index in self._touched else keys

    def _without(self, keys: DataFrame, others: DataFrame) -> DataFrame:
        return keys.alias("one").join(others.alias("other"), on=F.expr("one.key = other.key"), how="left_anti")


def _same(frame: DataFrame) -> DataFrame:
    return frame


def change_set_of_pairs(join: ResolvedQuery, types: KeyTypes, sources: Sources) -> DataFrame | None:
    """
    Compute the change set of an epoch of a join with a pairing; None if no row is touched.

    It is that of `difference`, by the keys of both sides, of which those of an absent side are null. `types` has the
    types in which keys are compared, and after those of the inputs the types of the values.
    """
    affected = affected_keys(join, sources)
    touched = {index: affected[index] for index in join.paired.places if index in affected}
    if not touched:
        return None
    return _Pairs(join, types, sources, touched).changes()


class _Pairs(Partners):
    def changes(self) -> DataFrame:
        join = self._join
        touched_rows = self._rows(self._touched)
        own = {index: self._images(index, touched_rows[index], self._touched[index]) for index in self._touched}
        valued = {index: self._valued(index, rows, f"valued_{index}") for index, rows in own.items()}
        partner_rows = self._partner_rows(valued)
        state = {index: self._side(index, own, partner_rows) for index in self._pairing.places}
        left = self._pairing.left
        known = self._state(own[left]) if left in own and left not in partner_rows else None
        state = {**(known or {}), **state}  # rows that the touched rows of the left side have looked up
        add_looked_up(state, join, self._types, self._sources)
        inputs = [state[index] for index in range(len(join.inputs))]
        return difference(meaning(inputs, join, [IMAGE], of_touched=True), join.key)

    def _images(self, index: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        item = self._join.inputs[index]
        both = images(self._sources.changes(index), rows, item, self._types[index])
        return self._sources.materialize(f"touched_rows_{index}", self._with_keys(index, both, keys))

    def _side(self, index: int, own: dict[int, DataFrame], partner_rows: dict[int, DataFrame]) -> DataFrame:
        """Return the touched rows of a side and their partners on it, in both images, with TOUCHED and UNMATCHED."""
        parts = []
        if index in own:
            parts.append(own[index].withColumns({TOUCHED: F.lit(True), UNMATCHED: F.lit(True)}))
        if index in partner_rows:
            parts.append(self._partner_images(index, own, partner_rows[index]))
        return reduce(DataFrame.unionByName, parts)

    def _partner_images(self, index: int, own: dict[int, DataFrame], rows: DataFrame) -> DataFrame:
        """Return the partners on a side in both images, with UNMATCHED: whether they match no untouched row."""
        is_outer = self._pairing.outer[self._pairing.side(index)]
        unmatched = self._unmatched_keys(index, own, rows) if is_outer else None
        marked = rows.withColumn(UNMATCHED, F.lit(False)) if unmatched is None else self._marked(index, rows, unmatched)
        both = F.explode(F.array(F.lit(OLD), F.lit(NEW))).alias(IMAGE)
        return marked.select("*", both, F.lit(False).alias(TOUCHED))

    def _unmatched_keys(self, index: int, own: dict[int, DataFrame], rows: DataFrame) -> DataFrame:
        """Return the keys of the partners that match touched rows in one image only, and no untouched row in any."""
        other = self._pairing.other(index)
        matching = self._matching_keys(index, rows, other, own[other], "matching", also=[IMAGE])
        once = matching.groupBy(KEY).agg(F.countDistinct(IMAGE).alias("times")).where("times = 1").drop("times")
        candidates = self._sources.materialize(f"candidates_{index}", once)
        return self._without(candidates, self._matching_untouched(index, rows, candidates))

    def _marked(self, index: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Add UNMATCHED to rows of a side: whether their key is one of the keys."""
        joined = self._by_key(index, rows, keys, "left")
        columns = (F.col(quote("row", name)) for name in rows.columns)
        return joined.select(*columns, F.expr("known.key IS NOT NULL").alias(UNMATCHED))
