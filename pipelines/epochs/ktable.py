"""
The KTables of changelog sources: the newest row of each key, as a table that joins read.

    first:      snapshot of the source ─┐
    later:      new rows ───────────────┴─► candidates ─► look-up of existing rows ─► stage: result
    reconciled: snapshot of the source ───► candidates ─► comparison with all existing rows ─► stage: result

The rows of a snapshot do not record their commits, so the whole snapshot counts as one commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from expectations.gate import gate_change_set
from expectations.validation import Verdict
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import CannotContinue, Commands, LedgerForgot, Remedy
from lakehouse.feed.feed import distortion
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.publish.merge import STAGED_COUNTS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import RESULT_PART, Merge, TargetVersions, merged, written
from lakehouse.tables.creation import create
from lakehouse.tables.table import Table, commits_since, get, read, read_rows
from lakehouse.values.net_changes import null_key
from lakehouse.values.pruning import pruning
from lakehouse.values.sqltext import quote
from pipelines.binding.sources import BoundKTable, bind_ktable, ktable_address
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.preflight import (
    check_columns,
    check_result,
    is_only_created,
    look,
    source_facts,
    target_of,
    used_columns,
)
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.joins.difference import differing
from pipelines.joins.ktable import candidates, latest
from pipelines.language.names import DELETED, VERSION
from pipelines.plan.decide import OF_KTABLES, plan_epoch, plan_open
from pipelines.plan.request import Request
from pipelines.plan.values import Computed, Refresh, Staged


@dataclass(frozen=True)
class KTableKind(Kind[BoundKTable]):
    """
    The KTable of a changelog source.

    A backfill goes on like a run; it reconciles the KTable only if it cannot go on.
    """

    commands: ClassVar[Commands] = OF_KTABLES

    def prepare(self, request: Request) -> Prepared[BoundKTable]:
        """See `Kind.prepare`."""
        return prepare_ktable(self.workspace, self.name, backfill=_may_reconcile(request))

    def prepare_around(
        self, epoch: Epoch[BoundKTable], request: Request, error: CannotContinue
    ) -> Prepared[BoundKTable]:
        """See `Kind.prepare_around`; a KTable is reconciled only if the user asked for a backfill."""
        if not _may_reconcile(request) or epoch.plan.strategy != "incremental" or isinstance(error, LedgerForgot):
            raise error
        with reading(self.name):
            again = prepare_ktable(self.workspace, self.name, backfill=True, reconcile=True)
        if not isinstance(again.plan.route, Staged):  # the epoch stopped while it was published
            raise error
        return again

    def create_targets(self, epoch: Epoch[BoundKTable]) -> Epoch[BoundKTable]:
        """See `Kind.create_targets`."""
        (write,), bound = epoch.plan.writes, epoch.bound
        if not write.target.is_new:
            return epoch
        create(self.workspace.spark, bound.result, bound.columns, bound.spec.key)
        table = get(self.workspace.engine, bound.result)
        write = written(write, TargetVersions(table.address, table.id, table.version))
        return replace(epoch, plan=replace(epoch.plan, writes=(write,)))

    def compute(self, epoch: Epoch[BoundKTable], stage: Stage) -> Computed:
        """
        See `Kind.compute`; the part of the stage is `result`.

        Returns:
            Counts: read (raw rows), null_keys (raw rows without a key), late (raw rows that are older than the existing
            row), ties (raw rows that lost to another one of their commit and order), touched (keys of the raw rows),
            inserted, updated, deleted (only if the KTable is reconciled: a tombstone is a row), unchanged, tombstones
            (among inserted and updated), and ignored_deletes (deleted raw rows, under `ignore_deletes`).

        Raises:
            CannotContinue: A commit of the source changed or deleted rows.
        """
        size = epoch.bound.source.size
        return via_driver_or_stage(self.workspace, epoch.plan, size, stage, partial(_compute, self.workspace, epoch))

    def gate(self, epoch: Epoch[BoundKTable], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """See `Kind.gate`: validate the change set against the table that it changes."""
        rows, result = entry.writes[-1].rows, epoch.plan.result
        if not rows:
            return Verdict()
        spark = self.workspace.spark
        return gate_change_set(spark, stage.get(spark, "result"), rows, result.address, result.base_version)


def _may_reconcile(request: Request) -> bool:
    """Return whether the user asked for a backfill; whoever accepts a result as it is asks for none."""
    return request.backfill is not None and request.backfill.remedy != "accept"


def prepare_ktable(
    workspace: Workspace, name: str, *, backfill: bool = False, reconcile: bool = False
) -> Prepared[BoundKTable]:
    """
    Read the state of a changelog source, its KTable and the ledger, and plan the next epoch.

    Args:
        backfill: Whether the user asked for a backfill: a missing KTable is loaded again, a KTable that cannot continue
            is reconciled with its source, and any other KTable continues.
        reconcile: Whether to reconcile the KTable even if its source's log shows that it could continue.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: The source is missing or a column unknown.
    """

    def bind(known: Callable[[], object]) -> BoundKTable:
        known()  # the source is not pinned before the ledger is read: it must not be older than what the ledger says
        return bind_ktable(workspace, name)

    found = look(workspace, name, ktable_address(workspace, name), None, bind)
    history, bound, table = found.history, found.bound, found.result
    if bound is None:
        return Prepared(plan_open(name, history, backfill=backfill), history, None)
    if table is not None and is_only_created(table, history):
        table = None
    if table is not None:
        check_columns(name, "KTable of this changelog source", bound.columns, table.schema, bound.columns_remedy)
    try:
        return _planned(workspace, bound, history, table, backfill=reconcile or (backfill and table is None))
    except CannotContinue:
        if not backfill or table is None:
            raise
        return _planned(workspace, bound, history, table, backfill=True)


def _planned(
    workspace: Workspace, bound: BoundKTable, history: JoinHistory, found: Table | None, *, backfill: bool
) -> Prepared[BoundKTable]:
    """Plan the next epoch from the recorded versions; with `backfill`, from the source as it is, regardless of them."""
    name = bound.source.address.label
    # Only the user may ask for a full computation of existing rows; a gap in the feed must not cause one.
    refresh: Refresh = "auto" if history.committed is None else "incremental"
    used = used_columns(bound, found)
    facts = source_facts(workspace, name, bound.source, history, used, backfill=backfill or found is None)
    result = Merge(target_of(bound.result, found), RESULT_PART)
    plan = plan_epoch(name, bound.definition, refresh, history, [facts], result, backfill=backfill)
    if found is not None:
        check_result(workspace, name, bound, found, history, backfill=backfill)
    return Prepared(plan, history, bound)


def _compute(workspace: Workspace, epoch: Epoch[BoundKTable], scratch: Scratch) -> Computed:
    bound, plan, key = epoch.bound, epoch.plan, epoch.bound.spec.key
    candidate_rows, facts = _candidates(workspace, epoch, scratch)
    existing = read(workspace.spark, bound.result, plan.result.base_version)
    if plan.strategy == "incremental":
        wanted = pruning(candidate_rows.select("key"))
        predicate = wanted.predicate(key)
        existing = (
            existing.where("false")
            if wanted.keys == 0
            else existing
            if predicate is None
            else existing.where(predicate)
        )
    judged = Observation()
    against = existing.where("false") if plan.strategy == "reconcile" else existing
    changes = latest(candidate_rows, against, key).observe(
        judged,
        F.count(F.lit(1)).alias("touched"),
        F.sum("late").alias("late"),
        F.sum("ties").alias("ties"),
    )
    if plan.strategy == "reconcile":
        expected = changes.select("after.*").select(
            *map(quote, existing.columns)
        )  # the source may order them differently
        changes = differing(existing, expected, key, None)
        if bound.spec.ignore_deletes:
            changes = changes.where("op <> 'delete'")
    result = changes.where("op IS NOT NULL").select("op", "key", "before", "after")
    staged = scratch.stage.put("result", result, {**STAGED_COUNTS, "tombstones": f"count_if(after.{DELETED})"})
    counts = {**facts, **{name: number or 0 for name, number in judged.get.items()}, **staged}
    counts |= {"unchanged": counts["touched"] - counts["inserted"] - counts["updated"]}
    return Computed(counts, (merged(plan.result, staged),))


def _candidates(workspace: Workspace, epoch: Epoch[BoundKTable], scratch: Scratch) -> tuple[DataFrame, dict[str, int]]:
    """
    Return the newest raw row of each key, and the counts read, null_keys and ignored_deletes.

    Raises:
        CannotContinue: A commit of the source changed or deleted rows.
    """
    bound, plan, seen = epoch.bound, epoch.plan, Observation()
    types = {name: bound.source.schema[name].dataType for name in bound.spec.columns}
    expected = "'insert', 'delete'" if bound.spec.ignore_deletes else "'insert'"
    rows = _raw_rows(workspace, epoch).observe(
        seen,
        F.count(F.lit(1)).alias("read"),
        F.count(F.expr(f"IF({null_key(bound.spec.key)}, 1, NULL)")).alias("null_keys"),
        F.min(F.expr(f"IF(_change_type IN ({expected}), NULL, {VERSION})")).alias("altered"),
        F.count_if(F.expr("_change_type = 'delete'")).alias("ignored_deletes"),
        F.count_if(F.expr("_change_type NOT IN ('insert', 'delete')")).alias("updates"),
        F.count_if(F.expr(distortion(types))).alias("distorted"),
    )
    found = scratch.keep("candidates", candidates(rows.where("_change_type <> 'delete'"), bound.spec))
    facts = dict(seen.get)
    altered, distorted, updates = (facts.pop(name) for name in ("altered", "distorted", "updates"))
    if altered is not None:
        raise _altered(workspace, epoch, altered, is_trimmed=not updates)
    if plan.strategy == "incremental":
        (versions,) = plan.sources
        workspace.feeds.refuse_distorted(bound.source, versions.read_after, versions.to_version, distorted)
    return found, facts


def _raw_rows(workspace: Workspace, epoch: Epoch[BoundKTable]) -> DataFrame:
    """Read the source's columns, `_change_type` and the commit's version, from its snapshot or from its feed."""
    bound, plan = epoch.bound, epoch.plan
    (versions,) = plan.sources
    columns = [F.col(quote(name)) for name in bound.spec.columns]
    if plan.strategy != "incremental":
        rows = read_rows(workspace.spark, bound.source, versions.to_version)
        version = F.lit(versions.to_version).cast("bigint")
        return rows.select(*columns, F.lit("insert").alias("_change_type"), version.alias(VERSION))
    names = bound.spec.columns
    feed = workspace.feeds.read("", bound.source, versions.read_after, versions.to_version, names, "inserted")
    return feed.select(*columns, "_change_type", F.col("_commit_version").alias(VERSION))


def _altered(workspace: Workspace, epoch: Epoch[BoundKTable], version: int, *, is_trimmed: bool) -> CannotContinue:
    bound, plan = epoch.bound, epoch.plan
    (versions,) = plan.sources
    commits = commits_since(workspace.engine, bound.source, versions.from_version)
    operation = next(commit.operation for commit in commits if commit.version == version)
    lost = 0 if bound.spec.ignore_deletes else _lost_keys(workspace, bound, plan.result.base_version)
    gone = f"; the source has no row of {lost:,} keys of the KTable any more" if lost else ""
    keeps = "set `ignore_deletes: true` on the source, if old rows of its log were trimmed, then {run}; or "
    return CannotContinue(
        plan.join,
        "a commit of this changelog source changed or deleted rows",
        expected="only appended rows",
        found=f"{operation} in version {version}{gone}",
        hint=Remedy(
            (keeps if lost and is_trimmed else "") + "{reconcile}" + (f" and deletes the {lost:,} keys" if lost else "")
        ),
    )


def _lost_keys(workspace: Workspace, bound: BoundKTable, version: int) -> int:
    """Count the keys of a KTable of which its source has no row: a reconciliation deletes them."""
    key = bound.spec.key
    columns = [F.col(quote(name)) for name in key]
    existing = read(workspace.spark, bound.result, version).where(f"NOT {DELETED}").select(*columns)
    present = read_rows(workspace.spark, bound.source, bound.source.version).select(*columns)
    return existing.exceptAll(present.distinct()).count()
