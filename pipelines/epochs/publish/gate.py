"""Run the gates of what an epoch is about to publish: the built-in one of its kind, then those of the pipeline file."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from expectations.catalogue import of_rows
from expectations.validation import Verdict, judge
from lakehouse.errors.errors import Remedy
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Merge
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Kind, Prefetched

OF_YOURS = "correct the sources and run again, correct the `expectations` of the join, or set `on_failed_gate: warn`"
"""The hint for findings of the expectations that the pipeline file declares."""


def gate_of_yours(workspace: Workspace, name: str, rows: Callable[[], DataFrame]) -> tuple[Verdict, Verdict]:
    """
    Validate rows against the row-level expectations that the pipeline file declares; a changelog source has none.

    `rows` is called only if expectations are declared.

    Returns:
        The verdict that stops the epoch, and the verdict that becomes warnings in its report and in the ledger.
    """
    join = workspace.file.joins.get(name)
    declared = of_rows(join.expectations) if join is not None else ()
    if join is None or not declared:
        return Verdict(), Verdict()
    verdict = judge(name, rows(), declared)
    return (Verdict(), verdict) if join.on_failed_gate == "warn" else (verdict, Verdict())


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
