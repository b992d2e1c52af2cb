"""
The driver: executes the plan of one epoch. It knows the protocol and no join.

    incremental, reconcile:  compute ─► stage ─► gate ─► ledger: publishing ─► MERGE ─► ledger: committed ─► stage gone
    load:                    check ─► ledger: publishing ─► create, append ─► gate ─► ledger: committed

A run that is killed leaves a stale stage before *publishing*, and after it an epoch that the next run finishes from the
ledger's row and the stage alone.
"""

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import functions as F

from expectations.gate import Verdict, gate_change_set, gate_loaded
from lakehouse.entries import ABANDONED, BROKEN, COMMITTED, PUBLISHING, REJECTED, Entry, SourceVersions, TargetVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, FeedUnavailable, GateFailed, LakejoinError
from lakehouse.publish import Fence, append, check_owner, committed_counts, merge
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Table, create, find, get, reading
from lakehouse.writing import write
from pipelines.binding import BoundJoin, bind_join
from pipelines.epoch import check_sources, compute_changes, compute_reconciliation, expected_rows
from pipelines.plan import EpochPlan, SourceRange
from pipelines.prepare import Prepared, must_be_bound, prepare
from pipelines.report import JoinReport
from pipelines.workspace import Workspace

log = logging.getLogger(__name__)


