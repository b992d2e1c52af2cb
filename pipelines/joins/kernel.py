"""
The incremental step that all joins of tables share: find touched keys, look up their rows, compute the difference.

    changes of the sources ──► touched keys ──► look-up of the rows that the changes do not contain
                │                                          │
                └──────────► old and new images of the sources
                                           │
                              meaning of both images, then their difference = the change set

The result is not read. Every epoch leaves the result equal to the meaning of the join, so its rows are the meaning of
the old images.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import key_struct, no_reference
from lakehouse.values.sqltext import numbered, quote
from pipelines.joins.difference import IMAGE, NEW, OLD, difference
from pipelines.joins.meaning import meaning
from pipelines.language import Input, Link, Output, ResolvedQuery

KeyTypes = Sequence[Sequence[DataType]]
"""The types in which the parts of the key are compared, for each input."""


class Sources(Protocol):
    """The inputs of an epoch; the implementation decides how their rows are read."""

    def changes(self, index: int, /) -> DataFrame | None:
        """Return the net changes of an input: `key`, `old`, `new`; None if it has no changes."""

    def changed_keys(self, index: int, /) -> DataFrame | None:
        """Return the distinct changed keys of an input as `key`; None if it has no changes."""

    def referring(self, index: int, wanted: Sequence[tuple[Link, DataFrame]], /) -> DataFrame:
        """
        Return as `key` the keys of the rows of an input that refer to a wanted `key` at the end of the epoch.

        The keys of rows that changed may be among them. Each reference is one from this input.
        """

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> Mapping[int, DataFrame]:
        """Return rows at the end of the epoch by input: those with a wanted key, and others if that is cheaper."""

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Materialize a frame that is read several times."""


def touched_keys(join: ResolvedQuery, sources: Sources) -> DataFrame | None:
    """
    Return as `key` (struct<k0, …>) each key of a result row that an epoch can change; None if it can change none.

    Only for a join whose members have the key of the result. A part of a key is null only where a side of a row of an
    input may be absent.
    """
    affected = affected_keys(join, sources)
    touched = [affected[index] for index in join.members if index in affected]
    if len(touched) < 2:
        return touched[0] if touched else None
    return sources.materialize("touched", reduce(DataFrame.unionAll, touched).distinct())


def affected_keys(join: ResolvedQuery, sources: Sources) -> dict[int, DataFrame]:
    """
    Return by input, as `key` (struct<k0, …>), each key of a row whose part of the result an epoch can change.

    A changed row affects itself and each row that refers to it now. A row that referred to it before and no longer does
    has changed itself. References are followed from input to input up to the inputs that key the result.
    """
    affected: dict[int, DataFrame] = {}
    for index in reversed([*join.members, *(link.input for link in join.links)]):
        own = sources.changed_keys(index)
        keys = [] if own is None else [own.select("key")]
        links = [link for link in join.links if link.over == index and link.input in affected]
        if links:
            wanted = [(link.followed, _parts_of(link, affected[link.input], sources, "parts")) for link in links]
            keys.append(sources.referring(index, wanted))
        if len(keys) == 1 and own is not None:
            affected[index] = keys[0]
        elif keys:
            affected[index] = sources.materialize(f"affected_{index}", reduce(DataFrame.unionAll, keys).distinct())
    return affected


def referring_keys(index: int, keys: DataFrame, join: ResolvedQuery, sources: Sources, name: str) -> DataFrame:
    """
    Follow references from keys of an input back to the input that keys the result, at the end of the epoch.

    Return as `key` the keys of the rows that refer to them, each at least once, maybe with others; the keys themselves
    if the input keys the result.
    """
    while index not in join.members:
        (link,) = (link for link in join.links if link.input == index)
        keys = sources.materialize(f"{name}_{index}", keys.distinct())
        parts = _parts_of(link, keys, sources, f"{name}_parts")
        index, keys = link.over, sources.referring(link.over, [(link.followed, parts)])
    return keys


def change_set(join: ResolvedQuery, types: KeyTypes, sources: Sources, touched: DataFrame) -> DataFrame:
    """
    Return the change set of an epoch, as `difference` does, from the result of `touched_keys`.

    It has exactly the rows of the result that differ, and a delete only for a row that existed.
    """
    state: dict[int, DataFrame] = {}
    for index, rows in sources.rows(dict.fromkeys(join.members, lambda: touched)).items():
        state[index] = images(sources.changes(index), rows, join.inputs[index], types[index])
    add_looked_up(state, join, types, sources)
    both = meaning([state[index] for index in range(len(join.inputs))], join, [IMAGE])
    return difference(both, join.key)


def add_looked_up(
    state: dict[int, DataFrame], join: ResolvedQuery, types: KeyTypes, sources: Sources, name: str = "wanted"
) -> None:
    """
    Add to the known rows, level by level, those that they look up, in both images.

    `state` has, by input, the rows of the inputs that key the result, and of others that are known already. The wanted
    keys are materialized under `name`.
    """
    for ready in levels(join):
        wanted = {
            link.input: partial(referenced, link, join, types, state, sources, name=name)
            for link in ready
            if link.input not in state
        }
        for index, rows in sources.rows(wanted).items():
            state[index] = images(sources.changes(index), rows, join.inputs[index], types[index])


