"""
The driver: executes the plan of one epoch. It knows the protocol and no join.

    incremental, reconcile:  compute ─► stage ─► gate ─► ledger: publishing ─► MERGE ─► ledger: committed ─► stage gone
    load:                    check ─► ledger: publishing ─► create, append ─► gate ─► ledger: committed

A run that is killed leaves a stale stage before *publishing*, and after it an epoch that the next run finishes from the
ledger's row and the stage alone.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from lakehouse.conditions import reading
from lakehouse.entries import Entry
from lakehouse.errors import CannotContinue, FeedUnavailable, LakejoinError, LedgerForgot, SchemaBroken
from lakehouse.session import INTERPRETED, settings
from lakehouse.tables import create, get
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
from pipelines.epochs.streams.prepare import create_targets as stream_made_ready
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
    Bring one join, or the KTable of a changelog source, up to date; an open epoch is finished first.

    With a goal, which has versions of streams, a join with a stream reads them no further.

    Raises:
        LakejoinError: A subclass says what stopped it; nothing is half applied.
    """
    watch = Stopwatch(lambda step: progress.step(name, step))
    prepared, finished = _after_the_open_one(workspace, name, watch, progress, backfill=backfill, goal=goal)
    if finished is not None and finished.slices:
        return report_on(finished, watch, "resume")
    plan = prepared.plan
    if backfill is not None and backfill.where is not None:
        return _mended_part(workspace, prepared, backfill.where, backfill.slices, watch, progress)
    is_stream = isinstance(prepared.bound, BoundJoin) and prepared.bound.stream is not None
    if backfill is not None and is_stream and plan.strategy != "load":
        return _mended(workspace, prepared, backfill.remedy, watch, progress)
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
        return _epoch_of_ktable(workspace, prepared, watch, progress, asked=backfill is not None)
    if isinstance(prepared.bound, BoundJoin) and prepared.bound.stream is not None:
        with stream_remedy(name):
            return _epochs_of_stream(workspace, prepared, watch, progress, goal or {})
    if plan.strategy == "load":
        return report_on(load(workspace, plan, must_be_bound(prepared), watch), watch, plan.strategy)
    if backfill is not None:
        bound = must_be_bound(prepared)
        number = slices_for(bound, backfill.slices)
        if number > 1:
            plan = _with_changelog(workspace, bound, plan)
            return report_on(backfill_in_slices(workspace, bound, plan, number, watch, progress), watch, plan.strategy)
    return _change(workspace, prepared, watch)


def _after_the_open_one(
    workspace: Workspace,
    name: str,
    watch: Stopwatch,
    progress: Progress,
    *,
    backfill: Backfill | None,
    goal: Mapping[str, int] | None = None,
) -> tuple[Prepared, Entry | None]:
    """Plan the next epoch, once that which a killed run left open is finished, and give that one's row if it is."""
    asked, is_whole = backfill is not None, backfill is not None and backfill.where is None
    with planning(workspace, name, watch):
        prepared = prepare_node(workspace, name, backfill=asked, goal=goal or None)
    if prepared.plan.strategy != "resume":
        return prepared, None
    waiting = prepared.history.open
    assert waiting is not None
    if not is_whole:
        refuse_open(waiting)
    tell_begun(progress, prepared.plan)
    if waiting.slices:
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
    """Time the look at a join's tables, whose queries are small, and say of what cannot be read what helps."""
    with watch.step("plan"), reading(name), settings(workspace.spark, INTERPRETED):
        yield


def _is_stream(workspace: Workspace, name: str) -> bool:
    return name in workspace.file.joins and is_stream(workspace.file, name)


def tell_begun(progress: Progress, plan: EpochPlan) -> None:
    """Tell that an epoch begins."""
    progress.begun(plan.join, plan.epoch, plan.strategy, plan.reason)


