"""The newest epochs of a join, from its ledger. Read-only."""

from lakehouse.ledger.entries import ATTEMPTS, CLOSING, PUBLISHING, Entry, JoinHistory
from pipelines.binding.workspace import Workspace
from pipelines.report import EpochReport, JoinHistoryReport
from pipelines.report.wording import in_order


def history_of(workspace: Workspace, name: str, limit: int) -> JoinHistoryReport:
    """
    List the newest epochs of a join.

    Args:
        workspace: The workspace of the pipeline.
        name: The join, or a changelog source.
        limit: The maximal number of epochs, including attempts that were rejected or refused.
    """
    return newest(name, workspace.ledger.of(name), limit)


def newest(name: str, history: JoinHistory, limit: int) -> JoinHistoryReport:
    """
    List the newest epochs of a ledger, newest first, each at its last step.

    An attempt that was rejected or refused does not use up an epoch number: it has its own row, below the later epoch
    with this number.

    Args:
        name: The join.
        history: Its ledger.
        limit: The maximal number of rows.
    """
    attempts = [entry for entry in history.entries if entry.step in ATTEMPTS]
    epochs: dict[int, Entry] = {}
    for entry in history.entries:
        if entry.step not in ATTEMPTS:
            epochs[entry.epoch] = max(epochs.get(entry.epoch, entry), entry, key=_progress)
    listed = sorted([*attempts, *epochs.values()], key=_age, reverse=True)
    return JoinHistoryReport(join=name, epochs=tuple(map(_epoch_report, listed[:limit])), more=len(listed) > limit)


def _epoch_report(entry: Entry) -> EpochReport:
    assert entry.at is not None
    return EpochReport(
        epoch=entry.epoch,
        step=entry.step,
        at=entry.at,
        run_id=entry.run_id,
        strategy=entry.strategy,
        reason=entry.reason,
        sources=entry.sources,
        result_version=entry.result.version,
        counts=dict(entry.counts),
        seconds=dict(in_order(entry.seconds)),
        message=entry.message,
    )


def _progress(entry: Entry) -> int:
    """Rank a step by its order within an epoch. Timestamps do not decide: the clocks of two machines may differ."""
    return 0 if entry.step == PUBLISHING else 2 if entry.step in CLOSING else 1


def _age(entry: Entry) -> tuple[int, bool, float]:
    assert entry.at is not None
    return entry.epoch, entry.step not in ATTEMPTS, entry.at.timestamp()
