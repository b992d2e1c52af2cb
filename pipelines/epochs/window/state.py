"""
The buffered rows of a join of two streams, in a table beside the result.

An epoch stages the changes of the buffered rows. A small table is rewritten as a whole, in one cheap commit; for
a large table the changes are merged. Either way the table is of the same epoch as the result, and identifies rows as
the result does.
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
from pipelines.joins.watermarks import NOTHING_YET, limit, limit_value, watermark_before, window_of
from pipelines.plan.values import BUFFERED, BUFFERED_UNCHANGED, EpochPlan
from pipelines.spec import ResolvedQuery
from pipelines.spec.statement.added_columns import IDENTITY, MATCHED, SIDE

STATE_COUNTS = {name: f"count_if(op = '{op}')" for op, name in BUFFERED.items()}


@dataclass(frozen=True)
class BufferedRows:
    """
    The rows that are buffered before an epoch.

    Args:
        rows: The rows, as `as_buffered` returns them.
        is_once: Whether they are buffered once for both sides; None for a join whose rows never are.
    """

    rows: DataFrame
    is_once: bool | None = None


def read_buffered(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, watermarks: Mapping[int, int], *, via_driver: bool
) -> BufferedRows:
    """
    Read the rows that are buffered before an epoch.

    In an inner self-join a row may be buffered once for both sides, if the optimizer chose so for the last epoch. It
    stays buffered on a side until it expires there.

    Args:
        workspace: Where to work.
        bound: The join.
        plan: The epoch.
        watermarks: The watermarks before the epoch, by their places.
        via_driver: Whether the rows are few enough to pass through the driver.
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
        bounds = {limit(n): F.lit(limit_value(window, n, watermarks)) for n in numbers}
        none_late = {watermark_before(n): F.lit(NOTHING_YET) for n in numbers}
        known = judged(on_sides.withColumns(bounds | none_late), bound.join, bound.semantics)
        stay = known.where(f"NOT ({NOT_JOINABLE} OR {EXPIRED})")
        return BufferedRows(stay.drop(LATE, NULL_KEY, NOT_JOINABLE, EXPIRED, *none_late), is_once)
    return BufferedRows(as_buffered(rows, bound.join), is_once)


def put_state(
    stage: Stage, changes: DataFrame, buffered: BufferedRows, bound: BoundJoin, plan: EpochPlan
) -> dict[str, int]:
    """
    Stage the changes of the buffered rows into the part `state`: `op`, `key`, `after`.

    Args:
        stage: The stage.
        changes: The rows that `buffer_changes` returns.
        buffered: The rows that were buffered before.
        bound: The join.
        plan: The epoch; it says whether unchanged buffered rows are staged as well.

    Returns:
        Counts: buffered (rows buffered from now on), buffered_inserted, buffered_updated, buffered_deleted, and
        buffered_kept if all are staged.
    """
    seen = Observation()
    stays = F.count(F.expr(f"IF({OP} <> 'delete', 1, NULL)")).alias("buffered")
    staged = changes.where(f"{OP} IS NOT NULL")
    if bound.is_single_store:
        staged = _once(staged, bound.join)
    reformed = buffered.is_once is not None and buffered.is_once != bound.is_single_store
    if reformed:
        staged = staged.withColumn(OP, F.expr(f"IF({OP} = '{KEEP}', 'update', {OP})"))
    staged = staged.observe(seen, stays)
    facts = STATE_COUNTS
    if plan.rewrites_state or reformed:
        facts = facts | {BUFFERED_UNCHANGED: f"count_if(op = '{KEEP}')"}
    else:
        staged = staged.where(f"{OP} <> '{KEEP}'")
    counts = stage.put("state", _images(staged, bound.join), facts)
    return {**counts, "buffered": seen.get["buffered"]}


def _once(staged: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Combine the changes of a row on both sides: it stays buffered until neither side needs it."""
    left, right = (quote(item.alias) for item in join.inputs)
    was_buffered, stays = f"bool_or({OP} <> 'insert')", f"bool_or({OP} <> 'delete')"
    op = f"CASE WHEN NOT {was_buffered} THEN 'insert' WHEN {stays} THEN '{KEEP}' ELSE 'delete' END"
    rows = staged.groupBy(*IDENTITY[1:]).agg(
        F.expr(op).alias(OP),
        F.expr(f"any_value(coalesce({left}, {right}))").alias(join.inputs[0].alias),
    )
    none = F.lit(None).cast(staged.schema[join.inputs[1].alias].dataType)
    return rows.withColumns({SIDE: F.lit(BOTH), MATCHED: F.lit(False), join.inputs[1].alias: none})


def _images(staged: DataFrame, join: ResolvedQuery) -> DataFrame:
    aliases = [item.alias for item in join.inputs]
    rows = dict(zip(STATE_ROWS, map(quote, aliases), strict=True))
    key = {name: name for name in IDENTITY}
    image = struct({**key, MATCHED: MATCHED, **rows})
    return staged.select(
        F.col(OP).alias("op"),
        F.expr(struct(key)).alias("key"),
        F.expr(f"IF({OP} = 'delete', NULL, {image})").alias("after"),
    )
