"""
Run one epoch of any kind: compute it into a stage, run its gate, publish it to its tables.

    compute ─► stage ─► gate ─► ledger: publishing ─► tables ─► ledger: committed ─► stage deleted
"""

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from expectations.validation import import_in_background
from lakehouse import limits
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import AnotherRun, FeedUnavailable, GateFailed, LedgerForgot, SchemaBroken
from lakehouse.ledger.entries import REJECTED, Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import staged_rows
from lakehouse.session.session import NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings
from pipelines.binding.bound import notes_on
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.publish.publish import publish, publishing_entry
from pipelines.epochs.run.gate import gated
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


def run_epoch(kind: Kind[Any], epoch: Epoch[Any], watch: Stopwatch) -> JoinReport:
    """
    Compute an epoch, whose tables exist, into a stage of its own, run its gate and publish it.

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
        with settings(workspace.spark, NOT_ADAPTIVE if most <= limits.CHANGES_VIA_DRIVER else {}):
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
        warnings=tuple(entry.message.splitlines()),
        details=details,
    )
