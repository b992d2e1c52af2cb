"""
Validate an epoch of a join of two streams: read the new rows and the buffered rows once more.

This module imports nothing of `joins/`, because the gate must find by itself which rows meet.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import Clock, Meeting, gate_met
from expectations.gate.by_key import driver_copies
from expectations.gate.met import EARLIEST, FACTS, ROWS
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
from pipelines.plan.values import EpochPlan
from pipelines.spec import ROW_COLUMNS
from pipelines.spec.statement.added_columns import HAS_VALUE, POSITION, VERSION


def gate_meetings(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, counts: Mapping[str, int]) -> Verdict:
    """
    Check what an epoch adds to the result against the new and the buffered rows.

    The gate does not check whether rows are late or missing if another join makes one of the streams, or in a large
    epoch that is not ordered by commits. It checks nothing of a replay, whose rows belong to other epochs, and nothing
    of a very large epoch.

    Args:
        workspace: Where to work.
        epoch: The epoch.
        stage: The stage of the epoch.
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
        return _gated(
            workspace, epoch, stage, 1 if rows <= limits.MEETINGS_CHECKED else rows // limits.MEETINGS_SAMPLED
        )


def _gated(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, share: int) -> Verdict:
    bound, plan = epoch.bound, epoch.plan
    staged = stage.get(workspace.spark, "result", bound.columns)
    staged = staged.withColumnsRenamed(dict(zip(ROW_COLUMNS, ROWS, strict=True)))
    known = [_known(workspace, epoch, place) for place in (0, 1)]
    if share == 1 and plan.stream.buffered_bytes <= limits.SMALL_BYTES:
        known = driver_copies(known)
    return gate_met(
        staged, _state_changes(workspace, bound, stage), known, _meeting(bound, plan, known, share, stage.path)
    )


def _known(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame:
    """Return the new and the buffered rows of a stream, as `gate_met` takes them."""
    plan, found = epoch.plan, []
    if plan.strategy != "flush":
        found.append(_new_rows(workspace, epoch, place))
    if plan.strategy in ("flush", "incremental"):
        found.append(_buffered_rows(workspace, epoch, place))
    return reduce(DataFrame.unionAll, found)


def _new_rows(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame:
    bound = epoch.bound
    item, (time, version, has_value) = bound.join.inputs[place], (POSITION, VERSION, HAS_VALUE)
    rows = plain_rows(workspace, epoch, 0 if bound.is_read_once else place)
    row = F.struct(*(F.col(quote(name)) for name in item.columns)).alias(item.alias)
    rows = rows.select(time, version, has_value, row)
    hashed = hash_of(quote(item.alias), rows.schema[item.alias].dataType)
    rank = 0 if bound.is_self_join else place
    at = struct({"time": time, "rank": str(rank), "version": version})
    facts = struct({"at": at, "came": "TRUE", "has_value": has_value, "matched": "FALSE"})
    identity = _identity(version, hashed, "CAST(NULL AS INT)")
    return rows.select(F.expr(identity).alias(ROWS[place]), F.expr(facts).alias(FACTS[place]), quote(item.alias))


def _buffered_rows(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame:
    bound, plan = epoch.bound, epoch.plan
    assert plan.state is not None
    side, version, hashed, number, matched = KNOWN_COLUMNS
    rows = read(workspace.spark, plan.state.address, plan.state.base_version).where(f"{side} IN ({place}, {BOTH})")
    at = struct({"time": f"{EARLIEST}L", "rank": "0", "version": "0L"})
    facts = struct({"at": at, "came": "FALSE", "has_value": "TRUE", "matched": matched})
    identity = _identity(version, hashed, number)
    # A row that is buffered once for both sides is in the column of the left stream.
    row = F.coalesce(STATE_ROWS[place], STATE_ROWS[0]) if bound.is_self_join else F.col(STATE_ROWS[place])
    item = bound.join.inputs[place]
    return rows.select(F.expr(identity).alias(ROWS[place]), F.expr(facts).alias(FACTS[place]), row.alias(item.alias))


def _state_changes(workspace: Workspace, bound: BoundJoin, stage: Stage) -> DataFrame:
    """Return the staged changes of the buffered rows, as `gate_met` takes them."""
    key = StructType([state_schema(bound)[name] for name in KNOWN_COLUMNS[:4]])
    state = stage.get(workspace.spark, "state", StructType([StructField("op", StringType()), StructField("key", key)]))
    side, version, hashed, number = (f"key.{name}" for name in KNOWN_COLUMNS[:4])
    return state.selectExpr("op", f"{side} AS place", f"{_identity(version, hashed, number)} AS row")


def _identity(version: str, hashed: str, number: str) -> str:
    """Return the SQL of the identity of a stream's row."""
    return struct({"version": version, "hash": hashed, "number": number})


def _meeting(bound: BoundJoin, plan: EpochPlan, known: list[DataFrame], share: int, salt: str) -> Meeting:
    join = bound.join
    assert join.window is not None
    is_from_upstream = any(watermark.is_from_upstream for watermark in join.window.watermarks)
    is_by_commit = plan.strategy == "incremental" and not bound.times
    return Meeting(
        statement_of(join),
        _clocks(bound, plan.stream.clocks, known),
        tuple((bound.greater, bound.lesser, bound.allowance) for bound in join.window.bounds),
        join.window.equalities,
        join.window.one_sided,
        bound.semantics,
        share,
        follows=not is_from_upstream and (share == 1 or is_by_commit),
        salt=salt,
    )


def _clocks(bound: BoundJoin, greatest: Mapping[str, int], known: list[DataFrame]) -> tuple[Clock, ...]:
    """Return the watermarked columns; under the kafka modes all share one stream time."""
    window, clocks = bound.join.window, []
    assert window is not None
    names = [
        f"{bound.join.inputs[watermark.time.input].source}.{watermark.time.column}" for watermark in window.watermarks
    ]
    newest = max((greatest[name] for name in names if name in greatest), default=None)
    for name, watermark in zip(names, window.watermarks, strict=True):
        at = greatest.get(name) if bound.semantics == "strict" else newest
        place, column = watermark.time
        alias = bound.join.inputs[place].alias
        struct = known[place].schema[alias].dataType
        assert isinstance(struct, StructType)
        time = time_as_number(quote(alias, column), struct[column].dataType, by_date=window.by_date)
        clocks.append(Clock(place, time, watermark.lateness, None if at is None else at - watermark.lateness))
    return tuple(clocks)
