"""What an epoch is about to publish, and how it is held against result and sources, by the kind of join."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import PrefetchedRows, Sources, gate_change_set, gate_changelog, gate_stream, prefetch_rows
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.entries import Entry
from lakehouse.session import NOT_ADAPTIVE, settings, small_query_settings
from lakehouse.stage import Stage
from pipelines.binding.bound import Bound, BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.declared_gate import gate_of_yours
from pipelines.epochs.lookup.gate import gate_lookups
from pipelines.epochs.publish import staged_rows
from pipelines.epochs.tables.gate import sources_of
from pipelines.epochs.window.gate import gate_meetings
from pipelines.plan.values import APPENDED, EpochPlan
from pipelines.spec import STREAM_COLUMNS


@dataclass(frozen=True)
class Prefetched:
    """
    What the gate of a join of tables has before the change set is known.

    Args:
        sources: Its sources as the epoch pinned them.
        rows: What was read of them and of the result already.
    """

    sources: Sources
    rows: PrefetchedRows | None = None


def prefetch(workspace: Workspace, bound: Bound, plan: EpochPlan) -> Prefetched | None:
    """
    Find what an epoch of a join of tables will be held against, and read it of a small one, while it is computed.

    Args:
        workspace: Where both are.
        bound: The join, or the KTable.
        plan: The epoch.

    Returns:
        What was found; None of other kinds, where the gate finds all itself.
    """
    if not isinstance(bound, BoundJoin) or bound.streams:
        return None
    sources = sources_of(workspace, bound, plan)
    if plan.strategy != "incremental" or not plan.via_driver:
        return Prefetched(sources)
    kind = _kind_of_changes(bound)
    return Prefetched(sources, prefetch_rows(workspace.spark, kind, bound.result, plan.base_version, sources))


def gate(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    prefetched: Prefetched | None = None,
) -> Verdict:
    """
    Hold what an epoch has staged against the result, and what that is made of.

    Args:
        workspace: Where both are.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: What it would write.
        entry: Its row for the ledger, with its counts.
        prefetched: What `prefetch` has found.
    """
    rows = staged_rows(entry)
    if isinstance(bound, BoundJoin) and bound.streams:
        return _gate_stream(workspace, bound, plan, stage, entry)
    if isinstance(bound, BoundJoin):
        return _gate_tables(workspace, bound, plan, stage, rows, entry.counts.get("changelog", 0), prefetched)
    if not rows:
        return Verdict()
    changes = stage.get(workspace.spark, "result")
    return gate_change_set(workspace.spark, changes, rows, bound.result, plan.base_version)


def _gate_stream(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, entry: Entry) -> Verdict:
    """Gate the rows that an epoch adds to the result of a join with a stream."""
    findings: tuple[str, ...] = ()
    appended = entry.counts.get(APPENDED, 0)
    if appended:
        epoch = None if plan.strategy == "replay" else plan.epoch
        findings = gate_stream(
            stage.get(workspace.spark, "result", bound.columns), appended, epoch, *STREAM_COLUMNS
        ).findings
    if bound.join.window is None:
        return Verdict(findings + gate_lookups(workspace, bound, plan, stage, entry).findings)
    return Verdict(findings + gate_meetings(workspace, bound, plan, stage, entry.counts).findings)


def _gate_tables(
    workspace: Workspace,
    bound: BoundJoin,
    plan: EpochPlan,
    stage: Stage,
    rows: int,
    logged: int,
    prefetched: Prefetched | None,
) -> Verdict:
    """Gate the change set of a join of tables, and its changelog where that follows the sources commit by commit."""
    spark, base, is_incremental = workspace.spark, plan.base_version, plan.strategy == "incremental"
    if not rows and not logged and not is_incremental:
        return Verdict()
    is_few = rows + logged <= limits.CHANGES_VIA_DRIVER and (plan.via_driver or not is_incremental)
    kind = _kind_of_changes(bound)
    if prefetched is None:
        prefetched = Prefetched(sources_of(workspace, bound, plan))
    sources = prefetched.sources
    # Plans over small sources are interpreted, which costs less than to compile them.
    via_driver = {
        **(small_query_settings(0) if sources.are_small else NOT_ADAPTIVE),
        "spark.sql.shuffle.partitions": "2",
    }
    with settings(spark, via_driver if is_few else {}):
        # That nothing is to change is an answer too.
        changes = stage.get(spark, "result", kind) if rows else spark.createDataFrame([], kind)
        findings = gate_change_set(spark, changes, rows, bound.result, base, sources, prefetched.rows).findings
        if (rows or logged) and bound.changelog is not None and is_incremental:
            log, strict, small = stage.get(spark, "changelog"), bound.semantics == "strict", sources.are_small
            verdict = gate_changelog(spark, log, changes, logged, bound.result, base, strict=strict, is_small=small)
            findings += verdict.findings
    return Verdict(findings)


def _kind_of_changes(bound: BoundJoin) -> StructType:
    """Give the columns of a staged change set."""
    key = StructType([bound.columns[name] for name in bound.join.key])
    images = [StructField(name, bound.columns) for name in ("before", "after")]
    return StructType([StructField("op", StringType()), StructField("key", key), *images])


OF_OURS = "`lakejoin backfill --select {join}` reconciles with the sources as they are now"


OF_YOURS = (
    "correct the sources and run again, correct what `expectations` of the join says, or set `on_failed_gate: warn`"
)
"""What to do next about findings."""


def gated(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    prefetched: Prefetched | None = None,
) -> tuple[Verdict, Verdict, str]:
    """
    Hold a staged change set to its gates.

    Args:
        workspace: Where to work.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: What it would write.
        entry: Its row for the ledger, with its counts.
        prefetched: What was found for the gate while the epoch was computed.

    Returns:
        What stops it, what is only warned of, and what to do about the first.
    """
    verdict = gate(workspace, bound, plan, stage, entry, prefetched)
    if not verdict.passed or not (staged_rows(entry) or entry.counts.get(APPENDED)):
        return verdict, Verdict(), OF_OURS.format(join=plan.join)
    return *gate_of_yours(workspace, plan.join, lambda: _staged(workspace, stage, entry)), OF_YOURS


def _staged(workspace: Workspace, stage: Stage, entry: Entry) -> DataFrame:
    """Give the rows that the epoch puts into the result."""
    rows = stage.get(workspace.spark, "result")
    return rows if entry.counts.get(APPENDED) else rows.where("op <> 'delete'").select("after.*")
