"""
Look-ups: each row of a stream is joined with the rows of tables as they were at its position.

    row of the stream ──► key that it refers to ──► version of that row at the position ──► next table ──► SELECT list

One pass processes any number of changes. The versions of a table's row cover all positions without overlap, so a row of
the stream matches exactly one version of the key, or none if the table does not have the key. Changes of tables emit no
rows (KIP-77).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse import limits
from lakehouse.changes import key_struct, null_key
from lakehouse.sqltext import quote, row_struct, struct
from lakehouse.values import hash_of, is_exact
from pipelines.joins.kernel import KeyTypes, null_reference, refers_to
from pipelines.joins.meaning import ROW, meaning_of_matched
from pipelines.joins.versions import NEVER
from pipelines.spec import Input, Link, ResolvedQuery, Semantics
from pipelines.spec.statement.added_columns import POSITION, PREFIX
from pipelines.spec.statement.semantics import ALWAYS

KEY, NULL_KEY, START, END = (f"{PREFIX}{name}" for name in ("looked_up", "null_key", "start", "end"))
REFERENCE_HASH, KEY_HASH = (f"{PREFIX}{name}" for name in ("reference_hash", "key_hash"))


CONSTANT = "CAST(pmod(hash(key), 1) AS BIGINT)"
"""SQL that is always 0, but not a constant for Spark, which would leave a constant out of the hash of the shuffle."""


def ignores_null_values(join: ResolvedQuery, semantics: Semantics) -> bool:
    """Return whether stream rows with a null value are ignored: always since KIP-77, before it only by inner joins."""
    return semantics != "kafka-0.10.0" or any(step.how == "inner" for step in join.steps)


def as_rows(stream: DataFrame, side: Input, scope: Sequence[str] = ()) -> DataFrame:
    """
    Convert the rows of a stream to the input of a look-up.

    Args:
        stream: The scope columns, POSITION (bigint) and the columns that the join uses.
        side: The stream, as an input of the join.
        scope: Columns that separate independent histories.

    Returns:
        The scope columns, POSITION, and the row as a struct named by the stream's alias.
    """
    row = F.expr(row_struct(side.columns)).alias(side.alias)
    return stream.select(*(F.col(quote(name)) for name in scope), POSITION, row)


def whole(rows: DataFrame, side: Input, types: Sequence[DataType], scope: Sequence[str] = ()) -> DataFrame:
    """Return the rows of an unchanged table that have a key as versions that cover all positions."""
    keyed = rows.where(f"NOT {null_key(side.key, may_be_absent=side.may_be_absent)}")
    return keyed.select(
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
    Join each row with the row of one table at its position.

    Args:
        rows: The result of `as_rows` or of an earlier look-up, `without_unmatched` for this reference.
        link: The reference to the table.
        join: The join.
        types: The types in which keys are compared.
        versions: The versions of the table's rows: the scope columns, `key`, `start` and `end` (positions: inclusive
            and exclusive) and `row`.
        scope: Columns that separate independent histories.
        broadcast: Whether to broadcast the table; otherwise rows with a null reference are spread over all tasks.

    Returns:
        The rows with the table's row as a struct named by its alias; null if the table had no row. The number of rows
        does not change if the keys of the table are unique.
    """
    alias, first = join.inputs[link.input].alias, join.inputs[0].alias
    keyed = rows.withColumn(KEY, F.expr(refers_to(link, types)))
    parts = {f"{KEY}.k{part}": f"{PREFIX}key_{part}" for part in range(len(link.expressions))}
    other = {name: f"{PREFIX}other_{number}" for number, name in enumerate(scope)}
    of_reference, of_key = _hashes(keyed, versions, first)
    found = versions.select(
        *(F.col(quote(name)).alias(column) for name, column in other.items()),
        *(F.col(f"key.k{part}").alias(column) for part, column in enumerate(parts.values())),
        F.expr(of_key or CONSTANT).alias(KEY_HASH),
        F.col("start").alias(START),
        F.col("end").alias(END),
        F.col("row").alias(alias),
    )
    same = " AND ".join(
        f"{one} {'<=>' if part in link.null_safe else '='} {another}"
        for part, (one, another) in enumerate(parts.items())
    )
    if not broadcast:
        keyed = keyed.withColumn(REFERENCE_HASH, F.expr(of_reference))
        # Spark sorts one number several times faster than a key. It would sort by what it sees to be equalities, too.
        same = f"{REFERENCE_HASH} = {KEY_HASH} AND " + (f"coalesce({same}, FALSE)" if of_key else same)
    together = " AND ".join([*(f"{quote(name)} = {column}" for name, column in other.items()), same])
    during = f"{START} <= {POSITION} AND {POSITION} < {END}"
    # The row of the stream passes the join column by column: Spark would build and copy a struct for each row.
    fields = keyed.schema[first].dataType.fieldNames()  # type: ignore[attr-defined]
    apart = {f"{PREFIX}column_{place}": name for place, name in enumerate(fields)}
    flat = keyed.select(
        *(F.col(quote(name)) for name in keyed.columns if name != first),
        *(F.col(quote(first, name)).alias(column) for column, name in apart.items()),
    )
    joined = flat.join(F.broadcast(found) if broadcast else found, on=F.expr(f"{together} AND {during}"), how="left")
    whole_row = struct({name: column for column, name in apart.items()})
    return joined.select(
        *(F.expr(whole_row).alias(name) if name == first else F.col(quote(name)) for name in rows.columns),
        F.col(quote(alias)),
    )


