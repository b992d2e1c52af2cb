"""What the log of a table says of single commits, where this process can read its files."""

import hashlib
import json
from pathlib import Path

from lakehouse.address import local_path
from lakehouse.commit_identity import CommitIdentity
from lakehouse.tables import Table


def commit_identity(table: Table, version: int) -> CommitIdentity:
    """Describe the commit that made a version of a table, as far as the known commits of the table and its log tell."""
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
        if found and known is None:  # not every writer names its transactions
            known = hashlib.sha256(found.encode()).hexdigest()
        return str(known or "")
    except (OSError, ValueError):  # removed with old versions of the log, or not where this process looks
        return ""
