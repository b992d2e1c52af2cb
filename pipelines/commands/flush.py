"""What waits in joins of two streams is let go, as an epoch of its own."""

from collections.abc import Collection, Mapping

from lakehouse.errors import LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import one_after_the_other
from pipelines.epochs.driver import planning, run_join, tell_begun
from pipelines.epochs.run_epoch import run_epoch
from pipelines.epochs.stream_compute import compute_epoch
from pipelines.epochs.streams.prepare import plan_flush, stream_remedy
from pipelines.epochs.streams.source_progress import common_goal
from pipelines.report import JoinReport
from pipelines.report.progress import SILENT, Progress, Stopwatch
from pipelines.spec import is_stream, reads, statement_of


def flush_joins(
    workspace: Workspace, select: Collection[str] | None = None, *, progress: Progress = SILENT
) -> list[JoinReport]:
    """
    Let all rows go that wait in joins of two streams, as an epoch of its own: null-padded where they are kept.

    Each join is brought up to date before that, and so are joins with a stream that read what left one of them.

    Args:
        workspace: Where to work.
        select: Names of joins; all joins of two streams of the file if None.
        progress: Hears of each epoch and step as it begins, and of each join that is through.

    Returns:
        A report for each join. One that reads what failed is skipped, and says so.

    Raises:
        LakejoinError: The selection is wrong.
    """
    file, names, reading = workspace.file, workspace.joins(select), set[str]()
    goal = common_goal(workspace, names)
    for name in names:
        goes_on = is_stream(file, name) and any(other in reading for other in reads(file, name))
        if statement_of(file, name).is_windowed or goes_on:
            reading.add(name)

    def flush(name: str) -> JoinReport:
        if statement_of(file, name).is_windowed:
            return _flush(workspace, name, goal, progress)
        if name in reading:
            return run_join(workspace, name, progress=progress, goal=goal)
        raise LakejoinError(name, "nothing waits in it", expected="a join of two streams", hint="leave it out")

    todo = [name for name in names if select is not None or name in reading]
    return one_after_the_other(workspace, todo, flush, progress)


def _flush(workspace: Workspace, name: str, goal: Mapping[str, int], progress: Progress) -> JoinReport:
    # What has come is taken first: else the rows that it would meet were gone.
    run_join(workspace, name, progress=progress, goal=goal)
    watch = Stopwatch(lambda step: progress.step(name, step))
    with planning(workspace, name, watch):
        plan, bound = plan_flush(workspace, name)
    tell_begun(progress, plan)
    with stream_remedy(name):
        return run_epoch(workspace, bound, plan, compute_epoch, watch)
