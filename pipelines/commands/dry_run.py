"""Count what a backfill would change: compute it as the backfill would, and discard the rows."""

import uuid
from collections.abc import Collection
from dataclasses import replace

from lakehouse.conditions import reading
from lakehouse.errors import LakejoinError
from lakehouse.publish import OPERATIONS
from lakehouse.stage import Stage
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kinds import prepare_node
from pipelines.epochs.lookup.compute import Lookups
from pipelines.epochs.preflight import Prepared, must_be_bound
from pipelines.epochs.replay import compute_replay, plan_replay
from pipelines.epochs.tables.partial_backfill import plan_subset, the_only_join
from pipelines.epochs.tables.reconcile import check_sources, compute_reconciliation, expected_rows
from pipelines.epochs.window.compute import Meetings
from pipelines.plan.values import APPENDED, EpochPlan
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


def dry_run_joins(
    workspace: Workspace, select: Collection[str] | None = None, where: str | None = None
) -> list[JoinReport]:
    """
    Count what a backfill of joins would change.

    No table and no ledger is written. The computed rows go into a stage that is deleted.

    Args:
        workspace: The workspace of the pipeline.
        select: The names of joins; all joins of the file if None.
        where: A condition on the columns of one result that limits the backfill; None for no limit.

    Returns:
        A report for each join, with the counts that a backfill would have. A join is computed from the current results
        of the joins that it reads, not from what their own backfill would write.
    """
    names = workspace.joins(select)
    if where is not None:
        names = [the_only_join(workspace, names)]
    return [_rehearsed(workspace, name, where) for name in names]


def _rehearsed(workspace: Workspace, name: str, where: str | None) -> JoinReport:
    watch = Stopwatch()
    try:
        with watch.step("plan"), reading(name):
            prepared = prepare_node(workspace, name, backfill=True)
        if prepared.plan.strategy == "resume":
            reason = f"{prepared.plan.reason}; a backfill finishes this epoch first"
            return JoinReport(join=name, outcome="nothing", epoch=prepared.plan.epoch, reason=reason, dry_run=True)
        with watch.step("compute"), reading(name):
            plan, counts = _computed(workspace, prepared, where)
    except LakejoinError as error:
        return JoinReport(join=name, outcome="failed", error=error, dry_run=True)
    return JoinReport(
        join=name,
        outcome="done",
        epoch=plan.epoch,
        strategy=plan.strategy,
        reason=plan.reason,
        counts=counts,
        seconds=dict(watch.seconds),
        dry_run=True,
    )


def _computed(workspace: Workspace, prepared: Prepared, where: str | None) -> tuple[EpochPlan, dict[str, int]]:
    """Compute what a backfill would write, into a stage that is deleted, and return the plan and the counts."""
    plan, bound, subset = prepared.plan, must_be_bound(prepared), None
    if where is not None:
        plan, bound, subset = plan_subset(workspace, prepared, where)
    stage = workspace.dry_run_stage(plan.join, plan.epoch, uuid.uuid4().hex)
    try:
        if plan.strategy == "load":
            return plan, _load_counts(workspace, bound, plan, stage)
        if bound.streams:
            plan, bound = plan_replay(workspace, plan.join, "")
            return plan, dict(compute_replay(workspace, bound, plan, stage).counts)
        if not plan.changelog_id:  # the backfill would create the changelog first
            bound = replace(bound, changelog=None)
        return plan, compute_reconciliation(workspace, bound, plan, stage, subset)
    finally:
        stage.delete()


def _load_counts(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    if bound.streams:
        kind = Lookups if bound.join.window is None else Meetings
        return {APPENDED: kind(workspace, bound, plan, stage, via_driver=False).rows().count()}
    counts = {"null_keys": check_sources(workspace, bound), **dict.fromkeys(OPERATIONS.values(), 0)}
    return {**counts, "inserted": expected_rows(workspace, bound).count()}
