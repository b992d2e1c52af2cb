"""The clocks of the sources of a join with a stream after a load, which reads snapshots."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import functions as F

from lakehouse.tables.table import Table, get, read, read_rows
from lakehouse.values.sqltext import quote
from lakehouse.values.times import micros
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.streams.new_rows import as_time
from pipelines.epochs.streams.source_progress import last_position, source_kind
from pipelines.joins.changelog import BACKFILL as BACKFILL_CAUSE


def clocks_of_load(workspace: Workspace, epoch: Epoch[BoundJoin], computed: Mapping[str, int]) -> dict[str, int]:
    """
    Return the clock of each source after a first load, or a reset.

    The rows that a load reads have times of their own, or none; the feed that follows has commit times. The clock of a
    source is therefore the time of its newest commit with data; for another join's result it is the last position, and
    for a source with an ordering column the greatest value of that column.
    """
    bound = epoch.bound
    clocks = dict(computed)
    for table in bound.sources:
        is_known = table.address.label in bound.times and table.address.label in computed
        if source_kind(workspace, table) != "global_table" and not is_known:
            newest = _newest_time(workspace, epoch, table)
            if newest is not None:
                clocks[table.address.label] = newest
    return clocks


def _newest_time(workspace: Workspace, epoch: Epoch[BoundJoin], table: Table) -> int | None:
    """Return the clock of a source that is read whole; None if it is unknown."""
    bound, plan = epoch.bound, epoch.plan
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
