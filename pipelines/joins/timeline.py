"""
The timeline of a join: its result at each position of an epoch, computed in one pass for any number of commits.

    changes of a source ──► versions of its rows          [0 ────── 3)[3 ──── 7)[7 ────
    versions that overlap ──► pieces of a result key      [0 ── 2)[2 ─ 3)[3 ── 7)[7 ────
    a piece ──► its result row, or none, and the input whose change begins it

A position is a number within the epoch, from 1, in the total order (time, side, version). Position 0 is the state
before the epoch: a piece that begins at 0 has no cause, and the first change is compared with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.values.net_changes import all_or_any_null
from lakehouse.values.sqltext import quote
from pipelines.joins.kernel import KeyTypes, Sources, levels, refers_to
from pipelines.joins.meaning import ROW, meaning_of_matched, without_unmatched
from pipelines.joins.versions import BEGINNING, NEVER, versions
from pipelines.language import ResolvedQuery
from pipelines.language.statement.added_columns import PREFIX

KEY, START, END, CAUSE = (f"{PREFIX}{name}" for name in ("key", "start", "end", "cause"))
OTHER, REFERENCE = (f"{PREFIX}{name}" for name in ("other", "reference"))


class Commits(Sources, Protocol):
    """The inputs of a timeline: `changes` returns the changes of every commit, with their `position`."""


def _pieces(join: ResolvedQuery, types: KeyTypes, commits: Commits, touched: DataFrame) -> DataFrame:
    """
    Split the epoch of each touched key into pieces in which no input changes.

    A piece has KEY (struct<k0, …>), START and END (positions: inclusive and exclusive), CAUSE (the place of the input
    that changed at the start, the first if both did; null for the state before the epoch), and for each input a struct
    named by its alias: its row in the piece, or null. The pieces of a key cover all positions from 0 on without
    overlap.
    """
    parts = [f"key.k{part}" for part in range(len(join.key))]
    found = touched.where(f"NOT {all_or_any_null(parts, are_all=join.has_absent_keys)}").select(
        F.col("key").alias(KEY),
        F.lit(BEGINNING).cast("bigint").alias(START),
        F.lit(NEVER).cast("bigint").alias(END),
        F.lit(None).cast("int").alias(CAUSE),
    )

    wanted = dict.fromkeys(join.members, lambda: touched)
    found = _cut_by(found, wanted, dict.fromkeys(join.members, F.col(KEY)), join, types, commits)
    return with_look_ups(found, join, types, commits)


def with_look_ups(
    found: DataFrame, join: ResolvedQuery, types: KeyTypes, commits: Commits, name: str = "pieces"
) -> DataFrame:
    """
    Add to pieces a struct of each input that they look up, level by level, and split them where it changes.

    Args:
        found: KEY, START, END, CAUSE, a struct for each input that is known, and other columns.
        name: Under what name to materialize the pieces.
    """
    for level, ready in enumerate(levels(join)):
        for link in ready:
            found = without_unmatched(found, link, join)
        found = commits.materialize(f"{name}_{level}", found)
        keys = {link.input: F.expr(refers_to(link, types)) for link in ready}
        wanted = {place: partial(_wanted, found, f"wanted_{name}_{place}", key, commits) for place, key in keys.items()}
        found = _cut_by(found, wanted, keys, join, types, commits)
    return found


def _cut_by(
    found: DataFrame,
    wanted: Mapping[int, Callable[[], DataFrame]],
    refers_to: Mapping[int, Column],
    join: ResolvedQuery,
    types: KeyTypes,
    commits: Commits,
) -> DataFrame:
    for place, rows in commits.rows(wanted).items():
        item = join.inputs[place]
        cuts = versions(commits.changes(place), rows, item, types[place])
        found = _cut(found, place, item.alias, refers_to[place], cuts)
    return found


def timeline(join: ResolvedQuery, types: KeyTypes, commits: Commits, touched: DataFrame) -> DataFrame:
    """
    Return the result of a join piece by piece, for the result of `touched_keys`.

    Returns:
        `key` (struct<k0, …>), `position` (bigint, where the piece begins), `cause` (the place of the input that changed
        there; null at 0), `row` (struct of the columns of the SELECT list; null if the result has no row), and, for the
        rules of Kafka Streams in a join of two inputs, `other` (whether the input that did not change has a row) and
        `reference` (the foreign key of the row).
    """
    found = _pieces(join, types, commits, touched)
    other = referred = "NULL"
    if len(join.inputs) == 2:
        left, right = (f"{quote(item.alias)} IS NOT NULL" for item in join.inputs)
        other = f"IF({CAUSE} = 0, {right}, {left})"
        referred = refers_to(join.links[0], types) if join.links else "NULL"
    known = found.withColumns({OTHER: F.expr(other), REFERENCE: F.expr(referred)})
    return meaning_of_matched(known, join).select(
        F.col(KEY).alias("key"),
        F.col(START).alias("position"),
        F.col(CAUSE).alias("cause"),
        F.col(ROW).alias("row"),
        F.col(OTHER).alias("other"),
        F.col(REFERENCE).alias("reference"),
    )


def _cut(found: DataFrame, place: int, alias: str, refers_to: Column, cuts: DataFrame) -> DataFrame:
    """Split pieces where the versions of one more input begin and end; a piece without a version gets a null row."""
    start, end, key = (f"{PREFIX}version_{name}" for name in ("start", "end", "key"))
    renamed = cuts.select(
        F.col("key").alias(key),
        F.col("start").alias(start),
        F.col("end").alias(end),
        F.col("row").alias(alias),
    )
    overlap = (refers_to == F.col(key)) & (F.col(START) < F.col(end)) & (F.col(start) < F.col(END))
    inputs = [name for name in found.columns if name not in (KEY, START, END, CAUSE)]
    cause = f"""CASE WHEN {start} > {START} THEN {place}
                     WHEN {start} = {START} AND {START} > {BEGINNING} THEN least({CAUSE}, {place})
                     ELSE {CAUSE} END"""
    return found.join(renamed, on=overlap, how="left").select(
        KEY,
        F.expr(f"greatest({START}, {start})").alias(START),
        F.expr(f"least({END}, {end})").alias(END),
        F.expr(cause).alias(CAUSE),
        *(F.col(quote(name)) for name in (*inputs, alias)),
    )


def _wanted(found: DataFrame, name: str, refers_to: Column, commits: Commits) -> DataFrame:
    keys = found.select(refers_to.alias("key")).where("key IS NOT NULL")
    return commits.materialize(name, keys.distinct())
