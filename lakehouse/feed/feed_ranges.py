"""The version ranges in which the change feed of a table is read, and the commits that the feed lacks."""

import json
from collections.abc import Sequence

from lakehouse.session.engine import Engine
from lakehouse.tables.commits import Commit
from lakehouse.tables.feed import CHANGE_FEED
from lakehouse.tables.table import Table, commits_since

FEED_SPLITTING = frozenset({"RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"})
"""Operations across which the feed of any column is not readable, only before and after them (pitfall 18)."""


def feed_ranges(engine: Engine, table: Table, after: int, to: int) -> list[tuple[int, int]]:
    """
    Split a version range at the commits across which the feed cannot be read, into ranges (after, to] in order. A split
    range omits its parts without data; a range without any data stays whole. The engine is used only if the range
    begins before the commits that `table` holds.

    Raises:
        FeedUnavailable: A commit of the range is missing from the log.
    """
    parts: list[list[Commit]] = [[]]
    for commit in commits_since(engine, table, after):
        if commit.version > to:
            break
        if commit.operation in FEED_SPLITTING or _turns_feed(commit) is not None:
            parts.append([])
        else:
            parts[-1].append(commit)
    with_data = [part for part in parts if any(commit.changes_data for commit in part)]
    if len(parts) == 1 or not with_data:
        return [(after, to)]
    return [(part[0].version - 1, part[-1].version) for part in with_data]


def unrecorded(commits: Sequence[Commit]) -> str:
    """
    Describe the first commit whose changes the feed lacks because it was off; return "" if the history shows none.

    Args:
        commits: The commits after a version at which the feed was on, oldest first.
    """
    off: Commit | None = None
    for commit in commits:
        turned = _turns_feed(commit)
        if turned is not None:
            off = None if turned else commit
        elif off is not None and commit.changes_data:
            return (
                f"its change feed was off from version {off.version} on, so it lacks {commit.operation} in version "
                f"{commit.version}"
            )
    return ""


def _turns_feed(commit: Commit) -> bool | None:
    """Return True if a commit turns the change feed on, False if it turns it off, None if it does neither."""
    if commit.operation not in ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"):
        return None
    properties = json.loads(commit.parameters.get("properties", "[]"))
    named = next((name for name in properties if name.lower() == CHANGE_FEED.lower()), None)
    if named is None:
        return None
    return commit.operation == "SET TBLPROPERTIES" and str(properties[named]).lower() == "true"
