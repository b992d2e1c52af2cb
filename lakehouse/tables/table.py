"""Delta tables by name or by path: their current state, their commits, their rows at a version and their feeds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import reduce
from itertools import takewhile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse import limits
from lakehouse.errors.conditions import is_missing, is_view
from lakehouse.errors.errors import CannotContinue, FeedUnavailable, LakejoinError, Remedy
from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from lakehouse.tables.delta_log import PARAMETERS, UNADJUSTED_COMMITS, Commit, Log, open_log
from lakehouse.values.compare import char_type, plain_schema
from lakehouse.values.recorded import utc
from lakehouse.values.sqltext import Address, quote

KEY, NULLABLE_KEY = "lakejoin.key", "lakejoin.nullableKey"
"""The table properties of a result: its key columns as a JSON array, and whether parts of the key may be null."""

CLUSTER_BY = "lakejoin.clusterBy"
"""The table property of a result with the columns that `cluster_by` names, as a JSON array."""

UNSETTLED = "null"
"""The value of this property while the layout of the result is changed."""

CHANGE_FEED = "delta.enableChangeDataFeed"
"""The table property with which commits record their changes."""

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that a feed adds to the columns of its table."""

DELTA_RS = "delta-rs"
"""The reader of a log that Spark does not read."""


@dataclass(frozen=True)
class Table:
    """
    A Delta table at its newest version.

    Args:
        id: Delta's table id, a new one for each creation.
        commits: Its newest commits, newest first; `commits_since` reads earlier ones on demand.
        size: The total bytes of its files.
        where: A Spark SQL predicate for the rows that exist for a reader; empty for all rows.
        location: Its folder, as a URI.
        reader: What read its log: `delta-rs`, or `spark` with the reason.
        files: How the files of its log are reached.
        rows: About how many rows its files hold, if their statistics say it and delta-rs read its log.
    """

    address: Address
    id: str
    version: int
    schema: StructType
    properties: Mapping[str, str]
    _: KW_ONLY
    commits: tuple[Commit, ...] = ()
    size: int = 0
    where: str = ""
    location: str = ""
    reader: str = ""
    rows: int | None = None
    files: Files = field(default_factory=Files, compare=False, repr=False)

    @property
    def says_nullable_key(self) -> bool:
        """Whether its properties say that parts of its key may be null."""
        return self.properties.get(NULLABLE_KEY, "false").lower() == "true"

    @property
    def nullable_key(self) -> tuple[str, ...]:
        """The key of a result of lakejoin of whose rows some lack a part of it; empty for any other table."""
        return self.key if self.says_nullable_key else ()

    @property
    def key(self) -> tuple[str, ...]:
        """The key of a result of lakejoin by its properties; `LakejoinError` if they do not name it."""
        written = self.properties.get(KEY, "")
        key = _names(written)
        if key is not None:
            return key
        raise LakejoinError(
            self.address.label,
            f"its table property {KEY} does not name the key",
            expected='a JSON array of column names, such as ["id"]',
            found=written,
            hint=f"set it anew by ALTER TABLE {self.address.sql} SET TBLPROPERTIES, or unset it and {NULLABLE_KEY}",
        )

    @property
    def clustered_by(self) -> tuple[str, ...] | None:
        """
        The columns other than its key by which a result of lakejoin is laid out; empty if it is by its key, None if
        its layout was about to change.
        """
        names = _names(self.properties.get(CLUSTER_BY, "[]"))
        return names if names is not None and set(names).issubset(self.schema.fieldNames()) else None

    @property
    def feed_on(self) -> bool:
        """Whether new commits record their changes."""
        return self.properties.get(CHANGE_FEED, "false").lower() == "true"


def _names(written: str) -> tuple[str, ...] | None:
    """Return the column names in a table property, a JSON array; None if it is anything else."""
    with suppress(ValueError):
        names = json.loads(written)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    return None


def cluster_properties(columns: Sequence[str]) -> dict[str, str]:
    """Return the table property by which a result is known to be laid out by some columns, or by its key if none."""
    return {CLUSTER_BY: json.dumps(list(columns), ensure_ascii=False)}


