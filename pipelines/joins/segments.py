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

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.values.compare import same
from lakehouse.values.sqltext import quote, row_struct, text
from pipelines.joins.emission_rules import TOMBSTONE, UPSERT
from pipelines.joins.kernel import KeyTypes, affected_keys
from pipelines.joins.meaning import ROW, meaning_of_matched
from pipelines.joins.partners import Partners
from pipelines.joins.timeline import CAUSE, END, KEY, START, Commits, with_look_ups
from pipelines.joins.versions import BEGINNING, NEVER, versions
from pipelines.language import Output, ResolvedQuery
from pipelines.language.statement.added_columns import PREFIX

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
        columns: The result's columns, for their types.

    Returns:
        One row for each commit and key of the result that it changes: `position`, `at` (its time), `cause` (the name of
        the source that changed), `op` (upsert or tombstone), `key` (struct of the key columns; those of an absent side
        are null), `old` and `new` (struct of the result's columns; null if absent). None if no row is touched.
    """
    affected = affected_keys(join, commits)
    touched = {place: affected[place] for place in join.paired.places if place in affected}
    if not touched:
        return None
    found = _Segments(join, types, commits, touched).found()
    pieces = meaning_of_matched(with_look_ups(found, join, types, commits), join)
    steps = _steps(pieces, columns)
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
    steps = rows.select(F.explode(F.expr(both)).alias("step"))
    return steps.where("step IS NOT NULL").select("step.*")


class _Segments(Partners):
    def found(self) -> DataFrame:
        """
        Return KEY (of both sides), START, END, CAUSE (null) and for each side a struct of its row.

        A segment is where two versions match, or where a row of an outer side matches none.
        """
        touched_rows = self._rows(self._touched)
        own = {place: self._touched_versions(place, touched_rows[place]) for place in self._touched}
        valued = {place: self._valued_versions(place, found) for place, found in own.items()}
        partner_rows = self._partner_rows(valued)
        left, right = (self._side(place, own, partner_rows) for place in self._pairing.places)
        left = self._pieces(left, "pieces_before") if self._join.matches_looked_up else left
        pairs = self._sources.materialize("segments", self._matching(left, right))
        found = self._as_segments(pairs, (0, 1))
        for side, is_outer in enumerate(self._pairing.outer):
            if is_outer:
                unmatched = self._unmatched(side, pairs, own, partner_rows)
                found = found.unionByName(self._as_segments(unmatched, (side,), pairs.schema))
        return found

    def _touched_versions(self, place: int, rows: DataFrame) -> DataFrame:
        looked_up = self._with_keys(place, rows, self._touched[place])
        found = self._versions(place, looked_up, is_touched=True)
        return self._sources.materialize(f"versions_{place}", found)

    def _valued_versions(self, place: int, found: DataFrame) -> DataFrame:
        """Return the rows from which versions of rows of a side have their values at any position."""
        over = self._pairing.links[self._pairing.side(place)].over
        return self._rows_of(over, found if over == place else self._pieces(found, "valued_before"))

    def _versions(self, place: int, rows: DataFrame, *, is_touched: bool) -> DataFrame:
        """Return the versions of rows of a side in which they exist: what VERSION names, and a struct of the row."""
        side, item = self._pairing.side(place), self._join.inputs[place]
        changes = self._sources.changes(place) if is_touched else None
        found = versions(changes, rows, item, self._types[place]).where("row IS NOT NULL")
        key, start, end, touched = _named(side)
        return found.select(
            F.col("key").alias(key),
            F.col("start").alias(start),
            F.col("end").alias(end),
            F.lit(is_touched).alias(touched),
            F.col("row").alias(item.alias),
        )

    def _side(self, place: int, own: dict[int, DataFrame], partner_rows: dict[int, DataFrame]) -> DataFrame:
        parts = [own[place]] if place in own else []
        if place in partner_rows:
            parts.append(self._versions(place, partner_rows[place], is_touched=False))
        return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])

    def _pieces(self, left: DataFrame, name: str) -> DataFrame:
        """Split versions of left rows where what they look up before the pairing changes: START, END, what ON uses."""
        key, start, end, _ = _named(0)
        known = {KEY: F.col(key), START: F.col(start), END: F.col(end), CAUSE: F.lit(None).cast("int")}
        before = self._join.up_to(self._pairing.right, (Output("kept", "TRUE"),))
        pieces = with_look_ups(left.withColumns(known), before, self._types, self._sources, name)
        kept = meaning_of_matched(pieces, before).where(F.col(ROW).isNotNull())
        looked_up = (self._join.inputs[place].alias for place in self._pairing.looked_up)
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
        place = self._pairing.places[side]
        key, start, _, touched = _named(side)
        alias = self._join.inputs[place].alias
        covered = pairs.select(*(F.col(quote(name)) for name in (*_named(side), alias, START, END)))
        if place in own:
            begun = own[place].withColumns({START: F.col(start), END: F.col(start)})
            covered = covered.unionByName(begun)
        gaps = self._gaps(side, covered)
        if place not in partner_rows:
            return gaps
        gaps = self._sources.materialize(f"gaps_{place}", gaps)
        partners = gaps.where(f"NOT {touched}")
        keys = partners.select(F.col(key).alias("key")).distinct()
        candidates = self._sources.materialize(f"candidates_{place}", keys)
        unmatched = self._without(candidates, self._matching_untouched(place, partner_rows[place], candidates))
        named = unmatched.select(F.col("key").alias(key))
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
        found = gaps.withColumns({START: F.col(f"{GAP}.start"), END: F.col(f"{GAP}.end")})
        return found.drop(COVERED_BEFORE, COVERED, IS_LAST, GAP)

    def _as_segments(self, rows: DataFrame, sides: Sequence[int], schema: StructType | None = None) -> DataFrame:
        """Return segments of versions of some sides; a schema has the type of the row of a side that is absent."""
        schema = rows.schema if schema is None else schema
        aliases = [self._join.inputs[place].alias for place in self._pairing.places]
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
