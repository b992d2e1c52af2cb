"""
The join of two streams within time bounds: pairs, unmatched rows and buffered rows.

    new rows      ─┐                         ┌─► pairs: ON is true, and the earlier row was still buffered
                   ├─► watermarks, limits ───┼─► unmatched rows: null-padded once, when no later row can match them
    buffered rows ─┘                         └─► rows that are buffered after the epoch, with their MATCHED flag

The rules follow the Hazelcast design; the Kafka modes use the emission rules of Kafka Streams (KIP-77). A row is late
if one of its times is below its watermark. A row stays buffered until one of its times is below its limit. Limits
therefore decide which rows are buffered, and two rows are a pair if ON is true, neither was late, and the earlier one
was buffered when the later one arrived.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse import limits
from lakehouse.values.sqltext import quote, struct
from pipelines.joins.meaning import ROW
from pipelines.joins.watermarks import NOTHING_YET, RANK, TIME, as_number, limit, value, watermark_before, window_of
from pipelines.language import ResolvedQuery, Semantics
from pipelines.language import Window as Bounded
from pipelines.language.statement.added_columns import HAS_VALUE, IDENTITY, MATCHED, PREFIX, SIDE, VERSION

WAS_BUFFERED, NULL_KEY, LATE, NOT_JOINABLE, EXPIRED, ID = (
    f"{PREFIX}{name}" for name in ("was_buffered", "null_key", "late", "not_joinable", "expired", "id")
)
AT = f"{PREFIX}at"
FIRST, SECOND, BY_LEFT = (f"{PREFIX}{name}" for name in ("first", "second", "by_left"))
BUCKET = f"{PREFIX}bucket"

GREATEST = 2**63 - 1
"""The greatest time."""


def timed(rows: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Add to rows the columns that `value` names: their watermarked columns as numbers."""
    window = window_of(join)
    found = {}
    for number, watermark in enumerate(window.watermarks):
        alias = join.inputs[watermark.time.input].alias
        struct = rows.schema[alias].dataType
        assert isinstance(struct, StructType)
        kind = struct[watermark.time.column].dataType
        found[value(number)] = F.expr(as_number(quote(alias, watermark.time.column), kind, by_date=window.by_date))
    return rows.withColumns(found)


def judged(placed: DataFrame, join: ResolvedQuery, semantics: Semantics) -> DataFrame:
    """
    Add to each new row whether it is late, has a null key, and can match rows of the other stream.

    Args:
        placed: Rows with values, watermarks and limits.
        semantics: Under `strict`, rows below a watermark are late; under other semantics, no row is late.

    Returns:
        The rows with four columns that are true or false, never null: LATE, NULL_KEY (a null in an equality of ON, or
        in a time that a bound uses), NOT_JOINABLE (never buffered and never matched: a null key, or a condition of ON
        on this row alone is not true) and EXPIRED (below a limit: matched with buffered rows, but not buffered).
    """
    window = window_of(join)
    late, null_key, excluded = [], [], []
    for place in (0, 1):
        own = window.of(place)
        bounded = {end for bound in window.bounds for end in (bound.greater, bound.lesser)}
        below = [f"coalesce({value(n)} < {watermark_before(n)}, FALSE)" for n in own]
        nulls = [f"{pair[place]} IS NULL" for pair in window.equalities]
        nulls += [f"{value(n)} IS NULL" for n in own if n in bounded]
        late.append(f"({SIDE} = {place} AND ({_any(below)}))")
        null_key.append((place, _any(nulls)))
        excluded.append((place, f"NOT coalesce({window.one_sided[place]}, FALSE)"))
    # Evaluate the conditions of the file only on rows that take part: on other rows they may raise an error.
    takes_part = HAS_VALUE if semantics != "kafka-0.10.0" else "TRUE"
    rows = placed.withColumn(LATE, F.expr(f"{takes_part} AND ({_any(late)})" if semantics == "strict" else "FALSE"))
    rows = rows.withColumn(NULL_KEY, F.expr(_of_side(f"{takes_part} AND NOT {LATE}", null_key)))
    rows = rows.withColumn(NOT_JOINABLE, F.expr(f"{NULL_KEY} OR {_of_side(f'{takes_part} AND NOT {LATE}', excluded)}"))
    return rows.withColumn(EXPIRED, F.expr(expired_sql(window)))


