"""
The ledger's table, read and appended to by delta-rs where it may, else by Spark.

Both read a query in SQL that both understand, and return plain values. delta-rs appends without a Spark job; because it
does not look at application transactions by itself, the look at the transaction and the commit happen under one lock,
and a commit that meets another one fails instead of moving behind it.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.errors.conditions import is_conflict, is_missing
from lakehouse.ledger.ledger_rows import SCHEMA
from lakehouse.session.engine import Engine
from lakehouse.session.session import INTERPRETED, settings
from lakehouse.session.writing import write
from lakehouse.tables.commits import Commit
from lakehouse.tables.creation import create
from lakehouse.tables.delta_log import Log, open_log
from lakehouse.tables.table import history, table_detail
from lakehouse.values.sqltext import text

log = logging.getLogger(__name__)

ATTEMPTS = 5

COMPACTED = {"delta.autoOptimize.autoCompact": "true"}
"""Each step adds a file, and every run reads all files: Spark compacts fifty files into one."""

WRITABLE_FEATURES = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "invariants"})
"""The features of the tables to which delta-rs may append: those of a ledger as lakejoin creates it."""

HIGHEST_PLAIN_WRITER = 4
"""The highest version of a writer's protocol without a list of features."""


class LedgerTable:
    """The table of one ledger."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self._engine = engine
        self._address = address

    def get_or_create(self) -> tuple[str, Mapping[str, str]]:
        """Return the id and the properties of the table; create it if it does not exist."""
        known = self._facts()
        if known is None:
            create(self._engine.spark, self._address, SCHEMA, (), properties=COMPACTED)
            known = self._facts()
        assert known is not None
        return known

    def _facts(self) -> tuple[str, Mapping[str, str]] | None:
        opened, why = open_log(self._engine, self._address)
        if opened is not None:
            return opened.id, opened.properties
        detail = table_detail(self._engine.spark, self._address) if why else None
        return None if detail is None else (str(detail["id"]), dict(detail["properties"]))

    def rows(
        self, condition: str, names: Mapping[str, str], newest: int | None = None, *, of_each: bool = False
    ) -> list[dict[str, Any]]:
        """
        Read rows by column, with maps as dicts; none if the table does not exist.

        Args:
            condition: An SQL condition, in which `{name}` stands for a text of `names`.
            newest: The number of rows to read, those of the highest epochs; all if None.
            of_each: Whether `newest` is the number of rows of each join.
        """
        opened, why = open_log(self._engine, self._address)
        if opened is not None:
            try:
                quoted = {name: "'" + value.replace("'", "''") + "'" for name, value in names.items()}
                return _read(opened, _query("ledger", condition.format_map(quoted), newest, of_each))
            except Exception as error:
                if not is_of_delta_rs(error):
                    raise
                log.debug("delta-rs cannot read the ledger: %s", error)
        elif not why:
            return []
        spark = self._engine.spark
        condition = condition.format_map({name: text(value) for name, value in names.items()})
        try:
            found = spark.sql(_query(self._address.sql, condition, newest, of_each)).collect()
        except PySparkException as error:
            if is_missing(error):
                return []
            raise
        return [row.asDict(recursive=True) for row in found]

    def append(self, what: str, row: Mapping[str, Any], transaction: tuple[str, int] | None, metadata: str) -> bool:
        """
        Append a row, at most once under the application id and version of a transaction, and return whether it is known
        to have been appended; Spark does not tell.
        """
        opened, _ = open_log(self._engine, self._address)
        if opened is not None and _is_writable(opened):
            return write(what, lambda: _append(opened, row, transaction, metadata), opened.location)
        self._append_by_spark(what, row, transaction, metadata)
        return False

    def commits(self) -> list[Commit]:
        """Return the newest commits, newest first."""
        return history(self._engine, self._address, limits.COMMITS_AT_ONCE)

    def _append_by_spark(
        self, what: str, row: Mapping[str, Any], transaction: tuple[str, int] | None, metadata: str
    ) -> None:
        spark, to = self._engine.spark, self._address
        # A ledger of an earlier version of lakejoin lacks newer columns.
        writer = _frame(spark, row).write.format("delta").mode("append").option("mergeSchema", "true")
        if transaction is not None:
            writer = writer.option("txnAppId", transaction[0]).option("txnVersion", str(transaction[1]))
        writer = writer.option("userMetadata", metadata)
        save = (lambda: writer.save(to.path)) if to.path else (lambda: writer.saveAsTable(to.table))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with settings(spark, INTERPRETED):
                    write(what, save, to.path)
                return
            except Exception as error:
                if "CONCURRENT_TRANSACTION" in str(error):
                    return  # another run appended the same step concurrently; the caller reads back whose row exists
                if not is_conflict(error) or attempt == ATTEMPTS:
                    raise


def _query(table: str, condition: str, newest: int | None, of_each: bool) -> str:
    rows = f"SELECT * FROM {table} WHERE {condition}"
    if newest is None:
        return rows
    if not of_each:
        return f"{rows} ORDER BY epoch DESC, at DESC LIMIT {newest}"
    place = "row_number() OVER (PARTITION BY join_name ORDER BY epoch DESC, at DESC)"
    return f"SELECT * FROM (SELECT *, {place} AS place FROM {table} WHERE {condition}) numbered WHERE place <= {newest}"


def _frame(spark: SparkSession, row: Mapping[str, Any]) -> DataFrame:
    """Build a frame of one row as a literal of the plan, from JSON: from rows it would start Python workers."""
    literal = F.lit(json.dumps(row, default=datetime.isoformat))
    return spark.sql("SELECT 1").select(F.from_json(literal, SCHEMA).alias("row")).select("row.*")


def _read(opened: Log, query: str) -> list[dict[str, Any]]:
    import pyarrow
    from deltalake import QueryBuilder

    found = QueryBuilder().register("ledger", opened.table).execute(query).read_all()
    rows: list[dict[str, Any]] = pyarrow.table(found).to_pylist(maps_as_pydicts="strict")
    return rows


def _is_writable(opened: Log) -> bool:
    protocol = opened.table.protocol()
    if protocol.writer_features is None:
        return bool(protocol.min_writer_version <= HIGHEST_PLAIN_WRITER)
    return WRITABLE_FEATURES.issuperset(protocol.writer_features)


def _append(opened: Log, row: Mapping[str, Any], transaction: tuple[str, int] | None, metadata: str) -> bool:
    """Append a row by delta-rs; return whether it was appended. The caller holds the lock of the table."""
    import pyarrow
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError
    from pyspark.sql.pandas.types import to_arrow_schema

    rows = pyarrow.Table.from_pylist([dict(row)], schema=to_arrow_schema(SCHEMA))
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata},
        max_commit_retries=0,
        app_transactions=None if transaction is None else [Transaction(*transaction)],
    )
    for attempt in range(1, ATTEMPTS + 1):
        table = DeltaTable(opened.folder)
        used = None if transaction is None else table.transaction_version(transaction[0])
        if transaction is not None and used is not None and used >= transaction[1]:
            return False
        try:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
            break
        except CommitFailedError:
            if attempt == ATTEMPTS:
                raise
    _compact(table)
    return True


def _compact(table: Any) -> None:
    """Compact the files of the ledger if they are many; another writer's commit does it later."""
    from deltalake.exceptions import CommitFailedError

    if len(table.file_uris()) > limits.LEDGER_FILES:
        try:
            table.optimize.compact()
        except CommitFailedError as error:
            log.debug("the ledger was not compacted: %s", error)


def is_of_delta_rs(error: Exception) -> bool:
    """Return whether delta-rs raised an error."""
    if "deltalake" not in sys.modules:
        return False
    from deltalake.exceptions import DeltaError

    return isinstance(error, DeltaError | OSError)
