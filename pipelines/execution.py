"""
One epoch carried out, whatever it computes: into a stage, through its gate, into its tables.

    compute ─► stage ─► gate ─► ledger: publishing ─► tables ─► ledger: committed ─► stage gone

An epoch that a killed run left open is finished from the ledger's row and the stage alone, or let go where a person
asked for a backfill and it cannot be finished.
"""

import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from expectations.validation import Verdict
from lakehouse.conditions import reading
from lakehouse.entries import ABANDONED, REJECTED, Entry
from lakehouse.errors import AnotherRun, CannotContinue, GateFailed, LakejoinError
from lakehouse.session import NOT_ADAPTIVE, settings
from lakehouse.stage import Stage
from lakehouse.tables import find
from pipelines.binding import Bound, BoundJoin, notes_on
from pipelines.first_load import resume_load
from pipelines.gating import Beforehand, gate, look_ahead
from pipelines.ktable import BoundKTable
from pipelines.plan import APPENDED, FEW, Computed, EpochPlan
from pipelines.prepare import Prepared
from pipelines.publishing import (
    Stopwatch,
    gate_of_yours,
    is_staged,
    publish,
    publishing_entry,
    put_back,
    staged_rows,
    written_rows,
)
from pipelines.report import JoinReport
from pipelines.workspace import Workspace

Target = TypeVar("Target", BoundJoin, BoundKTable)

OF_OURS = "`lakejoin backfill --select {join}` reconciles with the sources as they are now"
OF_YOURS = (
    "correct the sources and run again, correct what `expectations` of the join says, or set `on_failed_gate: warn`"
)
"""What to do next about findings."""


def counts_only(
    compute: Callable[[Workspace, Target, EpochPlan, Stage], dict[str, int]],
) -> Callable[[Workspace, Target, EpochPlan, Stage], Computed]:
    """Make of a function that counts one that gives what an epoch was computed to."""

    def computed(workspace: Workspace, bound: Target, plan: EpochPlan, stage: Stage) -> Computed:
        return Computed(compute(workspace, bound, plan, stage))

    return computed


def carry_out(
    workspace: Workspace,
    bound: Target,
    plan: EpochPlan,
    compute: Callable[[Workspace, Target, EpochPlan, Stage], Computed],
    watch: Stopwatch,
) -> JoinReport:
    """
    Compute an epoch into a stage of its own, gate it and publish it.

    Args:
        workspace: Where to work.
        bound: The join, or the KTable.
        plan: The epoch.
        compute: Computes it into its stage.
        watch: Times the steps.

    Raises:
        GateFailed: It did not pass; the ledger says so, and the stage is kept.
        LakejoinError: As `compute` and `publish`.
    """
    run_id = uuid.uuid4().hex
    stage = Stage.of(workspace.stages, plan.join, plan.epoch, run_id)
    with ThreadPoolExecutor(max_workers=1) as beside:
        beforehand, repairs = beside.submit(look_ahead, workspace, bound, plan), workspace.feeds.repairs
        try:
            with watch.step("compute"), reading(plan.join):
                computed = compute(workspace, bound, plan, stage)
        except BaseException:
            stage.delete()
            raise
        if workspace.feeds.repairs > repairs:  # what was looked up from a feed may be distorted, too
            beforehand = beside.submit(look_ahead, workspace, bound, plan)
        entry = publishing_entry(bound, plan, run_id, stage.path, computed)
        with settings(workspace.spark, NOT_ADAPTIVE if written_rows(entry) <= FEW else {}):
            return _published(workspace, bound, plan, stage, entry, watch, beforehand)


def _published(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    watch: Stopwatch,
    beforehand: Future[Beforehand | None],
) -> JoinReport:
    """Gate a staged change set and publish it."""
    with watch.step("gate"):
        verdict, warned, hint = gated(workspace, bound, plan, stage, entry, beforehand.result())
    if not verdict.passed:
        workspace.ledger.append(
            replace(entry, step=REJECTED, seconds=dict(watch.seconds), message="; ".join(verdict.findings))
        )
        raise GateFailed(
            plan.join,
            "the change set did not pass its gate; nothing was published",
            found="; ".join(verdict.findings),
            hint=f"look at the stage in {stage.path}; {hint}",
        )
    entry = replace(entry, message="\n".join(warned.findings))
    try:
        with watch.step("ledger"):
            workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    except AnotherRun:
        stage.delete()
        raise
    return report_on(publish(workspace, entry, watch), watch, plan.strategy, notes_on(bound))


