"""Ledgers of a join as values, for tests that need no table."""

from datetime import UTC, datetime, timedelta
from typing import Any

from lakehouse.ledger.entries import COMMITTED, Entry, JoinHistory, Step
from lakehouse.publish.writes import Merge, TargetVersions
from lakehouse.values.recorded import SourceVersions
from lakehouse.values.sqltext import Address

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = 3_600


def at(hours: float) -> datetime:
    """Give the time so many hours after the start of the ledger."""
    return START + timedelta(hours=hours)


def entry(epoch: int, step: Step = COMMITTED, hours: float = 0, **fields: Any) -> Entry:
    """Make a row of the ledger of `result`, which reads `left` and `right`, up to version 5 + epoch."""
    strategy = fields.pop("strategy", "load" if epoch == 1 else "incremental")
    version = epoch if step == COMMITTED else None
    target = TargetVersions(Address("result", path="/lake/result"), "result-id", epoch - 1, version)
    return Entry(
        join="result",
        epoch=epoch,
        step=step,
        run_id=f"run{epoch}",
        strategy=strategy,
        reason="changes: the feeds hold all changes since the last epoch",
        definition="d",
        sources=tuple(SourceVersions(name, f"{name}-id", 4 + epoch, 5 + epoch) for name in ("left", "right")),
        writes=(Merge(target, "result", fields.get("counts", {}).get("inserted", 0)),),
        at=at(hours),
        **fields,
    )


def ledger(*entries: Entry) -> JoinHistory:
    return JoinHistory(entries)
