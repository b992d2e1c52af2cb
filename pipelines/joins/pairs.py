"""
The join of two streams within time bounds: pairs, unmatched rows and buffered rows.

    new rows      ─┐                         ┌─► pairs: ON is true, and the earlier row was still buffered
                   ├─► watermarks, limits ───┼─► unmatched rows: null-padded once, when no later row can match them
    buffered rows ─┘                         └─► rows that are buffered after the epoch, with their MATCHED flag

The rules follow the Hazelcast design; the Kafka modes use the emission rules of Kafka Streams (KIP-77). A row is late
if one of its times is below its watermark. A row stays buffered until one of its times is below its limit. Limits
therefore decide which rows are buffered, and two rows are a pair if ON is true, neither was late, and the earlier one
was buffered when the later one arrived.

A row has the same identity whenever it is read, as a new and as a buffered row: side, commit, hash, and a number among
equal rows of a commit.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse import limits
from lakehouse.values.compare import hash_of, identical
from lakehouse.values.sqltext import quote, struct
from pipelines.joins.meaning import ROW
from pipelines.joins.watermarks import NOTHING_YET, RANK, TIME, as_number, limit, value, watermark_before, window_of
from pipelines.language import ResolvedQuery, Semantics
from pipelines.language import Window as Bounded
from pipelines.language.names import HAS_VALUE, HASH, IDENTITY, MATCHED, NUMBER, PREFIX, SIDE, VERSION

WAS_BUFFERED, NULL_KEY, LATE, NOT_JOINABLE, EXPIRED, ID = (
    f"{PREFIX}{name}" for name in ("was_buffered", "null_key", "late", "not_joinable", "expired", "id")
)
AT = f"{PREFIX}at"
FIRST, SECOND, BY_LEFT = (f"{PREFIX}{name}" for name in ("first", "second", "by_left"))
BUCKET, SIDES = f"{PREFIX}bucket", (f"{PREFIX}left", f"{PREFIX}right")

GREATEST = 2**63 - 1
"""The greatest time."""


def hashed(rows: DataFrame, join: ResolvedQuery, index: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Wrap the new rows of a stream as structs named by its alias, and add the hash of their columns.

    `rows` has TIME (bigint, its time in the order), VERSION (bigint, its commit), HAS_VALUE (boolean) and the columns
    that the join uses; the result has PLACE, IDENTITY except NUMBER, HAS_VALUE, and the row.
    """
    item = join.inputs[index]
    row = F.struct(*(F.col(quote(name)) for name in item.columns)).alias(item.alias)
    rank = 0 if window_of(join).is_self_join else index
    position = (F.lit(index).alias(SIDE), F.lit(rank).alias(RANK), TIME, VERSION)
    wrapped = rows.select(*map(quote, scope), *position, HAS_VALUE, row)
    return wrapped.withColumn(HASH, F.expr(hash_of(quote(item.alias), wrapped.schema[item.alias].dataType)))


def identified(rows: DataFrame, join: ResolvedQuery, index: int, scope: Sequence[str] = ()) -> DataFrame:
    """Add NUMBER to the result of `hashed`: it distinguishes rows of a commit that have the same hash."""
    alias = join.inputs[index].alias
    # Rows with the same hash may differ, for example by 0.0 and -0.0: the values decide the number of each row.
    values = F.expr(identical(quote(alias), rows.schema[alias].dataType))
    equal = Window.partitionBy(*scope, SIDE, VERSION, HASH).orderBy(F.col(TIME), F.desc(HAS_VALUE), values)
    return rows.withColumn(NUMBER, F.row_number().over(equal))


def identified_by_hash(rows: DataFrame) -> DataFrame | None:
    """Add NUMBER to the result of `hashed` for one stream without sorting; None if rows of a commit share a hash."""
    shared = rows.groupBy(VERSION, HASH).count().where("count > 1").limit(1)
    return None if shared.count() else rows.withColumn(NUMBER, F.lit(1))


