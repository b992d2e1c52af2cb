"""Read single commits from the log of a table, if this process can access its files."""

import hashlib
from pathlib import Path

from lakehouse.address import local_path
from lakehouse.commit_identity import CommitIdentity
from lakehouse.delta_log import commit_info, commit_line
from lakehouse.tables import Table


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Return the identity of the commit that made a version of a table, from the table's known commits and its log."""
    time = next((commit.at for commit in table.commits if commit.version == version), None)
    return CommitIdentity(time, _transaction(table, version))


def _transaction(table: Table, version: int) -> str:
    folder = local_path(table.location)
    if folder is None:
        return ""
    line = commit_line(Path(folder), version)
    known = commit_info(line).get("txnId")
    if line and known is None:  # not every writer records a transaction id
        known = hashlib.sha256(line.encode()).hexdigest()
    return str(known or "")
