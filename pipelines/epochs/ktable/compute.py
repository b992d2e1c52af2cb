"""
Compute one epoch of the KTable of a changelog source.

    first:      snapshot of the source ─┐
    later:      new rows ───────────────┴─► candidates ─► look-up of existing rows ─► stage: result
    reconciled: snapshot of the source ───► candidates ─► comparison with all existing rows ─► stage: result

The rows of a snapshot do not record their commits, so the whole snapshot counts as one commit.
"""

from functools import partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.errors.errors import CannotContinue
from lakehouse.errors.remedies import Remedy
from lakehouse.feed.distorted import distortion
from lakehouse.publish.merge import STAGED_COUNTS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import merged
from lakehouse.tables.table import commits_since, read, read_rows
from lakehouse.values.net_changes import null_key
from lakehouse.values.pruning import pruning
from lakehouse.values.sqltext import quote
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.joins.filter import differing
from pipelines.joins.ktable import candidates, latest
from pipelines.language.names import DELETED
from pipelines.language.statement.added_columns import VERSION
from pipelines.plan.values import Computed


def compute_ktable(workspace: Workspace, epoch: Epoch[BoundKTable], stage: Stage) -> Computed:
    """
    Compute an epoch of a KTable into the stage's part `result`.

    Returns:
        Counts: read (raw rows), null_keys (raw rows without a key), late (raw rows that are older than the existing
        row), ties (raw rows that lost to another one of their commit and order), touched (keys of the raw rows),
        inserted, updated, deleted (only if the KTable is reconciled: a tombstone is a row), unchanged, tombstones
        (among inserted and updated), and ignored_deletes (deleted raw rows, under `ignore_deletes`).

    Raises:
        CannotContinue: A commit of the source changed or deleted rows.
        FeedUnavailable, SchemaBroken: Its feed cannot be read; `conditions.reading`, which wraps this call, raises it.
    """
    size = epoch.bound.source.size
    return via_driver_or_stage(workspace, epoch.plan, size, stage, partial(_compute, workspace, epoch))


def _compute(workspace: Workspace, epoch: Epoch[BoundKTable], scratch: Scratch) -> Computed:
    bound, plan, key = epoch.bound, epoch.plan, epoch.bound.spec.key
    candidate_rows, facts = _candidates(workspace, epoch, scratch)
    held = read(workspace.spark, bound.result, plan.result.base_version)
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
    kinds = {name: bound.source.schema[name].dataType for name in bound.spec.columns}
    expected = "'insert', 'delete'" if bound.spec.ignore_deletes else "'insert'"
    rows = _raw_rows(workspace, epoch).observe(
        seen,
        F.count(F.lit(1)).alias("read"),
        F.count(F.expr(f"IF({null_key(bound.spec.key)}, 1, NULL)")).alias("null_keys"),
        F.min(F.expr(f"IF(_change_type IN ({expected}), NULL, {VERSION})")).alias("altered"),
        F.count_if(F.expr("_change_type = 'delete'")).alias("ignored_deletes"),
        F.count_if(F.expr("_change_type NOT IN ('insert', 'delete')")).alias("updates"),
        F.count_if(F.expr(distortion(kinds))).alias("distorted"),
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
    held = read(workspace.spark, bound.result, version).where(f"NOT {DELETED}").select(*columns)
    present = read_rows(workspace.spark, bound.source, bound.source.version).select(*columns)
    return held.exceptAll(present.distinct()).count()
