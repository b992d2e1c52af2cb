"""Run the gates of what an epoch is about to publish: the built-in one of its kind, then those of the pipeline file."""

from typing import Any

from pyspark.sql import DataFrame

from expectations.validation import Verdict
from lakehouse.errors.remedies import Remedy
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Merge
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.publish.declared_gate import gate_of_yours

OF_YOURS = "correct the sources and run again, correct the `expectations` of the join, or set `on_failed_gate: warn`"
"""The hint for findings of the expectations that the pipeline file declares."""


def gated(
    kind: Kind[Any], epoch: Epoch[Any], stage: Stage, entry: Entry, prefetched: Prefetched | None = None
) -> tuple[Verdict, Verdict, Remedy]:
    """
    Run the gates of a staged change set; `entry` is the row of its epoch for the ledger, with what it writes.

    Returns:
        The verdict that stops the epoch, the verdict that becomes warnings, and the hint for the first.
    """
    verdict = kind.gate(epoch, stage, entry, prefetched)
    if not verdict.passed or not entry.writes[-1].rows:
        return verdict, Verdict(), Remedy("{reconcile}", kind.name)
    return *gate_of_yours(kind.workspace, kind.name, lambda: _staged(kind.workspace, stage, entry)), Remedy(OF_YOURS)


def _staged(workspace: Workspace, stage: Stage, entry: Entry) -> DataFrame:
    """Return the rows that the epoch writes into the result."""
    rows = stage.get(workspace.spark, "result")
    return rows.where("op <> 'delete'").select("after.*") if isinstance(entry.writes[-1], Merge) else rows
