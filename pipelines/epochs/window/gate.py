"""
Validate an epoch of a join of two streams: read the new rows and the buffered rows once more.

This module imports nothing of `joins/`, because the gate must find by itself which rows match.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import EARLIEST, FACTS, IDS, TimeBound, WatermarkedColumn, WindowedJoin, gate_window
from expectations.gate.by_key import driver_copies
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.publish.stage import Stage
from lakehouse.session.session import settings, small_query_settings
from lakehouse.tables.table import read
from lakehouse.values.compare import hash_of
from lakehouse.values.sqltext import quote, struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.plain_inputs import inspect_maps, statement_of
from pipelines.epochs.streams.plain_rows import plain_rows, time_as_number
from pipelines.epochs.streams.state_table import BOTH, KNOWN_COLUMNS, STATE_ROWS, state_schema
from pipelines.language import ROW_COLUMNS
from pipelines.language.names import HAS_VALUE, POSITION, VERSION
from pipelines.plan.values import EpochPlan


def gate_windowed(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, counts: Mapping[str, int]) -> Verdict:
    """
    Check what an epoch adds to the result against the new and the buffered rows.

    The gate does not check whether rows are late or missing if another join makes one of the streams, or in a large
    epoch that is not ordered by commits. It checks nothing of a replay, whose rows belong to other epochs, and nothing
    of a very large epoch.

    Args:
        counts: The counts of the computed epoch.
    """
    plan = epoch.plan
    if plan.strategy not in ("load", "reset", "incremental", "flush"):
        return Verdict()
    rows = sum(counts.get(name, 0) for name in ("read", "buffered", "buffered_deleted"))
    if rows > limits.MOST_MEETINGS:
        return Verdict()
    inspect_maps(workspace, epoch)
    via_driver = small_query_settings(plan.stream.bytes) | {"spark.sql.shuffle.partitions": "2"}
    with settings(workspace.spark, via_driver if rows <= limits.CHANGES_VIA_DRIVER else {}):
        share = max((rows - 1) // limits.SEARCHED_ROWS, 1)
        return _gated(workspace, epoch, stage, share)


def _gated(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, share: int) -> Verdict:
    bound, plan = epoch.bound, epoch.plan
    staged = stage.get(workspace.spark, "result", bound.columns)
    staged = staged.withColumnsRenamed(dict(zip(ROW_COLUMNS, IDS, strict=True)))
    streams = [_stream_rows(workspace, epoch, side) for side in (0, 1)]
    if share == 1 and plan.stream.buffered_bytes <= limits.SMALL_BYTES:
        streams = driver_copies(streams)
    join = _windowed_join(bound, plan, streams, share, stage.path)
    return gate_window(staged, _state_changes(workspace, bound, stage), streams, join)


def _stream_rows(workspace: Workspace, epoch: Epoch[BoundJoin], side: int) -> DataFrame:
    """Return the new and the buffered rows of a stream, as `gate_window` takes them."""
    plan, frames = epoch.plan, []
    if plan.strategy != "flush":
        frames.append(_new_rows(workspace, epoch, side))
    if plan.strategy in ("flush", "incremental"):
        frames.append(_buffered_rows(workspace, epoch, side))
    return reduce(DataFrame.unionAll, frames)


def _new_rows(workspace: Workspace, epoch: Epoch[BoundJoin], side: int) -> DataFrame:
    bound = epoch.bound
    stream, (time, version, has_value) = bound.join.inputs[side], (POSITION, VERSION, HAS_VALUE)
    rows = plain_rows(workspace, epoch, 0 if bound.is_read_once else side)
    row = F.struct(*(F.col(quote(name)) for name in stream.columns)).alias(stream.alias)
    rows = rows.select(time, version, has_value, row)
    hashed = hash_of(quote(stream.alias), rows.schema[stream.alias].dataType)
    rank = 0 if bound.is_self_join else side
    position = struct({"time": time, "rank": str(rank), "version": version})
    facts = struct({"position": position, "is_new": "TRUE", "has_value": has_value, "matched": "FALSE"})
    row_id = _row_id(version, hashed, "CAST(NULL AS INT)")
    return rows.select(F.expr(row_id).alias(IDS[side]), F.expr(facts).alias(FACTS[side]), quote(stream.alias))


def _buffered_rows(workspace: Workspace, epoch: Epoch[BoundJoin], side: int) -> DataFrame:
    bound, plan = epoch.bound, epoch.plan
    assert plan.state is not None
    of_side, version, hashed, number, matched = KNOWN_COLUMNS
    rows = read(workspace.spark, plan.state.address, plan.state.base_version).where(f"{of_side} IN ({side}, {BOTH})")
    position = struct({"time": f"{EARLIEST}L", "rank": "0", "version": "0L"})
    facts = struct({"position": position, "is_new": "FALSE", "has_value": "TRUE", "matched": matched})
    # A row that is buffered once for both sides is in the column of the left stream.
    row = F.coalesce(STATE_ROWS[side], STATE_ROWS[0]) if bound.is_self_join else F.col(STATE_ROWS[side])
    row_id, alias = F.expr(_row_id(version, hashed, number)), bound.join.inputs[side].alias
    return rows.select(row_id.alias(IDS[side]), F.expr(facts).alias(FACTS[side]), row.alias(alias))


def _state_changes(workspace: Workspace, bound: BoundJoin, stage: Stage) -> DataFrame:
    """Return the staged changes of the buffered rows, as `gate_window` takes them."""
    key = StructType([state_schema(bound)[name] for name in KNOWN_COLUMNS[:4]])
    state = stage.get(workspace.spark, "state", StructType([StructField("op", StringType()), StructField("key", key)]))
    side, version, hashed, number = (f"key.{name}" for name in KNOWN_COLUMNS[:4])
    return state.selectExpr("op", f"{side} AS side", f"{_row_id(version, hashed, number)} AS row")


def _row_id(version: str, hashed: str, number: str) -> str:
    return struct({"version": version, "hash": hashed, "number": number})


def _windowed_join(bound: BoundJoin, plan: EpochPlan, streams: list[DataFrame], share: int, salt: str) -> WindowedJoin:
    join = bound.join
    assert join.window is not None
    is_from_upstream = any(watermark.is_from_upstream for watermark in join.window.watermarks)
    is_by_commit = plan.strategy == "incremental" and not bound.times
    return WindowedJoin(
        statement_of(join),
        _watermarked(bound, plan.stream.clocks, streams),
        tuple(TimeBound(one.greater, one.lesser, one.allowance) for one in join.window.bounds),
        join.window.equalities,
        join.window.one_sided,
        bound.semantics,
        share,
        is_ordered=not is_from_upstream and (share == 1 or is_by_commit),
        salt=salt,
    )


def _watermarked(
    bound: BoundJoin, greatest: Mapping[str, int], streams: list[DataFrame]
) -> tuple[WatermarkedColumn, ...]:
    """Return the watermarked columns; under the kafka modes all share one stream time."""
    inputs, window, columns = bound.join.inputs, bound.join.window, []
    assert window is not None
    names = [f"{inputs[watermark.time.input].source}.{watermark.time.column}" for watermark in window.watermarks]
    stream_time = max((greatest[name] for name in names if name in greatest), default=None)
    for name, watermark in zip(names, window.watermarks, strict=True):
        newest = greatest.get(name) if bound.semantics == "strict" else stream_time
        side, column = watermark.time
        alias = inputs[side].alias
        row = streams[side].schema[alias].dataType
        assert isinstance(row, StructType)
        time = time_as_number(quote(alias, column), row[column].dataType, by_date=window.by_date)
        at_start = None if newest is None else newest - watermark.lateness
        columns.append(WatermarkedColumn(side, time, watermark.lateness, at_start))
    return tuple(columns)
