"""
The driver: executes the plan of one epoch. It knows the protocol and no join.

    incremental, reconcile:  compute ─► stage ─► gate ─► ledger: publishing ─► MERGE ─► ledger: committed ─► stage gone
    load:                    check ─► ledger: publishing ─► create, append ─► gate ─► ledger: committed

A run that is killed leaves a stale stage before *publishing*, and after it an epoch that the next run finishes from the
ledger's row and the stage alone.
"""

import logging
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from expectations.gate import Verdict, gate_change_set
from lakehouse.entries import ABANDONED, REJECTED, Entry
from lakehouse.errors import AnotherRun, FeedUnavailable, GateFailed, LakejoinError
from lakehouse.session import settings
from lakehouse.stage import Stage
from lakehouse.tables import find, reading
from pipelines.binding import Bound, BoundJoin
from pipelines.epoch import NOT_ADAPTIVE, compute_changes, compute_reconciliation
from pipelines.first_load import load, resume_load
from pipelines.ktable import BoundKTable, way_on
from pipelines.ktable_epoch import compute_ktable, made_ready, prepare_node
from pipelines.plan import FEW, EpochPlan
from pipelines.prepare import Prepared, must_be_bound, prepare
from pipelines.progress import SILENT, Progress
from pipelines.publishing import Stopwatch, publish, publishing_entry, staged_rows
from pipelines.report import JoinReport
from pipelines.spec import changelogs_of
from pipelines.workspace import Workspace

Target = TypeVar("Target", BoundJoin, BoundKTable)

log = logging.getLogger(__name__)


def run_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    *,
    backfill: bool = False,
    progress: Progress = SILENT,
) -> list[JoinReport]:
    """
    Bring joins up to date, each as far as its sources are now.

    Args:
        workspace: Where to work.
        select: Names of joins; all of the file if None.
        backfill: Reconcile with the sources as they are now, whatever the record says.
        progress: Hears of each epoch and step as it begins, and of each join that is through.

    Returns:
        A report for each changelog source that they read, which comes first, then for each join, in the order of the
        file. An error of one is in its report and does not keep the others from running, but for the joins that read
        what failed: these are skipped, and say so.

    Raises:
        LakejoinError: The selection is wrong.
    """
    reports: list[JoinReport] = []
    for name in workspace.nodes(select):
        failed = [report.join for report in reports if report.error is not None]
        missing = [source for source in changelogs_of(workspace.file, name) if source in failed]
        try:
            if missing:
                reports.append(JoinReport(join=name, outcome="skipped", reason=f"{', '.join(missing)} failed"))
            elif name in workspace.file.joins:
                reports.append(run_join(workspace, name, backfill=backfill, progress=progress))
            else:
                with way_on(workspace, name):
                    reports.append(run_join(workspace, name, backfill=backfill, progress=progress))
        except LakejoinError as error:
            log.info("%s failed", name, exc_info=True)
            reports.append(JoinReport(join=name, outcome="failed", error=error))
        progress.finished(name, reports[-1].outcome)
    return reports


def run_join(
    workspace: Workspace,
    name: str,
    *,
    backfill: bool = False,
    progress: Progress = SILENT,
) -> JoinReport:
    """
    Bring one join, or the KTable of a changelog source, up to date; an open epoch is finished first.

    Raises:
        LakejoinError: A subclass says what stopped it; nothing is half applied.
    """
    watch = Stopwatch(lambda step: progress.step(name, step))
    with watch.step("plan"), reading(name):
        prepared = prepare_node(workspace, name, backfill=backfill)
    finished = None
    if prepared.plan.strategy == "resume":
        _begun(progress, prepared.plan)
        finished = _finish(workspace, prepared, watch, abandon_broken=backfill)
        with watch.step("plan"), reading(name):
            prepared = prepare_node(workspace, name, backfill=backfill)
    plan = prepared.plan
    if plan.strategy == "nothing":
        if finished is not None:
            return _report(finished, watch, "resume")
        return JoinReport(
            join=name,
            outcome="nothing",
            epoch=plan.epoch,
            strategy=plan.strategy,
            reason=plan.reason,
            seconds=dict(watch.seconds),
        )
    _begun(progress, plan)
    if isinstance(prepared.bound, BoundKTable):
        return _staged(workspace, prepared.bound, made_ready(workspace, prepared.bound, plan), compute_ktable, watch)
    if plan.strategy == "load":
        return _report(load(workspace, plan, must_be_bound(prepared), watch), watch, plan.strategy)
    return _change(workspace, prepared, watch)


