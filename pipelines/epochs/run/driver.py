"""
Run one join from its open epoch, or its plan, to the committed row. What differs between joins is in their `Kind`.

    staged:    compute ─► stage ─► gate ─► ledger: publishing ─► tables ─► ledger: committed
    in place:  check ─► ledger: publishing ─► create, append ─► gate ─► ledger: committed
    sliced:    check ─► ledger: publishing ─► staged, slice by slice ─► ledger: committed

A run that is killed before *publishing* leaves only a stale stage. A run that is killed after it leaves an open epoch,
which the next run finishes from the ledger's row and the stage alone.
"""

import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from expectations.validation import import_in_background
from lakehouse import limits
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import (
    AnotherRun,
    CannotContinue,
    FeedUnavailable,
    GateFailed,
    LakejoinError,
    LedgerForgot,
    Remedy,
    SchemaBroken,
)
from lakehouse.ledger.entries import REFUSED, REJECTED, Entry
from lakehouse.publish.merge import VERSIONS_PER_EPOCH
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import RESULT_PART, Append, staged_rows
from lakehouse.session.session import INTERPRETED, NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings
from lakehouse.tables.identity import last_transaction
from pipelines.binding.bound import notes_on
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.publish.gate import gated
from pipelines.epochs.publish.open_epoch import application
from pipelines.epochs.publish.publish import publish, publishing_entry
from pipelines.epochs.run.recovery import finish_open
from pipelines.epochs.run.slices import backfill_in_slices, refuse_open, resume_slices
from pipelines.plan.request import Request
from pipelines.plan.values import EpochPlan, Idle, InPlace, Resume, Sliced, Staged
from pipelines.report import JoinReport, joined_reports, versions_after
from pipelines.report.facts import in_seconds
from pipelines.report.progress import SILENT, Progress, Stopwatch

log = logging.getLogger(__name__)

NEXT = Request()
"""The request of a run that goes on from the last epoch."""


def run_join(kind: Kind[Any], request: Request = NEXT, progress: Progress = SILENT) -> JoinReport:
    """
    Update one join, or the KTable of a changelog source, from its sources; finish an open epoch first.

    Raises:
        LakejoinError: A subclass names what stopped the run; nothing is half applied.
    """
    with kind.explaining_errors():
        watch = Stopwatch(lambda step: progress.step(kind.name, step))
        prepared, finished = _finish_open_and_prepare(kind, request, watch, progress)
        if isinstance(prepared.plan.route, Idle) or (finished is not None and finished.slices):
            return _nothing_more(prepared, finished, watch)
        if isinstance(prepared.plan.route, Resume):
            raise AnotherRun(
                kind.name,
                f"another run began epoch {prepared.plan.epoch} meanwhile",
                hint=Remedy("let that run finish, then repeat the command"),
            )
        return joined_reports([*_epochs(kind, prepared, request, watch, progress)])


def _finish_open_and_prepare(
    kind: Kind[Any], request: Request, watch: Stopwatch, progress: Progress
) -> tuple[Prepared[Any], Entry | None]:
    """
    Finish the epoch that a killed run left open, if any, then plan the next one.

    Return the plan, and the committed row of the finished epoch; None if no epoch was open or it was abandoned. After a
    sliced backfill the plan is the one that resumed it.
    """
    prepared = _prepare(kind, request, watch)
    if not isinstance(prepared.plan.route, Resume):
        return prepared, None
    history = prepared.history
    assert history.open is not None
    if not request.is_whole:
        refuse_open(history.open)
    _begin(request, progress, prepared.plan)
    if history.open.slices:
        finished = resume_slices(kind, history, watch, progress)
        if finished is not None:
            return prepared, finished
    else:
        abandons = request.is_whole
        finished = finish_open(kind, history, watch, abandon_broken=abandons, resets=request.resets)
    return _prepare(kind, request, watch), finished


def _prepare(kind: Kind[Any], request: Request, watch: Stopwatch) -> Prepared[Any]:
    """Plan the next epoch. For a backfill its number is one that no table of the join remembers."""
    with _planning(kind, watch):
        prepared = kind.prepare(request)
        if request.backfill is None or isinstance(prepared.plan.route, Idle | Resume):
            return prepared
        return _unused_number(kind.workspace, prepared)


