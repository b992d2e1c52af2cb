"""Delta tables by name or by path: their current state, their state at a version, and their creation."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse import limits
from lakehouse.address import Address
from lakehouse.conditions import is_missing, is_view
from lakehouse.errors import CannotContinue, FeedUnavailable, LakejoinError, reconcile_hint
from lakehouse.feed import CHANGE_FEED, read_feed
from lakehouse.fixed_settings import TABLE_PROPERTIES
from lakehouse.sqltext import quote, text
from lakehouse.times import utc
from lakehouse.values import CLUSTERABLE, char_type, names_in, plain_schema, type_sql
from lakehouse.writing import write

DATA_FREE_OPERATIONS = frozenset(
    {
        "OPTIMIZE",
        "VACUUM START",
        "VACUUM END",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "CLUSTER BY",
        "UPGRADE PROTOCOL",
        "ADD CONSTRAINT",
        "DROP CONSTRAINT",
        "ADD COLUMNS",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "RENAME COLUMN",
        "DROP COLUMNS",
        "REORG",
        "COMPUTE STATS",
        "CREATE TABLE",
    }
)
"""Operations that leave every row unchanged. Any other operation in a table's history may have changed rows."""

UPKEEP_OPERATIONS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CLUSTER BY"}
    | {"UPGRADE PROTOCOL", "REORG", "COMPUTE STATS"}
)
"""Operations that anyone may run on a lakejoin table, because they leave rows, columns and constraints unchanged."""

ROWS_CHANGED = {
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "STREAMING UPDATE Append": ("numOutputRows",),
    "WRITE Append": ("numOutputRows",),
}
"""The metrics that count the rows changed by a commit, by operation."""

BYTES_ADDED = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
"""The metrics with the bytes of a commit's new files; a commit has one of them."""

PARAMETERS = ("oldColumnPath", "newColumnPath", "columns", "version", "properties")
"""The parameters that show the effect of column operations and of RESTORE on columns, and the properties set."""


SPECIAL_IN_COLUMN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Table:
    """
    A Delta table at its newest version.

    Args:
        address: Its address.
        id: Delta's table id, a new one for each creation.
        version: Its newest version.
        schema: Its columns.
        properties: Its table properties.
        commits: Its newest commits, newest first; `commits_since` reads earlier ones on demand.
        size: The total bytes of its files.
        where: A Spark SQL predicate for the rows that exist for a reader; empty for all rows.
        location: Its folder, as a URI.
    """

    address: Address
    id: str
    version: int
    schema: StructType
    properties: Mapping[str, str]
    commits: tuple["Commit", ...] = ()
    size: int = 0
    where: str = ""
    location: str = ""

    @property
    def feed_on(self) -> bool:
        """Whether new commits record their changes."""
        return self.properties.get(CHANGE_FEED, "false").lower() == "true"


@dataclass(frozen=True)
class Commit:
    """
    One commit of a table's history.

    Args:
        version: Its version.
        at: Its time, UTC.
        operation: Delta's name of its operation.
        metadata: The user metadata from the writer.
        metrics: The metrics of the operation.
        mode: The mode of a write.
        parameters: The parameters of the operation that show its effect on columns and properties; see `PARAMETERS`.
    """

    version: int
    at: datetime
    operation: str
    metadata: str
    metrics: Mapping[str, str]
    mode: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_data(self) -> bool:
        """Whether rows may have changed."""
        return self.operation not in DATA_FREE_OPERATIONS

    @property
    def changed_rows(self) -> int | None:
        """The number of changed rows that the writer reports; None if it reports none. A hint, never relied upon."""
        names = ROWS_CHANGED.get(f"{self.operation} {self.mode}".rstrip(), ())
        if not names or not all(self.metrics.get(name, "").isdecimal() for name in names):
            return None
        return sum(int(self.metrics[name]) for name in names)

    @property
    def only_adds(self) -> bool:
        """Whether the commit is known to add rows and to change no others."""
        counts = {name: self.metrics.get(f"numTargetRows{name}") for name in ("Updated", "Deleted")}
        is_insert = self.operation == "MERGE" and set(counts.values()) == {"0"}
        return is_insert or f"{self.operation} {self.mode}" in ("WRITE Append", "STREAMING UPDATE Append")

    @property
    def added_bytes(self) -> int:
        """The bytes of its new files; 0 if the writer does not report them."""
        return next((int(self.metrics[name]) for name in BYTES_ADDED if self.metrics.get(name, "").isdecimal()), 0)


