"""Describe a statement and its feeds for a gate, as plain values that do not depend on `joins/`."""

from pyspark.sql.types import MapType

from expectations.gate import PlainStatement
from lakehouse.values.compare import contains
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.language import ResolvedQuery


def statement_of(join: ResolvedQuery) -> PlainStatement:
    """Return the plain statement of a join."""
    return PlainStatement(
        tuple(item.alias for item in join.inputs),
        tuple((step.how, step.on) for step in join.steps),
        join.where,
        tuple((output.name, output.expression) for output in join.outputs),
    )


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
