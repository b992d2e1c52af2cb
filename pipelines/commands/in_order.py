"""Joins one after the other, each after the joins that it reads."""

import logging
from collections.abc import Callable, Sequence

from lakehouse.errors import GateFailed, LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.report import JoinReport
from pipelines.report.progress import Progress
from pipelines.spec import changelogs_of, reads

log = logging.getLogger(__name__)


def one_after_the_other(
    workspace: Workspace, names: Sequence[str], run: Callable[[str], JoinReport], progress: Progress
) -> list[JoinReport]:
    """Run joins in their order; one that reads what failed is skipped. An error is in the report."""
    reports: dict[str, JoinReport] = {}
    for name in names:
        behind = (reports[other] for other in _read_by(workspace, name) if other in reports)
        stopped = next((report for report in behind if report.outcome in ("failed", "skipped")), None)
        try:
            reports[name] = run(name) if stopped is None else _skipped(name, stopped)
        except LakejoinError as error:
            log.info("%s failed", name, exc_info=True)
            reports[name] = JoinReport(join=name, outcome="failed", error=error)
        progress.finished(name, reports[name].outcome)
    return list(reports.values())


def _read_by(workspace: Workspace, name: str) -> tuple[str, ...]:
    """Name what must run before a join: the changelog sources and the joins that it reads."""
    return (*changelogs_of(workspace.file, name), *reads(workspace.file, name)) if name in workspace.file.joins else ()


def _skipped(name: str, upstream: JoinReport) -> JoinReport:
    """Report on a join that cannot run, for one that it reads did not."""
    error = upstream.error
    if error is None:
        reason = f"upstream-skipped: {upstream.join} was skipped ({upstream.reason})"
    elif isinstance(error, GateFailed):
        reason = f"upstream-rejected: {upstream.join} did not pass its gate"
    else:
        about = "" if error.where == upstream.join else f"{error.where}: "
        reason = f"upstream-failed: {upstream.join} failed: {about}{error.problem}"
    return JoinReport(join=name, outcome="skipped", reason=reason)
