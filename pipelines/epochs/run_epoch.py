"""
Run one epoch of any kind: compute it into a stage, run its gate, publish it to its tables.

    compute ─► stage ─► gate ─► ledger: publishing ─► tables ─► ledger: committed ─► stage deleted
"""

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from lakehouse import limits
from lakehouse.conditions import reading
from lakehouse.entries import REJECTED, Entry
from lakehouse.errors import AnotherRun, FeedUnavailable, GateFailed, LedgerForgot, SchemaBroken
from lakehouse.session import NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings
from lakehouse.stage import Stage
from pipelines.binding.bound import Bound, BoundJoin, notes_on
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.gate import Prefetched, gated, prefetch
from pipelines.epochs.publish import publish, publishing_entry, written_rows
from pipelines.plan.values import Computed, EpochPlan
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch

Target = TypeVar("Target", BoundJoin, BoundKTable)


def counts_only(
    compute: Callable[[Workspace, Target, EpochPlan, Stage], dict[str, int]],
) -> Callable[[Workspace, Target, EpochPlan, Stage], Computed]:
    """Wrap a function that returns the counts of an epoch so that it returns a `Computed`."""

    def computed(workspace: Workspace, bound: Target, plan: EpochPlan, stage: Stage) -> Computed:
        return Computed(compute(workspace, bound, plan, stage))

    return computed


def run_epoch(
    workspace: Workspace,
    bound: Target,
    plan: EpochPlan,
    compute: Callable[[Workspace, Target, EpochPlan, Stage], Computed],
    watch: Stopwatch,
) -> JoinReport:
    """
    Compute an epoch into a stage of its own, run its gate and publish it.

    Args:
        workspace: Where to work.
        bound: The join, or the KTable.
        plan: The epoch.
        compute: Computes the epoch into its stage.
        watch: Times the steps.

    Raises:
        GateFailed: The change set did not pass its gate; the ledger records this, and the stage is kept.
        FeedUnavailable, SchemaBroken: The gate cannot read a feed.
        LakejoinError: As `compute` and `publish` raise it.
    """
    run_id = uuid.uuid4().hex
    stage = workspace.stage(plan.join, plan.epoch, run_id)
    with ThreadPoolExecutor(max_workers=1) as executor:
        prefetched, repairs = executor.submit(prefetch, workspace, bound, plan), workspace.feeds.repairs
        try:
            with watch.step("compute"), reading(plan.join):
                computed = compute(workspace, bound, plan, stage)
        except BaseException:
            stage.delete()
            raise
        if workspace.feeds.repairs > repairs:  # the prefetched rows may come from a distorted feed
            prefetched = executor.submit(prefetch, workspace, bound, plan)
        entry = publishing_entry(bound, plan, run_id, stage.path, computed)
        with settings(workspace.spark, NOT_ADAPTIVE if written_rows(entry) <= limits.CHANGES_VIA_DRIVER else {}):
            return _gate_and_publish(workspace, bound, plan, stage, entry, watch, prefetched)


def _gate_and_publish(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    watch: Stopwatch,
    prefetched: Future[Prefetched | None],
) -> JoinReport:
    """Run the gate of a staged change set, and publish it if it passes."""
    with watch.step("gate"):
        try:
            with reading(plan.join):
                # The prefetch outlasts the computation, whose settings it shared.
                with settings(workspace.spark, NOT_ADAPTIVE | WITHOUT_BROADCASTS if plan.via_driver else {}):
                    read = prefetched.result()
                verdict, warned, hint = gated(workspace, bound, plan, stage, entry, read)
        except (FeedUnavailable, SchemaBroken):  # the epoch has read a feed that Spark refuses to read
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
            hint=f"inspect the stage in {stage.path}; {hint}",
        )
    entry = replace(entry, message="\n".join(warned.findings))
    try:
        with watch.step("ledger"):
            workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    except (AnotherRun, LedgerForgot):
        stage.delete()
        raise
    return report_on(publish(workspace, entry, watch), watch, plan.strategy, notes_on(bound))


def report_on(entry: Entry | None, watch: Stopwatch, strategy: str, details: tuple[str, ...] = ()) -> JoinReport:
    """Build the report of a committed epoch."""
    assert entry is not None
    return JoinReport(
        join=entry.join,
        outcome="done",
        epoch=entry.epoch,
        strategy=strategy,
        reason=entry.reason,
        counts=dict(entry.counts),
        seconds=dict(watch.seconds),
        warnings=tuple(entry.message.splitlines()),
        details=details,
    )
