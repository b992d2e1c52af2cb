"""Bring joins up to date, each after the joins that it reads."""

from collections.abc import Collection

from lakehouse.errors import LedgerForgot
from pipelines.binding.ktable import way_on
from pipelines.binding.workspace import Workspace
from pipelines.commands.in_order import one_after_the_other
from pipelines.epochs.driver import run_join
from pipelines.epochs.streams.source_progress import common_goal
from pipelines.epochs.tables.partial_backfill import the_only_join
from pipelines.plan.request import Backfill
from pipelines.plan.sharing import shared_reads
from pipelines.report import JoinReport
from pipelines.report.progress import SILENT, Progress


def run_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    *,
    backfill: Backfill | None = None,
    progress: Progress = SILENT,
) -> list[JoinReport]:
    """
    Bring joins up to date, each as far as its sources are now, and after the joins that it reads.

    Args:
        workspace: Where to work.
        select: Names of joins; all of the file if None.
        backfill: Reconcile with the sources as they are now, whatever the record says; a join with a stream gets the
            rows that its recorded epochs lack. With a condition only that part of one result is mended, with the
            sources at the versions that the last epoch read.
        progress: Hears of each epoch and step as it begins, and of each join that is through.

    Returns:
        A report for each changelog source that they read, which comes first, then for each join, in the order in which
        they ran. An error of one is in its report and does not keep the others from running, but for the joins that
        read what failed: these are skipped, and say so.

    Raises:
        LakejoinError: The selection is wrong.
    """
    names = workspace.joins(select)
    nodes = workspace.nodes(select)
    if backfill is not None and backfill.where is not None:
        nodes = [the_only_join(workspace, names)]
    goal = common_goal(workspace, names)

    def run(name: str) -> JoinReport:
        if name in workspace.file.joins:
            return run_join(workspace, name, backfill=backfill, progress=progress, goal=goal)
        with way_on(workspace, name):
            return run_join(workspace, name, backfill=backfill, progress=progress)

    def run_on(name: str) -> JoinReport:
        try:
            return run(name)
        except LedgerForgot:
            if backfill is None:
                raise
            return run(name)  # the next epoch has a number that was never used

    with workspace.feeds.shared(shared_reads(workspace.file, names)):
        return one_after_the_other(workspace, nodes, run_on, progress)
