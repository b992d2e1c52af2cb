"""
What becomes of the rows of two streams that wait for each other: which go on waiting, and which stand alone.

    rows that came  ─┐
    rows that wait  ─┼─► fates ─┬─► rows that wait from now on
    which have met  ─┘          └─► alone: null-padded once, when nothing can meet it any more
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.sqltext import quote
from pipelines.joins.pairs import AT, EXPIRED, NOT_JOINABLE, WAITED, expired_sql, is_eager, outer_sides
from pipelines.joins.watermarks import (
    PLACE,
    TIME,
    first_beyond,
    limit,
    limit_sql,
    limit_steps,
    lowest,
    running_sum,
    value,
    watermark_before,
    window_of,
)
from pipelines.spec import ResolvedQuery, Semantics
from pipelines.spec import Window as Bounded
from pipelines.spec.statement.added_columns import HAS_VALUE, IDENTITY, MATCHED, PREFIX, SIDE

OP, UNMATCHED = f"{PREFIX}op", f"{PREFIX}lone"
KEEP = "keep"
"""What becomes of a row that waits on as it was."""

AT_ONCE, STORED, GOES, SEEN = (f"{PREFIX}{name}" for name in ("at_once", "stored", "goes", "seen"))

Ends = DataFrame | Mapping[int, int]
"""The watermarks after all that came."""


def buffer_changes(
    new_rows: DataFrame,
    buffered: DataFrame,
    met: DataFrame | None,
    ends: Ends,
    join: ResolvedQuery,
    semantics: Semantics,
    scope: Sequence[str] = (),
) -> DataFrame:
    """
    Say what becomes of each row that came or waits.

    Args:
        new_rows: What `as_new_rows` gives.
        buffered: What `as_buffered` gives.
        met: What `matched_rows` gives.
        ends: The watermarks at the end: by number; of several scopes a row for each, with the columns that
            `watermark_before` names.
        join: The join.
        semantics: By which rules.
        scope: Columns that keep independent histories apart.

    Returns:
        The rows of which anything becomes: the scope columns, OP (what that is to the rows that wait: insert, delete,
        update where it met its first row, KEEP; null for a row that never waits between epochs), LONE (whether it is
        kept although it met none), AT (bigint, when it stands alone; null where that is at a limit), IDENTITY, MATCHED
        (as it is from now on), the columns that `value` names and both rows.
    """
    window, numbers = window_of(join), range(len(window_of(join).watermarks))
    is_kept = f"{SIDE} IN ({', '.join(map(str, outer_sides(join)))})" if outer_sides(join) else "FALSE"
    eager = is_eager(semantics)
    at_once = is_kept if eager else f"{is_kept} AND ({NOT_JOINABLE} OR {EXPIRED})"
    shown = [*(F.col(quote(name)) for name in scope), *map(F.col, IDENTITY)]
    rows: list[Column] = [F.col(quote(item.alias)) for item in join.inputs]
    told = [*shown, *map(F.col, (WAITED, MATCHED, TIME)), *(F.col(value(n)) for n in numbers), *rows]
    new = new_rows.select(*told, F.expr(at_once).alias(AT_ONCE), F.expr(_stored(semantics, join)).alias(STORED))
    old = buffered.select(*told, F.lit(False).alias(AT_ONCE), F.lit(True).alias(STORED))
    judged = _leaving(new.unionAll(old), ends, window, scope)
    # Of the others nothing becomes, whomever they have met.
    judged = judged.where(f"{WAITED} OR {AT_ONCE} OR ({STORED} AND NOT {GOES}) OR {is_kept}")
    if met is None:
        judged = judged.withColumn(SEEN, F.lit(False))
    else:
        seen = met.withColumn(SEEN, F.lit(True))
        judged = judged.join(seen, on=[*scope, *IDENTITY], how="left").fillna(False, SEEN)
    expires = "FALSE" if eager else f"{is_kept} AND {STORED} AND {GOES}"
    lone = f"NOT ({SEEN} OR {MATCHED}) AND ({AT_ONCE} OR {expires})"
    met_first = f"{SEEN} AND NOT {MATCHED}"
    op = f"""CASE WHEN {WAITED} THEN CASE WHEN {GOES} THEN 'delete' WHEN {met_first} THEN 'update' ELSE '{KEEP}' END
        WHEN {STORED} AND NOT {GOES} THEN 'insert' END"""
    return judged.select(
        *shown[: len(scope)],
        F.expr(op).alias(OP),
        F.expr(lone).alias(UNMATCHED),
        F.expr(f"IF({AT_ONCE}, {TIME}, NULL)").alias(AT),
        *IDENTITY,
        F.expr(f"{MATCHED} OR {SEEN}").alias(MATCHED),
        *(F.col(value(n)) for n in numbers),
        *rows,
    ).where(f"{OP} IS NOT NULL OR {UNMATCHED}")


def unmatched(
    becoming: DataFrame,
    placed: DataFrame,
    join: ResolvedQuery,
    width: int,
    scope: Sequence[str] = (),
    materialize: Callable[[str, DataFrame], DataFrame] = lambda name, frame: frame,
    rises: Mapping[int, Sequence[tuple[int, int]]] | None = None,
) -> DataFrame:
    """
    Find the rows that are kept although they met none: each once, when nothing can meet it any more.

    Args:
        becoming: What `buffer_changes` gives.
        placed: What `with_watermarks` gives, of all that came, late rows and given watermarks too; or its positions.
        join: The join.
        width: So much time of the rows is looked at in one task.
        scope: Columns that keep independent histories apart.
        materialize: Makes a frame, with a name, cheap to read several times.
        rises: Of one history with few positions what `risen` gives, by watermarked column; `placed` is not read then.

    Returns:
        The scope columns, AT (bigint, the time at which it stands alone), IDENTITY and both rows, one of them null.
    """
    window = window_of(join)
    names = [*scope, AT, *IDENTITY, *(item.alias for item in join.inputs)]
    columns = [F.col(quote(name)) for name in names]
    lone = becoming.where(UNMATCHED)
    limited = [n for place in outer_sides(join) for n in window.of(place) if window.limiting(n)]
    if rises is not None:
        first = _least([_first_above(value(n), rises[n]) for n in limited])
        return lone.withColumn(AT, F.expr(f"coalesce({AT}, {first})")).select(*columns)
    at_once = lone.where(f"{AT} IS NOT NULL").select(*columns)
    gone = materialize("gone", lone.where(f"{AT} IS NULL"))
    for n in limited:
        gone = first_beyond(gone, value(n), limit_steps(placed, window, n, scope), f"{AT}{n}", width, scope)
    first = _least([f"{AT}{n}" for n in limited])
    return at_once.unionAll(gone.withColumn(AT, F.expr(f"{first}.{TIME}")).select(*columns))


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
    Count how many rows wait at most, after some position.

    Args:
        new_rows: What `as_new_rows` gives.
        buffered: What `as_buffered` gives.
        placed: What `with_watermarks` gives, or its positions.
        join: The join.
        semantics: By which rules.
        widths: So much time of the order, and of the rows, is looked at in one task.
        scope: Columns that keep independent histories apart.
        once: A row that waits on both sides counts once.

    Returns:
        One row for each scope with rows that wait: the scope columns and `most` (bigint).
    """
    window = window_of(join)
    scopes = [F.col(quote(name)) for name in scope]
    names: list[Column | str] = [*scopes, *dict.fromkeys((*IDENTITY[1:], *PLACE))]
    names += [value(n) for n in range(len(window.watermarks))]
    waits = new_rows.where(_stored(semantics, join)).select(*names).unionAll(buffered.select(*names))
    ends = []
    for n in range(len(window.watermarks)):
        if window.limiting(n):
            ends.append(f"{AT}{n}")
            waits = first_beyond(waits, value(n), limit_steps(placed, window, n, scope), ends[-1], widths[1], scope)
    stays = waits.select(*scopes, *IDENTITY[1:], F.struct(*PLACE).alias("from"), F.expr(_least(ends)).alias("to"))
    if once:
        last = F.expr("IF(count(to) = count(1), max(to), NULL)").alias("to")
        stays = stays.groupBy(*scope, *IDENTITY[1:]).agg(F.min("from").alias("from"), last)
    begins = stays.select(*scopes, F.col("from").alias("at"), F.lit(1).alias("more"))
    leaves = stays.select(*scopes, F.col("to").alias("at"), F.lit(-1).alias("more")).where("at IS NOT NULL")
    counts = running_sum(begins.unionAll(leaves), "at", "more", widths[0], scope)
    return counts.groupBy(*scope).agg(F.max("more").alias("most"))


