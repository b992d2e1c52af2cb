"""Delta tables by name or by path: what one is now, what it was at a version, and its creation."""

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
"""Operations that leave every row as it is. Any other name in a table's history may have changed rows."""

UPKEEP_OPERATIONS = frozenset(
    {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CLUSTER BY"}
    | {"UPGRADE PROTOCOL", "REORG", "COMPUTE STATS"}
)
"""Operations that anyone may run on a table that lakejoin keeps: neither rows, nor columns, nor constraints change."""

ROWS_CHANGED = {
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "STREAMING UPDATE Append": ("numOutputRows",),
    "WRITE Append": ("numOutputRows",),
}
"""The metrics that say how many rows a commit changed, by operation."""

BYTES_ADDED = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
"""The metrics that say how many bytes a commit's new files have: a commit has one of them."""

PARAMETERS = ("oldColumnPath", "newColumnPath", "columns", "version", "properties")
"""The parameters that tell which column is which after operations on columns and RESTORE, and the properties set."""


SPECIAL_IN_COLUMN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Table:
    """
    A Delta table at its newest version.

    Args:
        address: Where it lies.
        id: Delta's table id, new for each creation.
        version: Newest version.
        schema: Its columns.
        properties: Its table properties.
        commits: Its newest commits, newest first; `commits_since` reads more where these do not reach.
        size: Bytes of its files.
        where: Spark SQL that tells which of its rows are there for a reader; all of them where it is empty.
        location: The folder that it lies in, as a URI.
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
        """Tell whether commits record their changes from now on."""
        return self.properties.get(CHANGE_FEED, "false").lower() == "true"


@dataclass(frozen=True)
class Commit:
    """
    One commit of a table's history.

    Args:
        version: Its version.
        at: Its time, UTC.
        operation: What it did, as Delta names it.
        metadata: What the writer attached.
        metrics: The counts of the operation.
        mode: The mode of a write.
        parameters: Those parameters of the operation that show what became of columns and properties; see `PARAMETERS`.
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
        """Tell whether rows may have changed."""
        return self.operation not in DATA_FREE_OPERATIONS

    @property
    def changed_rows(self) -> int | None:
        """How many rows the writer says that it changed; None where it does not say. A hint, never relied upon."""
        names = ROWS_CHANGED.get(f"{self.operation} {self.mode}".rstrip(), ())
        if not names or not all(self.metrics.get(name, "").isdecimal() for name in names):
            return None
        return sum(int(self.metrics[name]) for name in names)

    @property
    def only_adds(self) -> bool:
        """Tell whether it is known to add rows and do nothing else."""
        counts = {name: self.metrics.get(f"numTargetRows{name}") for name in ("Updated", "Deleted")}
        is_insert = self.operation == "MERGE" and set(counts.values()) == {"0"}
        return is_insert or f"{self.operation} {self.mode}" in ("WRITE Append", "STREAMING UPDATE Append")

    @property
    def added_bytes(self) -> int:
        """How many bytes its new files have; 0 where the writer does not say."""
        return next((int(self.metrics[name]) for name in BYTES_ADDED if self.metrics.get(name, "").isdecimal()), 0)


def find(spark: SparkSession, address: Address) -> Table | None:
    """Look a table up as it is now; None where there is no Delta table."""
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
    """Give what DESCRIBE DETAIL says of a table; None where there is no Delta table."""
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
                hint="name the table that the view reads, and write what the view computes into a join's statement",
            ) from error
        raise
    if detail["format"] != "delta":
        raise LakejoinError(
            address.label,
            "it is no Delta table, and only these have a change feed",
            expected="a Delta table",
            found=f"{address.path or address.table} in format {detail['format']}",
            hint=f"CONVERT TO DELTA {address.sql}, or name another table in the pipeline file"
            if detail["format"] == "parquet"
            else "copy it into a Delta table, and name that in the pipeline file",
        )
    return detail


def get(spark: SparkSession, address: Address) -> Table:
    """
    Look up a table that has to be there.

    Raises:
        LakejoinError: There is no Delta table at the address.
    """
    table = find(spark, address)
    if table is None:
        raise LakejoinError(
            address.label,
            "there is no such Delta table",
            expected=f"a Delta table at {address.path or address.table}",
            hint="create it, or correct `table:` or `path:` in the pipeline file",
        )
    return table


def refresh(spark: SparkSession, table: Table) -> Table:
    """Look at a table's newest version and commits again, the cheapest look there is."""
    commits = tuple(history(spark, table.address, limits.COMMITS_AT_ONCE))
    return replace(table, version=commits[0].version, commits=commits)


def read(spark: SparkSession, address: Address, version: int) -> DataFrame:
    """Read a table as it was at a version."""
    return spark.sql(f"SELECT * FROM {address.sql} VERSION AS OF {version}")


def read_rows(spark: SparkSession, table: Table, version: int) -> DataFrame:
    """Read the rows of a table that count for a reader, as they were at a version; CHAR columns as padded text."""
    rows = read(spark, table.address, version)
    return as_text(rows.where(table.where) if table.where else rows, table.schema)


