"""Read single commits from the log of a table, if this process can access its files."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lakehouse.errors.address import Address, local_path
from lakehouse.session.engine import Engine
from lakehouse.tables.delta_log import commit_info, commit_line
from lakehouse.tables.table import Table, find, table_detail, with_commits_since
from lakehouse.values.commit_identity import UNKNOWN, CommitIdentity

IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
"""The table property by which commits record their times themselves."""


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Return the identity of the commit that made a version of a table, from the table's known commits and its log."""
    time = next((commit.at for commit in table.commits if commit.version == version), None)
    return CommitIdentity(time, _transaction(table, version))


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
    Return the identity of a commit of a table of ours.

    Its time counts only if the log itself records it: the times of files change when a whole lake is copied.
    """
    identity = commit_identity(table, version)
    return identity if _keeps_times(table.properties) else replace(identity, time=None)


def _keeps_times(properties: Mapping[str, str]) -> bool:
    return properties.get(IN_COMMIT_TIMES, "false").lower() == "true"


def _transaction(table: Table, version: int) -> str:
    return _transaction_in(table.location, version)


def _transaction_in(location: str, version: int) -> str:
    folder = local_path(location) if location else None
    if folder is None:
        return ""
    line = commit_line(Path(folder), version)
    known = commit_info(line).get("txnId")
    if line and known is None:  # not every writer records a transaction id
        known = hashlib.sha256(line.encode()).hexdigest()
    return str(known or "")
