"""Read single commits and application transactions from the log of a table, if its files can be read."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.errors.address import Address, local_path
from lakehouse.session.engine import Engine
from lakehouse.tables.delta_log import commit_info, commit_line, open_log
from lakehouse.tables.table import Table, find, table_detail, with_commits_since
from lakehouse.values.recorded import UNKNOWN, CommitIdentity

IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
"""The table property by which commits record their times themselves."""

_TRANSACTION = StructType([StructField("appId", StringType()), StructField("version", LongType())])
_LOG = StructType([StructField("txn", _TRANSACTION)])
_FILES = (("json", "*.json"), ("parquet", "*.checkpoint*.parquet"))
"""The files of a log with transactions, by format: commits, and checkpoints other than those in JSON."""


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Return the identity of the commit that made a version of a table, from the table's known commits and its log."""
    time = next((commit.at for commit in table.commits if commit.version == version), None)
    return CommitIdentity(time, _transaction_in(table.location, version))


def identity_at(engine: Engine, address: Address, version: int) -> CommitIdentity:
    """
    Return the identity of the commit that made a version of a table that may have changed since it was looked up.

    The transaction tells commits of a table on this machine apart; for a table in a catalog one query finds out where
    it lies. Only a table elsewhere whose log itself records times is looked up again as a whole.
    """
    transaction = _transaction_in(address.path, version)
    if transaction:
        return CommitIdentity(None, transaction)
    detail = table_detail(engine.spark, address)
    if detail is None:
        return UNKNOWN
    transaction = _transaction_in(detail["location"] or "", version)
    if transaction or not _keeps_times(detail["properties"]):
        return CommitIdentity(None, transaction)
    table = find(engine, address)
    return UNKNOWN if table is None else target_identity(with_commits_since(engine, table, version), version)


def target_identity(table: Table, version: int) -> CommitIdentity:
    """
    Return the identity of a commit of a table of ours. Its time counts only if the log itself records it: the times of
    files change when a whole lake is copied.
    """
    identity = commit_identity(table, version)
    return identity if _keeps_times(table.properties) else replace(identity, time=None)


def _keeps_times(properties: Mapping[str, str]) -> bool:
    return properties.get(IN_COMMIT_TIMES, "false").lower() == "true"


def _transaction_in(location: str, version: int) -> str:
    folder = local_path(location) if location else None
    if folder is None:
        return ""
    line = commit_line(Path(folder), version)
    known = commit_info(line).get("txnId")
    if line and known is None:  # not every writer records a transaction id
        known = hashlib.sha256(line.encode()).hexdigest()
    return str(known or "")


def last_transaction(engine: Engine, address: Address, application: str) -> int | None:
    """
    Return the newest version that an application wrote to a table under its own id; None if the table has none, does
    not exist, or lies where the files of its log cannot be read.
    """
    log, why = open_log(engine, address)
    if log is not None:
        return log.table.transaction_version(application)
    table = find(engine, address) if why else None
    if table is None or not table.location:
        return None
    found = [_newest(engine, f"{table.location}/_delta_log/{files}", kind, application) for kind, files in _FILES]
    return max((version for version in found if version is not None), default=None)


def _newest(engine: Engine, files: str, kind: str, application: str) -> int | None:
    try:
        actions = engine.spark.read.schema(_LOG).format(kind).load(files)
        newest = actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0][0]
    except PySparkException:  # no such file, or none that the session may read: a catalog may hide the folder
        return None
    return None if newest is None else int(newest)