def key_properties(key: Sequence[str], *, may_be_absent: bool) -> dict[str, str]:
    """Return the table properties by which a reader of a result knows its key, and whether parts of it may be null."""
    return {KEY: json.dumps(list(key), ensure_ascii=False), NULLABLE_KEY: str(may_be_absent).lower()}


def find(engine: Engine, address: Address) -> Table | None:
    """Look up the current state of a table; return None if no Delta table exists."""
    log, why = open_log(engine, address)
    if log is not None:
        return _of_log(address, log)
    detail = table_detail(engine.spark, address) if why else None
    if detail is None:
        return None
    commits = tuple(_spark_history(engine.spark, address, limits.COMMITS_AT_ONCE))
    version = commits[0].version
    return Table(
        address,
        detail["id"],
        version,
        read(engine.spark, address, version).schema,
        dict(detail["properties"]),
        commits=commits,
        size=detail["sizeInBytes"] or 0,
        location=detail["location"] or "",
        reader=f"spark ({why})",
        files=engine.files,
    )


def _of_log(address: Address, log: Log) -> Table:
    return Table(
        address,
        log.id,
        log.version,
        log.schema,
        log.properties,
        commits=tuple(log.commits(limits.COMMITS_AT_ONCE)),
        size=log.size,
        location=log.location,
        reader=DELTA_RS,
        rows=log.rows,
        files=log.files,
    )


def table_detail(spark: SparkSession, address: Address) -> Row | None:
    """Return DESCRIBE DETAIL of a table, None if none exists; raise LakejoinError for a view or another format."""
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


def logged_size(engine: Engine, address: Address) -> int | None:
    """Return the bytes of a table from its log, 0 if none exists; None if only Spark can read the log."""
    log, why = open_log(engine, address)
    if log is None:
        return None if why else 0
    return log.size


def has_no_null(engine: Engine, table: Table, columns: Iterable[str]) -> bool:
    """Return whether columns have no null at the pinned version, if that is the newest and its statistics say it."""
    log, _ = open_log(engine, table.address)
    return log is not None and (log.id, log.version) == (table.id, table.version) and log.has_no_null(columns)


def get(engine: Engine, address: Address) -> Table:
    """Look up a table; raise LakejoinError if no Delta table exists at the address."""
    table = find(engine, address)
    if table is None:
        raise LakejoinError(
            address.label,
            "the Delta table does not exist",
            expected=f"a Delta table at {address.path or address.table}",
            hint="create it, or correct `table:` or `path:` in the pipeline file",
        )
    return table


def refresh(engine: Engine, table: Table) -> Table:
    """Return a source as it is now, by the cheapest look-up."""
    log, _ = open_log(engine, table.address)
    if log is not None:
        return _of_log(table.address, log)
    newest = _spark_history(engine.spark, table.address, 1)[0].version
    return table if newest == table.version else get(engine, table.address)


def read(spark: SparkSession, address: Address, version: int) -> DataFrame:
    """Read a table at a version."""
    return spark.sql(f"SELECT * FROM {address.sql} VERSION AS OF {version}")


def read_rows(spark: SparkSession, table: Table, version: int) -> DataFrame:
    """Read the rows of a table that exist for a reader, at a version, with CHAR columns as padded text."""
    rows = read(spark, table.address, version)
    return _as_text(rows.where(table.where) if table.where else rows, table.schema)


def read_feed(
    spark: SparkSession, address: Address, after: int, to: int, columns: Sequence[str], where: str = ""
) -> DataFrame:
    """
    Read the feed of versions (after, to], which exist and are not empty: the columns, then those of `FEED_COLUMNS`.

    The predicate of `Table.where` applies to each image: an update from a row that exists for a reader to a row that
    does not then counts as a delete.
    """
    chunks = []
    for first in range(after + 1, to + 1, limits.VERSIONS_PER_READ):
        last = min(first + limits.VERSIONS_PER_READ - 1, to)
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        # Delta silently clamps a later version than the newest.
        reader = reader.option("startingVersion", first).option("endingVersion", last)
        chunk = reader.load(address.path) if address.path else reader.table(address.table)
        chunk = chunk.where(where) if where else chunk
        chunks.append(chunk.selectExpr(*map(quote, (*columns, *FEED_COLUMNS))))
    return reduce(DataFrame.unionAll, chunks)


