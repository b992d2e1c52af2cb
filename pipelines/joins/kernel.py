"""
Touch, look up, difference: the incremental step that all joins of tables share.

    changes of the sources ──► touched keys ──► look-up of what the changes do not bring
                │                                          │
                └──────────► images of the sources: as they were, as they are
                                           │
                              meaning of both, then their difference = the change set

The result is not read: what it holds is, by the rule that every epoch leaves the meaning behind, the meaning of the old
images.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.changes import key_struct
from lakehouse.sqltext import numbered, quote
from lakehouse.values import type_sql
from pipelines.joins.difference import IMAGE, NEW, OLD, difference
from pipelines.joins.meaning import meaning
from pipelines.spec import Input, Link, ResolvedQuery

KeyTypes = Sequence[Sequence[DataType]]
"""For each input the types in which the parts of its key are compared."""


class Sources(Protocol):
    """What an epoch reads, input by input; whoever has the tables decides how."""

    def changes(self, place: int) -> DataFrame | None:
        """Give the net changes of an input: the scope columns, `key`, `old`, `new`; None if there are none."""

    def changed_keys(self, place: int) -> DataFrame | None:
        """Give the keys of the changes of an input, each once: the scope columns and `key`; None if there are none."""

    def referring(self, link: Link, keys: DataFrame) -> DataFrame:
        """Give the keys of the rows that refer to one of the keys, at the end of the epoch: scope columns and `key`."""

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> Mapping[int, DataFrame]:
        """Give rows of inputs at the end of the epoch: those with one of the keys, and others if that is cheaper."""

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Make a frame that is used several times cheap to read."""


def touched_keys(join: ResolvedQuery, sources: Sources, scope: Sequence[str] = ()) -> DataFrame | None:
    """
    Name every result row that an epoch could alter.

    A changed row touches its own key, and each row that refers to it now; a row that referred to it before has itself
    changed, so that the first rule names it. From input to input this leads to the inputs that key the result.

    Args:
        join: The join.
        sources: What the epoch reads.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns and `key` (struct<k0, …>), one row per key, none null; None if nothing is touched.
    """
    affected: dict[int, DataFrame] = {}
    for place in reversed([*join.members, *(link.input for link in join.links)]):
        own = sources.changed_keys(place)
        keys = [] if own is None else [_keys(own, scope)]
        keys += [
            sources.referring(link, affected[link.input])
            for link in join.links
            if link.over == place and link.input in affected
        ]
        if len(keys) == 1 and own is not None:
            affected[place] = keys[0]
        elif keys:
            affected[place] = sources.materialize(f"affected_{place}", _union(keys).distinct())
    touched = [affected[place] for place in join.members if place in affected]
    if len(touched) < 2:
        return touched[0] if touched else None
    return sources.materialize("touched", _union(touched).distinct())


def change_set(
    join: ResolvedQuery, types: KeyTypes, sources: Sources, touched: DataFrame, scope: Sequence[str] = ()
) -> DataFrame:
    """
    Compute what an epoch changes in the result.

    Args:
        join: The join.
        types: The types in which keys are compared.
        sources: What the epoch reads.
        touched: The touched keys, as `touched_keys` gives them.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `op`, `key`, `before`, `after`, `copies`, as `difference` gives them: exactly the rows of the
        result that differ, a delete only for a row that was there.
    """
    state: dict[int, DataFrame] = {}

    def look_up(wanted: Mapping[int, Callable[[], DataFrame]]) -> None:
        for place, rows in sources.rows(wanted).items():
            state[place] = images(sources.changes(place), rows, join.inputs[place], types[place], scope)

    look_up(dict.fromkeys(join.members, lambda: touched))
    for ready in levels(join):
        look_up(
            {link.input: partial(_referenced, link, join, types, state[link.over], sources, scope) for link in ready}
        )
    both = meaning([state[place] for place in range(len(join.inputs))], join, [*scope, IMAGE])
    return difference(both, join.key, scope)


