"""Validate an epoch of a join of a stream with tables: read the stream and the tables once more."""

from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame

from expectations.gate import LookedUp, PlainStatement, gate_looked_up
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.session.session import settings, small_query_settings
from lakehouse.values.compare import comparable, type_sql
from lakehouse.values.driver_rows import TooLarge
from lakehouse.values.sqltext import quote, text
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.plain_inputs import inspect_maps, statement_of
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.plain_rows import plain_rows, position_of
from pipelines.language import STREAM_COLUMNS, Link
from pipelines.language.names import HAS_VALUE, POSITION, VERSION
from pipelines.plan.values import APPENDED, EpochPlan

PLACE = "_lakejoin_place"
"""The column with the position of a stream's row, beside the user's columns."""


def gate_lookups(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
    """
    Check the staged rows against a second look-up of the stream's rows in the tables as they were.

    The gate checks a sample of many rows, chosen by the columns of the stream that the result shows, and none of very
    many rows. It does not check a replay, which has looked up the rows again itself, nor an epoch in which a changelog
    source or another join changed: their changes are not those of their commits.

    Args:
        entry: Its *publishing* row, whose counts give the number of rows to read.
    """
    bound, plan = epoch.bound, epoch.plan
    is_load = plan.strategy in ("load", "reset")
    if not is_load and (plan.strategy != "incremental" or _has_other_order(workspace, epoch)):
        return Verdict()
    if not is_load and not _has_changed(plan, bound.join.inputs[0].source) and not entry.counts.get(APPENDED):
        return Verdict()
    number = entry.counts.get("read", 0)
    if number > limits.LARGE_STREAM_ROWS:
        return Verdict()
    inspect_maps(workspace, epoch)
    size = sum(table.size for table in bound.sources[1:])
    with settings(
        workspace.spark,
        {**small_query_settings(size), "spark.sql.shuffle.partitions": "2"}
        if number <= limits.CHANGES_VIA_DRIVER
        else {},
    ):
        new_rows = _placed(plain_rows(workspace, epoch))
        staged = stage.get(workspace.spark, "result", bound.columns)
        if number > 2 * limits.RECOMPUTED_ROWS:
            share = number // (2 * limits.RECOMPUTED_ROWS) + 1
            new_rows, staged = _sample(bound, new_rows, staged, share, stage.path)
        new_rows = _kept(stage, new_rows, via_driver=number <= limits.CHANGES_VIA_DRIVER)
        links = sorted(bound.join.links, key=lambda link: link.input)
        tables = [_table(workspace, epoch, link) for link in links]
        return gate_looked_up(staged, new_rows, PLACE, _statement(bound, plan.epoch), tables, stage.path)


def _placed(rows: DataFrame) -> DataFrame:
    """Return the columns of the stream, and the position as PLACE."""
    return rows.withColumnRenamed(POSITION, PLACE).drop(VERSION, HAS_VALUE)


def _statement(bound: BoundJoin, epoch: int) -> PlainStatement:
    """Return the statement of the join, with the columns that lakejoin adds to the result."""
    join = bound.join
    own = dict(zip(STREAM_COLUMNS, (str(epoch), quote(join.inputs[0].alias, PLACE)), strict=True))
    expressions = own | {output.name: output.expression for output in join.outputs}
    outputs = (
        (field.name, f"CAST({expressions[field.name]} AS {type_sql(field.dataType)})") for field in bound.columns
    )
    return replace(statement_of(join), outputs=tuple(outputs))


def _table(workspace: Workspace, epoch: Epoch[BoundJoin], link: Link) -> LookedUp:
    """Read a table at its pinned version and, if it changed in the epoch, its feed."""
    bound, plan = epoch.bound, epoch.plan
    item, table = bound.join.inputs[link.input], bound.table(link.input)
    names = bound.used(item.source)
    rows = rows_of(workspace, replace(item, columns=names), table, table.version)
    looked_up = LookedUp(
        item.key,
        link.expressions,
        rows,
        link.null_safe,
        item.may_be_absent,
        is_small=table.size <= limits.SMALL_BYTES,
        size=table.size,
    )
    known = workspace.file.sources.get(item.source)
    is_global = known is not None and known.kind == "global_table"
    if is_global or plan.strategy != "incremental" or not _has_changed(plan, item.source):
        return looked_up
    (versions,) = (part for part in plan.sources if part.name == item.source)
    at = (versions.read_after, versions.to_version)
    feed = workspace.feeds.read(item.source, table, *at, names, "commit by commit")
    if item.source in plan.stream.clocks:
        looked_up = replace(looked_up, floor=plan.stream.clocks[item.source])
    if item.source in bound.times:
        column = quote(bound.times[item.source])
        time = position_of(f"coalesce(new.{column}, old.{column})", table.schema[bound.times[item.source]].dataType)
        looked_up = replace(looked_up, time=time)
    return replace(looked_up, feed=feed)


def _has_changed(plan: EpochPlan, source: str) -> bool:
    """Return whether a source changed since the last epoch."""
    return any(part.has_changes for part in plan.sources if part.name == source)


def _has_other_order(workspace: Workspace, epoch: Epoch[BoundJoin]) -> bool:
    """Return whether a changelog source or another join changed, whose changes are not those of their commits."""
    bound, plan = epoch.bound, epoch.plan
    sources = [item.source for item in bound.join.inputs[1:]]
    logged = [name for source in sources if (log := bound.logs.get(source)) for name in (source, log.address.label)]
    declared = [name for name in sources if name in workspace.file.sources]
    landed = [name for name in declared if workspace.file.sources[name].kind == "changelog"]
    return any(_has_changed(plan, name) for name in (*logged, *landed))


def _sample(
    bound: BoundJoin, new_rows: DataFrame, staged: DataFrame, share: int, salt: str
) -> tuple[DataFrame, DataFrame]:
    """Sample one in `share` rows of the stream, chosen by the salt, and the staged rows that they made."""
    stream = bound.join.inputs[0]
    columns = {quote(stream.alias, name): name for name in stream.columns}
    shown = {
        output.name: columns[output.expression] for output in bound.join.outputs if output.expression in columns
    } | {STREAM_COLUMNS[1]: PLACE}

    def sampled(rows: DataFrame, names: list[str]) -> DataFrame:
        values = (comparable(quote(name), rows.schema[name].dataType) for name in names)
        return rows.where(f"pmod(xxhash64({', '.join(values)}, {text(salt)}), {share}) = 0")

    return sampled(new_rows, list(shown.values())), sampled(staged, list(shown))


def _kept(stage: Stage, rows: DataFrame, *, via_driver: bool) -> DataFrame:
    """Keep rows on the driver or, if they are many, in the stage."""
    if via_driver:
        with suppress(TooLarge):
            return Scratch(stage, via_driver=True).keep("gated", rows)
    return Scratch(stage).keep("gated", rows)