def _hashes(keyed: DataFrame, versions: DataFrame, first: str) -> tuple[str, str | None]:
    """
    Write the numbers by which rows of the stream and versions are shuffled and sorted, as SQL of bigints.

    Args:
        keyed: Rows of the stream with KEY.
        versions: The versions of a table's rows.
        first: The alias of the stream.

    Returns:
        That of a row of the stream: the hash of its reference or, for a null reference, which matches no version, one
        of `NULL_KEY_SPREAD` numbers, which keep these rows from going to one task. That of a version: the hash of its
        key; None if equal keys may have different hashes: then the number of each reference is 0.
    """
    wanted, held = keyed.schema[KEY].dataType, versions.schema["key"].dataType
    is_hashed = is_exact(held) and wanted.simpleString() == held.simpleString()
    spread = f"1 + pmod({hash_of(quote(first), keyed.schema[first].dataType)}, {limits.NULL_KEY_SPREAD})"
    number = hash_of(KEY, wanted) if is_hashed else "0"
    return f"CAST(IF({KEY} IS NULL, {spread}, {number}) AS BIGINT)", hash_of("key", held) if is_hashed else None


def emitted(rows: DataFrame, join: ResolvedQuery, scope: Sequence[str] = ()) -> DataFrame:
    """
    Return the result row of each row of the stream.

    Args:
        rows: The result of the last `look_up`.
        join: The join.
        scope: Columns that separate independent histories.

    Returns:
        For each row of the stream the scope columns, `position`, `row` (struct of the SELECT list; null if the stream
        row has no result row) and `null_key`: whether that is because a key of an inner join is null (KIP-962) although
        each input from which it is taken has a row.
    """
    missing = " OR ".join(_null_keys(join)) or "FALSE"
    return meaning_of_matched(rows, join).select(
        *(F.col(quote(name)) for name in scope),
        F.col(POSITION).alias("position"),
        F.col(ROW).alias("row"),
        F.expr(f"{ROW} IS NULL AND ({missing})").alias("null_key"),
    )


def _null_keys(join: ResolvedQuery) -> list[str]:
    """Write for each inner look-up whether a key is null of a row that all inner look-ups before it have kept."""
    found, kept = [], "TRUE"
    for link in sorted(join.links, key=lambda link: link.input):
        step = join.steps[link.input - 1]
        if step.how == "inner":
            known = " AND ".join(f"{quote(join.inputs[place].alias)} IS NOT NULL" for place in sorted(link.places))
            found.append(f"({kept} AND {known} AND {null_reference(link)})")
            exists = f"{quote(join.inputs[link.input].alias)} IS NOT NULL"
            kept = f"IF({kept} AND {exists}, coalesce({step.on}, FALSE), FALSE)"
    return found
