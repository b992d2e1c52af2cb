"""Update joins, each after the joins that it reads: once, repeatedly, or to flush their buffered rows."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import Event

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import CannotContinue, GateFailed, LakejoinError, LedgerForgot
from pipelines.binding.workspace import Workspace
from pipelines.commands.side_by_side import number_of_threads, own_workspace, side_by_side
from pipelines.commands.whole_run import WholeRun
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.run.driver import record_refusal, run_join
from pipelines.epochs.views.partial_backfill import the_only_join
from pipelines.language import changelogs_of, is_stream, reads, statement_of
from pipelines.plan.request import Backfill, Request
from pipelines.plan.sharing import shared_reads
from pipelines.report import JoinReport, joined_reports
from pipelines.report.progress import SILENT, Progress

MAX_FAILED_ROUNDS = 8
"""The number of rounds in a row that may fail; the next failure ends the watch."""
MAX_PAUSE = 300.0
"""The longest pause after a failure, in seconds."""

log = logging.getLogger(__name__)


def run_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    *,
    backfill: Backfill | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> list[JoinReport]:
    """
    Update the results of joins to the newest versions of their sources, each after the joins that it reads.

    The versions are pinned before the first join: all results describe the same ones. A run that was killed between two
    joins is finished first, at its own versions. Joins that do not read each other run side by side, in `threads`; None
    for the number by the pipeline file.

    Return a report for each changelog source that the joins read, then for each join, in the order of the file.
    The report of a failed join has its error. Joins that read a failed or skipped join are skipped; the others run.
    """
    names, nodes = workspace.joins(select), workspace.nodes(select)
    if backfill is not None and backfill.where is not None:  # at the versions of the last epoch
        name = the_only_join(workspace, names)
        request = Request(backfill)
        with workspace.feeds.shared(shared_reads(workspace.file, names)):
            return run_in_order(
                workspace,
                [name],
                lambda name: run_join(kind_of(workspace, name), request, progress),
                progress,
                records_refusals=False,
            )
    killed = None if backfill is not None else WholeRun.unfinished(workspace, nodes)
    finished = [] if killed is None else _run_whole(workspace, killed, None, threads, progress)
    whole = WholeRun.to_newest(workspace, nodes)
    return _both(finished, _run_whole(workspace, whole, backfill, threads, progress))


def _run_whole(
    workspace: Workspace, whole: WholeRun, backfill: Backfill | None, threads: int | None, progress: Progress
) -> list[JoinReport]:
    request = Request(backfill, begins=whole.begin)
    number = number_of_threads(workspace, threads, whole.nodes)

    def run(name: str) -> JoinReport:
        with own_workspace(workspace, number) as own:
            kind = kind_of(whole.at_cut(own), name)
            try:
                return run_join(kind, request, progress)
            except LedgerForgot:
                if backfill is None:
                    raise
                return run_join(kind, request, progress)  # gets an epoch number that was never used

    names = [name for name in whole.nodes if name in workspace.file.joins]
    with workspace.feeds.shared(shared_reads(workspace.file, names)):
        reports = run_in_order(
            workspace,
            whole.nodes,
            run,
            progress,
            threads=number,
            ended=whole.take,
            interrupt=workspace.engine.interrupt_others,
        )
    whole.end(reports)
    return reports


def _both(finished: Sequence[JoinReport], then: Sequence[JoinReport]) -> list[JoinReport]:
    """Join the reports of a run that finished another one with those of the run to the newest versions after it."""
    before = {report.join: report for report in finished if report.outcome == "done"}
    why = "the first for a run that was not finished"
    joined = []
    for report in then:
        if report.join in before and report.outcome == "nothing":
            report = before[report.join]
        elif report.join in before and report.outcome == "done":
            report = joined_reports([before[report.join], report], why)
        joined.append(report)
    return joined


def watch_joins(
    workspace: Workspace,
    every: float,
    select: Collection[str] | None = None,
    *,
    threads: int | None = None,
    stop: Event | None = None,
    patience: int = MAX_FAILED_ROUNDS,
) -> Iterator[list[JoinReport]]:
    """
    Update joins in rounds, one each `every` seconds, and yield the reports of each round, including errors.

    After a round that takes longer, the next one begins at once. If a join fails with a retryable error, the pause
    doubles with each further failed round, up to `patience` of them. An error that is not retryable ends the watch and
    is raised after the reports of its round. The pipeline file is not read again.
    """
    stop, failures = stop or Event(), 0
    while not stop.is_set():
        began = time.monotonic()
        reports = run_joins(workspace, select, threads=threads)
        yield reports
        errors = sorted((report.error for report in reports if report.error is not None), key=lambda e: e.retryable)
        failures = failures + 1 if errors else 0
        if errors and (not errors[0].retryable or failures > patience):
            raise errors[0]
        pause = min(every * 2**failures, max(every, MAX_PAUSE)) if failures else every - (time.monotonic() - began)
        stop.wait(max(pause, 0.0))


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
    for name in names:
        reads_flushed = is_stream(file, name) and any(other in reading for other in reads(file, name))
        if statement_of(file, name).is_windowed or reads_flushed:
            reading.add(name)
    todo = [name for name in names if select is not None or name in reading]
    whole = WholeRun.to_newest(workspace, todo)

    def flush(name: str) -> JoinReport:
        if name not in reading:
            problem, expected = "only joins of two streams buffer rows", "a join of two streams"
            raise LakejoinError(name, problem, expected=expected, hint="remove it from --select")
        # New rows are processed first: after the flush they could no longer meet the buffered rows.
        kind = kind_of(whole.at_cut(workspace), name)
        report = run_join(kind, Request(begins=whole.begin), progress)
        if not statement_of(file, name).is_windowed:
            return report
        return run_join(kind, Request(flush=True, begins=whole.begin), progress)

    reports = run_in_order(workspace, todo, flush, progress, ended=whole.take)
    whole.end(reports)
    return reports


def run_in_order(
    workspace: Workspace,
    names: Sequence[str],
    run: Callable[[str], JoinReport],
    progress: Progress,
    *,
    threads: int = 1,
    ended: Callable[[JoinReport], None] = lambda report: None,
    interrupt: Callable[[], None] = lambda: None,
    records_refusals: bool = True,
) -> list[JoinReport]:
    """
    Run joins, each after those that it reads, with errors in their reports; return these in the order of the names.

    A join is skipped if one that it reads failed or was skipped; `ended` gets each report before a join begins that
    reads it. Errors that only a person can mend are recorded in the ledger, but for a partial backfill's.
    """
    reports: dict[str, JoinReport] = {}
    file = workspace.file

    def inputs(name: str) -> tuple[str, ...]:
        return (*changelogs_of(file, name), *reads(file, name)) if name in file.joins else ()

    def attempt(name: str) -> JoinReport:
        upstream = (reports[other] for other in inputs(name) if other in reports)
        stopped = next((report for report in upstream if report.outcome in ("failed", "skipped")), None)
        try:
            return run(name) if stopped is None else _skipped(name, stopped)
        except Exception as error:  # whatever it is, the other joins run
            log.info("%s failed", name, exc_info=True)  # the listener reports it as an error
            return JoinReport(join=name, outcome="failed", error=as_known(error, name))

    def end(name: str, report: JoinReport) -> None:
        if records_refusals and isinstance(report.error, CannotContinue):
            record_refusal(workspace, name, report.error)
        reports[name] = report
        ended(report)
        progress.finished(name, report.outcome)

    return side_by_side(names, threads, attempt, inputs=inputs, ended=end, interrupt=interrupt)


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
