"""
From a staged change set to a closed epoch: MERGE, a look at what it did, the committed row.

Everything comes from the ledger's *publishing* row and the stage, so that any later process can do the same again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakehouse.entries import BROKEN, COMMITTED, PUBLISHING, Entry, SourceVersions, TargetVersions
from lakehouse.errors import BrokenEpoch
from lakehouse.publish import Fence, committed_counts, merge
from lakehouse.stage import Stage
from lakehouse.tables import Table, get
from pipelines.binding import BoundJoin
from pipelines.plan import EpochPlan
from pipelines.workspace import Workspace

OPERATIONS = {"insert": "inserted", "update": "updated", "delete": "deleted"}


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


def publishing_entry(bound: BoundJoin, plan: EpochPlan, run_id: str, stage: str, counts: dict[str, int]) -> Entry:
    """Make the *publishing* row of an epoch, from which alone it can be finished."""
    return Entry(
        join=plan.join,
        epoch=plan.epoch,
        step=PUBLISHING,
        run_id=run_id,
        strategy=plan.strategy,
        reason=plan.reason,
        definition=bound.definition,
        sources=tuple(SourceVersions(s.name, s.id, s.from_version, s.to_version) for s in plan.sources),
        targets=(TargetVersions(bound.result, plan.result_id, plan.base_version),),
        stage=stage,
        counts=counts,
    )


def publish(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """Publish an epoch from its publishing row and its stage; run twice it writes nothing twice."""
    spark, ledger = workspace.spark, workspace.ledger
    stage = Stage(entry.stage)
    target = entry.result
    staged = {name: entry.counts[name] for name in OPERATIONS.values()}
    version = target.base_version
    if sum(staged.values()):
        with watch.step("merge"):
            table = _is_still(workspace, target)
            fence = Fence(f"{ledger.id}/{entry.join}", entry.epoch, entry.run_id)
            ops = [op for op, name in OPERATIONS.items() if staged[name]]
            commit = merge(spark, table, stage, ops, fence, target.base_version, lambda: _is_open(workspace, entry))
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
    return close(workspace, entry, version, watch)


def close(workspace: Workspace, entry: Entry, version: int, watch: Stopwatch) -> Entry:
    """Write the committed row, then let the stage go."""
    targets = (*entry.targets[:-1], replace(entry.result, version=version))
    with watch.step("ledger"):
        committed = workspace.ledger.append(
            replace(entry, step=COMMITTED, targets=targets, seconds=dict(watch.seconds))
        )
    if entry.stage:
        Stage(entry.stage).delete()
    return committed


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
