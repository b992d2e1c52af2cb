"""
The rows of two streams, told apart: by side, commit, hash, and a number among equal rows of a commit.

So a row is the same one whenever it is read, in the epoch that it came in and in each in which it waits.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehouse.sqltext import quote
from lakehouse.values import hash_of, identical
from pipelines.joins.watermarks import RANK, TIME, window_of
from pipelines.spec import ResolvedQuery
from pipelines.spec.statement.added_columns import HAS_VALUE, HASH, NUMBER, PREFIX, SIDE, VERSION


def hashed(rows: DataFrame, join: ResolvedQuery, place: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Wrap the rows that came to a stream, each with the hash of its columns.

    Args:
        rows: The scope columns, TIME (bigint, its time in the order), VERSION (bigint, its commit), HAS_VALUE (boolean)
            and the columns that the join uses.
        join: The join.
        place: The place of the stream in FROM.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, PLACE, IDENTITY but for NUMBER, HAS_VALUE, and the row as a struct under its alias.
    """
    item = join.inputs[place]
    row = F.struct(*(F.col(quote(name)) for name in item.columns)).alias(item.alias)
    scopes = [F.col(quote(name)) for name in scope]
    rank = 0 if window_of(join).is_self_join else place
    placed = (F.lit(place).alias(SIDE), F.lit(rank).alias(RANK), TIME, VERSION)
    wrapped = rows.select(*scopes, *placed, HAS_VALUE, row)
    return wrapped.withColumn(HASH, F.expr(hash_of(quote(item.alias), wrapped.schema[item.alias].dataType)))


def identified(rows: DataFrame, join: ResolvedQuery, place: int, scope: Sequence[str] = ()) -> DataFrame:
    """Complete the IDENTITY of rows that `hashed` gives: NUMBER distinguishes rows of a commit that share a hash."""
    alias = join.inputs[place].alias
    # Rows that share a hash may differ, be it by 0.0 and -0.0: the values decide which number belongs to which row.
    values = F.expr(identical(quote(alias), rows.schema[alias].dataType))
    equal = Window.partitionBy(*scope, SIDE, VERSION, HASH).orderBy(F.col(TIME), F.desc(HAS_VALUE), values)
    return rows.withColumn(NUMBER, F.row_number().over(equal))


def identified_by_hash(rows: DataFrame) -> DataFrame | None:
    """
    Complete the IDENTITY of rows that `hashed` gives, of one stream, without sorting them: their hashes differ.

    Returns:
        The rows; None where some share a hash.
    """
    shared = rows.groupBy(VERSION, HASH).count().where("count > 1").limit(1)
    return None if shared.count() else rows.withColumn(NUMBER, F.lit(1))


def both_sides(rows: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Give rows of a stream that is joined with itself to both sides.

    Args:
        rows: Rows with the struct of the left alias, as `identified` gives them.
        join: The join.

    Returns:
        Each row twice: on the left side, and on the right one under the alias of that.
    """
    row = f"{PREFIX}row"
    others = [F.col(quote(name)) for name in rows.columns if name not in (SIDE, *(one.alias for one in join.inputs))]
    twice = rows.select(
        *others, F.col(quote(join.inputs[0].alias)).alias(row), F.explode(F.array(F.lit(0), F.lit(1))).alias(SIDE)
    )
    sides = [F.expr(f"IF({SIDE} = {place}, {row}, NULL)").alias(one.alias) for place, one in enumerate(join.inputs)]
    return twice.select(*others, SIDE, *sides)


def together(left: DataFrame, right: DataFrame) -> DataFrame:
    """Put the rows of both streams into one frame, a null in the place of the other's row."""
    return left.unionByName(right, allowMissingColumns=True)
