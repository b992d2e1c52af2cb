"""Whether the tables of a join are as its last epoch left them: what every command that vouches for a result asks."""

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import CannotContinue, LakejoinError, Remedy
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.ownership import check_target
from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.table import Table, find
from lakehouse.values.recorded import CHANGELOG, STATE
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import kind_of
from pipelines.language import changelogs_of
from pipelines.plan.decide import check_is_still


def check_targets(workspace: Workspace, name: str, history: JoinHistory) -> list[Table]:
    """
    Check that the newest versions of the tables of a join hold what its last epoch published, and nothing else.

    While an epoch is open nothing is checked: its recovery decides. If an epoch was published since the ledger was
    read, the tables are checked against the ledger as it is now.

    Returns:
        The tables, in the order in which its last epoch wrote them; none before the first epoch, and while one is open.

    Raises:
        ForeignWriter: A table was dropped, replaced, put back from a copy, or changed by a foreign write.
        CannotContinue: A table has fewer versions than the last epoch recorded, or commits are missing from its log.
    """
    with kind_of(workspace, name).explaining_errors():
        while True:
            last = history.committed
            if last is None or history.open is not None:
                return []
            try:
                return [_checked(workspace, name, history, target) for target in last.targets]
            except CannotContinue:
                now = workspace.ledger.of(name)
                if now.open is None and now.committed == last:
                    raise
                history = now


def check_tables(workspace: Workspace, name: str, history: JoinHistory) -> None:
    """
    Check the tables of a join, and those of the changelog sources that it reads, as `check_targets` does.

    Raises:
        CannotContinue: As `check_targets`.
    """
    for source in changelogs_of(workspace.file, name):
        check_targets(workspace, source, workspace.ledger.of(source))
    check_targets(workspace, name, history)


def inspect_targets(workspace: Workspace, name: str, history: JoinHistory) -> tuple[list[Table], LakejoinError | None]:
    """Return what `check_targets` does, or why the tables are not as the last epoch left them, or cannot be read."""
    try:
        return check_targets(workspace, name, history), None
    except Exception as error:  # a log that is corrupt is a fault like others
        return [], as_known(error, name)


def _checked(workspace: Workspace, name: str, history: JoinHistory, target: TargetVersions) -> Table:
    # By its address in the pipeline file: the storage may have been moved since the epoch.
    address = workspace.table(target.address.label)
    table = find(workspace.engine, address)
    what, is_buffer = "the result table", False
    if address.label == name + CHANGELOG:
        what = "the changelog"
    elif address.label == name + STATE:
        is_buffer = name not in workspace.file.sources
        what = "the table of buffered rows" if is_buffer else "the KTable"
    hint = Remedy("{reconcile}", name)
    check_is_still(name, what, None if table is None else table.id, target.id, hint)
    assert table is not None
    check_target(workspace.engine, table, target, history.run_ids(with_abandoned=is_buffer), name)
    return table
