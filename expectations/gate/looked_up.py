"""
The gate of a join of a stream with tables: checks the appended rows against the stream and the tables.

    table at the pinned version ─► newest version of each row ┐
    its feed ─► what each commit replaced, and when ──────────┴─► statement, at the position of each row of the stream

The rows of the stream are the new rows. The earlier rows of a table come from the images that its commits replaced,
because a version before the epoch may no longer be readable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from expectations.gate.by_key import Lookup, ReadsDiffer, check_rows, driver_copy, has_key, own_key, trusted
from expectations.gate.judging import judged
from expectations.gate.statement import PlainStatement
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.tables.feed import FEED_COLUMNS
from lakehouse.values.compare import identical
from lakehouse.values.net_changes import no_reference, null_key
from lakehouse.values.sqltext import numbered, quote, row_struct, struct

LOOKED_UP_RULES = {
    "missing": "every row of the stream shows the partner that it had at its position",
    "surplus": "every row of the result has a cause",
}
BEGINNING, NEVER = -(2**63), 2**63 - 1
"""The positions before the first and after the last position."""

START, END = "_lakejoin_start", "_lakejoin_end"
"""The working columns of the positions from which (included) and until which (excluded) a table row is valid."""


@dataclass(frozen=True)
class LookedUp:
    """
    A table in which the rows of a stream are looked up.

    Args:
        references: For each key column the value that is looked up, as Spark SQL over the aliases of earlier inputs.
        rows: Its rows at the pinned version.
        null_safe: The positions of the references that `<=>` compares, for which null is a value.
        may_be_absent: Whether parts of a key may be null, but not all of them: a row may lack a side of a join.
        feed: Its changes in the epoch, as rows of the change feed; None without changes.
        time: Spark SQL of the time of a change, over `old`, `new` (its images) and `at` (timestamp of the commit).
        floor: The time of the newest change of earlier epochs; the time of a change is at least this time.
        is_small: Whether reading the whole table costs less than finding the rows that are needed.
        size: Its size in bytes.
    """

    key: tuple[str, ...]
    references: tuple[str, ...]
    rows: DataFrame
    null_safe: tuple[int, ...] = ()
    may_be_absent: bool = False
    feed: DataFrame | None = None
    time: str = "unix_micros(at)"
    floor: int = BEGINNING
    is_small: bool = False
    size: int = 0

    @property
    def keyless(self) -> str:
        """The SQL predicate for rows without a key."""
        return null_key(self.key, may_be_absent=self.may_be_absent)


def gate_looked_up(
    staged: DataFrame,
    stream: DataFrame,
    position: str,
    statement: PlainStatement,
    tables: Sequence[LookedUp],
    salt: str,
) -> Verdict:
    """
    Check that an epoch appends the rows of the plain statement, with each table as of the position of the stream row.

    Args:
        stream: The new rows of the stream that take part in the join.
        position: The column of the stream with the position of a row.
        statement: The join; its outputs are the columns of the staged rows.
        tables: The other inputs, in the order of FROM.
        salt: Chooses the keys that are also looked up without literals.

    Returns:
        The verdict, with an example of a missing row and of an unexpected row.
    """
    inputs, steps = [stream], list(statement.steps)
    at = quote(statement.aliases[0], position)
    for index, table in enumerate(tables, start=1):
        earlier = replace(statement, steps=tuple(steps)).up_to(index, numbered(table.references))
        alias = statement.aliases[index]
        try:
            keys = None if table.is_small else driver_copy(_keys(table, earlier.over(inputs)))
            filtered = _all if keys is None else _with_keys(keys, table, alias, salt)
        except ReadsDiffer as differing:
            return Verdict((str(differing),))
        inputs.append(_versions(table, filtered))
        if table.feed is not None:
            (how, on), start, end = statement.steps[index - 1], quote(alias, START), quote(alias, END)
            steps[index - 1] = (how, f"({on}) AND {start} <= {at} AND {at} < {end}")
    different = _different(replace(statement, steps=tuple(steps)).over(inputs), staged)
    batch = different.select(
        F.monotonically_increasing_id().alias("key_0"),
        F.expr("surplus < 0").alias("missing"),
        F.expr("surplus > 0").alias("surplus"),
    )
    verdict = judged(batch.limit(limits.JUDGED_IN_PROCESS), ["row"], LOOKED_UP_RULES, in_process=True)
    return verdict if verdict.passed else Verdict((*verdict.findings, *_examples(different)))


def _keys(table: LookedUp, references: DataFrame) -> DataFrame:
    """Return the distinct keys (`key`) of a table among those to which the rows joined so far refer."""
    nothing = no_reference([f"key.k{part}" for part in range(len(table.references))], table.null_safe)
    return references.where(f"NOT {nothing}").distinct()


def _all(rows: DataFrame) -> DataFrame:
    return rows


def _with_keys(keys: DataFrame, table: LookedUp, alias: str, salt: str) -> Callable[[DataFrame], DataFrame]:
    """Return a function that filters rows to the keys: by literals, which skip files, then by an exact join."""
    literals = trusted(keys, may_be_absent=table.may_be_absent)
    predicate = literals.predicate(table.key) or "TRUE"
    same_key = has_key("row", table.key, may_be_absent=table.may_be_absent, key="wanted.key")

    def joined(rows: DataFrame, keys: DataFrame) -> DataFrame:
        return rows.alias("row").join(F.broadcast(keys.alias("wanted")), on=F.expr(same_key), how="left_semi")

    def filtered(rows: DataFrame) -> DataFrame:
        rows = rows.where(predicate)
        return rows if literals.exact else joined(rows, keys)

    if limits.LITERAL_BYTES < table.size <= limits.SCANNED_BYTES:
        check_rows([Lookup(alias, table.rows, table.key, keys, literals, joined)], salt)
    return filtered


def _versions(table: LookedUp, filtered: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return the filtered rows that a table had during the epoch; with START and END if the table changed."""
    rows = filtered(table.rows.where(f"NOT {table.keyless}"))
    if table.feed is None:
        return rows
    changes = _timed(table, filtered(table.feed))
    before = F.lag("time", 1, BEGINNING).over(Window.partitionBy("key").orderBy("version"))
    replaced = changes.select("old", before.alias(START), F.col("time").alias(END)).where("old IS NOT NULL")
    since = changes.groupBy("key").agg(F.max("time").alias("time")).alias("since")
    newest = rows.alias("row").join(since, on=F.expr(f"{own_key(table.key, 'row.')} = since.key"), how="left")
    return newest.select(
        *(F.col(quote("row", name)) for name in rows.columns),
        F.coalesce("since.time", F.lit(BEGINNING)).alias(START),
        F.lit(NEVER).alias(END),
    ).unionAll(replaced.select("old.*", START, END))


