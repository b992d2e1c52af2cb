"""Compare the result of a join with what it should be."""

from lakehouse.errors.conditions import reading
from lakehouse.tables.table import get
from pipelines.binding.workspace import Workspace
from pipelines.commands.version_ranges import published_at
from pipelines.epochs.comparison import Published
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.targets import check_targets
from pipelines.plan.request import WrongOptions
from pipelines.report import JoinReport


def verify_join(
    workspace: Workspace, name: str, against: str = "", *, version: int | None = None, quick: bool = False
) -> JoinReport:
    """
    Recompute a join and compare it with its result; for a join with a stream replay the recorded epochs instead.

    Args:
        workspace: The workspace of the pipeline.
        name: The join.
        against: A table to compare instead of the result: its dotted name, or its path, which contains a slash and is
            relative to the pipeline file. It is compared with the join of the newest versions of the sources; so is a
            result without a committed epoch. Otherwise the newest version of the result is compared with the join of
            the sources at the versions of the last committed epoch; while an epoch is open, the version that it made.
        version: An earlier version of the result, which is compared with the join of the sources at the versions of the
            last epoch that it holds. Whether the newest version is as its last epoch left it is then not asked.
        quick: Whether to compare only the checksum of the newest version of the result with the checksum in the ledger,
            which reads no source; a success is recorded in the ledger.

    Returns:
        The report; `counts` has the rows expected, missing and surplus (both 0 if the table is correct) and, for a join
        with a stream, the epochs that were replayed; with `quick` only rows.

    Raises:
        Drifted: Rows differ; the message has the numbers and examples, with `quick` the checksums.
        ForeignWriter: The rows are right, but a table of the join is not as its last epoch left it.
        WrongOptions: Two of `against`, `version` and `quick` are given.
        BadRange: The version does not exist, or holds no whole epoch.
        LakejoinError: A table does not exist, or versions are no longer readable.
    """
    if bool(against) + (version is not None) + quick > 1:
        raise WrongOptions(name, "--against, --version and --quick exclude each other", hint="choose one of them")
    kind = kind_of(workspace, name)
    with kind.explaining_errors():
        if quick:
            return kind.verify_quickly()
        report = kind.verify(against, None if version is None else _published(workspace, name, version))
    if not against and version is None:
        check_targets(workspace, name, workspace.ledger.of(name))
    return report


def _published(workspace: Workspace, name: str, version: int) -> Published:
    with reading(name):
        return published_at(name, version, workspace.ledger.of(name), get(workspace.engine, workspace.table(name)))
