"""Compute one epoch of a join with a stream, and where the clocks of its sources stand afterwards."""

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
"""Strategies that take the snapshot of the stream."""


def compute_epoch(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """Compute an epoch of a join with a stream, as `compute_stream` or `compute_windowed` says."""
    compute = compute_stream if bound.join.window is None else compute_windowed
    computed = compute(workspace, bound, plan, stage)
    if not bound.is_read:  # nobody asks which positions it passed
        computed = replace(computed, positions=())
    if plan.strategy not in WHOLE:
        return computed
    clocks = _clocks_of_load(workspace, bound, plan, computed.clocks)
    end = max((clocks.get(stream.source, 0) for stream in bound.streams), default=0)
    return replace(computed, clocks=clocks, positions=tuple(replace(at, time=end) for at in computed.positions))


def _clocks_of_load(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, reached: Mapping[str, int]
) -> dict[str, int]:
    """
    Say how far the time of each source goes after a first load.

    What it reads has times of its own, or none; the feed that follows has those of its commits. So that of the newest
    commit with data counts, or of another join's result the last position, or the greatest value of what orders rows.
    """
    clocks = dict(reached)
    for table in bound.sources:
        is_known = table.address.label in bound.times and table.address.label in reached
        if source_kind(workspace, table) != "global_table" and not is_known:
            newest = _newest_time(workspace, bound, plan, table)
            if newest is not None:
                clocks[table.address.label] = newest
    return clocks


def _newest_time(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, table: Table) -> int | None:
    """Say how far the time of a source goes that is read whole; None where that is not known."""
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
    if name in bound.logs:  # its own commits come later than what they are made of
        log = bound.logs[name]
        logged = read(workspace.spark, log.address, log.version).where(f"_cause <> '{BACKFILL_CAUSE}'")
        reached: int | None = logged.agg(F.max(F.unix_micros("_at"))).collect()[0][0]
        return reached
    if source_kind(workspace, table) == "changelog":
        read_up_to = workspace.ledger.of(name).read_up_to(table.version)
        table = replace(get(workspace.spark, workspace.source(name)), version=read_up_to)
    known = [commit for commit in table.commits if commit.version <= table.version]
    newest = next((commit for commit in known if commit.changes_data), known[-1] if known else None)
    return None if newest is None else micros(newest.at)
