"""The versions of a source's rows within an epoch; each is valid from one position up to another."""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import row_struct
from pipelines.joins.kernel import unchanged_rows
from pipelines.language import Input

BEGINNING = 0
"""The position of the state before the epoch."""

NEVER = 2**63 - 1
"""The end of a version that is not replaced within the epoch."""


def positions(changes: Mapping[int, DataFrame]) -> DataFrame:
    """
    Number the commits of several sources in the total order: by time, at equal times by source, then by version.

    Args:
        changes: The changes of each source by its place in FROM: `version` (bigint, which increases with each commit),
            `at` (timestamp of the commit) and others.

    Returns:
        A row for each commit: `side` (int, the source's place), `version`, `at` (its time in the order, at least the
        time of the version before) and `position` (bigint, from 1).
    """
    commits = [
        frame.groupBy("version").agg(F.max("at").alias("at")).withColumn("side", F.lit(side))
        for side, frame in changes.items()
    ]
    so_far = Window.partitionBy("side").orderBy("version").rowsBetween(Window.unboundedPreceding, 0)
    order = Window.orderBy("at", "side", "version")
    timed = reduce(DataFrame.unionAll, commits).withColumn("at", F.max("at").over(so_far))
    return timed.select(
        "side",
        "version",
        "at",
        F.row_number().over(order).cast("bigint").alias("position"),
    )


def placed(changes: DataFrame, order: DataFrame, side: int) -> DataFrame:
    """Add the `position` to the changes of a source; `order` is the result of `positions`."""
    own = order.where(F.col("side") == side).select("version", "position")
    return changes.join(own, on="version", how="inner")


def timed(changes: DataFrame, time: str, floor: int) -> DataFrame:
    """
    Add the `position` in time to the changes of a table: at least the position of each earlier version and a floor.

    Args:
        changes: `version` (bigint, which increases with each commit) and others.
        time: Spark SQL of a change's own time (bigint, not null).
        floor: The greatest time of the table so far.
    """
    known = changes.withColumn("position", F.expr(f"greatest(CAST({time} AS BIGINT), CAST({floor} AS BIGINT))"))
    before = Window.orderBy("version").rowsBetween(Window.unboundedPreceding, -1)
    commits = known.groupBy("version").agg(F.max("position").alias("reached"))
    reached = commits.select("version", F.coalesce(F.max("reached").over(before), F.lit(floor)).alias("reached"))
    raised = known.join(F.broadcast(reached), on="version", how="inner")
    return raised.withColumn("position", F.greatest("position", "reached")).drop("reached")


def versions(
    changes: DataFrame | None,
    looked_up: DataFrame,
    side: Input,
    types: Sequence[DataType],
    *,
    beginning: int = BEGINNING,
    ties: Sequence[str] = (),
) -> DataFrame:
    """
    Return all versions of the touched rows of a source.

    Args:
        changes: The changes of each commit: `key`, `position`, `old`, `new`; None if the source has no changes.
        looked_up: The source's rows for the touched keys at the end of the epoch.
        beginning: The position at which the rows that existed before the changes begin.
        ties: Columns that order the changes of a key at one position; the last one takes effect.

    Returns:
        `key`, `start` and `end` (positions: inclusive and exclusive) and `row` (struct of the source's columns, null
        while absent). The versions of a key cover all positions from `beginning` on without overlap.
    """
    keyed = looked_up.where(f"NOT {null_key(side.key, may_be_absent=side.may_be_absent)}")
    unchanged = unchanged_rows(changes, keyed, side, types).select(
        F.expr(key_struct(side.key, types)).alias("key"),
        F.lit(beginning).cast("bigint").alias("start"),
        F.lit(NEVER).cast("bigint").alias("end"),
        F.expr(_row(side, "")).alias("row"),
    )
    if changes is None:
        return unchanged
    in_order = Window.partitionBy("key").orderBy("position", *ties)
    ordered = changes.select(
        "key",
        "position",
        F.lead("position", 1, NEVER).over(in_order).alias("end"),
        (F.row_number().over(in_order) == 1).alias("is_first"),
        F.expr(f"IF(old IS NULL, NULL, {_row(side, 'old.')})").alias("old"),
        F.expr(f"IF(new IS NULL, NULL, {_row(side, 'new.')})").alias("new"),
    )
    after = "named_struct('start', position, 'end', end, 'row', new)"
    before = f"named_struct('start', CAST({beginning} AS BIGINT), 'end', position, 'row', old)"
    changed = ordered.select(
        "key", F.explode(F.expr(f"IF(is_first, array({before}, {after}), array({after}))")).alias("version")
    )
    return changed.select("key", "version.start", "version.end", "version.row").unionAll(unchanged)


def _row(side: Input, prefix: str) -> str:
    return row_struct(side.columns, prefix)