def _timed(table: LookedUp, feed: DataFrame) -> DataFrame:
    """Return the changes of a filtered feed, and their `time`: at least that of every earlier commit of the table."""
    assert table.feed is not None, "the table changed"
    own = F.expr(f"greatest(CAST({table.time} AS BIGINT), CAST({table.floor} AS BIGINT))")
    commits = _changes(table, table.feed).groupBy("version").agg(F.max(own).alias("time"))
    earlier = Window.orderBy("version").rowsBetween(Window.unboundedPreceding, -1)
    floors = commits.select("version", F.max("time").over(earlier).alias("floor"))
    changes = _changes(table, feed).join(F.broadcast(floors), on="version", how="inner")
    return changes.select("key", "version", "old", F.greatest(own, "floor").alias("time"))


def _changes(table: LookedUp, feed: DataFrame) -> DataFrame:
    """Return the change of each key by each commit: `key`, `version`, `old`, `new`, `at`; skip rewritten rows."""
    columns = [field for field in feed.schema if field.name not in FEED_COLUMNS]
    row = row_struct(field.name for field in columns)
    is_new = "_change_type IN ('insert', 'update_postimage')"
    commits = feed.where(f"NOT {table.keyless}").groupBy(
        F.expr(own_key(table.key)).alias("key"), F.col("_commit_version").alias("version")
    )
    changes = commits.agg(
        F.first(F.expr(f"IF({is_new}, NULL, {row})"), ignorenulls=True).alias("old"),
        F.first(F.expr(f"IF({is_new}, {row}, NULL)"), ignorenulls=True).alias("new"),
        F.max("_commit_timestamp").alias("at"),
    )
    kind = StructType(columns)
    return changes.where(f"NOT ({identical('old', kind)} <=> {identical('new', kind)})")


def _different(expected: DataFrame, staged: DataFrame) -> DataFrame:
    """Return the rows whose number differs: `row`, and `surplus`, the staged number minus the expected number."""

    def counted(rows: DataFrame, times: int) -> DataFrame:
        return rows.selectExpr(f"{row} AS row", f"{times} AS times")

    # One struct, because Spark's planner examines all combinations of the grouping columns.
    row = struct({f"c{n}": identical(quote(f.name), f.dataType) for n, f in enumerate(staged.schema)})
    both = counted(expected, -1).unionAll(counted(staged, 1))
    return both.groupBy("row").agg(F.sum("times").alias("surplus")).where("surplus <> 0")


def _examples(different: DataFrame) -> list[str]:
    """Return an example of a missing row and of an unexpected row, if any."""
    examples = different.groupBy(F.expr("surplus > 0").alias("is_surplus")).agg(F.min(F.expr("CAST(row AS STRING)")))
    rows = examples.orderBy("is_surplus").collect()
    return [f"{'unexpected' if is_surplus else 'missing'} row: {example}" for is_surplus, example in rows]
