"""All rows of a join in the order of its layout, mostly its key, for files whose ranges do not overlap."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.tables.table import read_rows
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.pruning import bounds_of, compared, range_of
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.views.reconcile import expected_rows, whole_inputs
from pipelines.joins.meaning import meaning
from pipelines.language.names import PREFIX

RANGE = f"{PREFIX}range"
"""The working column of the number of the range that contains the key."""


def rows_in_order(workspace: Workspace, bound: BoundJoin, *, is_cut: bool) -> DataFrame:
    """
    Return the meaning of a join at the pinned versions, one partition for each range of the columns of `cluster_by`, or
    else of the key, sorted within it.

    Two tables that are joined on their keys are cut into ranges before they are joined: each goes through one exchange,
    and the result through none. So is a table with outer look-ups in tables that are small enough to be broadcast. The
    rows of any other join are exchanged once more after it.

    Args:
        is_cut: Whether the sources may be cut by the key of the result.
    """
    files = 1 + sum(table.size for table in bound.sources) // limits.BYTES_PER_FILE
    keys = [F.col(quote(name)) for name in bound.join.key]
    is_by_key = not bound.cluster_by
    bounds = _bounds(workspace, bound, files) if is_by_key and is_cut and 1 < files <= limits.LOAD_RANGES else None
    if not bounds:
        order = [*map(F.col, map(quote, bound.cluster_by)), *keys]
        return expected_rows(workspace, bound).repartitionByRange(files, *order).sortWithinPartitions(*order)
    columns = [F.col(quote(name)) for name in bound.columns.fieldNames()]
    if len(bound.join.members) == len(bound.join.inputs) == 2:
        cut = [_cut(rows, bound, place, bounds) for place, rows in enumerate(whole_inputs(workspace, bound))]
        joined = meaning(cut, bound.join, [RANGE]).select(RANGE, *columns)
        return joined.sortWithinPartitions(RANGE, *keys).drop(RANGE)
    if _looks_up_small_tables(bound):
        tables = [
            _cut(rows, bound, place, bounds).drop(RANGE) if place in bound.join.members else F.broadcast(rows)
            for place, rows in enumerate(whole_inputs(workspace, bound))
        ]
        return meaning(tables, bound.join).select(*columns).sortWithinPartitions(*keys)
    rows = _in_ranges(expected_rows(workspace, bound), bound, bound.join.key, bounds)
    return rows.sortWithinPartitions(*keys).drop(RANGE)


def _bounds(workspace: Workspace, bound: BoundJoin, number: int) -> list[str] | None:
    """Return the bounds between ranges of the result's key, if its rows can be cut by literals."""
    join = bound.join
    if join.has_absent_keys or not hasattr(DataFrame, "repartitionById"):  # a key with a null is in no range; Spark 4.1
        return None
    keys, whole = [], 0
    for place in join.members:
        item, table = join.inputs[place], bound.table(place)
        rows = rows_of(workspace, item, table, table.version).where(f"NOT {null_key(item.key)}")
        keys.append(rows.select(F.expr(key_struct(item.key, bound.types[place])).alias("key")))
        whole += read_rows(workspace.spark, table, table.version).count()
    return bounds_of(reduce(DataFrame.unionAll, keys), whole, number)


def _looks_up_small_tables(bound: BoundJoin) -> bool:
    """
    Whether one of the first two tables keys the result, and the others fill columns and are small enough to broadcast.

    A third one would meet the join of those before it, which Spark may not broadcast. An inner look-up may leave out
    most rows, so that they are better exchanged after it.
    """
    join = bound.join
    fills = len(join.members) == 1 and join.members[0] <= 1 and all(step.how != "inner" for step in join.steps)
    others = (bound.table(place).size for place in range(len(join.inputs)) if place not in join.members)
    return fills and sum(others) <= limits.BROADCAST_BYTES


def _cut(rows: DataFrame, bound: BoundJoin, place: int, bounds: Sequence[str]) -> DataFrame:
    """Cut the rows of an input that keys the result; rows without a key take no part."""
    key = bound.join.inputs[place].key
    return _in_ranges(rows.where(f"NOT {null_key(key)}"), bound, key, bounds)


def _in_ranges(rows: DataFrame, bound: BoundJoin, key: Sequence[str], bounds: Sequence[str]) -> DataFrame:
    """Add the range of the key to rows, each range in a partition of its own."""
    types = bound.types[bound.join.members[0]]  # all members have the same
    parts = [f"CAST({quote(name)} AS {type_sql(kind)})" for name, kind in zip(key, types, strict=True)]
    ranged = rows.withColumn(RANGE, F.expr(range_of(compared(parts), bounds)))
    return ranged.repartitionById(len(bounds) + 1, F.col(RANGE))