def find(spark: SparkSession, address: Address) -> Table | None:
    """Look up the current state of a table; return None if no Delta table exists."""
    detail = table_detail(spark, address)
    if detail is None:
        return None
    commits = tuple(history(spark, address, limits.COMMITS_AT_ONCE))
    version = commits[0].version
    schema = read(spark, address, version).schema
    size = detail["sizeInBytes"] or 0
    properties, location = dict(detail["properties"]), detail["location"] or ""
    return Table(address, detail["id"], version, schema, properties, commits, size, location=location)


def table_detail(spark: SparkSession, address: Address) -> Row | None:
    """
    Return the result of DESCRIBE DETAIL for a table; None if no table exists.

    Raises:
        LakejoinError: The address is that of a view, or of a table in another format.
    """
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {address.sql}").collect()[0]
    except PySparkException as error:
        if is_missing(error):
            return None
        if is_view(error):
            raise LakejoinError(
                address.label,
                "it is a view, and only Delta tables have a change feed",
                expected="a Delta table",
                found=f"the view {address.table}",
                hint="name the table that the view reads, and move the query of the view into the statement of a join",
            ) from error
        raise
    if detail["format"] != "delta":
        raise LakejoinError(
            address.label,
            "it is not a Delta table, and only Delta tables have a change feed",
            expected="a Delta table",
            found=f"{address.path or address.table} in format {detail['format']}",
            hint=f"CONVERT TO DELTA {address.sql}, or name another table in the pipeline file"
            if detail["format"] == "parquet"
            else "copy it into a Delta table, and name that table in the pipeline file",
        )
    return detail


def get(spark: SparkSession, address: Address) -> Table:
    """
    Look up a table that must exist.

    Raises:
        LakejoinError: No Delta table exists at the address.
    """
    table = find(spark, address)
    if table is None:
        raise LakejoinError(
            address.label,
            "the Delta table does not exist",
            expected=f"a Delta table at {address.path or address.table}",
            hint="create it, or correct `table:` or `path:` in the pipeline file",
        )
    return table


def refresh(spark: SparkSession, table: Table) -> Table:
    """Return a table with its newest version and commits, by the cheapest look-up."""
    commits = tuple(history(spark, table.address, limits.COMMITS_AT_ONCE))
    return replace(table, version=commits[0].version, commits=commits)


def read(spark: SparkSession, address: Address, version: int) -> DataFrame:
    """Read a table at a version."""
    return spark.sql(f"SELECT * FROM {address.sql} VERSION AS OF {version}")


def read_rows(spark: SparkSession, table: Table, version: int) -> DataFrame:
    """Read the rows of a table that exist for a reader, at a version, with CHAR columns as padded text."""
    rows = read(spark, table.address, version)
    return as_text(rows.where(table.where) if table.where else rows, table.schema)


