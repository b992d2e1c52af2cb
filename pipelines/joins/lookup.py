"""
Look up: each row of a stream meets the rows of tables as they were at its position.

    row of the stream ──► key that it refers to ──► version of that row at the position ──► next table ──► SELECT list

One pass for any number of changes: the versions of a table's rows cover all positions without overlap, so that a row of
the stream meets exactly one of its key, or none. Changes of tables emit nothing (KIP-77).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse import limits
from lakehouse.changes import key_struct
from lakehouse.sqltext import quote, row_struct
from lakehouse.values import hash_of
from pipelines.joins.kernel import KeyTypes, null_reference, refers_to
from pipelines.joins.meaning import ROW, met
from pipelines.joins.versions import NEVER
from pipelines.spec import Input, Link, ResolvedQuery, Semantics
from pipelines.spec.statement.added_columns import POSITION, PREFIX

ALWAYS = -(2**63)
"""The position before every other: where versions begin that no change began."""


KEY, NULL_KEY, START, END = (f"{PREFIX}{name}" for name in ("looked_up", "null_key", "start", "end"))
SPREAD_FROM, SPREAD_TO = (f"{PREFIX}{name}" for name in ("spread_from", "spread_to"))


def ignores_null_values(join: ResolvedQuery, semantics: Semantics) -> bool:
    """Tell whether rows of the stream without a value take no part: since KIP-77, before it not in left joins."""
    return semantics != "kafka-0.10.0" or any(step.how == "inner" for step in join.steps)


def as_rows(stream: DataFrame, side: Input, scope: Sequence[str] = ()) -> DataFrame:
    """
    Wrap the rows of a stream as a look-up takes them.

    Args:
        stream: The scope columns, POSITION (bigint) and the columns that the join uses.
        side: The stream in the join.
        scope: Columns that keep independent histories apart.

    Returns:
        The scope columns, POSITION, and the row as a struct under the alias of the stream.
    """
    row = F.expr(row_struct(side.columns)).alias(side.alias)
    return stream.select(*(F.col(quote(name)) for name in scope), POSITION, row)


def whole(rows: DataFrame, side: Input, types: Sequence[DataType], scope: Sequence[str] = ()) -> DataFrame:
    """Give the rows of a table of which none changes as versions that are there at every position."""
    return rows.select(
        *(F.col(quote(name)) for name in scope),
        F.expr(key_struct(side.key, types)).alias("key"),
        F.lit(ALWAYS).cast("bigint").alias("start"),
        F.lit(NEVER).cast("bigint").alias("end"),
        F.expr(row_struct(side.columns)).alias("row"),
    )


def look_up(
    rows: DataFrame,
    link: Link,
    join: ResolvedQuery,
    types: KeyTypes,
    versions: DataFrame,
    scope: Sequence[str] = (),
    *,
    broadcast: bool = False,
) -> DataFrame:
    """
    Give each row what one table held for it at its position.

    Args:
        rows: What `as_rows` or this gave.
        link: How the table's row is found.
        join: The join.
        types: The types in which keys are compared.
        versions: The table: the scope columns, `key`, `start`, `end` (positions: from and up to) and `row`.
        scope: Columns that keep independent histories apart.
        broadcast: Whether the table goes to the rows; else rows that refer to nothing are spread over all tasks.

    Returns:
        The rows with the table's row as a struct under its alias, null where there was none. As many as before, if the
        table holds no key twice.
    """
    alias, first = join.inputs[link.input].alias, join.inputs[0].alias
    keyed = rows.withColumn(KEY, F.expr(refers_to(link, types)))
    parts = {f"{KEY}.k{part}": f"{PREFIX}key_{part}" for part in range(len(link.expressions))}
    other = {name: f"{PREFIX}other_{number}" for number, name in enumerate(scope)}
    found = versions.select(
        *(F.col(quote(name)).alias(column) for name, column in other.items()),
        *(F.col(f"key.k{part}").alias(column) for part, column in enumerate(parts.values())),
        # Always 0, which Spark does not see: it would leave out of the hash what is the same in every row.
        F.expr("pmod(hash(key), 1)").alias(SPREAD_TO),
        F.col("start").alias(START),
        F.col("end").alias(END),
        F.col("row").alias(alias),
    )
    same = {**{quote(name): column for name, column in other.items()}, **parts}
    together = " AND ".join(f"{one} = {another}" for one, another in same.items())
    if not broadcast:
        # A null meets nothing. With a number beside it it does not wait in one task with all others.
        spread = f"pmod({hash_of(quote(first), keyed.schema[first].dataType)}, {limits.NULL_KEY_SPREAD})"
        keyed = keyed.withColumn(SPREAD_FROM, F.expr(f"IF({KEY} IS NULL, 1 + {spread}, 0)"))
        together = f"{together} AND CAST({SPREAD_FROM} AS INT) = {SPREAD_TO}"
    during = f"{START} <= {POSITION} AND {POSITION} < {END}"
    joined = keyed.join(F.broadcast(found) if broadcast else found, on=F.expr(f"{together} AND {during}"), how="left")
    return joined.select(*(F.col(quote(name)) for name in rows.columns), F.col(quote(alias)))


def emitted(rows: DataFrame, join: ResolvedQuery, scope: Sequence[str] = ()) -> DataFrame:
    """
    Say which row each row of the stream makes.

    Args:
        rows: What the last `look_up` gave.
        join: The join.
        scope: Columns that keep independent histories apart.

    Returns:
        For each row of the stream the scope columns, `position`, `row` (struct of the SELECT list; null where it makes
        none) and `null_key`: whether it makes none because a key of an inner join is null (KIP-962).
    """
    inner = [link for link in join.links if join.steps[link.input - 1].how == "inner"]
    there = {link.over: f"{quote(join.inputs[link.over].alias)} IS NOT NULL" for link in inner}
    missing = " OR ".join(f"({there[link.over]} AND {null_reference(link)})" for link in inner) or "FALSE"
    return met(rows.withColumn(NULL_KEY, F.expr(missing)), join).select(
        *(F.col(quote(name)) for name in scope),
        F.col(POSITION).alias("position"),
        F.col(ROW).alias("row"),
        F.expr(f"{ROW} IS NULL AND {NULL_KEY}").alias("null_key"),
    )