def read_changes(spark: SparkSession, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
    """Read the change feed of a table as `read_feed` does; CHAR columns as padded text, as `read_rows` reads them."""
    return as_text(read_feed(spark, table.address, after, to, columns, table.where), table.schema)


def as_text(rows: DataFrame, schema: StructType) -> DataFrame:
    """
    Make CHAR columns the plain padded text that they hold.

    Spark compares a column with CHAR metadata otherwise than its text, and the metadata is lost on some ways through a
    plan: without it from the start, every way compares alike.

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
    """Give the newest commits of a table, newest first."""
    mode = F.expr("coalesce(operationParameters['mode'], operationParameters['outputMode'])")
    parameters = F.array(*(F.col("operationParameters")[name] for name in PARAMETERS))
    rows = spark.sql(f"DESCRIBE HISTORY {address.sql} LIMIT {limit}").select(
        "version", "timestamp", "operation", "userMetadata", "operationMetrics", mode, parameters
    )
    commits = (
        Commit(row[0], utc(row[1]), row[2] or "", row[3] or "", dict(row[4] or {}), row[5] or "", _given(row[6]))
        for row in rows.collect()
    )
    return sorted(commits, key=lambda commit: commit.version, reverse=True)


def _given(values: Sequence[str | None]) -> dict[str, str]:
    return {name: value for name, value in zip(PARAMETERS, values, strict=True) if value is not None}


def commits_since(spark: SparkSession, table: Table, version: int) -> list[Commit]:
    """
    Give the commits after a version up to the one that the table is pinned to, oldest first.

    Raises:
        FeedUnavailable: A commit of the range is missing from the log. The feed would skip it in silence.
        CannotContinue: The table's newest version lies before the recorded one.
    """
    label, newest = table.address.label, table.version
    if newest < version:
        raise CannotContinue(
            label,
            "its newest version lies before the recorded one",
            expected=f"version {version} or later",
            found=f"version {newest}",
            hint=reconcile_hint(),
        )
    known = reaching(spark, table, version).commits
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


def reaching(spark: SparkSession, table: Table, version: int) -> Table:
    """Give a table with its commits from a version on, as far as they are still in its log."""
    known = table.commits
    if known[-1].version <= version or len(known) < limits.COMMITS_AT_ONCE:
        return table
    # Later commits may have come since the table was pinned: some more than the range are asked for.
    return replace(
        table, commits=tuple(history(spark, table.address, known[0].version - version + limits.COMMITS_AT_ONCE))
    )


def at_rest(spark: SparkSession, table: Table, version: int) -> Table:
    """
    Pin a table to a version or, where only commits without data follow it, to the last of these.

    The rows are the same, and old versions are readable for a time only.
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
    Create an empty table that lakejoin keeps, unless it is there, with deletion vectors on.

    Column mapping is switched on only where a column's name needs it, for other readers of the feed may not know it.

    Args:
        spark: Our session.
        address: Where to.
        schema: The columns, the key first.
        key: The columns to cluster by; those without statistics are passed over, four at most are taken.
        feed: Whether its change feed is on.
        properties: Table properties that it has besides.
    """
    given = {
        CHANGE_FEED: str(feed).lower(),
        "delta.enableDeletionVectors": "true",
        **TABLE_PROPERTIES,
        **(properties or {}),
    }
    if any(SPECIAL_IN_COLUMN_NAMES.search(name) for name in names_in(schema)):
        given["delta.columnMapping.mode"] = "name"
    columns = ", ".join(f"{quote(field.name)} {type_sql(field.dataType)}" for field in schema)
    statement = f"CREATE TABLE IF NOT EXISTS {address.sql} ({columns}) USING delta"
    clustered = [name for name in key if isinstance(schema[name].dataType, CLUSTERABLE)][:4]
    if clustered and all(schema.fieldNames().index(name) < 32 for name in clustered):
        statement += f" CLUSTER BY ({', '.join(map(quote, clustered))})"
    statement += f" TBLPROPERTIES ({', '.join(f'{text(name)} = {text(value)}' for name, value in given.items())})"
    write(f"create table {address.label}", lambda: spark.sql(statement).collect())


def drop(spark: SparkSession, address: Address) -> None:
    """Remove a table that lakejoin keeps, if it is there."""
    if address.path:
        write(f"drop {address.label}", lambda: shutil.rmtree(address.path, ignore_errors=True))
    else:
        write(f"drop {address.label}", lambda: spark.sql(f"DROP TABLE IF EXISTS {address.sql}").collect())


def restore(spark: SparkSession, table: Table, version: int) -> None:
    """Bring a table that lakejoin keeps back to an earlier version, as a commit of its own."""
    statement = f"RESTORE TABLE {table.address.sql} TO VERSION AS OF {version}"
    write(f"restore {table.address.label}", lambda: spark.sql(statement).collect())
