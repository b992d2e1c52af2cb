"""
The identity of rows of two streams: side, commit, hash, and a number among equal rows of a commit.

A row has the same identity whenever it is read: in the epoch in which it is new and in each in which it is buffered.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehouse.values.compare import hash_of, identical
from lakehouse.values.sqltext import quote
from pipelines.joins.watermarks import RANK, TIME, window_of
from pipelines.language import ResolvedQuery
from pipelines.language.statement.added_columns import HAS_VALUE, HASH, NUMBER, PREFIX, SIDE, VERSION


def hashed(rows: DataFrame, join: ResolvedQuery, place: int, scope: Sequence[str] = ()) -> DataFrame:
    """
    Wrap the new rows of a stream as structs named by its alias, and add the hash of their columns.

    Args:
        rows: TIME (bigint, its time in the order), VERSION (bigint, its commit), HAS_VALUE (boolean) and the columns
            that the join uses.

    Returns:
        PLACE, IDENTITY except NUMBER, HAS_VALUE, and the row.
    """
    item = join.inputs[place]
    row = F.struct(*(F.col(quote(name)) for name in item.columns)).alias(item.alias)
    scopes = [F.col(quote(name)) for name in scope]
    rank = 0 if window_of(join).is_self_join else place
    placed = (F.lit(place).alias(SIDE), F.lit(rank).alias(RANK), TIME, VERSION)
    wrapped = rows.select(*scopes, *placed, HAS_VALUE, row)
    return wrapped.withColumn(HASH, F.expr(hash_of(quote(item.alias), wrapped.schema[item.alias].dataType)))


def identified(rows: DataFrame, join: ResolvedQuery, place: int, scope: Sequence[str] = ()) -> DataFrame:
    """Add NUMBER to the result of `hashed`: it distinguishes rows of a commit that have the same hash."""
    alias = join.inputs[place].alias
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
    row = f"{PREFIX}row"
    others = [F.col(quote(name)) for name in rows.columns if name not in (SIDE, *(one.alias for one in join.inputs))]
    twice = rows.select(
        *others, F.col(quote(join.inputs[0].alias)).alias(row), F.explode(F.array(F.lit(0), F.lit(1))).alias(SIDE)
    )
    sides = [F.expr(f"IF({SIDE} = {place}, {row}, NULL)").alias(one.alias) for place, one in enumerate(join.inputs)]
    return twice.select(*others, SIDE, *sides)


def together(left: DataFrame, right: DataFrame) -> DataFrame:
    """Combine the rows of both streams in one frame; the struct of the other stream's row is null."""
    return left.unionByName(right, allowMissingColumns=True)
