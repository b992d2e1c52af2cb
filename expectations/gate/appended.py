"""
The gates of rows that an epoch appends: to a changelog, and to the result of a join with a stream.

The rows of a stream that is joined with tables are looked up again:

    table at the pinned version ─► newest version of each row ┐
    its feed ─► what each commit replaced, and when ──────────┴─► statement, at the position of each row of the stream

The rows of the stream are the new rows. The earlier rows of a table come from the images that its commits replaced,
because a version before the epoch may no longer be readable.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from expectations.gate.by_key import Lookup, ReadsDiffer, check_rows, driver_copy, has_key, own_key, trusted
from expectations.gate.rules import KEY_RULES, KEYLESS, is_alike_in_pandas, judged, judged_rows, key_columns
from expectations.gate.sources import PlainStatement
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.tables.table import FEED_COLUMNS, read
from lakehouse.values.compare import identical, same
from lakehouse.values.net_changes import fields_of, no_reference, null_key
from lakehouse.values.sqltext import Address, numbered, quote, row_struct, struct

STREAM_RULES = {
    "number_differs": "the number of rows equals the number that was counted",
    "of_another_epoch": "every row has the number of the epoch that appends it",
    "has_no_position": "every row has a position in the order",
}
LOOKED_UP_RULES = {
    "missing": "every row of the stream shows the partner that it had at its position",
    "surplus": "every row of the result has a cause",
}
BEGINNING, NEVER = -(2**63), 2**63 - 1
"""The positions before the first and after the last position."""

START, END = "_lakejoin_start", "_lakejoin_end"
"""The working columns of the positions from which (included) and until which (excluded) a table row is valid."""
CHANGELOG_RULES = {
    "leads_elsewhere": "the last changelog row of a key equals the result after the epoch",
    "left_out": "every change of the result has a row in the changelog",
    "tombstone_of_nothing": "no unnecessary tombstone: a tombstone deletes a row that existed just before",
    "repeats": "no repeated value: an upsert changes something",
}
STRICT_RULES = ("tombstone_of_nothing", "repeats")
"""The rules that the semantics of Kafka Streams violate by design."""


def stream_facts(epoch: int | None, epoch_column: str, position_column: str) -> dict[str, str]:
    """Return what `gate_stream` needs to know, as SQL by name; no epoch if the rows belong to several."""
    of_others = f"{quote(epoch_column)} IS NULL" if epoch is None else f"NOT ({quote(epoch_column)} <=> {epoch})"
    return {
        "rows": "count(1)",
        "of_others": f"count_if({of_others})",
        "unplaced": f"count_if({quote(position_column)} IS NULL)",
    }


def gate_stream(spark: SparkSession, facts: Mapping[str, int], number: int) -> Verdict:
    """Check the rows that an epoch appends to a stream, by `stream_facts` and the number that was counted before."""
    wrong = (facts["rows"] != number, facts["of_others"] > 0, facts["unplaced"] > 0)
    columns = ", ".join(f"{value} AS {rule}" for rule, value in zip(STREAM_RULES, wrong, strict=True))
    return judged(spark.sql(f"SELECT 0 AS key_0, {columns}"), ["epoch"], STREAM_RULES, in_process=True)


def gate_changelog(
    spark: SparkSession,
    changelog: DataFrame,
    changes: DataFrame,
    rows: int,
    result: Address,
    base_version: int,
    *,
    strict: bool,
    is_small: bool = False,
    keyless: str | None = None,
) -> Verdict:
    """
    Check the staged rows of a changelog against the staged change set and the result that it was computed against.

    Args:
        changes: The staged change set: `op`, `key`, `before`, `after`.
        rows: The number of staged rows of the changelog.
        strict: Whether a row that changes nothing also violates a rule.
        is_small: Whether reading the whole result costs less than finding the rows that are needed.
        keyless: If parts of a key may be null, the SQL condition of a wrong `key` (struct<k0, …>).
    """
    key, row = fields_of(changes, "key"), fields_of(changes, "after")
    names, may_be_absent = key.fieldNames(), keyless is not None
    values = ", ".join(quote(name) for name in row.fieldNames())
    logged = changelog.selectExpr(
        f"{own_key(names)} AS key", "_position AS position", f"IF(_op = 'upsert', struct({values}), NULL) AS row"
    )
    published = read(spark, result, base_version)
    if not is_small:
        keys = logged.select("key").distinct()
        try:
            literals = trusted(
                driver_copy(keys) if rows <= limits.ROWS_ON_DRIVER else keys, may_be_absent=may_be_absent
            )
        except ReadsDiffer as differing:
            return Verdict((str(differing),))
        published = published.where(literals.predicate(names) or "TRUE")
    published = published.selectExpr(f"{own_key(names)} AS key", f"struct({values}) AS existing")
    changed = changes.selectExpr(f"{own_key(names, 'key.')} AS key", "TRUE AS changed", "after")
    steps = _steps(logged, published, changed)
    rules = {name: words for name, words in CHANGELOG_RULES.items() if strict or name not in STRICT_RULES}
    conditions = {
        "leads_elsewhere": f"position IS NOT NULL AND is_last AND NOT {same('row', 'end', row)}",
        "left_out": "position IS NULL",
        "tombstone_of_nothing": "position IS NOT NULL AND row IS NULL AND previous IS NULL",
        "repeats": f"row IS NOT NULL AND {same('row', 'previous', row)}",
    }
    if keyless is not None:
        rules, conditions = rules | KEY_RULES, conditions | {KEYLESS: keyless}
    types = [field.dataType for field in key]
    batch = steps.selectExpr(
        *key_columns(types),
        f"coalesce(position, -1) AS key_{len(names)}",
        *(f"{condition} AS {rule}" for rule, condition in conditions.items()),
    )
    in_process = is_alike_in_pandas(types) and rows <= limits.ROWS_ON_DRIVER
    return judged(batch, [*names, "_position"], rules, in_process=in_process, may_be_absent=may_be_absent)


def _steps(logged: DataFrame, published: DataFrame, changed: DataFrame) -> DataFrame:
    """Return the changelog row by row: `previous` is the row of the key just before, `end` the one after the epoch."""
    in_order = Window.partitionBy("key").orderBy("position")
    joined = logged.join(published, on="key", how="left").join(changed, on="key", how="full")
    return joined.select(
        "key",
        "position",
        "row",
        F.expr("IF(changed, after, existing)").alias("end"),
        F.lag("row").over(in_order).alias("lagged"),
        (F.row_number().over(in_order) == 1).alias("is_first"),
        F.lead("position").over(in_order).isNull().alias("is_last"),
        "existing",
    ).withColumn("previous", F.expr("IF(is_first, existing, lagged)"))


@dataclass(frozen=True)
class LookedUp:
    """
    A table in which the rows of a stream are looked up.

    Args:
        references: For each key column the value that is looked up, as Spark SQL over the aliases of earlier inputs.
        null_safe: The positions of the references that `<=>` compares, for which null is a value.
        may_be_absent: Whether parts of a key may be null, but not all of them: a row may lack a side of a join.
        feed: Its changes in the epoch, as rows of the change feed; None without changes.
        time: Spark SQL of the time of a change, over `old`, `new` (its images) and `at` (timestamp of the commit).
        floor: The time of the newest change of earlier epochs; the time of a change is at least this time.
        is_small: Whether reading the whole table costs less than finding the rows that are needed.
        size: In bytes.
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
        tables: The other inputs, in the order of FROM.
        salt: Chooses the keys that are also looked up without literals.
    """
    inputs, steps = [stream], list(statement.steps)
    at = quote(statement.aliases[0], position)
    for index, table in enumerate(tables, start=1):
        earlier = replace(statement, steps=tuple(steps)).up_to(index, numbered(table.references))
        alias = statement.aliases[index]
        try:
            keys = None if table.is_small else driver_copy(_keys(table, earlier.over(inputs)))
            filtered = (lambda rows: rows) if keys is None else _with_keys(keys, table, alias, salt)
        except ReadsDiffer as differing:
            return Verdict((str(differing),))
        inputs.append(_versions(table, filtered))
        if table.feed is not None:
            (how, on), start, end = statement.steps[index - 1], quote(alias, START), quote(alias, END)
            steps[index - 1] = (how, f"({on}) AND {start} <= {at} AND {at} < {end}")
    different = _different(replace(statement, steps=tuple(steps)).over(inputs), staged)
    conditions = {"missing": "surplus < 0", "surplus": "surplus > 0"}
    return judged_rows(different, conditions, LOOKED_UP_RULES, lambda: _examples(different))


def _keys(table: LookedUp, references: DataFrame) -> DataFrame:
    """Return the distinct keys (`key`) of a table among those to which the rows joined so far refer."""
    nothing = no_reference([f"key.k{part}" for part in range(len(table.references))], table.null_safe)
    return references.where(f"NOT {nothing}").distinct()


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
    old, new = (identical(image, StructType(columns)) for image in ("old", "new"))
    return changes.where(f"NOT ({old} <=> {new})")


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