def _begun(progress: Progress, plan: EpochPlan) -> None:
    progress.begun(plan.join, plan.epoch, plan.strategy, plan.reason)


def _change(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    """Compute, gate and publish an epoch; a feed that turns out unreadable is planned around where that is allowed."""
    name = prepared.plan.join
    try:
        return _attempt(workspace, prepared, watch)
    except FeedUnavailable as error:
        if prepared.plan.strategy != "incremental" or workspace.file.joins[name].refresh != "auto":
            raise
        again = prepare(workspace, name, gap=error.found or error.problem)
        if again.plan.strategy != "reconcile":
            raise
        log.warning("%s: %s; computing in full", name, again.plan.reason)
        return _attempt(workspace, again, watch)


def _attempt(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> JoinReport:
    compute = compute_changes if prepared.plan.strategy == "incremental" else compute_reconciliation
    return _staged(workspace, must_be_bound(prepared), prepared.plan, compute, watch)


def _staged(
    workspace: Workspace,
    bound: Target,
    plan: EpochPlan,
    compute: Callable[[Workspace, Target, EpochPlan, Stage], dict[str, int]],
    watch: Stopwatch,
) -> JoinReport:
    """Compute an epoch into a stage of its own and publish it."""
    run_id = uuid.uuid4().hex
    stage = Stage.of(workspace.stages, plan.join, plan.epoch, run_id)
    try:
        with watch.step("compute"), reading(plan.join):
            counts = compute(workspace, bound, plan, stage)
    except BaseException:
        stage.delete()
        raise
    entry = publishing_entry(bound, plan, run_id, stage.path, counts)
    with settings(workspace.spark, NOT_ADAPTIVE if staged_rows(entry) <= FEW else {}):
        return _published(workspace, bound, plan, stage, entry, watch)


def _published(
    workspace: Workspace, bound: Bound, plan: EpochPlan, stage: Stage, entry: Entry, watch: Stopwatch
) -> JoinReport:
    """Gate a staged change set and publish it."""
    with watch.step("gate"):
        verdict = _gate(workspace, bound, plan, stage, staged_rows(entry))
    if not verdict.passed:
        workspace.ledger.append(
            replace(entry, step=REJECTED, seconds=dict(watch.seconds), message="; ".join(verdict.findings))
        )
        raise GateFailed(
            plan.join,
            "the change set did not pass its gate; nothing was published",
            found="; ".join(verdict.findings),
            hint=f"look at the stage in {stage.path}",
        )
    try:
        with watch.step("ledger"):
            workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    except AnotherRun:
        stage.delete()
        raise
    return _report(publish(workspace, entry, watch), watch, plan.strategy)


def _gate(workspace: Workspace, bound: Bound, plan: EpochPlan, stage: Stage, rows: int) -> Verdict:
    if not rows:
        return Verdict(())
    changes = stage.get(workspace.spark, "result")
    return gate_change_set(workspace.spark, changes, rows, bound.result, plan.base_version)


def _finish(workspace: Workspace, prepared: Prepared, watch: Stopwatch, *, abandon_broken: bool) -> Entry | None:
    """Finish the open epoch from the ledger's row; None if it was abandoned."""
    entry = prepared.history.open
    assert entry is not None
    if abandon_broken and (prepared.history.broken is not None or _is_gone(workspace, entry)):
        message = "broken, or its table is gone; a backfill reconciles the result"
        workspace.ledger.append(replace(entry, step=ABANDONED, message=message))
        Stage(entry.stage).delete()
        return None
    if entry.strategy == "load" and entry.result.base_version < 0:
        return resume_load(workspace, entry, watch)
    if staged_rows(entry) and not Path(entry.stage).exists():
        raise LakejoinError(
            entry.join,
            f"the stage of open epoch {entry.epoch} is gone",
            expected=f"the folder {entry.stage}",
            hint="restore the folder; without it nobody knows what the epoch had still to write",
        )
    return publish(workspace, entry, watch)


def _is_gone(workspace: Workspace, entry: Entry) -> bool:
    """Tell whether the table that an open epoch is to write was dropped; that of a first load need not be there yet."""
    return entry.result.base_version >= 0 and find(workspace.spark, entry.result.address) is None


def _report(entry: Entry | None, watch: Stopwatch, strategy: str) -> JoinReport:
    assert entry is not None
    return JoinReport(
        join=entry.join,
        outcome="done",
        epoch=entry.epoch,
        strategy=strategy,
        reason=entry.reason,
        counts=dict(entry.counts),
        seconds=dict(watch.seconds),
    )