class Stopwatch:
    """Seconds of the steps of an epoch."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step; a step taken twice adds up."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


def run_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    *,
    backfill: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[JoinReport]:
    """
    Bring joins up to date, each as far as its sources are now.

    Args:
        workspace: Where to work.
        select: Names of joins; all of the file if None.
        backfill: Reconcile with the sources as they are now, whatever the record says.
        progress: Called with a line when a step begins.

    Returns:
        A report for each join, in the order of the file. An error of one join is in its report and does not keep the
        others from running.

    Raises:
        LakejoinError: The selection is wrong.
    """
    reports = []
    for name in workspace.joins(select):
        try:
            reports.append(run_join(workspace, name, backfill=backfill, progress=progress))
        except LakejoinError as error:
            log.info("%s failed", name, exc_info=True)
            reports.append(JoinReport(name, "failed", error=error))
    return reports


def run_join(
    workspace: Workspace,
    name: str,
    *,
    backfill: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> JoinReport:
    """
    Bring one join up to date; an open epoch is finished first.

    Raises:
        LakejoinError: A subclass says what stopped it; nothing is half applied.
    """
    watch = Stopwatch()
    with watch.step("plan"):
        prepared = prepare(workspace, name, backfill=backfill)
    finished = None
    if prepared.plan.strategy == "resume":
        progress(f"{name}: finishing epoch {prepared.plan.epoch}")
        finished = _finish(workspace, prepared, watch, abandon_broken=backfill)
        with watch.step("plan"):
            prepared = prepare(workspace, name, backfill=backfill)
    plan = prepared.plan
    if plan.strategy == "nothing":
        if finished is not None:
            return _report(finished, watch, "resume")
        return JoinReport(name, "nothing", plan.epoch, plan.strategy, plan.reason, seconds=watch.seconds)
    progress(f"{name}: epoch {plan.epoch}, {plan.strategy} ({plan.reason})")
    if plan.strategy == "load":
        return _report(_load(workspace, prepared, watch), watch, plan.strategy)
    return _change(workspace, prepared, watch)


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
    plan, bound = prepared.plan, must_be_bound(prepared)
    run_id = uuid.uuid4().hex
    stage = Stage.of(workspace.stages, plan.join, plan.epoch, run_id)
    try:
        with watch.step("compute"), reading(plan.join):
            compute = compute_changes if plan.strategy == "incremental" else compute_reconciliation
            counts = compute(workspace, bound, plan, stage)
    except BaseException:
        stage.delete()
        raise
    entry = _entry(bound, plan, run_id, stage.path, counts)
    with watch.step("gate"):
        verdict = _gate(workspace, bound, plan, stage, counts)
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
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _report(_publish(workspace, entry, watch), watch, plan.strategy)


def _gate(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, counts: dict[str, int]) -> Verdict:
    if not counts["inserted"] + counts["updated"] + counts["deleted"]:
        return Verdict(())
    return gate_change_set(workspace.spark, stage.get(workspace.spark, "result"), bound.result, plan.base_version)


def _publish(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """Publish an epoch from its publishing row and its stage; run twice it writes nothing twice."""
    spark, ledger = workspace.spark, workspace.ledger
    stage = Stage(entry.stage)
    target = entry.result
    staged = {name: entry.counts[name] for name in ("inserted", "updated", "deleted")}
    version = target.base_version
    if sum(staged.values()):
        with watch.step("merge"):
            table = _is_still(workspace, target)
            fence = Fence(f"{ledger.id}/{entry.join}", entry.epoch, entry.run_id)
            commit = merge(spark, table, stage, fence, target.base_version, lambda: _is_open(workspace, entry))
        made = committed_counts(commit.metrics) if commit else dict.fromkeys(staged, 0)
        if made != staged:
            message = f"its commit changed {made}, staged were {staged}"
            ledger.append(replace(entry, step=BROKEN, message=message))
            raise BrokenEpoch(
                entry.join,
                f"epoch {entry.epoch} is broken",
                expected=str(staged),
                found=f"{made} in version {commit.version if commit else 'none'} of the result",
                hint=f"run `lakejoin backfill --select {entry.join}` to reconcile the result",
            )
        assert commit is not None
        version = commit.version
    return _close(workspace, entry, version, watch)


def _close(workspace: Workspace, entry: Entry, version: int, watch: Stopwatch) -> Entry:
    """Write the committed row, then let the stage go."""
    targets = (*entry.targets[:-1], replace(entry.result, version=version))
    with watch.step("ledger"):
        committed = workspace.ledger.append(
            replace(entry, step=COMMITTED, targets=targets, seconds=dict(watch.seconds))
        )
    if entry.stage:
        Stage(entry.stage).delete()
    return committed


def _finish(workspace: Workspace, prepared: Prepared, watch: Stopwatch, *, abandon_broken: bool) -> Entry | None:
    """Finish the open epoch from the ledger's row; None if it was abandoned."""
    entry = prepared.history.open
    assert entry is not None
    if prepared.history.broken is not None and abandon_broken:
        workspace.ledger.append(replace(entry, step=ABANDONED, message="broken; a backfill reconciles the result"))
        Stage(entry.stage).delete()
        return None
    if entry.strategy == "load":
        return _resume_load(workspace, entry, watch)
    if not Path(entry.stage).exists():
        raise LakejoinError(
            entry.join,
            f"the stage of open epoch {entry.epoch} is gone",
            expected=f"the folder {entry.stage}",
            hint="restore the folder; without it nobody knows what the epoch had still to write",
        )
    return _publish(workspace, entry, watch)


def _load(workspace: Workspace, prepared: Prepared, watch: Stopwatch) -> Entry:
    plan, bound = prepared.plan, must_be_bound(prepared)
    with watch.step("check"), reading(plan.join):
        counts = {"null_keys": check_sources(workspace, bound)}
    entry = _entry(bound, plan, uuid.uuid4().hex, "", counts)
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _write_load(workspace, bound, entry, watch)


