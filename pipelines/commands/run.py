"""Update joins, each after the joins that it reads."""

import logging
from collections.abc import Callable, Collection, Sequence

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import CannotContinue, GateFailed, LedgerForgot
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.run.driver import run_join
from pipelines.epochs.run.refused import record_refusal
from pipelines.epochs.streams.source_progress import common_goal
from pipelines.epochs.views.partial_backfill import the_only_join
from pipelines.language import changelogs_of, reads
from pipelines.plan.request import Backfill, Request
from pipelines.plan.sharing import shared_reads
from pipelines.report import JoinReport
from pipelines.report.progress import SILENT, Progress

log = logging.getLogger(__name__)


def run_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    *,
    backfill: Backfill | None = None,
    progress: Progress = SILENT,
) -> list[JoinReport]:
    """
    Update the results of joins to the newest versions of their sources, each after the joins that it reads.

    Return a report for each changelog source that the joins read, then for each join, in the order in which they ran.
    The report of a failed join has its error. Joins that read a failed or skipped join are skipped; the others run.

    Args:
        backfill: Reconcile the results with the current sources, independent of the ledger. For a join with a stream,
            replay the recorded epochs and append the missing rows. With a condition, reconcile only the rows of one
            result that meet it, at the source versions of the last epoch.

    Raises:
        LakejoinError: The selection is invalid.
    """
    names = workspace.joins(select)
    is_of_part = backfill is not None and backfill.where is not None
    nodes = [the_only_join(workspace, names)] if is_of_part else workspace.nodes(select)
    request = Request(backfill, goal=common_goal(workspace, names) or None)

    def run(name: str) -> JoinReport:
        try:
            return run_join(kind_of(workspace, name), request, progress)
        except LedgerForgot:
            if backfill is None:
                raise
            return run_join(kind_of(workspace, name), request, progress)  # gets an epoch number that was never used

    with workspace.feeds.shared(shared_reads(workspace.file, names)):
        return run_in_order(workspace, nodes, run, progress, records_refusals=not is_of_part)


def run_in_order(
    workspace: Workspace,
    names: Sequence[str],
    run: Callable[[str], JoinReport],
    progress: Progress,
    *,
    records_refusals: bool = True,
) -> list[JoinReport]:
    """
    Run joins in the given order, with errors in their reports; those that only a person can mend also in the ledger.

    A join is skipped if one that it reads failed or was skipped. What refuses a backfill of a part of a result is not
    recorded: the join itself may go on.
    """
    reports: dict[str, JoinReport] = {}
    for name in names:
        behind = (reports[other] for other in _read_by(workspace, name) if other in reports)
        stopped = next((report for report in behind if report.outcome in ("failed", "skipped")), None)
        try:
            reports[name] = run(name) if stopped is None else _skipped(name, stopped)
        except Exception as error:  # whatever it is, the other joins run
            log.info("%s failed", name, exc_info=True)  # the listener tells of it as an error
            known = as_known(error, name)
            if records_refusals and isinstance(known, CannotContinue):
                record_refusal(workspace, name, known)
            reports[name] = JoinReport(join=name, outcome="failed", error=known)
        progress.finished(name, reports[name].outcome)
    return list(reports.values())


def _read_by(workspace: Workspace, name: str) -> tuple[str, ...]:
    return (*changelogs_of(workspace.file, name), *reads(workspace.file, name)) if name in workspace.file.joins else ()


def _skipped(name: str, upstream: JoinReport) -> JoinReport:
    error = upstream.error
    if error is None:
        reason = f"upstream-skipped: {upstream.join} was skipped ({upstream.reason})"
    elif isinstance(error, GateFailed):
        reason = f"upstream-rejected: {upstream.join} did not pass its gate"
    else:
        about = "" if error.where == upstream.join else f"{error.where}: "
        reason = f"upstream-failed: {upstream.join} failed: {about}{error.problem}"
    return JoinReport(join=name, outcome="skipped", reason=reason)
