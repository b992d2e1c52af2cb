"""
From a staged change set to a closed epoch: MERGE, a look at what it did, the committed row.

Everything comes from the ledger's *publishing* row and the stage, so that any later process can do the same again.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakehouse.entries import BROKEN, COMMITTED, PUBLISHING, Entry, SourceVersions, TargetVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, LakejoinError
from lakehouse.publish import OPERATIONS, Fence, committed_counts, merge
from lakehouse.stage import Stage
from lakehouse.tables import Commit, Table, get
from pipelines.binding import Bound
from pipelines.plan import EpochPlan
from pipelines.workspace import Workspace


class Stopwatch:
    """
    Seconds of the steps of an epoch, to the millisecond.

    Args:
        listener: Called with the name of each step as it begins.
    """

    def __init__(self, listener: Callable[[str], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._listener = listener

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step; a step taken twice adds up."""
        if self._listener is not None:
            self._listener(name)
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)


def publishing_entry(bound: Bound, plan: EpochPlan, run_id: str, stage: str, counts: dict[str, int]) -> Entry:
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


def staged_rows(entry: Entry) -> int:
    """Give how many rows of the result the epoch's stage changes."""
    return sum(entry.counts.get(name, 0) for name in OPERATIONS.values())


def publish(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """
    Publish an epoch from its publishing row and its stage; run twice it writes nothing twice.

    Raises:
        BrokenEpoch: What the commit changed is not what was staged; the ledger says so too.
        ForeignWriter: Somebody else wrote to the result since the epoch was computed.
        AnotherRun: Another run finished the epoch meanwhile.
    """
    version = entry.result.base_version
    if staged_rows(entry):
        with watch.step("merge"):
            commit = _merge(workspace, entry)
        staged = {name: entry.counts[name] for name in OPERATIONS.values()}
        made = committed_counts(commit.metrics) if commit else dict.fromkeys(staged, 0)
        if commit is None or made != staged:
            message = f"its commit changed {made}, staged were {staged}"
            workspace.ledger.append(replace(entry, step=BROKEN, message=message))
            raise BrokenEpoch(
                entry.join,
                f"epoch {entry.epoch} is broken",
                expected=str(staged),
                found=f"{made} in version {commit.version if commit else 'none'} of the result",
                hint=f"run `lakejoin backfill --select {entry.join}` to reconcile the result",
            )
        version = commit.version
    return close(workspace, entry, version, watch)


def _merge(workspace: Workspace, entry: Entry) -> Commit | None:
    table = _is_still(workspace, entry.result)
    fence = Fence(f"{workspace.ledger.id}/{entry.join}", entry.epoch, entry.run_id)
    ops = [op for op, name in OPERATIONS.items() if entry.counts[name]]
    base = entry.result.base_version
    try:
        return merge(workspace.spark, table, Stage(entry.stage), ops, fence, base, lambda: _is_open(workspace, entry))
    except LakejoinError:
        raise
    except Exception as error:
        if _is_open(workspace, entry):
            raise
        # Another run finished the epoch, and its stage went with it.
        raise AnotherRun(
            entry.join,
            f"epoch {entry.epoch} was finished by another run meanwhile",
            hint="run again for what came since",
        ) from error


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