def _unused_number(workspace: Workspace, prepared: Prepared[Any]) -> Prepared[Any]:
    """
    Return a planned epoch with the first number that neither the ledger nor a table that it writes has used.

    Delta skips a write under a transaction that a table already has. A ledger that was put back from a copy has
    forgotten its last epochs, but the tables have not: an epoch with one of their numbers could never be written.
    """
    plan, name = prepared.plan, application(workspace, prepared.plan.join)
    versions = (last_transaction(workspace.engine, write.target.address, name) for write in plan.writes)
    used = [version // VERSIONS_PER_EPOCH for version in versions if version is not None]
    return replace(prepared, plan=replace(plan, epoch=max([plan.epoch, *(epoch + 1 for epoch in used)])))


@contextmanager
def _planning(kind: Kind[Any], watch: Stopwatch) -> Iterator[None]:
    """Time the planning of a join, with settings for its small queries, and add remedies to read errors."""
    with watch.step("plan"), reading(kind.name), settings(kind.workspace.spark, INTERPRETED):
        yield


def _begin(request: Request, progress: Progress, plan: EpochPlan, rows: int | None = None) -> None:
    request.begins()
    progress.started(plan.join, plan.epoch, plan.strategy, plan.reason)
    if rows is not None:
        progress.rows(plan.join, rows)


def _nothing_more(prepared: Prepared[Any], finished: Entry | None, watch: Stopwatch) -> JoinReport:
    """Report on a run that has at most finished an open epoch."""
    plan, last = prepared.plan, prepared.history.committed
    if finished is not None:
        return report_on(finished, watch, "resume")
    return JoinReport(
        join=plan.join,
        outcome="nothing",
        epoch=plan.epoch,
        strategy=plan.strategy,
        reason=plan.reason,
        seconds=dict(watch.seconds),
        details=notes_on(prepared.bound),
        **({} if last is None else versions_after(last)),
    )


def _epochs(
    kind: Kind[Any], prepared: Prepared[Any], request: Request, watch: Stopwatch, progress: Progress
) -> Iterator[JoinReport]:
    """Run epochs up to the source versions that were found when the first was planned."""
    further = Request(goal={**prepared.epoch.newest, **(request.goal or {})}, begins=request.begins)
    while True:
        _begin(request, progress, prepared.plan, prepared.epoch.rows_read)
        yield _run(kind, prepared.epoch, request, watch, progress)
        if not prepared.plan.more:
            return
        watch = Stopwatch(lambda step: progress.step(kind.name, step))
        prepared = _prepare(kind, further, watch)
        if not isinstance(prepared.plan.route, Staged):  # another run was faster, or the other commits are held back
            return


def _run(kind: Kind[Any], epoch: Epoch[Any], request: Request, watch: Stopwatch, progress: Progress) -> JoinReport:
    """Run an epoch, or the epoch that replaces it if it cannot be computed."""
    try:
        with kind.explaining_errors():
            return _by_route(kind, kind.create_targets(epoch), watch, progress)
    except CannotContinue as error:
        again = kind.prepare_around(epoch, request, error)
        log.warning("%s: %s; computing in full", kind.name, again.plan.reason)
    _begin(request, progress, again.plan, again.epoch.rows_read)
    return _by_route(kind, kind.create_targets(again.epoch), watch, progress)


def _by_route(kind: Kind[Any], epoch: Epoch[Any], watch: Stopwatch, progress: Progress) -> JoinReport:
    match epoch.plan.route:
        case InPlace():
            entry = kind.load(epoch, watch)
        case Sliced(number):
            entry = backfill_in_slices(kind, epoch, number, watch, progress)
        case _:
            return run_epoch(kind, epoch, watch)
    return report_on(entry, watch, epoch.plan.strategy)


def run_epoch(kind: Kind[Any], epoch: Epoch[Any], watch: Stopwatch) -> JoinReport:
    """
    Compute an epoch of any kind, whose tables exist, into a stage of its own, run its gate and publish it.

    Raises:
        GateFailed: The change set did not pass its gate; the ledger records this, and the stage is kept.
        FeedUnavailable, SchemaBroken: The gate cannot read a feed.
        LakejoinError: As `Kind.compute` and `publish` raise it.
    """
    workspace, plan, run_id = kind.workspace, epoch.plan, uuid.uuid4().hex
    stage = workspace.stage(plan.join, plan.epoch, run_id)
    import_in_background()
    with ThreadPoolExecutor(max_workers=1) as executor:
        prefetched, repairs = executor.submit(kind.prefetch, epoch), workspace.feeds.repairs
        try:
            with watch.step("compute"), reading(plan.join):
                computed = kind.compute(epoch, stage)
        except BaseException:
            stage.delete()
            raise
        if workspace.feeds.repairs > repairs:  # the prefetched rows may come from a distorted feed
            prefetched = executor.submit(kind.prefetch, epoch)
        entry = publishing_entry(epoch, run_id, stage.path, computed)
        most = max(map(staged_rows, entry.writes))
        is_small = most <= limits.CHANGES_VIA_DRIVER and not entry.overwrites_in_place
        with settings(workspace.spark, NOT_ADAPTIVE if is_small else {}):
            entry = _gate(kind, epoch, stage, entry, watch, prefetched)
            return report_on(publish(workspace, entry, watch, stage), watch, plan.strategy, notes_on(epoch.bound))


def _gate(
    kind: Kind[Any],
    epoch: Epoch[Any],
    stage: Stage,
    entry: Entry,
    watch: Stopwatch,
    prefetched: Future[Prefetched | None],
) -> Entry:
    """Run the gate of a staged epoch, and write its *publishing* row if it passes."""
    workspace, plan = kind.workspace, epoch.plan
    with watch.step("gate"):
        try:
            with reading(plan.join):
                # The prefetch outlasts the computation, whose settings it shared.
                with settings(workspace.spark, NOT_ADAPTIVE | WITHOUT_BROADCASTS if plan.via_driver else {}):
                    read = prefetched.result()
                verdict, warned, hint = gated(kind, epoch, stage, entry, read)
        except (FeedUnavailable, SchemaBroken):  # files of a feed may be removed after the epoch has read them
            stage.delete()
            raise
    if not verdict.passed:
        workspace.ledger.append(
            replace(entry, step=REJECTED, seconds=dict(watch.seconds), message="; ".join(verdict.findings))
        )
        raise GateFailed(
            plan.join,
            "the change set did not pass its gate; nothing was published",
            found="; ".join(verdict.findings),
            hint=replace(hint, text=f"inspect the stage in {stage.path}; {hint.text}"),
        )
    entry = replace(entry, message="\n".join(warned.findings))
    try:
        with watch.step("ledger"):
            workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    except (AnotherRun, LedgerForgot):
        stage.delete()
        raise
    return entry


def report_on(entry: Entry, watch: Stopwatch, strategy: str, details: tuple[str, ...] = ()) -> JoinReport:
    """Build the report of a committed epoch."""
    return JoinReport(
        join=entry.join,
        outcome="done",
        epoch=entry.epoch,
        strategy=strategy,
        reason=entry.reason,
        counts=dict(entry.counts),
        seconds=dict(watch.seconds),
        estimates=in_seconds(entry.estimates),
        warnings=tuple(entry.message.splitlines()),
        details=details,
        **versions_after(entry),
    )


def record_refusal(workspace: Workspace, name: str, error: LakejoinError) -> None:
    """
    Append a *refused* row for a join, or a changelog source, that cannot continue without a person, with the reason.

    Nothing is written before its first epoch, while an epoch is broken, which has a row of its own, and if the newest
    row says the same already. A ledger that cannot be written does not hide the error.
    """
    try:
        ledger = workspace.ledger
        history = ledger.of(name)
        last, reason = history.committed, f"{error.code}: {error.where}: {error.problem}"
        if last is None or history.broken is not None:
            return
        newest = history.recent[-1]
        if newest.step == REFUSED and newest.reason == reason:
            return
        result = replace(last.result, base_version=last.result.newest, version=None)
        ledger.append(
            Entry(
                join=name,
                epoch=history.next_epoch,
                step=REFUSED,
                run_id=uuid.uuid4().hex,
                strategy="",
                reason=reason,
                definition=last.definition,
                sources=(),
                writes=(Append(result, RESULT_PART),),
                message=error.message,
            )
        )
    except Exception:  # the ledger may be what is damaged: the error of the join is told whatever happens here
        log.warning("%s: the refusal was not recorded in the ledger", name, exc_info=True)
