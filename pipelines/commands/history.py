"""What the ledger of a join says: its newest epochs, their pace, its last gate and refusal. Read-only."""

from datetime import datetime
from itertools import pairwise
from statistics import median

from lakehouse.ledger.entries import (
    ABANDONED,
    ATTEMPTS,
    CLOSING,
    COMMITTED,
    PUBLISHING,
    REFUSED,
    REJECTED,
    REJECTED_LOAD,
    Entry,
    JoinHistory,
)
from pipelines.binding.workspace import Workspace
from pipelines.report import EpochReport, GateStatus, JoinHistoryReport
from pipelines.report.facts import in_order, in_seconds, moment


def history_of(workspace: Workspace, name: str, limit: int) -> JoinHistoryReport:
    """List the newest epochs of a join or of a changelog source, including attempts that were rejected or refused."""
    return newest(name, workspace.ledger.of(name), limit)


def newest(name: str, history: JoinHistory, limit: int) -> JoinHistoryReport:
    """
    List the newest epochs of a ledger, newest first, each at its last step.

    An attempt that was rejected or refused has its own row, below the later epoch with the same number.
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
        estimates=in_seconds(entry.estimates),
        message=entry.message,
    )


def _progress(entry: Entry) -> int:
    """Rank a step by its order within an epoch. Timestamps do not decide: the clocks of two machines may differ."""
    return 0 if entry.step == PUBLISHING else 2 if entry.step in CLOSING else 1


def _age(entry: Entry) -> tuple[int, bool, float]:
    assert entry.at is not None
    return entry.epoch, entry.step not in ATTEMPTS, entry.at.timestamp()


def seconds_between_runs(history: JoinHistory) -> float | None:
    """Return the median of the seconds from one recent epoch to the next; None with fewer than two epochs."""
    moments = sorted(entry.at for entry in history.recent if entry.step == COMMITTED and entry.at is not None)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments) if later > earlier]
    return median(gaps) if gaps else None


def refused_since(history: JoinHistory) -> str:
    """Return why runs are refused since the last committed epoch, and since when; empty if none was refused."""
    refused = [entry for entry in history.recent if entry.step == REFUSED and entry.epoch >= history.next_epoch]
    newest = max(refused, key=lambda entry: entry.at or datetime.min, default=None)
    return "" if newest is None or newest.at is None else f"{newest.reason} (since {moment(newest.at)})"


def last_gate(history: JoinHistory) -> GateStatus | None:
    """Return the outcome of the last gate: that of the newest attempt at the highest epoch with a gate."""
    gates = (gate for gate in map(_gate, history.recent) if gate is not None)
    return max(gates, key=lambda gate: (gate.epoch, gate.at), default=None)


def _gate(entry: Entry) -> GateStatus | None:
    """Return the gate that a row of the ledger reports; loads and overwrites are published before it, others after."""
    assert entry.at is not None
    if entry.step == COMMITTED or (entry.step == PUBLISHING and entry.strategy not in ("load", "overwrite")):
        warned = "; ".join(entry.message.splitlines())
        return GateStatus(passed=True, epoch=entry.epoch, at=entry.at, findings=warned)
    if entry.step == REJECTED or (entry.step == ABANDONED and entry.message.startswith(REJECTED_LOAD)):
        findings = entry.message.removeprefix(REJECTED_LOAD)
        return GateStatus(passed=False, epoch=entry.epoch, at=entry.at, findings=findings)
    return None
