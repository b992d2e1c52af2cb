"""
The timeline of a join: its result at each position of an epoch, computed in one pass for any number of commits.

    changes of a source ──► versions of its rows          [0 ────── 3)[3 ──── 7)[7 ────
    versions that overlap ──► pieces of a result key      [0 ── 2)[2 ─ 3)[3 ── 7)[7 ────
    a piece ──► its result row, or none, and the input whose change begins it

A position is a number within the epoch, from 1, in the total order (time, side, version). Position 0 is the state
before the epoch: a piece that begins at 0 has no cause, and the first change is compared with it. In a piece no input
changes: it has a struct for each input, named by its alias, with its row or null. The pieces of a key cover all
positions from 0 on without overlap.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.values.net_changes import all_or_any_null, key_struct, null_key
from lakehouse.values.sqltext import quote, row_struct
from pipelines.joins.kernel import KeyTypes, Sources, levels, refers_to, unchanged_rows
from pipelines.joins.meaning import ROW, meaning_of_matched, without_unmatched
from pipelines.language import Input, ResolvedQuery
from pipelines.language.names import PREFIX

BEGINNING = 0
"""The position of the state before the epoch."""

NEVER = 2**63 - 1
"""The end of a version that is not replaced within the epoch."""

KEY, START, END, CAUSE = (f"{PREFIX}{name}" for name in ("key", "start", "end", "cause"))
OTHER, REFERENCE = (f"{PREFIX}{name}" for name in ("other", "reference"))


def positions(changes: Mapping[int, DataFrame]) -> DataFrame:
    """
    Number the commits of several sources in the total order: by time, at equal times by source, then by version.

    Args:
        changes: The changes of each source by its index in FROM: `version` (bigint, which increases with each commit),
            `at` (timestamp of the commit) and others.

    Returns:
        A row for each commit: `side` (int, the source's index), `version`, `at` (its time in the order, at least the
        time of the version before) and `position` (bigint, from 1).
    """
    commits = [
        frame.groupBy("version").agg(F.max("at").alias("at")).withColumn("side", F.lit(side))
        for side, frame in changes.items()
    ]
    so_far = Window.partitionBy("side").orderBy("version").rowsBetween(Window.unboundedPreceding, 0)
    order = Window.orderBy("at", "side", "version")
    timed = reduce(DataFrame.unionAll, commits).withColumn("at", F.max("at").over(so_far))
    return timed.select("side", "version", "at", F.row_number().over(order).cast("bigint").alias("position"))


def placed(changes: DataFrame, order: DataFrame, side: int) -> DataFrame:
    """Add the `position` to the changes of a source; `order` is the result of `positions`."""
    own = order.where(F.col("side") == side).select("version", "position")
    return changes.join(own, on="version", how="inner")


def timed(changes: DataFrame, time: str, floor: int) -> DataFrame:
    """
    Add the `position` in time to the changes of a table: at least the position of each earlier version and a floor.

    Args:
        changes: `version` (bigint, which increases with each commit) and others.
        time: Spark SQL of a change's own time (bigint, not null).
        floor: The greatest time of the table so far.
    """
    known = changes.withColumn("position", F.expr(f"greatest(CAST({time} AS BIGINT), CAST({floor} AS BIGINT))"))
    before = Window.orderBy("version").rowsBetween(Window.unboundedPreceding, -1)
    commits = known.groupBy("version").agg(F.max("position").alias("last"))
    floors = commits.select("version", F.coalesce(F.max("last").over(before), F.lit(floor)).alias("floor"))
    raised = known.join(F.broadcast(floors), on="version", how="inner")
    return raised.withColumn("position", F.greatest("position", "floor")).drop("floor")


def versions(
    changes: DataFrame | None,
    looked_up: DataFrame,
    side: Input,
    types: Sequence[DataType],
    *,
    beginning: int = BEGINNING,
    ties: Sequence[str] = (),
) -> DataFrame:
    """
    Return all versions of the touched rows of a source, each valid from one position up to another.

    Args:
        changes: The changes of each commit: `key`, `position`, `old`, `new`; None if the source has no changes.
        looked_up: The source's rows for the touched keys at the end of the epoch.
        beginning: The position at which the rows that existed before the changes begin.
        ties: Columns that order the changes of a key at one position; the last one takes effect.

    Returns:
        `key`, `start` and `end` (positions: inclusive and exclusive) and `row` (struct of the source's columns, null
        while absent). The versions of a key cover all positions from `beginning` on without overlap.
    """
    keyed = looked_up.where(f"NOT {null_key(side.key, may_be_absent=side.may_be_absent)}")
    unchanged = unchanged_rows(changes, keyed, side, types).select(
        F.expr(key_struct(side.key, types)).alias("key"),
        F.lit(beginning).cast("bigint").alias("start"),
        F.lit(NEVER).cast("bigint").alias("end"),
        F.expr(row_struct(side.columns)).alias("row"),
    )
    if changes is None:
        return unchanged
    in_order = Window.partitionBy("key").orderBy("position", *ties)
    ordered = changes.select(
        "key",
        "position",
        F.lead("position", 1, NEVER).over(in_order).alias("end"),
        (F.row_number().over(in_order) == 1).alias("is_first"),
        F.expr(f"IF(old IS NULL, NULL, {row_struct(side.columns, 'old.')})").alias("old"),
        F.expr(f"IF(new IS NULL, NULL, {row_struct(side.columns, 'new.')})").alias("new"),
    )
    after = "named_struct('start', position, 'end', end, 'row', new)"
    before = f"named_struct('start', CAST({beginning} AS BIGINT), 'end', position, 'row', old)"
    each = F.explode(F.expr(f"IF(is_first, array({before}, {after}), array({after}))")).alias("version")
    changed = ordered.select("key", each)
    return changed.select("key", "version.start", "version.end", "version.row").unionAll(unchanged)


class Commits(Sources, Protocol):
    """The inputs of a timeline: `changes` returns the changes of every commit, with their `position`."""


def timeline(join: ResolvedQuery, types: KeyTypes, commits: Commits, touched: DataFrame) -> DataFrame:
    """
    Return the result of a join piece by piece, for the result of `touched_keys`.

    Returns:
        `key` (struct<k0, …>), `position` (bigint, where the piece begins), `cause` (the index of the input that changed
        there, the first if both did; null at 0), `row` (struct of the columns of the SELECT list; null if the result
        has no row), and, for the rules of Kafka Streams in a join of two inputs, `other` (whether the input that did
        not change has a row) and `reference` (the foreign key of the row).
    """
    parts = [f"key.k{part}" for part in range(len(join.key))]
    pieces = touched.where(f"NOT {all_or_any_null(parts, are_all=join.has_absent_keys)}").select(
        F.col("key").alias(KEY),
        F.lit(BEGINNING).cast("bigint").alias(START),
        F.lit(NEVER).cast("bigint").alias(END),
        F.lit(None).cast("int").alias(CAUSE),
    )
    wanted = dict.fromkeys(join.members, lambda: touched)
    pieces = _cut(pieces, wanted, dict.fromkeys(join.members, F.col(KEY)), join, types, commits)
    pieces = with_look_ups(pieces, join, types, commits)
    other = reference = "NULL"
    if len(join.inputs) == 2:
        left, right = (f"{quote(item.alias)} IS NOT NULL" for item in join.inputs)
        other = f"IF({CAUSE} = 0, {right}, {left})"
        reference = refers_to(join.links[0], types) if join.links else "NULL"
    known = pieces.withColumns({OTHER: F.expr(other), REFERENCE: F.expr(reference)})
    names = {KEY: "key", START: "position", CAUSE: "cause", ROW: "row", OTHER: "other", REFERENCE: "reference"}
    return meaning_of_matched(known, join).select(*(F.col(column).alias(name) for column, name in names.items()))


def with_look_ups(
    pieces: DataFrame, join: ResolvedQuery, types: KeyTypes, commits: Commits, name: str = "pieces"
) -> DataFrame:
    """
    Add to pieces a struct of each input that they look up, level by level, and split them where it changes.

    Args:
        pieces: KEY, START, END, CAUSE, a struct for each input that is known, and other columns.
        name: Under what name to materialize the pieces.
    """
    for level, ready in enumerate(levels(join)):
        for link in ready:
            pieces = without_unmatched(pieces, link, join)
        pieces = commits.materialize(f"{name}_{level}", pieces)
        keys = {link.input: F.expr(refers_to(link, types)) for link in ready}
        wanted = {i: partial(_wanted, pieces, f"wanted_{name}_{i}", key, commits) for i, key in keys.items()}
        pieces = _cut(pieces, wanted, keys, join, types, commits)
    return pieces


def _wanted(pieces: DataFrame, name: str, reference: Column, commits: Commits) -> DataFrame:
    keys = pieces.select(reference.alias("key")).where("key IS NOT NULL")
    return commits.materialize(name, keys.distinct())


def _cut(
    pieces: DataFrame,
    wanted: Mapping[int, Callable[[], DataFrame]],
    references: Mapping[int, Column],
    join: ResolvedQuery,
    types: KeyTypes,
    commits: Commits,
) -> DataFrame:
    """Split pieces where versions of further inputs begin and end; a piece without a version gets a null row."""
    start, end, key = (f"{PREFIX}version_{name}" for name in ("start", "end", "key"))
    for index, rows in commits.rows(wanted).items():
        item = join.inputs[index]
        cuts = versions(commits.changes(index), rows, item, types[index])
        renamed = cuts.withColumnsRenamed({"key": key, "start": start, "end": end, "row": item.alias})
        overlap = (references[index] == F.col(key)) & (F.col(START) < F.col(end)) & (F.col(start) < F.col(END))
        others = [name for name in pieces.columns if name not in (KEY, START, END, CAUSE)]
        cause = f"""CASE WHEN {start} > {START} THEN {index}
                         WHEN {start} = {START} AND {START} > {BEGINNING} THEN least({CAUSE}, {index})
                         ELSE {CAUSE} END"""
        pieces = pieces.join(renamed, on=overlap, how="left").select(
            KEY,
            F.expr(f"greatest({START}, {start})").alias(START),
            F.expr(f"least({END}, {end})").alias(END),
            F.expr(cause).alias(CAUSE),
            *(F.col(quote(name)) for name in (*others, item.alias)),
        )
    return pieces
