"""Flush the buffered rows of joins of two streams, as an epoch of its own."""

from collections.abc import Collection

from lakehouse.errors.errors import LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_in_order
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.run.driver import run_join
from pipelines.epochs.streams.source_progress import common_goal
from pipelines.language import is_stream, reads, statement_of
from pipelines.plan.request import Request
from pipelines.report import JoinReport
from pipelines.report.progress import SILENT, Progress


def flush_joins(
    workspace: Workspace, select: Collection[str] | None = None, *, progress: Progress = SILENT
) -> list[JoinReport]:
    """
    Flush all buffered rows of joins of two streams, as an epoch of its own; without a selection of all such joins.

    Unmatched rows of an outer side are added to the result with nulls. Each join is brought up to date before its
    flush; joins with a stream that read the result of a flushed join are brought up to date after it. A join that reads
    a failed or skipped join is skipped.

    Raises:
        LakejoinError: The selection is invalid, or names a join that does not buffer rows.
    """
    file, names, reading = workspace.file, workspace.joins(select), set[str]()
    goal = common_goal(workspace, names)
    for name in names:
        reads_flushed = is_stream(file, name) and any(other in reading for other in reads(file, name))
        if statement_of(file, name).is_windowed or reads_flushed:
            reading.add(name)

    def flush(name: str) -> JoinReport:
        if name not in reading:
            problem, expected = "only joins of two streams buffer rows", "a join of two streams"
            raise LakejoinError(name, problem, expected=expected, hint="remove it from --select")
        # New rows are processed first: after the flush they could no longer meet the buffered rows.
        report = run_join(kind_of(workspace, name), Request(goal=goal or None), progress)
        if not statement_of(file, name).is_windowed:
            return report
        return run_join(kind_of(workspace, name), Request(flush=True), progress)

    todo = [name for name in names if select is not None or name in reading]
    return run_in_order(workspace, todo, flush, progress)