def read_changes(spark: SparkSession, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
    """Read the change feed of a table like `read_feed`, with CHAR columns as padded text like `read_rows`."""
    return _as_text(read_feed(spark, table.address, after, to, columns, table.where), table.schema)


def _as_text(rows: DataFrame, schema: StructType) -> DataFrame:
    """
    Convert CHAR columns to the plain padded text that they contain: Spark compares a column with CHAR metadata
    differently from its text, and some plans lose the metadata.
    """
    padded = {field.name for field in schema if char_type(field) is not None}
    if padded.isdisjoint(rows.columns):
        return rows
    plain = {field.name: field.dataType for field in plain_schema(schema.fields)}
    columns = ((name, F.col(quote(name))) for name in rows.columns)
    return rows.select(
        *(column.cast(plain[name]).alias(name) if name in padded else column for name, column in columns)
    )


def history(engine: Engine, address: Address, limit: int) -> list[Commit]:
    """Return the newest commits of a table, newest first."""
    log, _ = open_log(engine, address)
    return _spark_history(engine.spark, address, limit) if log is None else log.commits(limit)


def _spark_history(spark: SparkSession, address: Address, limit: int) -> list[Commit]:
    """Return the newest commits as Spark lists them, with those before from which it adjusts their times."""
    mode = F.expr("coalesce(operationParameters['mode'], operationParameters['outputMode'])")
    parameters = F.array(*(F.col("operationParameters")[name] for name in PARAMETERS))
    rows = spark.sql(f"DESCRIBE HISTORY {address.sql} LIMIT {limit + UNADJUSTED_COMMITS}").select(
        "version", "timestamp", "operation", "userMetadata", "operationMetrics", mode, parameters, "userName"
    )
    commits = (
        Commit(
            row[0],
            utc(row[1]),
            row[2] or "",
            row[3] or "",
            dict(row[4] or {}),
            mode=row[5] or "",
            parameters={name: value for name, value in zip(PARAMETERS, row[6], strict=True) if value is not None},
            user=row[7] or "",
        )
        for row in rows.collect()
    )
    listed = sorted(commits, key=lambda commit: commit.version, reverse=True)
    return [commit for commit in listed if commit.version > listed[0].version - limit]


def commits_since(engine: Engine, table: Table, version: int) -> list[Commit]:
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
            hint=Remedy("{reconcile}"),
        )
    listed = with_commits_since(engine, table, version).commits
    commits = [commit for commit in reversed(listed) if version < commit.version <= newest]
    missing = sorted(set(range(version + 1, newest + 1)) - {commit.version for commit in commits})
    if missing:
        raise FeedUnavailable(
            label,
            "commits are missing from its log",
            expected=f"versions {version + 1} to {newest} without a gap",
            found=f"no version {', '.join(map(str, missing[:5]))}",
            hint=Remedy("{reconcile}"),
        )
    return commits


def with_commits_since(engine: Engine, table: Table, version: int) -> Table:
    """Return a table with its commits since a version, as far as its log still has them."""
    commits = table.commits
    if commits[-1].version <= version or len(commits) < limits.COMMITS_AT_ONCE:
        return table
    newest = commits[0].version
    while True:
        # Later commits may exist since the table was pinned, so ask for more commits than the range.
        commits = tuple(history(engine, table.address, newest - version + limits.COMMITS_AT_ONCE))
        if commits[-1].version <= version or commits[0].version <= newest:
            return replace(table, commits=commits)
        newest = commits[0].version


def at_rest(engine: Engine, table: Table, version: int) -> Table:
    """
    Pin a table to a version or, since old ones stay readable for a limited time, to the last of the commits without
    data that follow it directly.
    """
    later = commits_since(engine, table, version)
    quiet = [commit.version for commit in takewhile(lambda commit: not commit.changes_data, later)]
    return replace(table, version=max(quiet, default=version))