def _resume_load(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry | None:
    """Finish a first load at its recorded versions, or let it go where they or the definition are no longer there."""
    bound = bind_join(workspace, entry.join)
    recorded = {source.name: source for source in entry.sources}
    same = bound.definition == entry.definition and all(
        table.id == recorded[side.source].id for _, side, table in bound.sides
    )
    if same:
        left, right = (replace(table, version=recorded[side.source].to_version) for _, side, table in bound.sides)
        try:
            with reading(entry.join):
                return _write_load(workspace, replace(bound, sources=(left, right)), entry, watch)
        except FeedUnavailable:
            log.warning("%s: the versions of the interrupted load are gone; loading anew", entry.join)
    _drop(workspace, entry)
    workspace.ledger.append(replace(entry, step=ABANDONED, message="the load could not be finished as it was begun"))
    return None


def _write_load(workspace: Workspace, bound: BoundJoin, entry: Entry, watch: Stopwatch) -> Entry:
    """Create the result, fill it in one commit, look at it where it lies, and only then call it a result."""
    spark, ledger = workspace.spark, workspace.ledger
    key = list(bound.join.key)
    with watch.step("load"):
        create(spark, bound.result, bound.columns, key)
        made = check_owner(spark, get(spark, bound.result), 0, {entry.run_id})
        if not any(commit.metadata == entry.run_id for commit in made):
            rows = expected_rows(workspace, bound)
            rows = rows.repartitionByRange(*(F.col(quote(name)) for name in key)).sortWithinPartitions(
                *(F.col(quote(name)) for name in key)
            )
            append(rows, bound.result, Fence(f"{ledger.id}/{entry.join}", entry.epoch, entry.run_id))
        table = get(spark, bound.result)
        commits = check_owner(spark, table, 0, {entry.run_id})
    commit = next((commit for commit in commits if commit.metadata == entry.run_id), None)
    if commit is None:
        raise AnotherRun(entry.join, f"epoch {entry.epoch} was written by another run meanwhile")
    with watch.step("gate"):
        verdict = gate_loaded(spark, bound.result, commit.version, key)
    if not verdict.passed:
        _drop(workspace, entry)
        message = "; ".join(verdict.findings)
        ledger.append(replace(entry, step=ABANDONED, message=f"rejected by its gate: {message}"))
        raise GateFailed(entry.join, "the loaded result did not pass its gate and was dropped", found=message)
    rows_loaded = int(commit.metrics.get("numOutputRows", 0))
    counts = {**entry.counts, "inserted": rows_loaded, "updated": 0, "deleted": 0}
    loaded = replace(entry, counts=counts, targets=(TargetVersions(bound.result, table.id, -1),))
    return _close(workspace, loaded, commit.version, watch)


def _drop(workspace: Workspace, entry: Entry) -> None:
    """Remove a result that an unfinished load of ours made, and nothing else."""
    address = entry.result.address
    table = find(workspace.spark, address)
    if table is None:
        return
    check_owner(workspace.spark, table, 0, {entry.run_id})
    if address.path:
        write(f"drop {address.label}", lambda: shutil.rmtree(address.path, ignore_errors=True))
    else:
        write(f"drop {address.label}", lambda: workspace.spark.sql(f"DROP TABLE IF EXISTS {address.sql}").collect())


def _is_open(workspace: Workspace, entry: Entry) -> bool:
    waiting = workspace.ledger.of(entry.join).open
    return waiting is not None and waiting.epoch == entry.epoch and waiting.run_id == entry.run_id


def _is_still(workspace: Workspace, target: TargetVersions) -> Table:
    """See that the table to merge into is the one that the epoch was computed against."""
    table = get(workspace.spark, target.address)
    if table.id != target.id:
        raise BrokenEpoch(
            target.address.label,
            "the result table was replaced by another one while an epoch was open",
            expected=f"the table with id {target.id}",
            found=f"id {table.id}",
            hint=f"run `lakejoin backfill --select {target.address.label}`",
        )
    return table


def _entry(bound: BoundJoin, plan: EpochPlan, run_id: str, stage: str, counts: dict[str, int]) -> Entry:
    return Entry(
        join=plan.join,
        epoch=plan.epoch,
        step=PUBLISHING,
        run_id=run_id,
        strategy=plan.strategy,
        reason=plan.reason,
        definition=bound.definition,
        sources=tuple(_versions(source) for source in plan.sources),
        targets=(TargetVersions(bound.result, plan.result_id, plan.base_version),),
        stage=stage,
        counts=counts,
    )


def _versions(source: SourceRange) -> SourceVersions:
    return SourceVersions(source.name, source.id, source.from_version, source.to_version)


def _report(entry: Entry | None, watch: Stopwatch, strategy: str) -> JoinReport:
    assert entry is not None
    return JoinReport(entry.join, "done", entry.epoch, strategy, entry.reason, dict(entry.counts), dict(watch.seconds))
