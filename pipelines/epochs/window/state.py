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
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import STATE_PART, Merge, Overwrite, Write
from lakehouse.tables.table import read
from lakehouse.values.sqltext import quote, struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.state_table import BOTH, STATE_ROWS, state_schema
from pipelines.joins.expiry import KEEP, OP
from pipelines.joins.pairs import EXPIRED, LATE, NOT_JOINABLE, NULL_KEY, as_buffered, both_sides, judged, outer_sides
from pipelines.joins.watermarks import NOTHING_YET, limit, limit_value, watermark_before, window_of
from pipelines.language import ResolvedQuery
from pipelines.language.names import IDENTITY, MATCHED, SIDE

BUFFERED_UNCHANGED = "buffered_kept"
"""The name of the count of buffered rows that stay unchanged, in an epoch that rewrites all buffered rows."""

BUFFERED = {"insert": "buffered_inserted", "update": "buffered_updated", "delete": "buffered_deleted"}
"""For each operation on the buffered rows of a join of two streams, the name of its count."""

STATE_COUNTS = {name: f"count_if(op = '{op}')" for op, name in BUFFERED.items()}


@dataclass(frozen=True)
class BufferedRows:
    """
    The rows that are buffered before an epoch, as `as_buffered` returns them.

    Args:
        is_once: Whether they are buffered once for both sides; None for a join whose rows never are.
    """

    rows: DataFrame
    is_once: bool | None = None


def read_buffered(
    workspace: Workspace, epoch: Epoch[BoundJoin], watermarks: Mapping[int, int], scratch: Scratch
) -> BufferedRows:
    """
    Read the rows that are buffered before an epoch.

    In an inner self-join a row may be buffered once for both sides, if the optimizer chose so for the last epoch. It
    stays buffered on a side until it expires there.

    Args:
        watermarks: The watermarks before the epoch, by number.
        scratch: Keeps them on the driver if they and the new rows are few.
    """
    bound, plan = epoch.bound, epoch.plan
    assert plan.state is not None
    if plan.state.is_new:  # a dry run does not create it
        rows = workspace.spark.createDataFrame([], state_schema(bound))
    else:
        rows = read(workspace.spark, plan.state.address, plan.state.base_version)
    if not plan.continues_state:
        rows = rows.where("false")
    elif scratch.via_driver and plan.stream.buffered_bytes <= limits.SMALL_BYTES:
        rows = scratch.keep("buffered", rows)
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
    stage: Stage, changes: DataFrame, buffered: BufferedRows, epoch: Epoch[BoundJoin]
) -> tuple[dict[str, int], Write]:
    """
    Stage the changes of the buffered rows into the part `state`: `op`, `key`, `after`.

    Args:
        changes: As `buffer_changes` returns them.
        epoch: Its plan says whether unchanged buffered rows are staged as well.

    Returns:
        Counts: buffered (rows buffered from now on), buffered_inserted, buffered_updated, buffered_deleted, and
        buffered_kept if all are staged. How the state is written: rewritten if all rows are staged and any changed.
    """
    bound, plan = epoch.bound, epoch.plan
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
    has_all = plan.rewrites_state or reformed
    if has_all:
        facts = facts | {BUFFERED_UNCHANGED: f"count_if(op = '{KEEP}')"}
    else:
        staged = staged.where(f"{OP} <> '{KEEP}'")
    counts = stage.put("state", _images(staged, bound.join), facts)
    write = _write(epoch, counts, has_all=has_all)
    return {**counts, "buffered": seen.get["buffered"]}, write


def _write(epoch: Epoch[BoundJoin], counts: Mapping[str, int], *, has_all: bool) -> Write:
    """Return how the staged changes get into the state: unchanged rows alone are not written."""
    (planned,) = (write for write in epoch.plan.writes if write.part == STATE_PART)
    inserted, updated, deleted = (counts[name] for name in BUFFERED.values())
    if has_all and (inserted or updated or deleted or epoch.plan.strategy == "reset"):
        rows = counts[BUFFERED_UNCHANGED] + inserted + updated
        return Overwrite(planned.target, STATE_PART, rows, deleted, has_images=True)
    return Merge(planned.target, STATE_PART, inserted, updated, deleted, (MATCHED,))


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
