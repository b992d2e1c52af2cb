"""
Look-ups: each row of a stream is joined with the rows of tables as they were at its position.

    row of the stream ──► key that it refers to ──► version of that row at the position ──► next table ──► SELECT list

One pass processes any number of changes. The versions of a table's row cover all positions without overlap, so a row of
the stream matches exactly one version of the key, or none if the table does not have the key. Changes of tables emit no
rows (KIP-77).
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lakehouse.values.compare import hash_of, is_exact
from lakehouse.values.sqltext import quote, row_struct, struct
from pipelines.joins.kernel import KeyTypes, null_reference, refers_to
from pipelines.joins.meaning import ROW, meaning_of_matched
from pipelines.language import Input, Link, ResolvedQuery, Semantics
from pipelines.language.names import POSITION, PREFIX

KEY, NULL_KEY, START, END = (f"{PREFIX}{name}" for name in ("looked_up", "null_key", "start", "end"))
REFERENCE_NUMBER, KEY_NUMBER = (f"{PREFIX}{name}" for name in ("reference_number", "key_number"))


def ignores_null_values(join: ResolvedQuery, semantics: Semantics) -> bool:
    """Return whether stream rows with a null value are ignored: always since KIP-77, before it only by inner joins."""
    return semantics != "kafka-0.10.0" or any(step.how == "inner" for step in join.steps)


def as_rows(stream: DataFrame, side: Input) -> DataFrame:
    """Wrap the rows of a stream as structs named by its alias, beside POSITION (bigint)."""
    return stream.select(POSITION, F.expr(row_struct(side.columns)).alias(side.alias))


def look_up(
    rows: DataFrame, link: Link, join: ResolvedQuery, types: KeyTypes, versions: DataFrame, *, broadcast: bool = False
) -> DataFrame:
    """
    Join each row with the row of one table at its position.

    Args:
        rows: The result of `as_rows` or of an earlier look-up, `without_unmatched` for this reference.
        versions: The result of `timeline.versions` for the table.
        broadcast: Whether to broadcast the table; otherwise rows with a null reference are spread over all tasks.

    Returns:
        The rows with the table's row as a struct named by its alias; null if the table had no row. The number of rows
        does not change if the keys of the table are unique.
    """
    alias, first = join.inputs[link.input].alias, join.inputs[0].alias
    keyed = rows.withColumn(KEY, F.expr(refers_to(link, types)))
    parts = {f"{KEY}.k{part}": f"{PREFIX}key_{part}" for part in range(len(link.expressions))}
    numbers = None if broadcast else _numbers(types[link.input], first, keyed.schema[first].dataType)
    cuts = versions.select(
        *(F.col(f"key.k{part}").alias(column) for part, column in enumerate(parts.values())),
        *([] if numbers is None else [F.expr(numbers.of_key).alias(KEY_NUMBER)]),
        F.col("start").alias(START),
        F.col("end").alias(END),
        F.col("row").alias(alias),
    )
    operators = ("<=>" if part in link.null_safe else "=" for part in range(len(parts)))
    same = " AND ".join(f"{one} {sql} {other}" for sql, (one, other) in zip(operators, parts.items(), strict=True))
    if numbers is not None:
        keyed = keyed.withColumn(REFERENCE_NUMBER, F.expr(numbers.of_reference))
        # Spark sorts one number several times faster than a key, and would sort by any other equality that it sees.
        hidden = f"coalesce({same}, FALSE)" if numbers.are_hashes else same
        same = f"{REFERENCE_NUMBER} = {KEY_NUMBER} AND {hidden}"
    during = f"{START} <= {POSITION} AND {POSITION} < {END}"
    # The row of the stream passes the join column by column: Spark would build and copy a struct for each row.
    fields = keyed.schema[first].dataType.fieldNames()  # type: ignore[attr-defined]
    flattened = {f"{PREFIX}column_{index}": name for index, name in enumerate(fields)}
    flat = keyed.select(
        *(F.col(quote(name)) for name in keyed.columns if name != first),
        *(F.col(quote(first, name)).alias(column) for column, name in flattened.items()),
    )
    joined = flat.join(F.broadcast(cuts) if broadcast else cuts, on=F.expr(f"{same} AND {during}"), how="left")
    whole_row = struct({name: column for column, name in flattened.items()})
    return joined.select(
        *(F.expr(whole_row).alias(name) if name == first else F.col(quote(name)) for name in rows.columns),
        F.col(quote(alias)),
    )


_NULL_KEY_SPREAD = 1024


class _Numbers(NamedTuple):
    """
    The numbers by which rows of a stream and versions of a table's rows are shuffled and sorted, as SQL of bigints.

    Args:
        of_reference: The number of a row of the stream. If its reference is null, which matches no version, it is one
            of `_NULL_KEY_SPREAD` numbers, which keep these rows from going to one task.
        of_key: The number of a version.
        are_hashes: Whether these are hashes of the key; otherwise they are 0.
    """

    of_reference: str
    of_key: str
    are_hashes: bool


def _numbers(types: Sequence[DataType], stream: str, row: DataType) -> _Numbers:
    """Return the numbers for keys of these types, which are hashes unless equal keys may have different ones."""
    key = StructType([StructField(f"k{part}", data_type) for part, data_type in enumerate(types)])
    spread = f"1 + pmod({hash_of(quote(stream), row)}, {_NULL_KEY_SPREAD})"
    are_hashes = is_exact(key)
    # Always 0, but not a constant for Spark, which would leave a constant out of the hash of the shuffle.
    of_key = hash_of("key", key) if are_hashes else "CAST(pmod(hash(key), 1) AS BIGINT)"
    of_reference = hash_of(KEY, key) if are_hashes else "0"
    return _Numbers(f"CAST(IF({KEY} IS NULL, {spread}, {of_reference}) AS BIGINT)", of_key, are_hashes)


def emitted(rows: DataFrame, join: ResolvedQuery) -> DataFrame:
    """
    Return the result row of each row of the stream, after the last `look_up`.

    Returns:
        `position`, `row` (struct of the SELECT list; null if the stream row has no result row) and `null_key`: whether
        that is because a key of an inner join is null (KIP-962) although each input from which it is taken has a row.
    """
    missing = " OR ".join(_null_keys(join)) or "FALSE"
    return meaning_of_matched(rows, join).select(
        F.col(POSITION).alias("position"),
        F.col(ROW).alias("row"),
        F.expr(f"{ROW} IS NULL AND ({missing})").alias("null_key"),
    )


def _null_keys(join: ResolvedQuery) -> list[str]:
    """Return for each inner look-up whether a key is null in a row that all inner look-ups before it have kept."""
    conditions, kept = [], "TRUE"
    for link in sorted(join.links, key=lambda link: link.input):
        step = join.steps[link.input - 1]
        if step.how == "inner":
            known = " AND ".join(f"{quote(join.inputs[index].alias)} IS NOT NULL" for index in sorted(link.places))
            conditions.append(f"({kept} AND {known} AND {null_reference(link)})")
            exists = f"{quote(join.inputs[link.input].alias)} IS NOT NULL"
            kept = f"IF({kept} AND {exists}, coalesce({step.on}, FALSE), FALSE)"
    return conditions
