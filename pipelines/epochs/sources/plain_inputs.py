"""Describe a statement and its feeds for a gate, as plain values that do not depend on `joins/`."""

from dataclasses import replace

from pyspark.sql.types import MapType

from expectations.gate import PlainGroups, PlainQuery, PlainStatement
from lakehouse.values.compare import contains
from lakehouse.values.net_changes import null_key
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.language import Input, ResolvedQuery


def statement_of(join: ResolvedQuery) -> PlainStatement:
    """Return the plain statement of a join."""
    return PlainStatement(
        tuple(item.alias for item in join.inputs),
        tuple((step.how, step.on) for step in join.steps),
        join.where,
        tuple((output.name, output.expression) for output in join.outputs),
    )


def query_of(item: Input) -> PlainQuery:
    """Return an input as a plain query over its source."""
    if item.grouping is not None:
        grouping, rows = item.grouping, item.grouping.rows
        keyless = null_key(rows.key, may_be_absent=rows.may_be_absent)
        return replace(query_of(rows), groups=PlainGroups(item.key, keyless, grouping.values, grouping.having))
    plain = [quote(item.alias, name) for name in item.columns]
    values, where = (plain, None) if item.query is None else (item.query.values, item.query.where)
    return PlainQuery(item.alias, tuple(zip(item.columns, values, strict=True)), where)


def inspect_maps(workspace: Workspace, epoch: Epoch[BoundJoin]) -> None:
    """
    Inspect the feeds of sources with map columns, because Delta's feed may reorder the entries of a map.

    Only an incremental epoch reads feeds.
    """
    bound, plan = epoch.bound, epoch.plan
    ranges = {part.name: part for part in plan.sources}
    for table in bound.sources if plan.strategy == "incremental" else ():
        name, part = table.address.label, ranges[table.address.label]
        names = [name for name in bound.used(name) if contains(table.schema[name].dataType, MapType)]
        if names and part.has_changes:
            workspace.feeds.inspect(name, table, part.read_after, part.to_version, names)