def levels(join: ResolvedQuery) -> Iterator[list[Link]]:
    """Yield the references level by level: each level has those whose `needed` inputs are known by then."""
    known, remaining = set(join.members), list(join.links)
    while remaining:
        ready = [link for link in remaining if link.needed <= known]
        remaining = [link for link in remaining if link not in ready]
        known.update(link.input for link in ready)
        yield ready


def reference(link: Link, types: Sequence[DataType]) -> str:
    """Return the SQL of the key, or of its `parts`, that a row refers to: struct<k0, …>, over the referring inputs."""
    parts = zip(link.expressions, [types[part] for part in link.parts] if link.parts else types, strict=True)
    return numbered(f"CAST({expression} AS {type_sql(data_type)})" for expression, data_type in parts)


def null_reference(link: Link) -> str:
    """Return the SQL condition that a row has a null reference: any part that `=` compares is null (KIP-962)."""
    return no_reference(link.expressions, link.null_safe)


def refers_to(link: Link, types: KeyTypes) -> str:
    """Return the SQL of the key that a row refers to, over structs of the inputs' rows; null for a null reference."""
    return f"IF({null_reference(link)}, NULL, {reference(link, types[link.input])})"


def images(changes: DataFrame | None, looked_up: DataFrame, side: Input, types: Sequence[DataType]) -> DataFrame:
    """
    Return the touched rows of a source in both images: IMAGE ('old' or 'new') and the source's columns.

    The rows of a changed key come from its net change (`key`, `old`, `new`); any other key has the looked-up row, that
    of the pinned version, in both images.
    """
    unchanged = unchanged_rows(changes, looked_up, side, types)
    both = f"explode(array('{OLD}', '{NEW}')) AS {IMAGE}"
    from_lookup = unchanged.selectExpr(both, *map(quote, side.columns))
    if changes is None:
        return from_lookup
    items = f"array(named_struct('image', '{OLD}', 'row', old), named_struct('image', '{NEW}', 'row', new))"
    changed = changes.selectExpr(f"explode({items}) AS item").where("item.row IS NOT NULL")
    values = (f"item.row.{quote(name)} AS {quote(name)}" for name in side.columns)
    from_changes = changed.selectExpr(f"item.image AS {IMAGE}", *values)
    return from_changes.unionAll(from_lookup)


def unchanged_rows(
    changes: DataFrame | None, looked_up: DataFrame, side: Input, types: Sequence[DataType]
) -> DataFrame:
    """Return the looked-up rows whose key has no change."""
    rows = looked_up.alias("row")
    if changes is not None:
        same_key = F.expr(f"{key_struct(side.key, types, 'row.')} = change.key")
        rows = rows.join(changes.select("key").alias("change"), on=same_key, how="left_anti")
    return rows.selectExpr(*(quote("row", name) for name in side.columns))


def referenced(
    link: Link,
    join: ResolvedQuery,
    types: KeyTypes,
    state: Mapping[int, DataFrame],
    sources: Sources,
    name: str = "wanted",
) -> DataFrame:
    """
    Return the keys that rows refer to in either image, and the changed keys, to check that each occurs once.

    `state` has the rows of the known inputs in both images; those of a pairing have TOUCHED and UNMATCHED.
    """
    if link.overs:
        # Parts from several inputs: the keys are those of the rows that the statement joins.
        before = join.up_to(link.input, (Output("key", refers_to(link, types)),))
        joined = meaning([state[index] for index in range(link.input)], before, [IMAGE], of_touched=True)
        keys = joined.where("key IS NOT NULL").select("key")
    else:
        rows = state[link.over].alias(join.inputs[link.over].alias).where(f"NOT {null_reference(link)}")
        keys = rows.select(F.expr(reference(link, types[link.input])).alias("key"))
    changed = sources.changed_keys(link.input)
    wanted = [keys] if changed is None else [keys, changed.select("key")]
    return sources.materialize(f"{name}_{link.input}", reduce(DataFrame.unionAll, wanted).distinct())


def _parts_of(link: Link, keys: DataFrame, sources: Sources, name: str) -> DataFrame:
    """Return the parts of keys of a referenced input through which a reference is followed; mostly the whole keys."""
    if not link.overs:
        return keys
    followed = link.followed
    not_null = [f"key.k{part} IS NOT NULL" for n, part in enumerate(followed.parts) if n not in followed.null_safe]
    own = F.expr(numbered(f"key.k{part}" for part in followed.parts)).alias("key")
    parts = keys.where(" AND ".join(not_null) or "TRUE").select(own)
    return sources.materialize(f"{name}_{link.input}", parts.distinct())
