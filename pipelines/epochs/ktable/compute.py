"""
Plan and compute one epoch of the KTable of a changelog source.

    first:      snapshot of the source ─┐
    later:      new rows ───────────────┴─► candidates ─► look-up of existing rows ─► stage: result
    reconciled: snapshot of the source ───► candidates ─► comparison with all existing rows ─► stage: result

The rows of a snapshot do not record their commits, so the whole snapshot counts as one commit.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.creation import create
from lakehouse.distorted import distortion
from lakehouse.entries import JoinHistory
from lakehouse.errors import CannotContinue
from lakehouse.pruning import pruning
from lakehouse.publish import STAGED_COUNTS
from lakehouse.small import to_driver
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Table, commits_since, find, get, read, read_rows
from pipelines.binding.ktable import BoundKTable, bind_ktable, ktable_address, ktable_remedy
from pipelines.binding.workspace import Workspace
from pipelines.epochs.preflight import (
    Prepared,
    check_columns,
    check_result,
    facts_of,
    is_only_created,
    source_facts,
    used_columns,
)
from pipelines.epochs.scratch import via_driver_or_stage
from pipelines.joins.filter import differing
from pipelines.joins.ktable import candidates, latest
from pipelines.plan.decide import plan_epoch
from pipelines.plan.values import EpochPlan, Refresh
from pipelines.spec.names import DELETED
from pipelines.spec.statement.added_columns import VERSION

BACKFILL = "run `lakejoin backfill`"
"""The hint of an error, which `ktable_remedy` replaces."""


def prepare_ktable(workspace: Workspace, name: str, *, backfill: bool = False, reconcile: bool = False) -> Prepared:
    """
    Read the state of a changelog source, its KTable and the ledger, and plan the next epoch.

    Args:
        workspace: Where to work.
        name: The source.
        backfill: Whether the user asked for a backfill: a missing KTable is loaded again, a KTable that cannot continue
            is reconciled with its source, and any other KTable continues.
        reconcile: Whether to reconcile the KTable even if its source's log shows that it could continue.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: The source is missing or a column unknown.
    """
    with ktable_remedy(workspace, name), ThreadPoolExecutor(max_workers=1) as executor:
        finding = executor.submit(find, workspace.engine, ktable_address(workspace, name))
        history = workspace.ledger.of(name)
        found = finding.result()
        if history.open is not None:
            return Prepared(plan_epoch(name, "", "auto", history, (), None, backfill=backfill), history, None)
        bound = bind_ktable(workspace, name)
        if found is not None and is_only_created(found, history):
            found = None
        if found is not None:
            check_columns(name, "KTable of this changelog source", bound.columns, found.schema, bound.columns_remedy)
        try:
            return _planned(workspace, bound, history, found, backfill=reconcile or (backfill and found is None))
        except CannotContinue:
            if not backfill or found is None:
                raise
            return _planned(workspace, bound, history, found, backfill=True)


def _planned(
    workspace: Workspace, bound: BoundKTable, history: JoinHistory, found: Table | None, *, backfill: bool
) -> Prepared:
    """Plan the next epoch from the recorded versions; with `backfill`, from the source as it is, regardless of them."""
    name = bound.source.address.label
    # Only the user may ask for a full computation of existing rows; a gap in the feed must not cause one.
    refresh: Refresh = "auto" if history.committed is None else "incremental"
    used = used_columns(bound, found)
    facts = source_facts(workspace, name, bound.source, history, used, backfill=backfill or found is None)
    plan = plan_epoch(name, bound.definition, refresh, history, [facts], facts_of(found), backfill=backfill)
    if found is not None:
        check_result(workspace, name, bound, found, history, backfill=backfill)
    return Prepared(plan, history, bound)


def create_target(workspace: Workspace, bound: BoundKTable, plan: EpochPlan) -> EpochPlan:
    """Create the empty table of the KTable before its first epoch, and name it in the plan."""
    if plan.strategy != "load":
        return plan
    create(workspace.spark, bound.result, bound.columns, bound.spec.key)
    table = get(workspace.engine, bound.result)
    return replace(plan, result_id=table.id, base_version=table.version)


def compute_ktable(workspace: Workspace, bound: BoundKTable, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    """
    Compute an epoch of a KTable into the stage's part `result`.

    Returns:
        Counts: read (raw rows), null_keys (raw rows without a key), late (raw rows that are older than the existing
        row), ties (raw rows that lost to another one of their commit and order), touched (keys of the raw rows),
        inserted, updated, deleted (only if the KTable is reconciled: a tombstone is a row), unchanged, and tombstones
        (among inserted and updated).

    Raises:
        CannotContinue: A commit of the source changed or deleted rows.
        FeedUnavailable, SchemaBroken: Its feed cannot be read; `conditions.reading`, which wraps this call, raises it.
    """
    return via_driver_or_stage(
        workspace, plan, bound.source.size, stage, partial(_compute, workspace, bound, plan, stage)
    )


def _compute(
    workspace: Workspace, bound: BoundKTable, plan: EpochPlan, stage: Stage, via_driver: bool
) -> dict[str, int]:
    key = bound.spec.key
    rows = _raw_rows(workspace, bound, plan)
    seen = Observation()
    rows = rows.observe(
        seen,
        F.count(F.lit(1)).alias("read"),
        F.count(F.expr(f"IF({null_key(key)}, 1, NULL)")).alias("null_keys"),
        F.min(F.expr(f"IF(_change_type = 'insert', NULL, {VERSION})")).alias("altered"),
        F.count_if(F.expr(distortion({name: bound.source.schema[name].dataType for name in bound.spec.columns}))).alias(
            "distorted"
        ),
    )
    candidate_rows = candidates(rows, bound.spec)
    if via_driver:
        candidate_rows = to_driver(candidate_rows).frame
    else:
        stage.put("candidates", candidate_rows)
        candidate_rows = stage.get(workspace.spark, "candidates", candidate_rows.schema)
    facts = dict(seen.get)
    altered, distorted = facts.pop("altered"), facts.pop("distorted")
    if altered is not None:
        raise _altered(workspace, bound, plan, altered)
    if plan.strategy == "incremental":
        (versions,) = plan.sources
        workspace.feeds.refuse_distorted(bound.source, versions.read_after, versions.to_version, distorted)
    held = read(workspace.spark, bound.result, plan.base_version)
    if plan.strategy == "incremental":
        wanted = pruning(candidate_rows.select("key"))
        predicate = wanted.predicate(key)
        held = held.where("false") if wanted.keys == 0 else held if predicate is None else held.where(predicate)
    judged = Observation()
    against = held.where("false") if plan.strategy == "reconcile" else held
    changes = latest(candidate_rows, against, key).observe(
        judged,
        F.count(F.lit(1)).alias("touched"),
        F.sum("late").alias("late"),
        F.sum("ties").alias("ties"),
    )
    if plan.strategy == "reconcile":
        expected = changes.select("after.*").select(*map(quote, held.columns))  # the source may order them differently
        changes = differing(held, expected, key, None)
    result = changes.where("op IS NOT NULL").select("op", "key", "before", "after")
    staged = stage.put("result", result, {**STAGED_COUNTS, "tombstones": f"count_if(after.{DELETED})"})
    counts = {**facts, **{name: number or 0 for name, number in judged.get.items()}, **staged}
    return {**counts, "unchanged": counts["touched"] - counts["inserted"] - counts["updated"]}


def _raw_rows(workspace: Workspace, bound: BoundKTable, plan: EpochPlan) -> DataFrame:
    """Read the source's columns, `_change_type` and the commit's version, from its snapshot or from its feed."""
    (versions,) = plan.sources
    columns = [F.col(quote(name)) for name in bound.spec.columns]
    if plan.strategy != "incremental":
        rows = read_rows(workspace.spark, bound.source, versions.to_version)
        version = F.lit(versions.to_version).cast("bigint")
        return rows.select(*columns, F.lit("insert").alias("_change_type"), version.alias(VERSION))
    names = bound.spec.columns
    feed = workspace.feeds.read("", bound.source, versions.read_after, versions.to_version, names, "inserted")
    return feed.select(*columns, "_change_type", F.col("_commit_version").alias(VERSION))


def _altered(workspace: Workspace, bound: BoundKTable, plan: EpochPlan, version: int) -> CannotContinue:
    (versions,) = plan.sources
    commits = commits_since(workspace.engine, bound.source, versions.from_version)
    operation = next(commit.operation for commit in commits if commit.version == version)
    return CannotContinue(
        plan.join,
        "a commit of this changelog source changed or deleted rows",
        expected="only appended rows",
        found=f"{operation} in version {version}",
        hint=BACKFILL,
    )