def as_buffered(state: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Convert the buffered rows (IDENTITY, MATCHED and both rows) to the form of new rows, at a position before all of
    these.

    WAS_BUFFERED is true, and the limits are NOTHING_YET.
    """
    none = F.lit(NOTHING_YET)
    window = window_of(join)
    rows = state.withColumns({TIME: none, RANK: F.lit(0), HAS_VALUE: F.lit(True), WAS_BUFFERED: F.lit(True)})
    rows = rows.withColumns({limit(n): none for n in range(len(window.watermarks))})
    return timed(rows, join)


def as_new_rows(rows: DataFrame, semantics: Semantics) -> DataFrame:
    """
    Return the judged rows that take part in the join, marked as neither WAS_BUFFERED nor MATCHED before.

    These are the rows of both streams that are not late and, except under `kafka-0.10.0`, have a value.
    """
    takes_part = f"{SIDE} < 2 AND NOT {LATE}" + ("" if semantics == "kafka-0.10.0" else f" AND {HAS_VALUE}")
    joining = rows.where(takes_part)
    return joining.withColumns({WAS_BUFFERED: F.lit(False), MATCHED: F.lit(False)})


def pairs(
    new_rows: DataFrame, buffered: DataFrame, join: ResolvedQuery, semantics: Semantics, scope: Sequence[str] = ()
) -> DataFrame:
    """
    Find the pairs of matching rows: one row is new, and the other is new or was buffered.

    Args:
        new_rows: The result of `as_new_rows`.
        buffered: The result of `as_buffered`.

    Returns:
        Each pair once: AT (bigint, the time of the later row), FIRST and SECOND (struct of IDENTITY, of the left and of
        the right row), BY_LEFT (whether the left row is the later one) and both rows under their aliases.
    """
    window, (left, right) = window_of(join), join.inputs
    live = new_rows.where(f"NOT {NOT_JOINABLE}")
    names = [*scope, *IDENTITY, TIME, WAS_BUFFERED, HAS_VALUE]
    names += [column for n in range(len(window.watermarks)) for column in (value(n), limit(n))]
    keys = {f"{PREFIX}key{n}": pair for n, pair in enumerate(window.equalities)}
    bucket = _buckets(window)
    sides = []
    for place, item in enumerate(join.inputs):
        columns = [F.col(quote(name)) for name in (*names, item.alias)]
        rows = reduce(
            DataFrame.unionAll, (some.where(f"{SIDE} = {place}").select(*columns) for some in (live, buffered))
        )
        identity = F.struct(*IDENTITY).alias(ID)
        shown = [F.expr(pair[place]).alias(f"{name}_{place}") for name, pair in keys.items()]
        keyed = rows.select(F.struct(*columns[:-1], identity).alias(_side(place)), columns[-1], *shown)
        buckets = F.expr(bucket[place](f"{_side(place)}."))
        sides.append(keyed.withColumn(f"{BUCKET}_{place}", F.explode(buckets) if place else buckets))
    lefts, rights = sides
    same = [f"{_side(0)}.{quote(name)} = {_side(1)}.{quote(name)}" for name in scope]
    same += [f"{name}_0 = {name}_1" for name in (BUCKET, *keys)]
    # At equal times the left row comes first; in a self-join the earlier commit, and within a commit the left row.
    left_first = f"{_side(0)}.{TIME} <= {_side(1)}.{TIME}"
    if window.is_self_join:
        is_later = f"{_side(0)}.{TIME} = {_side(1)}.{TIME} AND {_side(0)}.{VERSION} > {_side(1)}.{VERSION}"
        left_first = f"({left_first} AND NOT ({is_later}))"
    is_buffered = f"IF({left_first}, {_buffered(window, semantics, join, 0)}, {_buffered(window, semantics, join, 1)})"
    is_new = f"NOT ({_side(0)}.{WAS_BUFFERED} AND {_side(1)}.{WAS_BUFFERED})"
    on = " AND ".join([*same, is_new, f"({join.steps[0].on})", is_buffered])
    matching = lefts.join(rights, on=F.expr(on), how="inner")
    return matching.select(
        *(F.col(f"{_side(0)}.{quote(name)}").alias(name) for name in scope),
        F.greatest(f"{_side(0)}.{TIME}", f"{_side(1)}.{TIME}").alias(AT),
        F.col(f"{_side(0)}.{ID}").alias(FIRST),
        F.col(f"{_side(1)}.{ID}").alias(SECOND),
        F.expr(f"NOT ({left_first})").alias(BY_LEFT),
        F.col(quote(left.alias)),
        F.col(quote(right.alias)),
    )


def matched_rows(
    found: DataFrame, join: ResolvedQuery, semantics: Semantics, scope: Sequence[str] = ()
) -> DataFrame | None:
    """
    Return IDENTITY of each row of an outer side that has a match; None for an inner join, which has no outer side.

    Args:
        found: FIRST, SECOND and BY_LEFT of each pair.
        semantics: Under `kafka-0.10.2` and `kafka-0.10.0` only the matches of a row on arrival count.
    """
    scopes = [F.col(quote(name)) for name in scope]
    matched = []
    for place, name in ((0, FIRST), (1, SECOND)):
        if place in outer_sides(join):
            rows = found
            if is_eager(semantics):
                rows = found.where(BY_LEFT if place == 0 else f"NOT {BY_LEFT}")
            matched.append(rows.select(*scopes, f"{name}.*"))
    return reduce(DataFrame.unionAll, matched).distinct() if matched else None


def selected(found: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Add ROW (struct of the SELECT list; null if WHERE is not true) to pairs and unmatched rows.

    Both rows are under their aliases; one is null for an unmatched row.
    """
    row = struct({output.name: output.expression for output in join.outputs})
    return found.withColumn(ROW, F.expr(row if join.where is None else f"IF({join.where}, {row}, NULL)"))


def outer_sides(join: ResolvedQuery) -> tuple[int, ...]:
    """Return the places of the inputs on an outer side, whose unmatched rows are emitted."""
    return {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[join.steps[0].how]


def is_eager(semantics: Semantics) -> bool:
    """Return whether a row without a match on arrival is emitted at once, and again with each later match."""
    return semantics in ("kafka-0.10.2", "kafka-0.10.0")


def _buffered(window: Bounded, semantics: Semantics, join: ResolvedQuery, place: int) -> str:
    """Return the SQL condition that the earlier row, of input `place`, is buffered when the later row arrives."""
    one, other = _side(place), _side(1 - place)
    conditions = [f"{one}.{value(n)} >= {other}.{limit(n)}" for n in window.of(place) if window.limiting(n)]
    if semantics == "kafka-0.10.0":
        conditions.append(f"{one}.{HAS_VALUE}")
        if outer_sides(join) == (place,):  # rows of the outer side only look up; only the other rows are buffered
            conditions.append("FALSE")
    # A null in a time that is compared here also makes ON not true.
    return " AND ".join(conditions) or "TRUE"


def expired_sql(window: Bounded) -> str:
    """Return the SQL condition that a row is below one of its limits; it has values for its own input only."""
    numbers = [n for n in range(len(window.watermarks)) if window.limiting(n)]
    return f"({_any([f'coalesce({value(n)} < {limit(n)}, FALSE)' for n in numbers])})"


def _buckets(window: Bounded) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Return functions for the time buckets of left and right rows; rows that can match have a bucket in common."""
    axis = _axis(window)
    if axis is None:
        hidden = f"pmod(hash({{0}}{TIME}), 1)"
        return (lambda one: hidden.format(one)), (lambda one: f"array({hidden.format(one)})")
    left, right, back, ahead = axis
    width = max(1, (back + ahead) * (limits.BUCKET_WIDTHS if window.equalities else 1))

    def of_right(one: str) -> str:
        number = f"{one}{value(right)}"
        least = f"coalesce(try_subtract({number}, {back}L), {-GREATEST}L)"
        most = f"coalesce(try_add({number}, {ahead}L), {GREATEST}L)"
        return f"IF({least} <= {most}, sequence({least} div {width}L, {most} div {width}L), array())"

    return (lambda one: f"{one}{value(left)} div {width}L"), of_right


def _axis(window: Bounded) -> tuple[int, int, int, int] | None:
    """Find a time of each input that is bounded in both directions: left between right - back and right + ahead."""
    found = []
    for bound in window.bounds:
        if window.watermarks[bound.greater].time.input == 0:
            for other in window.bounds:
                if (other.greater, other.lesser) == (bound.lesser, bound.greater):
                    found.append((bound.greater, bound.lesser, bound.allowance, other.allowance))
    return min(found, key=lambda axis: axis[2] + axis[3], default=None)


def _side(place: int) -> str:
    return f"{PREFIX}side{place}"


def _of_side(condition: str, each: Sequence[tuple[int, str]]) -> str:
    """Return the SQL of an expression for each side, evaluated if a condition is true; false for other rows."""
    cases = " ".join(f"WHEN {condition} AND {SIDE} = {place} THEN {sql}" for place, sql in each)
    return f"(CASE {cases} ELSE FALSE END)"


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(conditions) or "FALSE"
