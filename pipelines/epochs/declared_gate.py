"""The expectations that a pipeline file declares, held against what an epoch is about to publish."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from expectations.catalogue import of_rows
from expectations.declared import judge
from expectations.validation import Verdict
from pipelines.binding.workspace import Workspace


def gate_of_yours(workspace: Workspace, name: str, rows: Callable[[], DataFrame]) -> tuple[Verdict, Verdict]:
    """
    Hold rows to what the pipeline file expects of each.

    Args:
        workspace: Where to work.
        name: The join, or a changelog source, of which nothing is expected.
        rows: Gives the rows; asked only where something is expected.

    Returns:
        What stops the epoch, and what its report and the ledger warn of.
    """
    join = workspace.file.joins.get(name)
    declared = of_rows(join.expectations) if join is not None else ()
    if join is None or not declared:
        return Verdict(), Verdict()
    verdict = judge(name, rows(), declared)
    return (Verdict(), verdict) if join.on_failed_gate == "warn" else (verdict, Verdict())
