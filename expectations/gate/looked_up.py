"""
What an epoch adds to the result of a join of a stream with tables is held against the stream and the tables.

    table at the pinned version ─► newest version of each row ┐
    its feed ─► what each commit replaced, and when ──────────┴─► statement, at the position of each row of the stream

The rows of the stream are given as they came. What a table held before comes from the images that its commits replaced:
a version before the epoch may no longer be readable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from expectations.gate.by_key import LiteralsMiss, check_rows, driver_copy, trusted
from expectations.gate.judging import judged
from expectations.gate.statement import Statement
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.changes import null_key
from lakehouse.feed import FEED_COLUMNS
from lakehouse.sqltext import numbered, quote, row_struct, struct
from lakehouse.values import identical

LOOKED_UP_RULES = {
    "missing": "every row of the stream shows the partner that it had at its position",
    "surplus": "no row that nothing caused",
}
BEGINNING, NEVER = -(2**63), 2**63 - 1
"""Before the first position, and after the last."""

START, END = "_lakejoin_start", "_lakejoin_end"
"""The positions from which on, and up to which, a row of a table was there; beside them are the user's columns."""


@dataclass(frozen=True)
class LookedUp:
    """
    A table that the rows of a stream are looked up in.

    Args:
        key: Its key columns.
        references: What is looked up: for each of them Spark SQL over the aliases of the inputs before it.
        rows: Its rows at the pinned version.
        feed: What changed them in the epoch, as a change feed tells; None where nothing did.
        time: Spark SQL of the time of a change, over `old`, `new` (its images) and `at` (timestamp of the commit).
        floor: The time of the newest change of epochs before: no later change counts as an earlier one.
        is_small: Whether to read it whole costs less than to find out which rows are wanted.
        size: How many bytes it has.
    """

    key: tuple[str, ...]
    references: tuple[str, ...]
    rows: DataFrame
    feed: DataFrame | None = None
    time: str = "unix_micros(at)"
    floor: int = BEGINNING
    is_small: bool = False
    size: int = 0


def gate_looked_up(
    staged: DataFrame, stream: DataFrame, position: str, statement: Statement, tables: Sequence[LookedUp]
) -> Verdict:
    """
    Check that an epoch adds what the plain statement says: each row of the stream meets what was there at its position.

    Args:
        staged: The staged rows.
        stream: The rows of the stream that came and take part.
        position: Its column with their positions.
        statement: The join; its outputs are the columns of the staged rows.
        tables: The other inputs, in the order of FROM.

    Returns:
        The verdict, with an example of what is missing and one of what is too many.
    """
    inputs, steps = [stream], list[tuple[str, str]]()
    place = quote(statement.aliases[0], position)
    for number, (table, (how, on)) in enumerate(zip(tables, statement.steps, strict=True), start=1):
        known = replace(statement, aliases=statement.aliases[:number], steps=tuple(steps), where=None)
        try:
            wanted = (
                _all
                if table.is_small
                else _one_of(driver_copy(_keys(table, known, inputs)), table, statement.aliases[number])
            )
        except LiteralsMiss as found:
            return Verdict((str(found),))
        inputs.append(_versions(table, wanted))
        start, end = (quote(statement.aliases[number], name) for name in (START, END))
        steps.append((how, f"({on}) AND {start} <= {place} AND {place} < {end}" if table.feed is not None else on))
    different = _different(replace(statement, steps=tuple(steps)).over(inputs), staged)
    batch = different.select(
        F.monotonically_increasing_id().alias("key_0"),
        F.expr("surplus < 0").alias("missing"),
        F.expr("surplus > 0").alias("surplus"),
    )
    verdict = judged(batch.limit(limits.JUDGED_IN_PROCESS), ["row"], LOOKED_UP_RULES, in_process=True)
    return verdict if verdict.passed else Verdict((*verdict.findings, *_examples(different)))


def _keys(table: LookedUp, known: Statement, inputs: Sequence[DataFrame]) -> DataFrame:
    """Give the keys that the rows met so far refer to, each once."""
    keys = replace(known, outputs=(("key", numbered(table.references)),)).over(inputs)
    return keys.where(" AND ".join(f"key.k{part} IS NOT NULL" for part in range(len(table.references)))).distinct()


def _all(rows: DataFrame) -> DataFrame:
    return rows