def _stored(semantics: Semantics, join: ResolvedQuery) -> str:
    """Give the SQL that tells whether a row that came waits for others."""
    stored = f"NOT ({NOT_JOINABLE} OR {EXPIRED}) AND {HAS_VALUE}"
    if semantics != "kafka-0.10.0" or len(outer_sides(join)) != 1:
        return stored
    return f"{stored} AND {SIDE} <> {outer_sides(join)[0]}"


def _leaving(rows: DataFrame, ends: Ends, window: Bounded, scope: Sequence[str]) -> DataFrame:
    """Tell by GOES of each row whether it lies below a limit at the end."""
    numbers = range(len(window.watermarks))
    goes = F.expr(expired_sql(window))
    names = [F.col(quote(name)) for name in rows.columns]
    if not isinstance(ends, DataFrame):
        last = {limit(n): F.lit(lowest(window, n, ends)).cast("bigint") for n in numbers}
        return rows.withColumns(last).select(*names, goes.alias(GOES))
    limits = ends.select(
        *(F.col(quote(name)).alias(f"{PREFIX}of_{name}") for name in scope),
        *(F.expr(limit_sql(window, n, watermark_before)).alias(limit(n)) for n in numbers),
    )
    same = " AND ".join(f"{quote(name)} = {quote(f'{PREFIX}of_{name}')}" for name in scope)
    return rows.join(F.broadcast(limits), on=F.expr(same), how="inner").select(*names, goes.alias(GOES))


def _first_above(number: str, steps: Sequence[tuple[int, int]]) -> str:
    """Give the SQL of the time at which the first of ascending steps lies above a number; null for none."""
    cases = " ".join(f"WHEN {number} < {height}L THEN {time}L" for height, time in steps)
    return f"(CASE {cases} END)" if cases else "CAST(NULL AS BIGINT)"


def _least(columns: Sequence[str]) -> str:
    return f"least({', '.join(columns)})" if len(columns) > 1 else columns[0]
