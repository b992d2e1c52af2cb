"""Validate what an epoch is about to publish against the expectations that the pipeline file declares."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from expectations.catalogue import of_rows
from expectations.validation import Verdict, judge
from pipelines.binding.workspace import Workspace


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
