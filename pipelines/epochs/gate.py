"""Validate what an epoch is about to publish against its result and its sources, by the kind of join."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import (
    PrefetchedRows,
    Reader,
    Sources,
    gate_change_set,
    gate_changelog,
    gate_stream,
    prefetch_rows,
)
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.entries import Entry
from lakehouse.session import NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings, small_query_settings
from lakehouse.stage import Stage
from lakehouse.tables import get
from pipelines.binding.bound import Bound, BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.declared_gate import gate_of_yours
from pipelines.epochs.lookup.gate import gate_lookups
from pipelines.epochs.publish import staged_rows
from pipelines.epochs.tables.gate import reader_of, sources_of
from pipelines.epochs.window.gate import gate_meetings
from pipelines.plan.values import APPENDED, EpochPlan
from pipelines.spec import STREAM_COLUMNS


@dataclass(frozen=True)
class Prefetched:
    """
    What the gate of a join of tables reads before the change set is known.

    Args:
        sources: The sources at the versions that the epoch pinned.
        rows: The rows of the sources and of the result that are already read.
        reader: Reads further rows of the result without Spark; None if Spark has to read them.
    """

    sources: Sources
    rows: PrefetchedRows | None = None
    reader: Reader | None = None


def prefetch(workspace: Workspace, bound: Bound, plan: EpochPlan) -> Prefetched | None:
    """
    Prefetch what the gate of a join of tables needs, while the epoch is computed; read rows only for a small epoch.

    Args:
        workspace: Where the tables are.
        bound: The join, or the KTable.
        plan: The epoch.

    Returns:
        The sources and rows; None for other kinds, whose gates read everything themselves.
    """
    if not isinstance(bound, BoundJoin) or bound.streams:
        return None
    sources = sources_of(workspace, bound, plan)
    if plan.strategy != "incremental" or not plan.via_driver:
        return Prefetched(sources)
    kind, reader = _change_set_schema(bound), _reader_of_result(workspace, bound, plan)
    rows = prefetch_rows(workspace.spark, kind, bound.result, plan.base_version, sources, reader)
    return Prefetched(sources, rows, reader)


def gate(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    prefetched: Prefetched | None = None,
) -> Verdict:
    """
    Validate what an epoch has staged against its result and its sources.

    Args:
        workspace: Where the tables are.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: The stage of the epoch.
        entry: The epoch's row for the ledger, with its counts.
        prefetched: What `prefetch` returned.
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
    """Validate the rows that an epoch adds to the result of a join with a stream."""
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
    """Validate the change set of a join of tables and, in an incremental epoch, the rows of its changelog."""
    spark, base, is_incremental = workspace.spark, plan.base_version, plan.strategy == "incremental"
    if not rows and not logged and not is_incremental:
        return Verdict()
    is_small_epoch = rows + logged <= limits.CHANGES_VIA_DRIVER and (plan.via_driver or not is_incremental)
    kind = _change_set_schema(bound)
    if prefetched is None:
        prefetched = Prefetched(sources_of(workspace, bound, plan))
    sources = prefetched.sources
    # Queries over small sources are interpreted, which costs less than compiling them.
    via_driver = (small_query_settings(0) if sources.are_small else NOT_ADAPTIVE) | WITHOUT_BROADCASTS
    with settings(spark, via_driver if is_small_epoch else {}):
        # An empty change set is validated, too.
        changes = stage.rows(spark, "result")[0] if rows else spark.createDataFrame([], kind)
        for field in kind:
            staged, expected = changes.schema[field.name].dataType.simpleString(), field.dataType.simpleString()
            if staged != expected:
                return Verdict((f"the stage has {field.name} as {staged}, where the result has {expected}",))
        read = (prefetched.rows, prefetched.reader if is_small_epoch else None)
        verdict = gate_change_set(spark, changes, rows, bound.result, base, sources, *read)
        findings = verdict.findings
        if (rows or logged) and bound.changelog is not None and is_incremental:
            log, strict, small = stage.get(spark, "changelog"), bound.semantics == "strict", sources.are_small
            verdict = gate_changelog(spark, log, changes, logged, bound.result, base, strict=strict, is_small=small)
            findings += verdict.findings
    return Verdict(findings)


def _reader_of_result(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> Reader | None:
    if workspace.engine.why_spark(bound.result):  # looking at the table would cost queries
        return None
    table = get(workspace.engine, bound.result)
    return reader_of(workspace.spark, table, plan.base_version, bound.columns.fieldNames(), bound.join.key)


def _change_set_schema(bound: BoundJoin) -> StructType:
    """Return the schema of a staged change set."""
    key = StructType([bound.columns[name] for name in bound.join.key])
    images = [StructField(name, bound.columns) for name in ("before", "after")]
    return StructType([StructField("op", StringType()), StructField("key", key), *images])


OF_OURS = "run `lakejoin backfill --select {join}` to reconcile the result with the sources as they are now"


OF_YOURS = "correct the sources and run again, correct the `expectations` of the join, or set `on_failed_gate: warn`"
"""The hints for findings of the built-in gates, and of the expectations that the pipeline file declares."""


def gated(
    workspace: Workspace,
    bound: Bound,
    plan: EpochPlan,
    stage: Stage,
    entry: Entry,
    prefetched: Prefetched | None = None,
) -> tuple[Verdict, Verdict, str]:
    """
    Run the gates of a staged change set: the built-in ones, then those that the pipeline file declares.

    Args:
        workspace: Where to work.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: The stage of the epoch.
        entry: The epoch's row for the ledger, with its counts.
        prefetched: What `prefetch` returned while the epoch was computed.

    Returns:
        The verdict that stops the epoch, the verdict that becomes warnings, and the hint for the first.
    """
    verdict = gate(workspace, bound, plan, stage, entry, prefetched)
    if not verdict.passed or not (staged_rows(entry) or entry.counts.get(APPENDED)):
        return verdict, Verdict(), OF_OURS.format(join=plan.join)
    return *gate_of_yours(workspace, plan.join, lambda: _staged(workspace, stage, entry)), OF_YOURS


def _staged(workspace: Workspace, stage: Stage, entry: Entry) -> DataFrame:
    """Return the rows that the epoch writes into the result."""
    rows = stage.get(workspace.spark, "result")
    return rows if entry.counts.get(APPENDED) else rows.where("op <> 'delete'").select("after.*")
