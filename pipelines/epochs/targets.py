"""Whether the tables of a join are as its last epoch left them: what every command that vouches for a result asks."""

from lakehouse.entries import CHANGELOG, STATE, JoinHistory
from lakehouse.errors import CannotContinue
from lakehouse.publish import check_target
from lakehouse.remedies import Remedy
from lakehouse.tables import find
from lakehouse.writes import TargetVersions
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import kind_of
from pipelines.plan.checks import check_is_still

_WHAT = {CHANGELOG: "the changelog", STATE: "the table of buffered rows"}


def check_targets(workspace: Workspace, name: str, history: JoinHistory) -> None:
    """
    Check that the newest versions of the tables of a join hold what its last epoch published, and nothing else.

    While an epoch is open nothing is checked: its recovery decides.

    Args:
        workspace: Where the tables are.
        name: The join, or the changelog source.
        history: Its ledger, read after nothing else: an epoch that was published meanwhile is in it.

    Raises:
        ForeignWriter: A table was dropped, replaced, put back from a copy, or changed by a foreign write.
        CannotContinue: A table has fewer versions than the last epoch recorded, or commits are missing from its log.
    """
    last = history.committed
    if last is None or history.open is not None:
        return
    kind = kind_of(workspace, name)
    with kind.explaining_errors():
        for target in last.targets:
            _check(workspace, name, history, target, is_state=target == last.state)


def fault_of_targets(workspace: Workspace, name: str, history: JoinHistory) -> CannotContinue | None:
    """Return the error of `check_targets`; None if the tables are as the last epoch left them."""
    try:
        check_targets(workspace, name, history)
    except CannotContinue as error:
        return error
    return None


def _check(workspace: Workspace, name: str, history: JoinHistory, target: TargetVersions, *, is_state: bool) -> None:
    # By its address in the pipeline file: the storage may have been moved since the epoch.
    address = workspace.table(target.address.label)
    table = find(workspace.engine, address)
    suffix = next((suffix for suffix in _WHAT if address.label == name + suffix), "")
    what = _WHAT.get(suffix, "the result table")
    hint = Remedy("{reconcile}", name)
    check_is_still(name, what, None if table is None else table.id, target.id, hint)
    assert table is not None
    check_target(workspace.engine, table, target, history.run_ids(with_abandoned=is_state), name)
