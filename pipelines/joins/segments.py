"""
The changelog of a join whose rows match in any number, computed in one pass for any number of commits.

    changes ──► versions of touched rows and of their partners     a  [0 ──────────────      b  [0 ── 2)   [5 ────
    two versions that overlap and match ──► a segment              (a, b)   [0 ── 2)   [5 ────
    an outer row, where it has no segment                          (a, -)         [2 ── 5)
    segments, split by look-ups ──► rows ──► an upsert where a row begins and differs, a tombstone where it ends

A row that begins where another of its key ends replaces it; only where none follows at once, a tombstone says so. The
first match of an outer row is therefore a tombstone and an upsert of two keys at one position.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.values.compare import same
from lakehouse.values.sqltext import quote, row_struct, text
from pipelines.joins.changelog import TOMBSTONE, UPSERT
from pipelines.joins.kernel import KeyTypes, affected_keys
from pipelines.joins.meaning import ROW, meaning_of_matched
from pipelines.joins.pairing import Partners
from pipelines.joins.timeline import BEGINNING, CAUSE, END, KEY, NEVER, START, Commits, versions, with_look_ups
from pipelines.language import Output, ResolvedQuery
from pipelines.language.names import PREFIX

VERSION = ("key", "start", "end", "touched")
"""What is known of a version of a row: its key, the positions where it begins and ends, and whether it is touched."""

COVERED_BEFORE, COVERED, IS_LAST, GAP = (f"{PREFIX}{name}" for name in ("covered_before", "covered", "is_last", "gap"))


def changelog_of_pairs(
    join: ResolvedQuery, types: KeyTypes, commits: Commits, order: DataFrame, columns: StructType
) -> DataFrame | None:
    """
    Compute the changelog of an epoch of a join with a pairing, under strict semantics.

    Args:
        types: The types in which keys are compared, and after those of the inputs the types of the values.
        order: The result of `positions`.

    Returns:
        One row for each commit and key of the result that it changes: `position`, `at` (its time), `cause` (the name of
        the source that changed), `op` (upsert or tombstone), `key` (struct of the key columns; those of an absent side
        are null), `old` and `new` (struct of the result's columns; null if absent). None if no row is touched.
    """
    affected = affected_keys(join, commits)
    touched = {index: affected[index] for index in join.paired.places if index in affected}
    if not touched:
        return None
    found = _Segments(join, types, commits, touched).found()
    steps = _steps(meaning_of_matched(with_look_ups(found, join, types, commits), join), columns)
    # A position is one commit of one source, which is the cause of all that changes there.
    sources = ", ".join(map(text, join.sources))
    present = "IF(new IS NULL, old, new)"
    return steps.join(order.select("position", "at", "side"), on="position", how="inner").select(
        "position",
        "at",
        F.expr(f"element_at(array({sources}), side + 1)").alias("cause"),
        F.expr(f"IF(new IS NULL, '{TOMBSTONE}', '{UPSERT}')").alias("op"),
        F.expr(row_struct(join.key, f"{present}.")).alias("key"),
        "old",
        "new",
    )


def _steps(pieces: DataFrame, columns: StructType) -> DataFrame:
    """
    Return `position`, `old` and `new` where the row of a key differs from the row just before, or ends.

    ROW is null where the result has no row. The pieces of a key do not overlap.
    """
    in_order = Window.partitionBy(KEY).orderBy(START)
    rows = pieces.where(F.col(ROW).isNotNull()).select(
        F.col(START).alias("start"),
        F.col(END).alias("end"),
        F.col(ROW).alias("row"),
        F.lag(END).over(in_order).eqNullSafe(F.col(START)).alias("follows"),
        F.lag(ROW).over(in_order).alias("previous"),
        F.lead(START).over(in_order).eqNullSafe(F.col(END)).alias("is_followed"),
    )
    begins = "named_struct('position', start, 'old', IF(follows, previous, NULL), 'new', row)"
    ends = "named_struct('position', end, 'old', row, 'new', NULL)"
    is_step = f"start > {BEGINNING} AND NOT (follows AND {same('previous', 'row', columns)})"
    is_end = f"end < {NEVER} AND NOT is_followed"
    both = f"array(IF({is_step}, {begins}, NULL), IF({is_end}, {ends}, NULL))"
    return rows.select(F.explode(F.expr(both)).alias("step")).where("step IS NOT NULL").select("step.*")


class _Segments(Partners):
    def found(self) -> DataFrame:
        """
        Return KEY (of both sides), START, END, CAUSE (null) and for each side a struct of its row.

        A segment is where two versions match, or where a row of an outer side matches none.
        """
        touched_rows = self._rows(self._touched)
        own = {index: self._touched_versions(index, touched_rows[index]) for index in self._touched}
        valued = {index: self._valued_versions(index, rows) for index, rows in own.items()}
        partner_rows = self._partner_rows(valued)
        left, right = (self._side(index, own, partner_rows) for index in self._pairing.places)
        left = self._pieces(left, "pieces_before") if self._join.matches_looked_up else left
        pairs = self._sources.materialize("segments", self._matching(left, right))
        segments = self._as_segments(pairs, (0, 1))
        for side, is_outer in enumerate(self._pairing.outer):
            if is_outer:
                unmatched = self._unmatched(side, pairs, own, partner_rows)
                segments = segments.unionByName(self._as_segments(unmatched, (side,), pairs.schema))
        return segments

    def _touched_versions(self, index: int, rows: DataFrame) -> DataFrame:
        looked_up = self._with_keys(index, rows, self._touched[index])
        return self._sources.materialize(f"versions_{index}", self._versions(index, looked_up, is_touched=True))

    def _valued_versions(self, index: int, own: DataFrame) -> DataFrame:
        """Return the rows from which versions of rows of a side have their values at any position."""
        over = self._pairing.links[self._pairing.side(index)].over
        return self._rows_of(over, own if over == index else self._pieces(own, "valued_before"))

    def _versions(self, index: int, rows: DataFrame, *, is_touched: bool) -> DataFrame:
        """Return the versions of rows of a side in which they exist: what VERSION names, and a struct of the row."""
        item = self._join.inputs[index]
        changes = self._sources.changes(index) if is_touched else None
        found = versions(changes, rows, item, self._types[index]).where("row IS NOT NULL")
        *names, touched = _named(self._pairing.side(index))
        columns = (F.col(column).alias(name) for column, name in zip(VERSION, names, strict=False))
        return found.select(*columns, F.lit(is_touched).alias(touched), F.col("row").alias(item.alias))

    def _side(self, index: int, own: dict[int, DataFrame], partner_rows: dict[int, DataFrame]) -> DataFrame:
        parts = [own[index]] if index in own else []
        if index in partner_rows:
            parts.append(self._versions(index, partner_rows[index], is_touched=False))
        return reduce(DataFrame.unionByName, parts)

    def _pieces(self, left: DataFrame, name: str) -> DataFrame:
        """Split versions of left rows where what they look up before the pairing changes: START, END, what ON uses."""
        key, start, end, _ = _named(0)
        known = {KEY: F.col(key), START: F.col(start), END: F.col(end), CAUSE: F.lit(None).cast("int")}
        before = self._join.up_to(self._pairing.right, (Output("kept", "TRUE"),))
        pieces = with_look_ups(left.withColumns(known), before, self._types, self._sources, name)
        kept = meaning_of_matched(pieces, before).where(F.col(ROW).isNotNull())
        looked_up = (self._join.inputs[index].alias for index in self._pairing.looked_up)
        return kept.select(*(F.col(quote(name)) for name in (*left.columns, *looked_up)), START, END)

    def _matching(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Return START and END of the segments in which two versions match, one of them touched, and both versions."""
        (_, start, end, one), (_, begin, until, other) = _named(0), _named(1)
        if self._join.matches_looked_up:
            start, end = START, END
        on = f"({one} OR {other}) AND {start} < {until} AND {begin} < {end} AND ({self._pairing.on})"
        joined = left.join(right, on=F.expr(on), how="inner")
        overlap = {START: F.expr(f"greatest({start}, {begin})"), END: F.expr(f"least({end}, {until})")}
        return joined.withColumns(overlap)

    def _unmatched(
        self, side: int, pairs: DataFrame, own: dict[int, DataFrame], partner_rows: dict[int, DataFrame]
    ) -> DataFrame:
        """Return START, END and the versions of rows of an outer side, where they match no row."""
        index = self._pairing.places[side]
        key, start, _, touched = _named(side)
        alias = self._join.inputs[index].alias
        covered = pairs.select(*(F.col(quote(name)) for name in (*_named(side), alias, START, END)))
        if index in own:
            covered = covered.unionByName(own[index].withColumns({START: F.col(start), END: F.col(start)}))
        gaps = self._gaps(side, covered)
        if index not in partner_rows:
            return gaps
        gaps = self._sources.materialize(f"gaps_{index}", gaps)
        partners = gaps.where(f"NOT {touched}")
        keys = partners.select(F.col(key).alias("key")).distinct()
        candidates = self._sources.materialize(f"candidates_{index}", keys)
        unmatched = self._without(candidates, self._matching_untouched(index, partner_rows[index], candidates))
        named = unmatched.withColumnRenamed("key", key)
        return gaps.where(touched).unionByName(partners.join(named, on=key, how="left_semi"))

    def _gaps(self, side: int, covered: DataFrame) -> DataFrame:
        """Return the parts of versions that no segment covers; a version without one has an empty one at its start."""
        key, start, end, _ = _named(side)
        in_order = Window.partitionBy(key, start).orderBy(START, END)
        so_far, before = (in_order.rowsBetween(Window.unboundedPreceding, last) for last in (0, -1))
        known = covered.withColumns(
            {
                COVERED_BEFORE: F.coalesce(F.max(END).over(before), F.col(start)),
                COVERED: F.max(END).over(so_far),
                IS_LAST: F.lead(START).over(in_order).isNull(),
            }
        )
        inside = f"named_struct('start', {COVERED_BEFORE}, 'end', {START})"
        after = f"named_struct('start', {COVERED}, 'end', IF({IS_LAST}, {end}, {COVERED}))"
        gaps = known.withColumn(GAP, F.explode(F.expr(f"array({inside}, {after})"))).where(f"{GAP}.start < {GAP}.end")
        bounds = {START: F.col(f"{GAP}.start"), END: F.col(f"{GAP}.end")}
        return gaps.withColumns(bounds).drop(COVERED_BEFORE, COVERED, IS_LAST, GAP)

    def _as_segments(self, rows: DataFrame, sides: Sequence[int], schema: StructType | None = None) -> DataFrame:
        """Return segments of versions of some sides; a schema has the type of the row of a side that is absent."""
        schema = rows.schema if schema is None else schema
        aliases = [self._join.inputs[index].alias for index in self._pairing.places]
        keys = (_or_null(_named(side)[0], schema, is_absent=side not in sides) for side in (0, 1))
        return rows.select(
            F.struct(*(key.alias(f"k{side}") for side, key in enumerate(keys))).alias(KEY),
            START,
            END,
            F.lit(None).cast("int").alias(CAUSE),
            *(_or_null(alias, schema, is_absent=side not in sides).alias(alias) for side, alias in enumerate(aliases)),
        )


def _named(side: int) -> tuple[str, str, str, str]:
    """Return the columns of a version of a row of the left (0) or the right side (1), as VERSION names them."""
    key, start, end, touched = (f"{PREFIX}{('left', 'right')[side]}_{name}" for name in VERSION)
    return key, start, end, touched


def _or_null(column: str, schema: StructType, *, is_absent: bool) -> Column:
    """Return a column, or, for the row of an absent side, a null of its type."""
    return F.lit(None).cast(schema[column].dataType) if is_absent else F.col(quote(column))
