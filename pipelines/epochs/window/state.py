"""
The rows that wait in a join of two streams, in a table beside the result.

An epoch stages what becomes of them. Few are written anew as a whole, which is one cheap commit; of many only what
changed is merged. Either way the table is of the same epoch as the result, and a row of it names by what it is known
there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.small import to_driver
from lakehouse.sqltext import quote, struct
from lakehouse.stage import Stage
from lakehouse.tables import read
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.streams.state_table import BOTH, STATE_ROWS
from pipelines.joins.expiry import KEEP, OP
from pipelines.joins.pairs import EXPIRED, LATE, NOT_JOINABLE, NULL_KEY, as_buffered, judged, outer_sides
from pipelines.joins.row_id import both_sides
from pipelines.joins.watermarks import NOTHING_YET, limit, lowest, watermark_before, window_of
from pipelines.plan.values import BUFFERED, BUFFERED_UNCHANGED, EpochPlan
from pipelines.spec import ResolvedQuery
from pipelines.spec.statement.added_columns import IDENTITY, MATCHED, SIDE

STATE_COUNTS = {name: f"count_if(op = '{op}')" for op, name in BUFFERED.items()}


@dataclass(frozen=True)
class BufferedRows:
    """
    The rows that wait before an epoch.

    Args:
        rows: The rows, as `as_buffered` gives them.
        is_once: Whether they lie there once for both sides; None of a join whose rows never do.
    """

    rows: DataFrame
    is_once: bool | None = None


def read_buffered(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, watermarks: Mapping[int, int], *, via_driver: bool
) -> BufferedRows:
    """
    Read the rows that wait before an epoch.

    Of a stream that is joined with itself by an inner join a row may lie there once for both sides, as the optimiser
    had it then: it waits on a side until it lies below the limit of that side.

    Args:
        workspace: Where to work.
        bound: The join.
        plan: The epoch.
        watermarks: The watermarks before it, by their places.
        via_driver: Whether few rows came, which pass through the driver.
    """
    assert bound.state is not None
    rows = read(workspace.spark, bound.state, plan.state_version)
    if plan.strategy not in ("incremental", "flush"):
        rows = rows.where("false")
    elif via_driver and plan.state_bytes <= limits.SMALL_BYTES:
        rows = to_driver(rows).frame
    aliases = {name: item.alias for name, item in zip(STATE_ROWS, bound.join.inputs, strict=True)}
    rows = rows.withColumnsRenamed(aliases)
    if not bound.is_self_join or outer_sides(bound.join):
        return BufferedRows(as_buffered(rows, bound.join))
    is_once = bool(rows.where(f"{SIDE} = {BOTH}").limit(1).count())
    if is_once:
        on_sides = as_buffered(both_sides(rows, bound.join), bound.join)
        window = window_of(bound.join)
        numbers = range(len(window.watermarks))
        bounds = {limit(n): F.lit(lowest(window, n, watermarks)) for n in numbers}
        none_late = {watermark_before(n): F.lit(NOTHING_YET) for n in numbers}
        known = judged(on_sides.withColumns(bounds | none_late), bound.join, bound.semantics)
        stay = known.where(f"NOT ({NOT_JOINABLE} OR {EXPIRED})")
        return BufferedRows(stay.drop(LATE, NULL_KEY, NOT_JOINABLE, EXPIRED, *none_late), is_once)
    return BufferedRows(as_buffered(rows, bound.join), is_once)


def put_state(
    stage: Stage, changes: DataFrame, buffered: BufferedRows, bound: BoundJoin, plan: EpochPlan
) -> dict[str, int]:
    """
    Stage what becomes of the rows that wait, into the part `state`: `op`, `key`, `after`.

    Args:
        stage: The stage.
        changes: What `buffer_changes` gives.
        buffered: The rows that waited before.
        bound: The join.
        plan: The epoch; it says whether the rows that wait on as they were are staged as well.

    Returns:
        Counts: buffered (rows that wait from now on), buffered_inserted, buffered_updated, buffered_deleted, and where
        all are staged buffered_kept.
    """
    seen = Observation()
    stays = F.count(F.expr(f"IF({OP} <> 'delete', 1, NULL)")).alias("buffered")
    told = changes.where(f"{OP} IS NOT NULL")
    if bound.is_single_store:
        told = _once(told, bound.join)
    reformed = buffered.is_once is not None and buffered.is_once != bound.is_single_store
    if reformed:
        told = told.withColumn(OP, F.expr(f"IF({OP} = '{KEEP}', 'update', {OP})"))
    told = told.observe(seen, stays)
    facts = STATE_COUNTS
    if plan.rewrites_state or reformed:
        facts = facts | {BUFFERED_UNCHANGED: f"count_if(op = '{KEEP}')"}
    else:
        told = told.where(f"{OP} <> '{KEEP}'")
    counts = stage.put("state", _images(told, bound.join), facts)
    return {**counts, "buffered": seen.get["buffered"]}


def _once(told: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Bring what becomes of a row on each side together: it stays until neither needs it."""
    left, right = (quote(item.alias) for item in join.inputs)
    was, stays = f"bool_or({OP} <> 'insert')", f"bool_or({OP} <> 'delete')"
    op = f"CASE WHEN NOT {was} THEN 'insert' WHEN {stays} THEN '{KEEP}' ELSE 'delete' END"
    rows = told.groupBy(*IDENTITY[1:]).agg(
        F.expr(op).alias(OP),
        F.expr(f"any_value(coalesce({left}, {right}))").alias(join.inputs[0].alias),
    )
    none = F.lit(None).cast(told.schema[join.inputs[1].alias].dataType)
    return rows.withColumns({SIDE: F.lit(BOTH), MATCHED: F.lit(False), join.inputs[1].alias: none})


def _images(told: DataFrame, join: ResolvedQuery) -> DataFrame:
    aliases = [item.alias for item in join.inputs]
    rows = dict(zip(STATE_ROWS, map(quote, aliases), strict=True))
    key = {name: name for name in IDENTITY}
    image = struct({**key, MATCHED: MATCHED, **rows})
    return told.select(
        F.col(OP).alias("op"),
        F.expr(struct(key)).alias("key"),
        F.expr(f"IF({OP} = 'delete', NULL, {image})").alias("after"),
    )
