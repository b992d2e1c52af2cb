"""What has happened to a source since the last epoch, by its log: for the next plan, and for `status`."""

from dataclasses import dataclass

from lakehouse.errors.errors import CannotContinue, FeedUnavailable
from lakehouse.feed.feed import unrecorded
from lakehouse.session.engine import Engine
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.identity import changed_columns, commit_identity
from lakehouse.tables.table import Table, commits_since, with_commits_since
from lakehouse.values.recorded import SourceVersions


@dataclass(frozen=True, kw_only=True)
class Since:
    """
    What has happened to a table since the version that an epoch read; after the first that holds, the others are empty.

    Args:
        is_recreated: Whether it was dropped and created again.
        is_restored: Whether the version is another commit now: the table was put back from a copy, or its log changed.
        older: The error for a table that no longer has the version.
        missing: The error for a log without some commits since then.
        commits: The commits with data since then, oldest first.
        unrecorded: Why their feed lacks changes: it was off.
        changed: How columns that the epoch used have changed.
    """

    is_recreated: bool = False
    is_restored: bool = False
    older: CannotContinue | None = None
    missing: FeedUnavailable | None = None
    commits: tuple[Commit, ...] = ()
    unrecorded: str = ""
    changed: str = ""


def since(engine: Engine, table: Table, recorded: SourceVersions) -> Since:
    """Find what has happened to a pinned table since the recorded version."""
    if table.id != recorded.id:
        return Since(is_recreated=True)
    table = with_commits_since(engine, table, recorded.to_version)
    if commit_identity(table, recorded.to_version).contradicts(recorded.commit):
        return Since(is_restored=True)
    try:
        commits = commits_since(engine, table, recorded.to_version)
    except FeedUnavailable as error:
        return Since(missing=error)
    except CannotContinue as error:
        return Since(older=error)
    with_data = tuple(commit for commit in commits if commit.changes_data)
    return Since(
        commits=with_data,
        unrecorded=unrecorded(commits) if with_data else "",
        changed=changed_columns(engine, table, recorded, commits),
    )
