"""What `run` would do for one join, as far as that is known before the joins that it reads have run."""

from collections.abc import Collection

from pipelines.binding import notes_on
from pipelines.nodes import prepare_node
from pipelines.report import JoinReport, PlanReport
from pipelines.spec import reads
from pipelines.upstream import NotYetRun
from pipelines.workspace import Workspace


def preview(workspace: Workspace, name: str, selected: Collection[str]) -> PlanReport | JoinReport:
    """
    Plan the next epoch of a join, or of the KTable of a changelog source, and write nothing.

    Args:
        workspace: Where to look.
        name: The join, or the source.
        selected: All joins that the run would work on.

    Returns:
        The plan, from what the joins that it reads have committed; a join that cannot be planned before one of these
        has run for the first time is reported as skipped.

    Raises:
        LakejoinError: The run would fail.
    """
    read = reads(workspace.file, name) if name in workspace.file.joins else ()
    before = tuple(other for other in read if other in selected)
    try:
        prepared = prepare_node(workspace, name)
        return PlanReport.of(prepared.plan, before, notes_on(prepared.bound))
    except NotYetRun as error:
        if error.where not in before:
            raise
        reason = f"upstream-not-run: {error.where} has no committed epoch yet; `lakejoin run` makes one first"
        return JoinReport(join=name, outcome="skipped", reason=reason)
