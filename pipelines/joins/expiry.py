"""
Expiry of the rows of two streams: which rows stay buffered, and which are emitted unmatched.

    new rows       ─┐
    buffered rows  ─┼─► changes of the buffer ─┬─► rows that are buffered after the epoch
    matched rows   ─┘                          └─► unmatched rows: null-padded once, when no later row can match them
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.values.sqltext import quote
from pipelines.joins.pairs import AT, EXPIRED, NOT_JOINABLE, WAS_BUFFERED, expired_sql, is_eager, outer_sides
from pipelines.joins.watermarks import (
    PLACE,
    TIME,
    first_beyond,
    limit,
    limit_sql,
    limit_steps,
    limit_value,
    running_sum,
    value,
    watermark_before,
    window_of,
)
from pipelines.language import ResolvedQuery, Semantics
from pipelines.language import Window as Bounded
from pipelines.language.names import HAS_VALUE, IDENTITY, MATCHED, PREFIX, SIDE

OP, UNMATCHED = f"{PREFIX}op", f"{PREFIX}unmatched"
KEEP = "keep"
"""The operation of a buffered row that stays buffered unchanged."""

AT_ONCE, STORED, EXPIRES, MATCHED_NOW = (f"{PREFIX}{name}" for name in ("at_once", "stored", "expires", "matched_now"))

Ends = DataFrame | Mapping[int, int]
"""The watermarks after all new rows."""


def buffer_changes(
    new_rows: DataFrame,
    buffered: DataFrame,
    matched: DataFrame | None,
    ends: Ends,
    join: ResolvedQuery,
    semantics: Semantics,
    scope: Sequence[str] = (),
) -> DataFrame:
    """
    Compute which rows enter, leave or stay in the buffer, and which are emitted unmatched.

    Args:
        new_rows, buffered, matched: The results of `as_new_rows`, `as_buffered` and `matched_rows`.
        ends: The watermarks at the end: by number; for several scopes a frame with one row for each scope and the
            columns that `watermark_before` names.

    Returns:
        All rows that are buffered before or after the epoch, and all rows that are emitted unmatched: OP (the change of
        the buffer: insert, delete, update if the row found its first match, else KEEP; null for a row that is buffered
        neither before nor after the epoch), UNMATCHED (whether it is emitted null-padded), AT (bigint: its own time if
        it is emitted at once; null if it is emitted when a limit rises), IDENTITY, MATCHED (after the epoch), the
        columns that `value` names and both rows.
    """
    window, scopes = window_of(join), [*map(quote, scope)]
    values = [value(n) for n in range(len(window.watermarks))]
    is_outer = f"{SIDE} IN ({', '.join(map(str, outer_sides(join)))})" if outer_sides(join) else "FALSE"
    eager = is_eager(semantics)
    at_once = is_outer if eager else f"{is_outer} AND ({NOT_JOINABLE} OR {EXPIRED})"
    rows = [quote(item.alias) for item in join.inputs]
    columns = [*scopes, *IDENTITY, WAS_BUFFERED, MATCHED, TIME, *values, *rows]
    new = new_rows.select(*columns, F.expr(at_once).alias(AT_ONCE), F.expr(_stored(semantics, join)).alias(STORED))
    old = buffered.select(*columns, F.lit(False).alias(AT_ONCE), F.lit(True).alias(STORED))
    judged = _leaving(new.unionAll(old), ends, window, scope)
    # Other rows neither change the buffer nor are emitted, matched or not.
    judged = judged.where(f"{WAS_BUFFERED} OR {AT_ONCE} OR ({STORED} AND NOT {EXPIRES}) OR {is_outer}")
    if matched is None:
        judged = judged.withColumn(MATCHED_NOW, F.lit(False))
    else:
        matched_now = matched.withColumn(MATCHED_NOW, F.lit(True))
        judged = judged.join(matched_now, on=[*scope, *IDENTITY], how="left").fillna(False, MATCHED_NOW)
    expires = "FALSE" if eager else f"{is_outer} AND {STORED} AND {EXPIRES}"
    is_unmatched = f"NOT ({MATCHED_NOW} OR {MATCHED}) AND ({AT_ONCE} OR {expires})"
    first_match = f"{MATCHED_NOW} AND NOT {MATCHED}"
    op = f"""CASE WHEN {WAS_BUFFERED} THEN
            CASE WHEN {EXPIRES} THEN 'delete' WHEN {first_match} THEN 'update' ELSE '{KEEP}' END
        WHEN {STORED} AND NOT {EXPIRES} THEN 'insert' END"""
    return judged.select(
        *scopes,
        F.expr(op).alias(OP),
        F.expr(is_unmatched).alias(UNMATCHED),
        F.expr(f"IF({AT_ONCE}, {TIME}, NULL)").alias(AT),
        *IDENTITY,
        F.expr(f"{MATCHED} OR {MATCHED_NOW}").alias(MATCHED),
        *values,
        *rows,
    ).where(f"{OP} IS NOT NULL OR {UNMATCHED}")


def unmatched(
    changes: DataFrame,
    placed: DataFrame,
    join: ResolvedQuery,
    width: int,
    scope: Sequence[str] = (),
    materialize: Callable[[str, DataFrame], DataFrame] = lambda name, frame: frame,
    rises: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> DataFrame:
    """
    Find the unmatched rows of outer sides; each is emitted once, when no later row can match it.

    Args:
        placed: The result of `with_watermarks` for all new rows, including late rows and upstream progress; or its
            positions.
        width: The range of row times that one task processes.
        rises: The result of `limit_rises` by watermarked column, for one history with few positions; `placed` is then
            not read.

    Returns:
        AT (bigint, the time at which the row is emitted), IDENTITY and both rows, one of them null.
    """
    window = window_of(join)
    columns = [*map(quote, (*scope, AT, *IDENTITY, *(item.alias for item in join.inputs)))]
    rows = changes.where(UNMATCHED)
    limited = [n for side in outer_sides(join) for n in window.of(side) if window.limiting(n)]
    if rises is not None:
        first = _least([_first_above(value(n), rises[n]) for n in limited])
        return rows.withColumn(AT, F.expr(f"coalesce({AT}, {first})")).select(*columns)
    at_once = rows.where(f"{AT} IS NOT NULL").select(*columns)
    expired = materialize("expired", rows.where(f"{AT} IS NULL"))
    for n in limited:
        expired = first_beyond(expired, value(n), limit_steps(placed, window, n, scope), f"{AT}{n}", width, scope)
    first = _least([f"{AT}{n}" for n in limited])
    return at_once.unionAll(expired.withColumn(AT, F.expr(f"{first}.{TIME}")).select(*columns))


def peak_buffered(
    new_rows: DataFrame,
    buffered: DataFrame,
    placed: DataFrame,
    join: ResolvedQuery,
    semantics: Semantics,
    widths: tuple[int, int],
    scope: Sequence[str] = (),
    *,
    once: bool = False,
) -> DataFrame:
    """
    Count the buffered rows after each position and return the greatest number as `most` (bigint), or no row at all.

    Args:
        placed: The result of `with_watermarks`, or its positions.
        widths: The range of order times, and of row times, that one task processes.
        once: Whether a row that is buffered on both sides counts once.
    """
    window = window_of(join)
    scopes = [*map(quote, scope)]
    names = [*scopes, *dict.fromkeys((*IDENTITY[1:], *PLACE)), *(value(n) for n in range(len(window.watermarks)))]
    rows = new_rows.where(_stored(semantics, join)).select(*names).unionAll(buffered.select(*names))
    ends = []
    for n in range(len(window.watermarks)):
        if window.limiting(n):
            ends.append(f"{AT}{n}")
            rows = first_beyond(rows, value(n), limit_steps(placed, window, n, scope), ends[-1], widths[1], scope)
    stays = rows.select(*scopes, *IDENTITY[1:], F.struct(*PLACE).alias("from"), F.expr(_least(ends)).alias("to"))
    if once:
        last = F.expr("IF(count(to) = count(1), max(to), NULL)").alias("to")
        stays = stays.groupBy(*scope, *IDENTITY[1:]).agg(F.min("from").alias("from"), last)
    begins = stays.select(*scopes, F.col("from").alias("at"), F.lit(1).alias("more"))
    leaves = stays.select(*scopes, F.col("to").alias("at"), F.lit(-1).alias("more")).where("at IS NOT NULL")
    counts = running_sum(begins.unionAll(leaves), "at", "more", widths[0], scope)
    return counts.groupBy(*scope).agg(F.max("more").alias("most"))


def _stored(semantics: Semantics, join: ResolvedQuery) -> str:
    stored = f"NOT ({NOT_JOINABLE} OR {EXPIRED}) AND {HAS_VALUE}"
    if semantics != "kafka-0.10.0" or len(outer_sides(join)) != 1:
        return stored
    return f"{stored} AND {SIDE} <> {outer_sides(join)[0]}"


def _leaving(rows: DataFrame, ends: Ends, window: Bounded, scope: Sequence[str]) -> DataFrame:
    """Add EXPIRES to each row: whether it is below a limit at the end, and so leaves the buffer."""
    numbers = range(len(window.watermarks))
    columns: list[Column | str] = [*map(quote, rows.columns), F.expr(expired_sql(window)).alias(EXPIRES)]
    if not isinstance(ends, DataFrame):
        last = {limit(n): F.lit(limit_value(window, n, ends)).cast("bigint") for n in numbers}
        return rows.withColumns(last).select(*columns)
    limits = ends.select(
        *(F.col(quote(name)).alias(f"{PREFIX}of_{name}") for name in scope),
        *(F.expr(limit_sql(window, n, watermark_before)).alias(limit(n)) for n in numbers),
    )
    same = " AND ".join(f"{quote(name)} = {quote(f'{PREFIX}of_{name}')}" for name in scope)
    return rows.join(F.broadcast(limits), on=F.expr(same), how="inner").select(*columns)


def _first_above(number: str, steps: Sequence[tuple[int, int]]) -> str:
    """Return the SQL of the time of the first of ascending steps that exceeds a number; null if none does."""
    cases = " ".join(f"WHEN {number} < {height}L THEN {time}L" for height, time in steps)
    return f"(CASE {cases} END)" if cases else "CAST(NULL AS BIGINT)"


def _least(columns: Sequence[str]) -> str:
    return f"least({', '.join(columns)})" if len(columns) > 1 else columns[0]