def _change(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    """Compute, gate and publish an epoch; a feed that turns out unreadable is planned around where that is allowed."""
    name = prepared.plan.join
    try:
        return _attempt(workspace, prepared, watch)
    except (FeedUnavailable, SchemaBroken) as error:
        is_computing = workspace.ledger.of(name).open is None
        if prepared.plan.strategy == "incremental" and error.where == name and is_computing:
            check_sources(workspace, must_be_bound(prepared))  # no feed failed, so it may be a source itself
        again = plan_around(workspace, prepared, error)
        log.warning("%s: %s; computing in full", name, again.plan.reason)
        return _attempt(workspace, again, watch)


def _attempt(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    plan, bound = prepared.plan, must_be_bound(prepared)
    plan = _with_changelog(workspace, bound, plan)
    compute = compute_changes if plan.strategy == "incremental" else compute_reconciliation
    return run_epoch(workspace, bound, plan, counts_only(compute), watch)


def _epoch_of_ktable(
    workspace: Workspace, prepared: Prepared, watch: Stopwatch, progress: Progress, *, asked: bool
) -> JoinReport:
    """Carry out an epoch of a KTable; where a person asked for a backfill, one that cannot go on is reconciled."""
    name, plan, bound = prepared.plan.join, prepared.plan, prepared.bound
    assert isinstance(bound, BoundKTable)
    try:
        return run_epoch(workspace, bound, create_target(workspace, bound, plan), counts_only(compute_ktable), watch)
    except CannotContinue as error:
        if not asked or plan.strategy != "incremental" or isinstance(error, LedgerForgot):
            raise
        stopped = error
    with planning(workspace, name, watch):
        again = prepare_ktable(workspace, name, backfill=True, anew=True).plan
    if again.strategy != "reconcile":  # it was stopped while it was published
        raise stopped
    tell_begun(progress, again)
    return run_epoch(workspace, bound, again, counts_only(compute_ktable), watch)


def _epochs_of_stream(
    workspace: Workspace, prepared: Prepared, watch: Stopwatch, progress: Progress, goal: Mapping[str, int]
) -> JoinReport:
    """Take the epochs of a join with a stream until it is where its sources were when the first was planned."""
    name, reports = prepared.plan.join, []
    newest = {**must_be_bound(prepared).newest, **goal}
    while True:
        bound, plan = must_be_bound(prepared), prepared.plan
        reports.append(run_epoch(workspace, bound, stream_made_ready(workspace, bound, plan), compute_epoch, watch))
        if not plan.more:
            return joined_reports(reports)
        watch = Stopwatch(lambda step: progress.step(name, step))
        with planning(workspace, name, watch):
            prepared = prepare_node(workspace, name, goal=newest)
        if prepared.plan.strategy != "incremental":  # another run was quicker, or what waits came out of order
            return joined_reports(reports)
        tell_begun(progress, prepared.plan)


def _mended(
    workspace: Workspace, prepared: Prepared, remedy: Remedy, watch: Stopwatch, progress: Progress
) -> JoinReport:
    """Append what the result of a join with a stream lacks of its recorded epochs, or do what a person decided."""
    name = prepared.plan.join
    with planning(workspace, name, watch):
        if remedy == "reset":
            plan, bound = plan_reset(workspace, name, prepared.history)
        else:
            plan, bound = plan_replay(workspace, name, remedy)
    tell_begun(progress, plan)
    return run_epoch(workspace, bound, plan, compute_epoch if remedy == "reset" else compute_replay, watch)


def _mended_part(
    workspace: Workspace, prepared: Prepared, where: str, slices: int, watch: Stopwatch, progress: Progress
) -> JoinReport:
    """Reconcile the rows of a result that meet a condition, at the versions that its last epoch read."""
    with planning(workspace, prepared.plan.join, watch):
        plan, bound, subset = plan_subset(workspace, prepared, where)
    tell_begun(progress, plan)
    number = slices_for(bound, slices)
    if number > 1:
        made = backfill_in_slices(workspace, bound, plan, number, watch, progress, *subset.conditions)
        return report_on(made, watch, plan.strategy)
    return run_epoch(workspace, bound, plan, counts_only(partial(compute_reconciliation, subset=subset)), watch)


def _with_changelog(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """Create the changelog of a result that is to keep one and has none; empty, a crash after this does no harm."""
    if bound.changelog is None or plan.changelog_id:
        return plan
    create(workspace.spark, bound.changelog, changelog_schema(bound.columns), bound.join.key)
    made = get(workspace.spark, bound.changelog)
    return replace(plan, changelog_id=made.id, changelog_version=made.version)
