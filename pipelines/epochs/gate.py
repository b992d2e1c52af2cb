"""What an epoch is about to publish, and how it is held against result and sources, by the kind of join."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import Ahead, Sources, gate_change_set, gate_changelog, gate_stream, read_ahead
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.entries import Entry
from lakehouse.session import NOT_ADAPTIVE, for_few, settings
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
class Beforehand:
    """
    What the gate of a join of tables has before the change set is known.

    Args:
        sources: Its sources as the epoch pinned them.
        ahead: What was read of them and of the result already.
    """

    sources: Sources
    ahead: Ahead | None = None


def look_ahead(workspace: Workspace, bound: Bound, plan: EpochPlan) -> Beforehand | None:
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
    if plan.strategy != "incremental" or not plan.few:
        return Beforehand(sources)
    kind = _kind_of_changes(bound)
    return Beforehand(sources, read_ahead(workspace.spark, kind, bound.result, plan.base_version, sources))


def gate(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    beforehand: Beforehand | None = None,
) -> Verdict:
    """
    Hold what an epoch has staged against the result, and what that is made of.

    Args:
        workspace: Where both are.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: What it would write.
        entry: Its row for the ledger, with its counts.
        beforehand: What `look_ahead` has found.
    """
    rows = staged_rows(entry)
    if isinstance(bound, BoundJoin) and bound.streams:
        return _gate_stream(workspace, bound, plan, stage, entry)
    if isinstance(bound, BoundJoin):
        return _gate_tables(workspace, bound, plan, stage, rows, entry.counts.get("changelog", 0), beforehand)
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
    beforehand: Beforehand | None,
) -> Verdict:
    """Gate the change set of a join of tables, and its changelog where that follows the sources commit by commit."""
    spark, base, is_incremental = workspace.spark, plan.base_version, plan.strategy == "incremental"
    if not rows and not logged and not is_incremental:
        return Verdict()
    is_few = rows + logged <= limits.FEW_ROWS and (plan.few or not is_incremental)
    kind = _kind_of_changes(bound)
    if beforehand is None:
        beforehand = Beforehand(sources_of(workspace, bound, plan))
    sources = beforehand.sources
    # Plans over small sources are interpreted, which costs less than to compile them.
    few = {**(for_few(0) if sources.are_small else NOT_ADAPTIVE), "spark.sql.shuffle.partitions": "2"}
    with settings(spark, few if is_few else {}):
        # That nothing is to change is an answer too.
        changes = stage.get(spark, "result", kind) if rows else spark.createDataFrame([], kind)
        findings = gate_change_set(spark, changes, rows, bound.result, base, sources, beforehand.ahead).findings
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
