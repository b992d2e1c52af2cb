"""Count what a backfill would change: compute it as the backfill would, and discard the rows."""

import uuid
from collections.abc import Collection
from typing import Any

from lakehouse.errors.conditions import as_known, reading
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Kind
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.views.partial_backfill import the_only_join
from pipelines.plan.request import Backfill, Request
from pipelines.plan.values import Resume
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


def dry_run_joins(
    workspace: Workspace, select: Collection[str] | None = None, where: str | None = None
) -> list[JoinReport]:
    """
    Count what a backfill of joins would change, without writing a table or the ledger.

    Each join is computed from the current results of the joins that it reads, not from what their own backfill would
    write. The computed rows go into a stage that is deleted. `where` is a condition on the columns of one result that
    limits the backfill.
    """
    names = workspace.joins(select)
    if where is not None:
        names = [the_only_join(workspace, names)]
    return [_dry_run(workspace, name, Request(Backfill(where=where))) for name in names]


def _dry_run(workspace: Workspace, name: str, request: Request) -> JoinReport:
    watch, kind = Stopwatch(), kind_of(workspace, name)
    try:
        with kind.explaining_errors():
            with watch.step("plan"), reading(name):
                prepared = kind.prepare(request)
            plan = prepared.plan
            if isinstance(plan.route, Resume):
                reason = f"{plan.reason}; a backfill finishes this epoch first"
                return JoinReport(join=name, outcome="nothing", epoch=plan.epoch, reason=reason, dry_run=True)
            with watch.step("compute"), reading(name):
                counts = _counts(kind, prepared.epoch)
    except Exception as error:  # whatever it is, the other joins follow
        return JoinReport(join=name, outcome="failed", error=as_known(error, name), dry_run=True)
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


def _counts(kind: Kind[Any], epoch: Epoch[Any]) -> dict[str, int]:
    stage = kind.workspace.dry_run_stage(epoch.plan.join, epoch.plan.epoch, uuid.uuid4().hex)
    try:
        return kind.count(epoch, stage)
    finally:
        stage.delete()
