"""
Run the plan of one epoch. The driver knows the protocol; each kind of join has its own modules.

    incremental, reconcile:  compute ─► stage ─► gate ─► ledger: publishing ─► MERGE ─► ledger: committed
    load:                    check ─► ledger: publishing ─► create, append ─► gate ─► ledger: committed

A run that is killed before *publishing* leaves only a stale stage. A run that is killed after it leaves an open epoch,
which the next run finishes from the ledger's row and the stage alone.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from lakehouse.conditions import reading
from lakehouse.creation import create
from lakehouse.entries import Entry
from lakehouse.errors import CannotContinue, FeedUnavailable, LakejoinError, LedgerForgot, SchemaBroken
from lakehouse.session import INTERPRETED, settings
from lakehouse.tables import get
from pipelines.binding.bound import BoundJoin, notes_on
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import prepare_node
from pipelines.epochs.ktable.compute import compute_ktable, create_target, prepare_ktable
from pipelines.epochs.preflight import Prepared, must_be_bound
from pipelines.epochs.recovery import finish_open
from pipelines.epochs.replay import compute_replay, plan_replay
from pipelines.epochs.run_epoch import counts_only, report_on, run_epoch
from pipelines.epochs.slices import backfill_in_slices, refuse_open, resume_slices, slices_for
from pipelines.epochs.stream_compute import compute_epoch
from pipelines.epochs.streams.prepare import create_targets as create_stream_targets
from pipelines.epochs.streams.prepare import plan_reset, stream_remedy
from pipelines.epochs.tables.compute import compute_changes
from pipelines.epochs.tables.load import load
from pipelines.epochs.tables.partial_backfill import plan_subset
from pipelines.epochs.tables.prepare import plan_around
from pipelines.epochs.tables.reconcile import check_sources, compute_reconciliation
from pipelines.joins.changelog import changelog_schema
from pipelines.plan.request import Backfill, Remedy
from pipelines.plan.values import EpochPlan
from pipelines.report import JoinReport, joined_reports
from pipelines.report.progress import SILENT, Progress, Stopwatch
from pipelines.spec import is_stream

Target = TypeVar("Target", BoundJoin, BoundKTable)

log = logging.getLogger(__name__)


def run_join(
    workspace: Workspace,
    name: str,
    *,
    backfill: Backfill | None = None,
    progress: Progress = SILENT,
    goal: Mapping[str, int] | None = None,
) -> JoinReport:
    """
    Update one join, or the KTable of a changelog source, from its sources; finish an open epoch first.

    `goal` holds versions of streams; a join with a stream reads these streams no further.

    Raises:
        LakejoinError: A subclass names what stopped the run; nothing is half applied.
    """
    watch = Stopwatch(lambda step: progress.step(name, step))
    prepared, finished = _finish_open_and_prepare(workspace, name, watch, progress, backfill=backfill, goal=goal)
    if finished is not None and finished.slices:
        return report_on(finished, watch, "resume")
    plan = prepared.plan
    if backfill is not None and backfill.where is not None:
        return _backfill_part(workspace, prepared, backfill.where, backfill.slices, watch, progress)
    is_stream = isinstance(prepared.bound, BoundJoin) and prepared.bound.stream is not None
    if backfill is not None and is_stream and plan.strategy != "load":
        return _repair_stream(workspace, prepared, backfill.remedy, watch, progress)
    if backfill is not None and backfill.remedy and not is_stream:
        raise LakejoinError(
            name,
            f"`--{backfill.remedy}` is for joins with a stream",
            hint=f"run `lakejoin backfill --select {name}`: it reconciles the result with its sources",
        )
    if plan.strategy == "nothing":
        if finished is not None:
            return report_on(finished, watch, "resume")
        return JoinReport(
            join=name,
            outcome="nothing",
            epoch=plan.epoch,
            strategy=plan.strategy,
            reason=plan.reason,
            seconds=dict(watch.seconds),
            details=notes_on(prepared.bound),
        )
    tell_begun(progress, plan)
    if isinstance(prepared.bound, BoundKTable):
        return _run_ktable_epoch(workspace, prepared, watch, progress, asked=backfill is not None)
    if isinstance(prepared.bound, BoundJoin) and prepared.bound.stream is not None:
        with stream_remedy(name):
            return _run_stream_epochs(workspace, prepared, watch, progress, goal or {})
    if plan.strategy == "load":
        return report_on(load(workspace, plan, must_be_bound(prepared), watch), watch, plan.strategy)
    if backfill is not None:
        bound = must_be_bound(prepared)
        number = slices_for(bound, backfill.slices)
        if number > 1:
            plan = _with_changelog(workspace, bound, plan)
            return report_on(backfill_in_slices(workspace, bound, plan, number, watch, progress), watch, plan.strategy)
    return _run_table_epoch(workspace, prepared, watch)


def _finish_open_and_prepare(
    workspace: Workspace,
    name: str,
    watch: Stopwatch,
    progress: Progress,
    *,
    backfill: Backfill | None,
    goal: Mapping[str, int] | None = None,
) -> tuple[Prepared, Entry | None]:
    """
    Finish the epoch that a killed run left open, if any, then plan the next one.

    Returns:
        The plan, and the committed row of the finished epoch; None if no epoch was open or it was abandoned. After a
        sliced backfill the plan is the one that resumed it.
    """
    asked, is_whole = backfill is not None, backfill is not None and backfill.where is None
    with planning(workspace, name, watch):
        prepared = prepare_node(workspace, name, backfill=asked, goal=goal or None)
    if prepared.plan.strategy != "resume":
        return prepared, None
    open_entry = prepared.history.open
    assert open_entry is not None
    if not is_whole:
        refuse_open(open_entry)
    tell_begun(progress, prepared.plan)
    if open_entry.slices:
        finished = resume_slices(workspace, prepared.history, watch, progress)
    else:
        with stream_remedy(name) if _is_stream(workspace, name) else nullcontext():
            resets = backfill is not None and backfill.remedy == "reset"
            finished = finish_open(workspace, prepared, watch, abandon_broken=is_whole, resets=resets)
    if finished is not None and finished.slices:
        return prepared, finished
    with planning(workspace, name, watch):
        return prepare_node(workspace, name, backfill=asked, goal=goal or None), finished


@contextmanager
def planning(workspace: Workspace, name: str, watch: Stopwatch) -> Iterator[None]:
    """Time the planning of a join, with settings for its small queries, and add remedies to read errors."""
    with watch.step("plan"), reading(name), settings(workspace.spark, INTERPRETED):
        yield


def _is_stream(workspace: Workspace, name: str) -> bool:
    return name in workspace.file.joins and is_stream(workspace.file, name)


def tell_begun(progress: Progress, plan: EpochPlan) -> None:
    """Report to `progress` that an epoch begins."""
    progress.started(plan.join, plan.epoch, plan.strategy, plan.reason)


def _run_table_epoch(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    """Run an epoch of a join of tables; if a feed proves unreadable, plan the epoch in full where this is allowed."""
    name = prepared.plan.join
    try:
        return _attempt(workspace, prepared, watch)
    except (FeedUnavailable, SchemaBroken) as error:
        is_computing = workspace.ledger.of(name).open is None
        if prepared.plan.strategy == "incremental" and error.where == name and is_computing:
            check_sources(workspace, must_be_bound(prepared))  # no feed is named: it may be a source itself
        again = plan_around(workspace, prepared, error)
        log.warning("%s: %s; computing in full", name, again.plan.reason)
        return _attempt(workspace, again, watch)


def _attempt(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    plan, bound = prepared.plan, must_be_bound(prepared)
    plan = _with_changelog(workspace, bound, plan)
    compute = compute_changes if plan.strategy == "incremental" else compute_reconciliation
    return run_epoch(workspace, bound, plan, counts_only(compute), watch)


def _run_ktable_epoch(
    workspace: Workspace, prepared: Prepared, watch: Stopwatch, progress: Progress, *, asked: bool
) -> JoinReport:
    """Run an epoch of a KTable; if the KTable cannot continue and the user asked for a backfill, reconcile it."""
    name, plan, bound = prepared.plan.join, prepared.plan, prepared.bound
    assert isinstance(bound, BoundKTable)
    try:
        return run_epoch(workspace, bound, create_target(workspace, bound, plan), counts_only(compute_ktable), watch)
    except CannotContinue as error:
        if not asked or plan.strategy != "incremental" or isinstance(error, LedgerForgot):
            raise
        stopped = error
    with planning(workspace, name, watch):
        again = prepare_ktable(workspace, name, backfill=True, reconcile=True).plan
    if again.strategy != "reconcile":  # the epoch stopped while it was published
        raise stopped
    tell_begun(progress, again)
    return run_epoch(workspace, bound, again, counts_only(compute_ktable), watch)


def _run_stream_epochs(
    workspace: Workspace, prepared: Prepared, watch: Stopwatch, progress: Progress, goal: Mapping[str, int]
) -> JoinReport:
    """Run epochs of a join with a stream up to the source versions that were found when the first was planned."""
    name, reports = prepared.plan.join, []
    newest = {**must_be_bound(prepared).newest, **goal}
    while True:
        bound, plan = must_be_bound(prepared), prepared.plan
        reports.append(run_epoch(workspace, bound, create_stream_targets(workspace, bound, plan), compute_epoch, watch))
        if not plan.more:
            return joined_reports(reports)
        watch = Stopwatch(lambda step: progress.step(name, step))
        with planning(workspace, name, watch):
            prepared = prepare_node(workspace, name, goal=newest)
        if prepared.plan.strategy != "incremental":  # another run was faster, or the remaining commits are held back
            return joined_reports(reports)
        tell_begun(progress, prepared.plan)


def _repair_stream(
    workspace: Workspace, prepared: Prepared, remedy: Remedy, watch: Stopwatch, progress: Progress
) -> JoinReport:
    """Append missing rows of the recorded epochs to the result of a join with a stream, or apply the chosen remedy."""
    name = prepared.plan.join
    with planning(workspace, name, watch):
        if remedy == "reset":
            plan, bound = plan_reset(workspace, name, prepared.history)
        else:
            plan, bound = plan_replay(workspace, name, remedy)
    tell_begun(progress, plan)
    return run_epoch(workspace, bound, plan, compute_epoch if remedy == "reset" else compute_replay, watch)


def _backfill_part(
    workspace: Workspace, prepared: Prepared, where: str, slices: int, watch: Stopwatch, progress: Progress
) -> JoinReport:
    """Reconcile the rows of a result that meet a condition, at the source versions of its last epoch."""
    with planning(workspace, prepared.plan.join, watch):
        plan, bound, subset = plan_subset(workspace, prepared, where)
    tell_begun(progress, plan)
    number = slices_for(bound, slices)
    if number > 1:
        entry = backfill_in_slices(workspace, bound, plan, number, watch, progress, *subset.conditions)
        return report_on(entry, watch, plan.strategy)
    return run_epoch(workspace, bound, plan, counts_only(partial(compute_reconciliation, subset=subset)), watch)


def _with_changelog(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """Create the changelog if the join keeps one and it does not exist; it is empty, so a crash here is harmless."""
    if bound.changelog is None or plan.changelog_id:
        return plan
    create(workspace.spark, bound.changelog, changelog_schema(bound.columns), bound.join.key)
    changelog = get(workspace.engine, bound.changelog)
    return replace(plan, changelog_id=changelog.id, changelog_version=changelog.version)
