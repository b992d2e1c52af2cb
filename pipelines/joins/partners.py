"""
The rows of two inputs whose matches an epoch can change: the touched rows of both, and their partners.

Partners are the rows of the other side that have a value which a touched row has, or had within the epoch. The value of
a row of the left side may be that of a row which it looks up before. Untouched rows look up rows that did not change.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import quote, row_struct
from pipelines.joins.difference import IMAGE, NEW
from pipelines.joins.kernel import KeyTypes, Sources, add_looked_up, null_reference, reference, referring_keys
from pipelines.joins.meaning import meaning
from pipelines.language import Output, ResolvedQuery

KEY = "key"


class Partners:
    """
    The touched rows of both sides of a pairing, and their partners.

    Args:
        touched: The keys of the touched rows of each side that has some.
    """

    def __init__(
        self, join: ResolvedQuery, types: KeyTypes, sources: Sources, touched: Mapping[int, DataFrame]
    ) -> None:
        self._join, self._pairing, self._types = join, join.paired, types
        self._sources, self._touched = sources, touched
        self._looked_up: list[dict[int, DataFrame]] = []

    def _rows(self, keys: Mapping[int, DataFrame]) -> Mapping[int, DataFrame]:
        """Read rows of the sides with some keys at the end of the epoch; others, too, if that is cheaper."""
        found = self._sources.rows({place: partial(_same, wanted) for place, wanted in keys.items()})
        items = {place: self._join.inputs[place] for place in found}
        keyless = {place: null_key(item.key, may_be_absent=item.may_be_absent) for place, item in items.items()}
        return {place: rows.where(f"NOT {keyless[place]}") for place, rows in found.items()}

    def _partner_rows(self, valued: Mapping[int, DataFrame]) -> dict[int, DataFrame]:
        """Return by side its untouched rows that have a value of touched rows of the other side."""
        others = {self._pairing.other(place): place for place in valued}
        partners = {place: self._partners(place, valued[others[place]]) for place in sorted(others)}
        found = self._rows(partners)
        return {place: self._with_keys(place, found[place], keys) for place, keys in partners.items()}

    def _partners(self, place: int, valued: DataFrame) -> DataFrame:
        """
        Return the keys of the untouched rows of a side that have a value of touched rows of the other side.

        `valued` has the rows from which the touched rows of the other side have their values.
        """
        values = self._values(self._pairing.other(place), valued, f"values_of_partners_{place}")
        found = self._with_value(place, values, f"partners_through_{place}")
        return self._sources.materialize(f"partners_{place}", self._untouched(place, found).distinct())

    def _with_value(self, place: int, values: DataFrame, name: str) -> DataFrame:
        """Return the keys of the rows of a side with one of the values at the end of the epoch, and maybe of others."""
        link = self._pairing.links[self._pairing.side(place)]
        found = self._sources.referring(link.over, [(link, values)])
        return referring_keys(link.over, found, self._join, self._sources, name)

    def _matching_untouched(self, place: int, rows: DataFrame, candidates: DataFrame) -> DataFrame:
        """Return the candidate keys of partners whose rows match an untouched row of the other side."""
        other = self._pairing.other(place)
        partners = self._with_keys(place, rows, candidates)
        valued = self._valued(place, partners, f"valued_candidates_{place}")
        values = self._values(place, valued, f"values_of_candidates_{place}")
        keys = self._untouched(other, self._with_value(other, values, f"others_through_{place}")).distinct()
        keys = self._sources.materialize(f"others_{place}", keys)
        others = self._with_keys(other, self._rows({other: keys})[other], keys)
        return self._matching_keys(place, partners, other, others, "matching_untouched")

    def _valued(self, place: int, rows: DataFrame, name: str) -> DataFrame:
        """Return the rows from which rows of a side, in images or untouched, have their values: mostly these rows."""
        over = self._pairing.links[self._pairing.side(place)].over
        if over == place:
            return rows
        return self._rows_of(over, self._with_look_ups(place, rows, name))

    def _rows_of(self, place: int, found: DataFrame) -> DataFrame:
        """Return the rows of an input from structs, whose alias may be the name of one of their columns."""
        alias = self._join.inputs[place].alias
        return found.select(f"{quote(alias)}.*")

    def _with_look_ups(self, place: int, rows: DataFrame, name: str) -> DataFrame:
        """
        Return rows of a side as a struct named by its alias, for the left side with structs of what ON uses besides.

        Rows of the left side that a look-up before the pairing leaves out are left out. Rows without an image are
        untouched: what they look up is the same in both images.
        """
        item = self._join.inputs[place]
        known = rows if IMAGE in rows.columns else rows.withColumn(IMAGE, F.lit(NEW))
        if place != self._pairing.left:
            own = F.expr(row_struct(item.columns, "")).alias(item.alias)
            found = known.select(IMAGE, own)
        else:
            found = self._joined(known, f"{name}_of_{self._pairing.side(place)}")
        return found if IMAGE in rows.columns else found.drop(IMAGE)

    def _joined(self, rows: DataFrame, name: str) -> DataFrame:
        """Join rows of the left side, in images, with what they look up before the pairing."""
        inputs = self._join.inputs
        needed = (inputs[place] for place in (self._pairing.left, *self._pairing.looked_up))
        structs = (Output(one.alias, row_struct(one.columns, f"{quote(one.alias)}.")) for one in needed)
        before = self._join.up_to(self._pairing.right, tuple(structs))
        state = self._state(rows)
        if state is None:
            state = {self._pairing.left: rows}
            add_looked_up(state, before, self._types, self._sources, name)
            self._looked_up.append(state)
        return meaning([state[place] for place in range(len(before.inputs))], before, [IMAGE])

    def _state(self, rows: DataFrame) -> dict[int, DataFrame] | None:
        """Return rows of the left side and those that they have looked up, by input; None if they have not yet."""
        return next((state for state in self._looked_up if state[self._pairing.left] is rows), None)

    def _matching_keys(
        self, place: int, rows: DataFrame, other: int, others: DataFrame, name: str, also: Sequence[str] = ()
    ) -> DataFrame:
        """Return the keys of rows of one side that match rows of the other side, with columns of the latter."""
        if self._join.matches_looked_up:
            rows, others = (
                self._with_look_ups(side, frame, f"{name}_{place}") for side, frame in ((place, rows), (other, others))
            )
        one, another = (self._join.inputs[side].alias for side in (place, other))
        joined = rows.alias(one).join(others.alias(another), on=F.expr(self._pairing.on), how="inner")
        key = key_struct(self._join.inputs[place].key, self._types[place], f"{quote(one)}.")
        further = (F.col(quote(another, name)).alias(name) for name in also)
        return joined.select(F.expr(key).alias(KEY), *further)

    def _values(self, place: int, valued: DataFrame, name: str) -> DataFrame:
        """Return the distinct values of rows of a side as `key`, materialized under a name; a null has no value."""
        link = self._pairing.links[self._pairing.side(place)]
        found = valued.alias(self._join.inputs[link.over].alias).where(f"NOT {null_reference(link)}")
        value = F.expr(reference(link, self._types[link.input])).alias(KEY)
        distinct = found.select(value).distinct()
        return self._sources.materialize(name, distinct)

    def _with_keys(self, place: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        return self._by_key(place, rows, keys, "left_semi")

    def _by_key(self, place: int, rows: DataFrame, keys: DataFrame, how: str) -> DataFrame:
        same_key = f"{key_struct(self._join.inputs[place].key, self._types[place], 'row.')} = known.key"
        return rows.alias("row").join(keys.alias("known"), on=F.expr(same_key), how=how)

    def _untouched(self, place: int, keys: DataFrame) -> DataFrame:
        return self._without(keys, self._touched[place]) if place in self._touched else keys

    def _without(self, keys: DataFrame, others: DataFrame) -> DataFrame:
        return keys.alias("one").join(others.alias("other"), on=F.expr("one.key = other.key"), how="left_anti")


def _same(frame: DataFrame) -> DataFrame:
    return frame
