"""Whether a table that lakejoin maintains is as its own epochs left it."""

from collections.abc import Collection

from lakehouse.errors.errors import ForeignWriter, Remedy
from lakehouse.publish.writes import TargetVersions
from lakehouse.session.engine import Engine
from lakehouse.tables.delta_log import UPKEEP_OPERATIONS, Commit
from lakehouse.tables.identity import commit_identity
from lakehouse.tables.table import Table, commits_since, with_commits_since

FENCED = "fenced"
"""The run, in the metadata of a commit without rows that uses up the transaction of an abandoned epoch."""


def run_of(commit: Commit) -> str:
    """Return the run that made a commit, without its slice; for a foreign commit, its metadata up to a slash."""
    return commit.metadata.partition("/")[0]


def check_owner(engine: Engine, table: Table, since: int, run_ids: Collection[str], join: str = "") -> list[Commit]:
    """
    Return the commits to a target after a version, oldest first; raise ForeignWriter if one that is not of these runs
    changed rows, columns or constraints. The join is named if the table has another name.
    """
    label = table.address.label
    commits = commits_since(engine, table, since)
    for commit in commits:
        if run_of(commit) not in {*run_ids, FENCED} and commit.operation not in UPKEEP_OPERATIONS:
            raise ForeignWriter(
                label,
                "a foreign write changed this table, which lakejoin maintains",
                expected=f"only lakejoin's own changes after version {since}",
                found=commit.described,
                hint=Remedy("inspect this commit, then {take over}", join or label),
            )
    return commits


def check_target(engine: Engine, table: Table, recorded: TargetVersions, run_ids: Collection[str], join: str) -> None:
    """
    Check that a target is as the last epoch recorded it.

    Raises:
        ForeignWriter: The recorded version is another commit now, because the table was restored from a copy of its
            files, or a foreign write changed it after this version.
        CannotContinue: The table has fewer versions than the last epoch recorded.
    """
    check_history(engine, table, recorded, join)
    check_owner(engine, table, recorded.newest, run_ids, join)


def check_history(engine: Engine, table: Table, recorded: TargetVersions, join: str) -> None:
    """Raise ForeignWriter if the version that an epoch recorded, before or after its write, is another commit now."""
    table = with_commits_since(engine, table, recorded.newest)
    if commit_identity(table, recorded.newest).contradicts(recorded.commit):
        raise ForeignWriter(
            table.address.label,
            "this table, which lakejoin maintains, was put back from a copy, or its log was changed",
            expected=f"the commit of version {recorded.newest} that the last epoch recorded",
            found="another commit with this version",
            hint=Remedy("{take over}", join),
        )
