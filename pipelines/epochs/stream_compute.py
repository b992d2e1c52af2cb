"""Compute one epoch of a join with a stream, and the clocks of its sources after the epoch."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import functions as F

from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Table, get, read, read_rows
from lakehouse.times import micros
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.lookup.compute import compute_stream
from pipelines.epochs.streams.new_rows import as_time
from pipelines.epochs.streams.source_progress import last_position, source_kind
from pipelines.epochs.window.compute import compute_windowed
from pipelines.joins.changelog import BACKFILL as BACKFILL_CAUSE
from pipelines.plan.values import Computed, EpochPlan

WHOLE = ("load", "reset")
"""Strategies that read the snapshot of the stream."""


def compute_epoch(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """Compute an epoch of a join with a stream by `compute_stream` or `compute_windowed`."""
    compute = compute_stream if bound.join.window is None else compute_windowed
    computed = compute(workspace, bound, plan, stage)
    if not bound.is_read:  # no other join reads the positions
        computed = replace(computed, positions=())
    if plan.strategy not in WHOLE:
        return computed
    clocks = _clocks_of_load(workspace, bound, plan, computed.clocks)
    end = max((clocks.get(stream.source, 0) for stream in bound.streams), default=0)
    return replace(computed, clocks=clocks, positions=tuple(replace(at, time=end) for at in computed.positions))


def _clocks_of_load(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, computed: Mapping[str, int]
) -> dict[str, int]:
    """
    Return the clock of each source after a first load.

    The rows that a load reads have times of their own, or none; the feed that follows has commit times. The clock of a
    source is therefore the time of its newest commit with data; for another join's result it is the last position, and
    for a source with an ordering column the greatest value of that column.
    """
    clocks = dict(computed)
    for table in bound.sources:
        is_known = table.address.label in bound.times and table.address.label in computed
        if source_kind(workspace, table) != "global_table" and not is_known:
            newest = _newest_time(workspace, bound, plan, table)
            if newest is not None:
                clocks[table.address.label] = newest
    return clocks


def _newest_time(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, table: Table) -> int | None:
    """Return the clock of a source that is read whole; None if it is unknown."""
    name = table.address.label
    column = bound.times.get(name)
    if column is not None:
        time = F.expr(as_time(quote(column), table.schema[column].dataType))
        greatest: int | None = read_rows(workspace.spark, table, table.version).agg(F.max(time)).collect()[0][0]
        return greatest
    if name in bound.made:
        (until,) = (part.epochs[1] for part in plan.sources if part.name == name)
        last = bound.made[name].last_committed(lambda entry: entry.epoch <= until)
        assert last is not None
        return last_position(workspace, last)
    if name in bound.logs:  # its commits are later than the changes that they hold
        log = bound.logs[name]
        logged = read(workspace.spark, log.address, log.version).where(f"_cause <> '{BACKFILL_CAUSE}'")
        newest_change: int | None = logged.agg(F.max(F.unix_micros("_at"))).collect()[0][0]
        return newest_change
    if source_kind(workspace, table) == "changelog":
        read_up_to = workspace.ledger.of(name).read_up_to(table.version)
        table = replace(get(workspace.engine, workspace.source(name)), version=read_up_to)
    known = [commit for commit in table.commits if commit.version <= table.version]
    newest = next((commit for commit in known if commit.changes_data), known[-1] if known else None)
    return None if newest is None else micros(newest.at)