def both_sides(rows: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Copy the rows of a stream that is joined with itself, under the left alias, to both sides under their aliases."""
    row, aliases = f"{PREFIX}row", [item.alias for item in join.inputs]
    others = [quote(name) for name in rows.columns if name not in (SIDE, *aliases)]
    twice = rows.select(*others, F.col(quote(aliases[0])).alias(row), F.expr("explode(array(0, 1))").alias(SIDE))
    sides = [F.expr(f"IF({SIDE} = {index}, {row}, NULL)").alias(alias) for index, alias in enumerate(aliases)]
    return twice.select(*others, SIDE, *sides)


def together(left: DataFrame, right: DataFrame) -> DataFrame:
    """Combine the rows of both streams in one frame; the struct of the other stream's row is null."""
    return left.unionByName(right, allowMissingColumns=True)


def timed(rows: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Add to rows the columns that `value` names: their watermarked columns as numbers."""
    window = window_of(join)
    values = {}
    for number, watermark in enumerate(window.watermarks):
        alias, column = join.inputs[watermark.time.input].alias, watermark.time.column
        row = rows.schema[alias].dataType
        assert isinstance(row, StructType)
        values[value(number)] = F.expr(as_number(quote(alias, column), row[column].dataType, by_date=window.by_date))
    return rows.withColumns(values)


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
    for index in (0, 1):
        own = window.of(index)
        bounded = {end for bound in window.bounds for end in (bound.greater, bound.lesser)}
        is_late = [f"coalesce({value(n)} < {watermark_before(n)}, FALSE)" for n in own]
        nulls = [f"{pair[index]} IS NULL" for pair in window.equalities]
        nulls += [f"{value(n)} IS NULL" for n in own if n in bounded]
        late.append(f"({SIDE} = {index} AND ({_any(is_late)}))")
        null_key.append((index, _any(nulls)))
        excluded.append((index, f"NOT coalesce({window.one_sided[index]}, FALSE)"))
    # Evaluate the conditions of the file only on rows that take part: on other rows they may raise an error.
    takes_part = HAS_VALUE if semantics != "kafka-0.10.0" else "TRUE"
    rows = placed.withColumn(LATE, F.expr(f"{takes_part} AND ({_any(late)})" if semantics == "strict" else "FALSE"))
    rows = rows.withColumn(NULL_KEY, F.expr(_of_side(f"{takes_part} AND NOT {LATE}", null_key)))
    rows = rows.withColumn(NOT_JOINABLE, F.expr(f"{NULL_KEY} OR {_of_side(f'{takes_part} AND NOT {LATE}', excluded)}"))
    return rows.withColumn(EXPIRED, F.expr(expired_sql(window)))


def as_buffered(state: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Convert the buffered rows (IDENTITY, MATCHED and both rows) to the form of new rows, at a position before these.

    WAS_BUFFERED is true, and the limits are NOTHING_YET.
    """
    least, yes = F.lit(NOTHING_YET), F.lit(True)
    limits_before = {limit(n): least for n in range(len(window_of(join).watermarks))}
    position = {TIME: least, RANK: F.lit(0), HAS_VALUE: yes, WAS_BUFFERED: yes}
    return timed(state.withColumns(position | limits_before), join)


def as_new_rows(rows: DataFrame, semantics: Semantics) -> DataFrame:
    """
    Return the judged rows that take part in the join, marked as neither WAS_BUFFERED nor MATCHED before.

    These are the rows of both streams that are not late and, except under `kafka-0.10.0`, have a value.
    """
    takes_part = f"{SIDE} < 2 AND NOT {LATE}" + ("" if semantics == "kafka-0.10.0" else f" AND {HAS_VALUE}")
    return rows.where(takes_part).withColumns({WAS_BUFFERED: F.lit(False), MATCHED: F.lit(False)})


def pairs(
    new_rows: DataFrame, buffered: DataFrame, join: ResolvedQuery, semantics: Semantics, scope: Sequence[str] = ()
) -> DataFrame:
    """
    Find the pairs of matching rows: one row is new, and the other is new or was buffered.

    Return each pair once: AT (bigint, the time of the later row), FIRST and SECOND (struct of IDENTITY, of the left and
    of the right row), BY_LEFT (whether the left row is the later one) and both rows under their aliases.

    Args:
        new_rows: The result of `as_new_rows`.
        buffered: The result of `as_buffered`.
    """
    window, (left, right) = window_of(join), SIDES
    joinable = new_rows.where(f"NOT {NOT_JOINABLE}")
    names = [*scope, *IDENTITY, TIME, WAS_BUFFERED, HAS_VALUE]
    names += [column for n in range(len(window.watermarks)) for column in (value(n), limit(n))]
    keys = {f"{PREFIX}key{n}": pair for n, pair in enumerate(window.equalities)}
    rows = []
    for index, (item, buckets_of) in enumerate(zip(join.inputs, _buckets(window), strict=True)):
        columns = [F.col(quote(name)) for name in (*names, item.alias)]
        new, old = (frame.where(f"{SIDE} = {index}").select(*columns) for frame in (joinable, buffered))
        facts = F.struct(*columns[:-1], F.struct(*IDENTITY).alias(ID)).alias(SIDES[index])
        own_keys = (F.expr(pair[index]).alias(f"{name}_{index}") for name, pair in keys.items())
        buckets = F.expr(buckets_of(f"{SIDES[index]}."))
        keyed = new.unionAll(old).select(facts, columns[-1], *own_keys)
        rows.append(keyed.withColumn(f"{BUCKET}_{index}", F.explode(buckets) if index else buckets))
    same = [f"{left}.{quote(name)} = {right}.{quote(name)}" for name in scope]
    same += [f"{name}_0 = {name}_1" for name in (BUCKET, *keys)]
    # At equal times the left row comes first; in a self-join the earlier commit, and within a commit the left row.
    left_first = f"{left}.{TIME} <= {right}.{TIME}"
    if window.is_self_join:
        is_later = f"{left}.{TIME} = {right}.{TIME} AND {left}.{VERSION} > {right}.{VERSION}"
        left_first = f"({left_first} AND NOT ({is_later}))"
    is_buffered = f"IF({left_first}, {_buffered(window, semantics, join, 0)}, {_buffered(window, semantics, join, 1)})"
    is_new = f"NOT ({left}.{WAS_BUFFERED} AND {right}.{WAS_BUFFERED})"
    on = " AND ".join([*same, is_new, f"({join.steps[0].on})", is_buffered])
    matching = rows[0].join(rows[1], on=F.expr(on), how="inner")
    return matching.select(
        *(F.col(f"{left}.{quote(name)}").alias(name) for name in scope),
        F.greatest(f"{left}.{TIME}", f"{right}.{TIME}").alias(AT),
        F.col(f"{left}.{ID}").alias(FIRST),
        F.col(f"{right}.{ID}").alias(SECOND),
        F.expr(f"NOT ({left_first})").alias(BY_LEFT),
        *(F.col(quote(item.alias)) for item in join.inputs),
    )


def matched_rows(
    found: DataFrame, join: ResolvedQuery, semantics: Semantics, scope: Sequence[str] = ()
) -> DataFrame | None:
    """
    Return IDENTITY of each row of an outer side that has a match; None for an inner join, which has no outer side.

    `found` has FIRST, SECOND and BY_LEFT of each pair. Where the semantics are eager, only the matches of a row on
    arrival count.
    """
    matched = []
    for index in outer_sides(join):
        rows = found.where(("NOT " if index else "") + BY_LEFT) if is_eager(semantics) else found
        matched.append(rows.select(*map(quote, scope), f"{(FIRST, SECOND)[index]}.*"))
    return reduce(DataFrame.unionAll, matched).distinct() if matched else None


def selected(found: DataFrame, join: ResolvedQuery) -> DataFrame:
    """Add ROW (struct of the SELECT list; null if WHERE is not true) to pairs and to unmatched rows."""
    row = struct({output.name: output.expression for output in join.outputs})
    return found.withColumn(ROW, F.expr(row if join.where is None else f"IF({join.where}, {row}, NULL)"))


def outer_sides(join: ResolvedQuery) -> tuple[int, ...]:
    """Return the indexes of the inputs on an outer side, whose unmatched rows are emitted."""
    return {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[join.steps[0].how]


def is_eager(semantics: Semantics) -> bool:
    """Return whether a row without a match on arrival is emitted at once, and again with each later match."""
    return semantics in ("kafka-0.10.2", "kafka-0.10.0")


def _buffered(window: Bounded, semantics: Semantics, join: ResolvedQuery, index: int) -> str:
    """Return the SQL condition that the earlier row, of input `index`, is buffered when the later row arrives."""
    earlier, later = SIDES[index], SIDES[1 - index]
    conditions = [f"{earlier}.{value(n)} >= {later}.{limit(n)}" for n in window.of(index) if window.limiting(n)]
    if semantics == "kafka-0.10.0":
        conditions.append(f"{earlier}.{HAS_VALUE}")
        if outer_sides(join) == (index,):  # rows of the outer side only look up; only the other rows are buffered
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
    left, right, before, after = axis
    width = max(1, (before + after) * (limits.BUCKET_WIDTHS if window.equalities else 1))

    def of_right(one: str) -> str:
        number = f"{one}{value(right)}"
        least = f"coalesce(try_subtract({number}, {before}L), {-GREATEST}L)"
        most = f"coalesce(try_add({number}, {after}L), {GREATEST}L)"
        return f"IF({least} <= {most}, sequence({least} div {width}L, {most} div {width}L), array())"

    return (lambda one: f"{one}{value(left)} div {width}L"), of_right


def _axis(window: Bounded) -> tuple[int, int, int, int] | None:
    """Find a time of each input that is bounded in both directions: left between right - before and right + after."""
    axes = (
        (bound.greater, bound.lesser, bound.allowance, other.allowance)
        for bound in window.bounds
        for other in window.bounds
        if window.watermarks[bound.greater].time.input == 0
        and (other.greater, other.lesser) == (bound.lesser, bound.greater)
    )
    return min(axes, key=lambda axis: axis[2] + axis[3], default=None)


def _of_side(condition: str, each: Sequence[tuple[int, str]]) -> str:
    """Return the SQL of an expression for each side, evaluated if a condition is true; false for other rows."""
    cases = " ".join(f"WHEN {condition} AND {SIDE} = {index} THEN {sql}" for index, sql in each)
    return f"(CASE {cases} ELSE FALSE END)"


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(conditions) or "FALSE"
