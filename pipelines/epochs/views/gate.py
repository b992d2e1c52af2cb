"""Describe the sources of an epoch to the gates of tables and pairs, as plain values that know nothing of `joins/`."""

import uuid
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import GateSources, InputTable, Reference
from lakehouse.tables.table import read_rows
from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import row_struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.plain_inputs import query_of, statement_of


def sources_of(workspace: Workspace, epoch: Epoch[BoundJoin]) -> GateSources:
    """Return the sources of a join at the versions that an epoch pinned; if it is incremental, with changed keys."""
    bound = epoch.bound
    join = bound.join
    inputs = []
    for place, item in enumerate(join.inputs):
        table = bound.table(place)
        rows = query_of(item).over(read_rows(workspace.spark, table, table.version))
        changed = _changed(workspace, epoch, place)
        old = None if changed is None or item.grouping is not None else partial(_old_rows, workspace, epoch, place)
        inputs.append(InputTable(rows, item.key, bound.types[place], changed, table.size, item.may_be_absent, old))
    references = tuple(
        Reference(link.input, link.over, link.expressions, link.null_safe, link.followed.parts) for link in join.links
    )
    size = sum(table.size for table in bound.sources)
    return GateSources(statement_of(join), inputs, join.members, references, size, uuid.uuid4().hex)


def change_set_schema(bound: BoundJoin) -> StructType:
    """Return the schema of a staged change set."""
    key = StructType([bound.columns[name] for name in bound.join.key])
    images = [StructField(name, bound.columns) for name in ("before", "after")]
    return StructType([StructField("op", StringType()), StructField("key", key), *images])


def _changed(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame | None:
    """Read the distinct keys of the feed of an input, in any image; None if the epoch reads no feed of the input."""
    bound, plan = epoch.bound, epoch.plan
    item, table = bound.join.inputs[place], bound.table(place)
    (versions,) = (part for part in plan.sources if part.name == item.source)
    if plan.strategy != "incremental" or not versions.has_changes:
        return None
    key, after, to = item.source_key, versions.read_after, versions.to_version
    if item.grouping is not None:
        images = workspace.feeds.read(item.source, table, after, to, item.source_columns)
        feed, key = query_of(item.ungrouped).over(images), item.key
    else:  # whether the filter takes a row, which its images may differ in, does not matter here
        feed = workspace.feeds.read(item.source, table, after, to, key)
    changed = feed.where(f"NOT {null_key(key, may_be_absent=item.may_be_absent)}")
    return changed.select(F.expr(key_struct(key, bound.types[place])).alias("key")).distinct()


def _old_rows(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame:
    """Read the rows of an input that changed in an epoch as they were before it: the first images of their keys."""
    bound, item = epoch.bound, epoch.bound.join.inputs[place]
    (versions,) = (part for part in epoch.plan.sources if part.name == item.source)
    names = item.source_columns
    feed = workspace.feeds.read(item.source, bound.table(place), versions.read_after, versions.to_version, names)
    is_old = "_change_type IN ('delete', 'update_preimage')"
    images = query_of(item).over(feed, "_change_type", "_commit_version")
    first = images.where(f"NOT {null_key(item.key, may_be_absent=item.may_be_absent)}")
    first = first.groupBy(F.expr(key_struct(item.key, bound.types[place]))).agg(
        F.expr(f"min_by({row_struct(item.columns, '')}, _commit_version) FILTER (WHERE {is_old}) AS old"),
        F.expr(f"min(_commit_version) FILTER (WHERE {is_old}) AS replaced"),
        F.expr(f"min(_commit_version) FILTER (WHERE NOT {is_old}) AS inserted"),
    )
    return first.where("replaced <= coalesce(inserted, replaced)").select("old.*")
