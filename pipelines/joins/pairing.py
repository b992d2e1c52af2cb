"""
The incremental step of a join whose rows match in any number: touched rows, their partners, and unmatched rows.

    changes ──► touched rows of both sides ──► their values ──► partners: rows of the other side with such a value
                       │                                           │
                       └──► meaning of both images, in which one of two rows that match is touched ──► difference

A changed order of a customer with 1,000 orders makes one pair, not a thousand. An untouched partner on an outer side is
in the result without a match only if it matches no untouched row either; that is looked up where it matters: where the
partner matches touched rows in exactly one of the two images.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.sqltext import quote
from pipelines.joins.difference import IMAGE, NEW, OLD, difference
from pipelines.joins.kernel import KeyTypes, Sources, add_looked_up, affected_keys, images
from pipelines.joins.meaning import TOUCHED, UNMATCHED, meaning
from pipelines.joins.partners import KEY, Partners
from pipelines.language import ResolvedQuery


def change_set_of_pairs(join: ResolvedQuery, types: KeyTypes, sources: Sources) -> DataFrame | None:
    """
    Compute the change set of an epoch of a join with a pairing.

    Args:
        types: The types in which keys are compared, and after those of the inputs the types of the values.

    Returns:
        The result of `difference`, by the keys of both sides, of which those of an absent side are null; None if no row
        is touched.
    """
    affected = affected_keys(join, sources)
    touched = {place: affected[place] for place in join.paired.places if place in affected}
    if not touched:
        return None
    return _Pairs(join, types, sources, touched).changes()


class _Pairs(Partners):
    def changes(self) -> DataFrame:
        join = self._join
        touched_rows = self._rows(self._touched)
        own = {place: self._images(place, touched_rows[place], self._touched[place]) for place in self._touched}
        valued = {place: self._valued(place, rows, f"valued_{place}") for place, rows in own.items()}
        partner_rows = self._partner_rows(valued)
        state = {place: self._side(place, own, partner_rows) for place in self._pairing.places}
        left = self._pairing.left
        known = self._state(own[left]) if left in own and left not in partner_rows else None
        state = {**(known or {}), **state}  # rows that the touched rows of the left side have looked up
        add_looked_up(state, join, self._types, self._sources)
        inputs = [state[place] for place in range(len(join.inputs))]
        meant = meaning(inputs, join, [IMAGE], of_touched=True)
        return difference(meant, join.key)

    def _images(self, place: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        item = self._join.inputs[place]
        both = images(self._sources.changes(place), rows, item, self._types[place])
        return self._sources.materialize(f"touched_rows_{place}", self._with_keys(place, both, keys))

    def _side(self, place: int, own: dict[int, DataFrame], partner_rows: dict[int, DataFrame]) -> DataFrame:
        """Return the touched rows of a side and their partners on it, in both images, with TOUCHED and UNMATCHED."""
        parts = []
        if place in own:
            parts.append(own[place].withColumns({TOUCHED: F.lit(True), UNMATCHED: F.lit(True)}))
        if place in partner_rows:
            parts.append(self._partner_images(place, own, partner_rows[place]))
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.unionByName(part)
        return whole

    def _partner_images(self, place: int, own: dict[int, DataFrame], rows: DataFrame) -> DataFrame:
        """Return the partners on a side in both images, with UNMATCHED: whether they match no untouched row."""
        is_outer = self._pairing.outer[self._pairing.side(place)]
        unmatched = self._unmatched_keys(place, own, rows) if is_outer else None
        found = rows.withColumn(UNMATCHED, F.lit(False)) if unmatched is None else self._marked(place, rows, unmatched)
        both = F.explode(F.array(F.lit(OLD), F.lit(NEW))).alias(IMAGE)
        return found.select("*", both, F.lit(False).alias(TOUCHED))

    def _unmatched_keys(self, place: int, own: dict[int, DataFrame], rows: DataFrame) -> DataFrame:
        """Return the keys of the partners that match touched rows in one image only, and no untouched row in any."""
        other = self._pairing.other(place)
        matching = self._matching_keys(place, rows, other, own[other], "matching", also=[IMAGE])
        once = matching.groupBy(KEY).agg(F.countDistinct(IMAGE).alias("times")).where("times = 1").drop("times")
        candidates = self._sources.materialize(f"candidates_{place}", once)
        return self._without(candidates, self._matching_untouched(place, rows, candidates))

    def _marked(self, place: int, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Add UNMATCHED to rows of a side: whether their key is one of the keys."""
        joined = self._by_key(place, rows, keys, "left")
        columns = (F.col(quote("row", name)) for name in rows.columns)
        return joined.select(*columns, F.expr("known.key IS NOT NULL").alias(UNMATCHED))