def read_changes(spark: SparkSession, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
    """Read the change feed of a table like `read_feed`, with CHAR columns as padded text like `read_rows`."""
    return as_text(read_feed(spark, table.address, after, to, columns, table.where), table.schema)


def as_text(rows: DataFrame, schema: StructType) -> DataFrame:
    """
    Convert CHAR columns to the plain padded text that they contain.

    Spark compares a column with CHAR metadata differently from its text, and some plans lose the metadata. Without the
    metadata from the start, all plans compare alike.

    Args:
        rows: Rows with some of the columns of the schema.
        schema: The columns of their table.
    """
    padded = {field.name for field in schema if char_type(field) is not None}
    if padded.isdisjoint(rows.columns):
        return rows
    return rows.select(
        *(
            F.col(quote(name)).cast(plain_schema([schema[name]])[0].dataType).alias(name)
            if name in padded
            else F.col(quote(name))
            for name in rows.columns
        )
    )


def history(spark: SparkSession, address: Address, limit: int) -> list[Commit]:
    """Return the newest commits of a table, newest first."""
    mode = F.expr("coalesce(operationParameters['mode'], operationParameters['outputMode'])")
    parameters = F.array(*(F.col("operationParameters")[name] for name in PARAMETERS))
    rows = spark.sql(f"DESCRIBE HISTORY {address.sql} LIMIT {limit}").select(
        "version", "timestamp", "operation", "userMetadata", "operationMetrics", mode, parameters
    )
    commits = (
        Commit(row[0], utc(row[1]), row[2] or "", row[3] or "", dict(row[4] or {}), row[5] or "", _present(row[6]))
        for row in rows.collect()
    )
    return sorted(commits, key=lambda commit: commit.version, reverse=True)


def _present(values: Sequence[str | None]) -> dict[str, str]:
    return {name: value for name, value in zip(PARAMETERS, values, strict=True) if value is not None}


def commits_since(spark: SparkSession, table: Table, version: int) -> list[Commit]:
    """
    Return the commits after a version up to the pinned version of the table, oldest first.

    Raises:
        FeedUnavailable: A commit of the range is missing from the log. The feed would silently skip it.
        CannotContinue: The newest version of the table is older than the recorded one.
    """
    label, newest = table.address.label, table.version
    if newest < version:
        raise CannotContinue(
            label,
            "its newest version is older than the recorded one",
            expected=f"version {version} or later",
            found=f"version {newest}",
            hint=reconcile_hint(),
        )
    known = with_commits_since(spark, table, version).commits
    commits = [commit for commit in reversed(known) if version < commit.version <= newest]
    missing = sorted(set(range(version + 1, newest + 1)) - {commit.version for commit in commits})
    if missing:
        raise FeedUnavailable(
            label,
            "commits are missing from its log",
            expected=f"versions {version + 1} to {newest} without a gap",
            found=f"no version {', '.join(map(str, missing[:5]))}",
            hint=reconcile_hint(),
        )
    return commits


def with_commits_since(spark: SparkSession, table: Table, version: int) -> Table:
    """Return a table with its commits since a version, as far as its log still has them."""
    known = table.commits
    if known[-1].version <= version or len(known) < limits.COMMITS_AT_ONCE:
        return table
    # Later commits may exist since the table was pinned, so ask for more commits than the range.
    return replace(
        table, commits=tuple(history(spark, table.address, known[0].version - version + limits.COMMITS_AT_ONCE))
    )


def at_rest(spark: SparkSession, table: Table, version: int) -> Table:
    """
    Pin a table to a version or, if commits without data follow it directly, to the last of these.

    The rows are the same, and old versions are readable for a limited time only.
    """
    later = commits_since(spark, table, version)
    quiet = [commit.version for commit in takewhile(lambda commit: not commit.changes_data, later)]
    return replace(table, version=max(quiet, default=version))


def create(
    spark: SparkSession,
    address: Address,
    schema: StructType,
    key: Sequence[str],
    *,
    feed: bool = True,
    properties: Mapping[str, str] | None = None,
) -> None:
    """
    Create an empty table that lakejoin maintains, with deletion vectors, unless it exists.

    Column mapping is on only if a column name requires it, because other readers of the feed may not support it.

    Args:
        spark: Our session.
        address: The address of the table.
        schema: The columns, the key first.
        key: The columns to cluster by; columns without statistics are skipped, and at most four are used.
        feed: Whether its change feed is on.
        properties: Additional table properties.
    """
    merged = {
        CHANGE_FEED: str(feed).lower(),
        "delta.enableDeletionVectors": "true",
        **TABLE_PROPERTIES,
        **(properties or {}),
    }
    if any(SPECIAL_IN_COLUMN_NAMES.search(name) for name in names_in(schema)):
        merged["delta.columnMapping.mode"] = "name"
    columns = ", ".join(f"{quote(field.name)} {type_sql(field.dataType)}" for field in schema)
    statement = f"CREATE TABLE IF NOT EXISTS {address.sql} ({columns}) USING delta"
    clustered = [name for name in key if isinstance(schema[name].dataType, CLUSTERABLE)][:4]
    if clustered and all(schema.fieldNames().index(name) < 32 for name in clustered):
        statement += f" CLUSTER BY ({', '.join(map(quote, clustered))})"
    statement += f" TBLPROPERTIES ({', '.join(f'{text(name)} = {text(value)}' for name, value in merged.items())})"
    write(f"create table {address.label}", lambda: spark.sql(statement).collect())


def drop(spark: SparkSession, address: Address) -> None:
    """Remove a table that lakejoin maintains, if it exists."""
    if address.path:
        write(f"drop {address.label}", lambda: shutil.rmtree(address.path, ignore_errors=True))
    else:
        write(f"drop {address.label}", lambda: spark.sql(f"DROP TABLE IF EXISTS {address.sql}").collect())


def restore(spark: SparkSession, table: Table, version: int) -> None:
    """Restore a table that lakejoin maintains to an earlier version, in a separate commit."""
    statement = f"RESTORE TABLE {table.address.sql} TO VERSION AS OF {version}"
    write(f"restore {table.address.label}", lambda: spark.sql(statement).collect())