def gated(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    beforehand: Beforehand | None = None,
) -> tuple[Verdict, Verdict, str]:
    """
    Hold a staged change set to its gates.

    Args:
        workspace: Where to work.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: What it would write.
        entry: Its row for the ledger, with its counts.
        beforehand: What was found for the gate while the epoch was computed.

    Returns:
        What stops it, what is only warned of, and what to do about the first.
    """
    verdict = gate(workspace, bound, plan, stage, entry, beforehand)
    if not verdict.passed or not (staged_rows(entry) or entry.counts.get(APPENDED)):
        return verdict, Verdict(), OF_OURS.format(join=plan.join)
    return *gate_of_yours(workspace, plan.join, lambda: _staged(workspace, stage, entry)), OF_YOURS


def _staged(workspace: Workspace, stage: Stage, entry: Entry) -> DataFrame:
    """Give the rows that the epoch puts into the result."""
    rows = stage.get(workspace.spark, "result")
    return rows if entry.counts.get(APPENDED) else rows.where("op <> 'delete'").select("after.*")


def finish_open(workspace: Workspace, prepared: Prepared, watch: Stopwatch, *, abandon_broken: bool) -> Entry | None:
    """
    Finish the open epoch from the ledger's row.

    Args:
        workspace: Where to work.
        prepared: What the ledger knows.
        watch: Times the steps.
        abandon_broken: Let it go where it cannot be finished: a backfill follows.

    Returns:
        The committed row; None if the epoch was let go.

    Raises:
        CannotContinue: It cannot be finished.
        LakejoinError: Its stage is gone.
    """
    entry = prepared.history.open
    assert entry is not None
    if abandon_broken and (prepared.history.broken is not None or is_gone(workspace, entry)):
        abandon(workspace, entry, "broken, or its table is gone")
        return None
    if entry.strategy == "load" and entry.result.base_version < 0:
        return resume_load(workspace, entry, watch)
    if is_staged(entry) and not Path(entry.stage).exists():
        raise LakejoinError(
            entry.join,
            f"the stage of open epoch {entry.epoch} is gone",
            expected=f"the folder {entry.stage}",
            hint="restore the folder; without it nobody knows what the epoch had still to write",
        )
    try:
        return publish(workspace, entry, watch)
    except CannotContinue as error:
        stopped = error
    except AnalysisException as error:
        stopped = CannotContinue(
            entry.join,
            f"open epoch {entry.epoch} cannot be finished",
            expected=f"what the epoch is to write in {entry.stage}, and tables that take it",
            found=str(error).splitlines()[0],
            hint=f"put back what is missing, or run `lakejoin backfill --select {entry.join}`, which lets the epoch go",
        )
        stopped.__cause__ = error
    if not abandon_broken:
        raise stopped
    abandon(workspace, entry, stopped.problem)
    return None


def abandon(workspace: Workspace, entry: Entry, why: str) -> None:
    """
    Let an open epoch go; what it has written already is mended by the backfill that follows.

    What waits is as it was before, for the epoch that comes instead begins with that.
    """
    if entry.state is not None and entry.state.base_version >= 0:
        put_back(workspace, entry, entry.state)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=f"{why}; a backfill reconciles the result"))
    Stage(entry.stage).delete()


def is_gone(workspace: Workspace, entry: Entry) -> bool:
    """Tell whether a table that an open epoch is to write was dropped; those of a first load need not be there yet."""
    return any(target.base_version >= 0 and find(workspace.spark, target.address) is None for target in entry.targets)


def report_on(entry: Entry | None, watch: Stopwatch, strategy: str, details: tuple[str, ...] = ()) -> JoinReport:
    """Report on an epoch that is committed."""
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