def _one_of(keys: DataFrame, table: LookedUp, name: str) -> Callable[[DataFrame], DataFrame]:
    """Make a function that keeps rows with one of the keys: by literals, which skip files, then by what is exact."""
    found = trusted(keys)
    predicate = found.predicate(table.key) or "TRUE"
    same = " AND ".join(f"{quote('row', name)} = wanted.key.k{part}" for part, name in enumerate(table.key))

    def joined(rows: DataFrame, some: DataFrame) -> DataFrame:
        return rows.alias("row").join(F.broadcast(some.alias("wanted")), on=F.expr(same), how="left_semi")

    def kept(rows: DataFrame) -> DataFrame:
        rows = rows.where(predicate)
        return rows if found.exact else joined(rows, keys)

    if limits.LITERAL_BYTES < table.size <= limits.SCANNED_BYTES:
        check_rows(name, table.rows, table.key, keys, found, joined)
    return kept


def _versions(table: LookedUp, wanted: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Give the wanted rows that a table held in the epoch; of one that changed each with START and END."""
    rows = wanted(table.rows.where(f"NOT {null_key(table.key)}"))
    if table.feed is None:
        return rows
    changes = _timed(table, table.feed, wanted(table.feed))
    before = F.lag("time", 1, BEGINNING).over(Window.partitionBy("key").orderBy("version"))
    replaced = changes.select("old", before.alias(START), F.col("time").alias(END)).where("old IS NOT NULL")
    since = changes.groupBy("key").agg(F.max("time").alias("time")).alias("since")
    newest = rows.alias("row").join(since, on=F.expr(f"{_key(table.key, 'row.')} = since.key"), how="left")
    return newest.select(
        *(F.col(quote("row", name)) for name in rows.columns),
        F.coalesce("since.time", F.lit(BEGINNING)).alias(START),
        F.lit(NEVER).alias(END),
    ).unionAll(replaced.select("old.*", START, END))


def _timed(table: LookedUp, feed: DataFrame, wanted: DataFrame) -> DataFrame:
    """Give the wanted changes with their `time`: at least that of each commit before, whatever key that changed."""
    own = F.expr(f"greatest(CAST({table.time} AS BIGINT), CAST({table.floor} AS BIGINT))")
    commits = _changes(table, feed).groupBy("version").agg(F.max(own).alias("time"))
    earlier = Window.orderBy("version").rowsBetween(Window.unboundedPreceding, -1)
    reached = commits.select("version", F.max("time").over(earlier).alias("reached"))
    changes = _changes(table, wanted).join(F.broadcast(reached), on="version", how="inner")
    return changes.select("key", "version", "old", F.greatest(own, "reached").alias("time"))


def _changes(table: LookedUp, feed: DataFrame) -> DataFrame:
    """Give what each commit made of a key: `key`, `version`, `old`, `new`, `at`; not what it only wrote anew."""
    columns = [field for field in feed.schema if field.name not in FEED_COLUMNS]
    row = row_struct(field.name for field in columns)
    arrives = "_change_type IN ('insert', 'update_postimage')"
    commits = feed.where(f"NOT {null_key(table.key)}").groupBy(
        F.expr(_key(table.key)).alias("key"), F.col("_commit_version").alias("version")
    )
    changes = commits.agg(
        F.first(F.expr(f"IF({arrives}, NULL, {row})"), ignorenulls=True).alias("old"),
        F.first(F.expr(f"IF({arrives}, {row}, NULL)"), ignorenulls=True).alias("new"),
        F.max("_commit_timestamp").alias("at"),
    )
    kind = StructType(columns)
    return changes.where(f"NOT ({identical('old', kind)} <=> {identical('new', kind)})")


def _key(key: Sequence[str], prefix: str = "") -> str:
    return numbered(f"{prefix}{quote(name)}" for name in key)


def _different(expected: DataFrame, staged: DataFrame) -> DataFrame:
    """Give the rows that one holds more often: `row`, and by how much the staged rows have more of it, `surplus`."""

    def counted(rows: DataFrame, times: int) -> DataFrame:
        return rows.selectExpr(f"{row} AS row", f"{times} AS times")

    # One struct: Spark's planner works through each mixture of the columns that it groups by.
    row = struct({f"c{n}": identical(quote(f.name), f.dataType) for n, f in enumerate(staged.schema)})
    both = counted(expected, -1).unionAll(counted(staged, 1))
    return both.groupBy("row").agg(F.sum("times").alias("surplus")).where("surplus <> 0")


def _examples(different: DataFrame) -> list[str]:
    """Give a row that is missing and one that is too many, where there are such."""
    kinds = different.groupBy(F.expr("surplus > 0").alias("is_surplus"))
    found = kinds.agg(F.min(F.expr("CAST(row AS STRING)"))).orderBy("is_surplus").collect()
    return [f"{row[1]} is {'too many' if row[0] else 'missing'}" for row in found]
