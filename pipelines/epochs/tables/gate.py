"""Describe the sources of a join of tables for its gate, as plain values that do not depend on `joins/`."""

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from expectations.gate import Reader, Reference, Rows, Sources, Statement
from lakehouse import limits
from lakehouse.changes import key_struct, null_key
from lakehouse.direct_rows import read_directly, why_spark
from lakehouse.pruning import Pruning
from lakehouse.tables import Table
from lakehouse.values import contains
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.plan.values import EpochPlan
from pipelines.spec import ResolvedQuery


def statement_of(join: ResolvedQuery) -> Statement:
    """Return the plain statement of a join."""
    return Statement(
        tuple(item.alias for item in join.inputs),
        tuple((step.how, step.on) for step in join.steps),
        join.where,
        tuple((output.name, output.expression) for output in join.outputs),
    )


def sources_of(workspace: Workspace, bound: BoundJoin, plan: EpochPlan | None = None) -> Sources:
    """
    Return the sources of a join of tables at the versions that an epoch pinned.

    Args:
        workspace: Where they are.
        bound: The join.
        plan: The epoch; if it is incremental, each source comes with its changed keys. None for a first load.
    """
    join = bound.join
    inputs = []
    for place, item in enumerate(join.inputs):
        table = bound.table(place)
        rows = rows_of(workspace, item, table, table.version)
        changed = (None, None) if plan is None else _changed(workspace, bound, plan, place)
        inputs.append(Rows(rows, item.key, bound.types[place], *changed, table.size))
    references = tuple(Reference(link.input, link.over, link.expressions) for link in join.links)
    size = sum(table.size for table in bound.sources)
    return Sources(statement_of(join), inputs, join.members, references, size, uuid.uuid4().hex)


def reader_of(
    spark: SparkSession, table: Table, version: int, columns: Sequence[str], key: Sequence[str]
) -> Reader | None:
    """Return what reads rows of a table by keys without Spark; None if only Spark can read them."""
    if why_spark(table, columns):
        return None

    def read(keys: Pruning) -> DataFrame | None:
        found = read_directly(spark, table, version, columns, [(keys, key)])
        return None if found is None else found.frame

    return read


def inspect_maps(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> None:
    """
    Inspect the feeds of sources with map columns, because Delta's feed may reorder the entries of a map.

    Args:
        workspace: Where they are.
        bound: The join.
        plan: The epoch; only an incremental one reads feeds.
    """
    ranges = {part.name: part for part in plan.sources}
    for table in bound.sources if plan.strategy == "incremental" else ():
        name, part = table.address.label, ranges[table.address.label]
        names = [name for name in bound.used(name) if contains(table.schema[name].dataType, MapType)]
        if names and part.has_changes:
            workspace.feeds.inspect(name, table, part.read_after, part.to_version, names)


def _changed(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, place: int
) -> tuple[DataFrame | None, tuple[DataFrame, DataFrame] | None]:
    """
    Read the distinct keys of the feed of an input, in any image.

    Returns:
        The keys; None if the epoch reads no feed of the input. If they are read without Spark, as the epoch has read
        the feed, also the feed by Spark and without Spark, with the columns that the join uses; else None.
    """
    item, table = bound.join.inputs[place], bound.table(place)
    (versions,) = (part for part in plan.sources if part.name == item.source)
    if plan.strategy != "incremental" or not versions.has_changes:
        return None, None
    at, names = (versions.read_after, versions.to_version), list(bound.used(item.source))
    # If the sources are small, Spark evaluates the join for all of them, and finds whatever the epoch has misread. The
    # changelog of an epoch is computed from feeds that Spark has read.
    are_small = sum(table.size for table in bound.sources) <= limits.SMALL_BYTES
    may_be_direct = plan.via_driver and bound.changelog is None and not are_small
    direct = workspace.feeds.directly(table, *at, names) if may_be_direct else None
    columns = item.key if direct is None else names
    by_spark = workspace.feeds.read(item.source, table, *at, columns)
    changed = (by_spark if direct is None else direct).where(f"NOT {null_key(item.key)}")
    keys = changed.select(F.expr(key_struct(item.key, bound.types[place])).alias("key")).distinct()
    return keys, None if direct is None else (by_spark, direct)
