"""Which ranges of versions the change feed of a table is read in, and which commits it lacks."""

import json
from collections.abc import Sequence

from pyspark.sql import SparkSession

from lakehouse.feed import CHANGE_FEED
from lakehouse.tables import Commit, Table, commits_since

FEED_SPLITTING = frozenset({"RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"})
"""Operations that the feed is readable before and after, but not across, whichever columns are read (pitfall 18)."""


def feed_ranges(spark: SparkSession, table: Table, after: int, to: int) -> list[tuple[int, int]]:
    """
    Cut a range of versions at the commits across which its feed cannot be read.

    Args:
        spark: Our session; asked only where the range goes back beyond the commits that the table was found with.
        table: The table.
        after: Last version that is already accounted for.
        to: Last version to read.

    Returns:
        Ranges (after, to] in order. Ranges without data beside such a commit are left out.

    Raises:
        FeedUnavailable: A commit of the range is missing from the log.
    """
    parts: list[list[Commit]] = [[]]
    for commit in commits_since(spark, table, after):
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
    Find a commit whose changes the feed lacks, because it was off at that time.

    Args:
        commits: The commits after a version at which the feed was on, oldest first.

    Returns:
        The commit in words; empty if the feed lacks none, as far as the history tells.
    """
    off: Commit | None = None
    for commit in commits:
        turned = _turns_feed(commit)
        if turned is not None:
            off = None if turned else commit
        elif off is not None and commit.changes_data:
            return (
                f"its change feed was off for versions from {off.version} on: {commit.operation} in version "
                f"{commit.version} is not in it"
            )
    return ""


def _turns_feed(commit: Commit) -> bool | None:
    """Return whether a commit turns the change feed on; None where it leaves the feed as it is."""
    if commit.operation not in ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"):
        return None
    properties = json.loads(commit.parameters.get("properties", "[]"))
    named = next((name for name in properties if name.lower() == CHANGE_FEED.lower()), None)
    if named is None:
        return None
    return commit.operation == "SET TBLPROPERTIES" and str(properties[named]).lower() == "true"
