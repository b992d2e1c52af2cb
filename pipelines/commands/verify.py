"""Compare the result of a join with what it should be."""

from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.targets import check_targets
from pipelines.report import JoinReport


def verify_join(workspace: Workspace, name: str, against: str = "", *, quick: bool = False) -> JoinReport:
    """
    Recompute a join and compare it with its result; for a join with a stream replay the recorded epochs instead.

    Args:
        workspace: The workspace of the pipeline.
        name: The join.
        against: A table to compare instead of the result: its dotted name, or its path, which contains a slash and is
            relative to the pipeline file. It is compared with the join of the newest versions of the sources; so is a
            result without a committed epoch. Otherwise the newest version of the result is compared with the join of
            the sources at the versions of the last committed epoch; while an epoch is open, the version that it made.
        quick: Whether to compare only the checksum of the newest version of the result with the checksum in the ledger,
            which reads no source; a success is recorded in the ledger.

    Returns:
        The report; `counts` has the rows expected, missing and surplus (both 0 if the table is correct) and, for a join
        with a stream, the epochs that were replayed; with `quick` only rows.

    Raises:
        Drifted: Rows differ; the message has the numbers and examples, with `quick` the checksums.
        ForeignWriter: The rows are right, but a table of the join is not as its last epoch left it.
        LakejoinError: A table does not exist, or versions are no longer readable.
    """
    kind = kind_of(workspace, name)
    with kind.explaining_errors():
        report = kind.verify_quickly() if quick else kind.verify(against)
    if not against and not quick:
        check_targets(workspace, name, workspace.ledger.of(name))
    return report
