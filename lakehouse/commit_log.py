"""Read single commits from the log of a table, if this process can access its files."""

import hashlib
import json
from pathlib import Path

from lakehouse.address import local_path
from lakehouse.commit_identity import CommitIdentity
from lakehouse.tables import Table


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Return the identity of the commit that made a version of a table, from the table's known commits and its log."""
    time = next((commit.at for commit in table.commits if commit.version == version), None)
    return CommitIdentity(time, _transaction(table, version))


def _transaction(table: Table, version: int) -> str:
    folder = local_path(table.location)
    if folder is None:
        return ""
    try:
        with Path(folder, "_delta_log", f"{version:020d}.json").open(encoding="utf-8") as actions:
            found = next((line for line in actions if line.startswith('{"commitInfo"')), "")
        known = json.loads(found)["commitInfo"].get("txnId") if found else None
        if found and known is None:  # not every writer records a transaction id
            known = hashlib.sha256(found.encode()).hexdigest()
        return str(known or "")
    except (OSError, ValueError):  # removed with old log entries, or not accessible to this process
        return ""