def levels(join: ResolvedQuery) -> Iterator[list[Link]]:
    """Give the references level by level, those together whose referring inputs are known by then."""
    reached, waiting = set(join.members), list(join.links)
    while waiting:
        ready = [link for link in waiting if link.over in reached]
        waiting = [link for link in waiting if link.over not in reached]
        reached.update(link.input for link in ready)
        yield ready


def reference(link: Link, types: Sequence[DataType]) -> str:
    """Give the SQL of the key that a row refers to: struct<k0, …>, over the columns of the referencing input."""
    return numbered(
        f"CAST({expression} AS {type_sql(kind)})" for expression, kind in zip(link.expressions, types, strict=True)
    )


def null_reference(link: Link) -> str:
    """Give the SQL that tells whether a row refers to nothing: any null part makes a key null (KIP-962)."""
    return "(" + " OR ".join(f"({expression}) IS NULL" for expression in link.expressions) + ")"


def refers_to(link: Link, types: KeyTypes) -> str:
    """Give the SQL of the key that a row refers to, over structs of the inputs' rows; null where it is to nothing."""
    return f"IF({null_reference(link)}, NULL, {reference(link, types[link.input])})"


def images(
    changes: DataFrame | None,
    looked_up: DataFrame,
    side: Input,
    types: Sequence[DataType],
    scope: Sequence[str] = (),
) -> DataFrame:
    """
    Give the touched part of a source twice: as it was and as it is.

    Args:
        changes: Net changes: the scope columns, `key`, `old`, `new`; None if there are none.
        looked_up: The source's rows for the touched keys, at the pinned version: the scope columns and the columns
            that the join uses.
        side: The source in the join.
        types: The types in which key parts are compared.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, `_lakejoin_image` ('old' or 'new') and the source's columns. A key with a change has its rows
        from the change, any other the looked-up row in both images.
    """
    unchanged = unchanged_rows(changes, looked_up, side, types, scope)
    scopes = [quote(name) for name in scope]
    both = f"explode(array('{OLD}', '{NEW}')) AS {IMAGE}"
    from_lookup = unchanged.selectExpr(*scopes, both, *map(quote, side.columns))
    if changes is None:
        return from_lookup
    items = f"array(named_struct('image', '{OLD}', 'row', old), named_struct('image', '{NEW}', 'row', new))"
    changed = changes.selectExpr(*scopes, f"explode({items}) AS item").where("item.row IS NOT NULL")
    values = (f"item.row.{quote(name)} AS {quote(name)}" for name in side.columns)
    from_changes = changed.selectExpr(*scopes, f"item.image AS {IMAGE}", *values)
    return from_changes.unionAll(from_lookup)


def unchanged_rows(
    changes: DataFrame | None, looked_up: DataFrame, side: Input, types: Sequence[DataType], scope: Sequence[str] = ()
) -> DataFrame:
    """Leave the looked-up rows that no change brings: the scope columns and the columns of the input."""
    row = looked_up.alias("row")
    if changes is not None:
        known = changes.select(*(F.col(quote(name)) for name in scope), "key").alias("change")
        same_key = [f"{quote('row', name)} = {quote('change', name)}" for name in scope]
        same_key.append(f"{key_struct(side.key, types, 'row.')} = change.key")
        row = row.join(known, on=F.expr(" AND ".join(same_key)), how="left_anti")
    return row.selectExpr(*(quote("row", name) for name in (*scope, *side.columns)))


def _referenced(
    link: Link, join: ResolvedQuery, types: KeyTypes, referring: DataFrame, sources: Sources, scope: Sequence[str]
) -> DataFrame:
    """Name the keys that rows refer to, in either image, and those that changed: are they there once?"""
    rows = referring.alias(join.inputs[link.over].alias).where(f"NOT {null_reference(link)}")
    key = F.expr(reference(link, types[link.input])).alias("key")
    wanted = [rows.select(*(F.col(quote(name)) for name in scope), key)]
    changed = sources.changed_keys(link.input)
    if changed is not None:
        wanted.append(_keys(changed, scope))
    return sources.materialize(f"wanted_{link.input}", _union(wanted).distinct())


def _keys(frame: DataFrame, scope: Sequence[str]) -> DataFrame:
    return frame.select(*(F.col(quote(name)) for name in scope), "key")


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole
