"""All rows of a join in the order of its key, for files whose key ranges do not overlap."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.changes import key_struct, null_key
from lakehouse.key_ranges import bounds_of, compared, range_of
from lakehouse.sqltext import quote
from lakehouse.tables import read_rows
from lakehouse.values import type_sql
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.tables.reconcile import expected_rows
from pipelines.joins.meaning import meaning
from pipelines.spec.statement.added_columns import PREFIX

RANGE = f"{PREFIX}range"
"""The working column of the number of the range that contains the key."""


def rows_in_key_order(workspace: Workspace, bound: BoundJoin) -> DataFrame:
    """
    Return the meaning of a join at the pinned versions, one partition for each range of the key, sorted within it.

    Two tables that are joined on their keys are cut into ranges before they are joined: each goes through one exchange,
    and the result through none. The rows of any other join are exchanged once more after it.
    """
    files = 1 + sum(table.size for table in bound.sources) // limits.BYTES_PER_FILE
    keys = [F.col(quote(name)) for name in bound.join.key]
    rows = _joined_by_ranges(workspace, bound, files) if 1 < files <= limits.LOAD_RANGES else None
    if rows is not None:
        return rows.sortWithinPartitions(RANGE, *keys).drop(RANGE)
    return expected_rows(workspace, bound).repartitionByRange(files, *keys).sortWithinPartitions(*keys)


def _joined_by_ranges(workspace: Workspace, bound: BoundJoin, number: int) -> DataFrame | None:
    """Return the rows with their range, if two tables are joined on keys of types that have literals in order."""
    join = bound.join
    # A FULL JOIN of three tables would be shuffled once more, by whichever of the keys is present.
    is_of_one_key = not join.links and len(join.inputs) == 2 and join.pairing is None
    has_order = not join.has_absent_keys  # a key with a null is in no range
    if not is_of_one_key or not has_order or not hasattr(DataFrame, "repartitionById"):  # Spark 4.1
        return None
    tables, keys, whole = [], [], 0
    for place, item in enumerate(join.inputs):
        table = bound.table(place)
        rows = rows_of(workspace, item, table, table.version).where(f"NOT {null_key(item.key)}")
        tables.append(rows)
        keys.append(rows.select(F.expr(key_struct(item.key, bound.types[place])).alias("key")))
        whole += read_rows(workspace.spark, table, table.version).count()
    bounds = bounds_of(reduce(DataFrame.unionAll, keys), whole, number)
    if not bounds:
        return None
    cut = []
    for place, (rows, item) in enumerate(zip(tables, join.inputs, strict=True)):
        parts = zip(item.key, bound.types[place], strict=True)
        key = compared([f"CAST({quote(name)} AS {type_sql(kind)})" for name, kind in parts])
        ranged = rows.withColumn(RANGE, F.expr(range_of(key, bounds)))
        cut.append(ranged.repartitionById(len(bounds) + 1, F.col(RANGE)))
    columns = (F.col(quote(name)) for name in (RANGE, *bound.columns.fieldNames()))
    return meaning(cut, join, [RANGE]).select(*columns)
