"""What an epoch is about to publish, and how it is held against result and sources, by the kind of join."""

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from expectations.gate import gate_change_set, gate_changelog, gate_stream
from expectations.validation import Verdict
from lakehouse.entries import Entry
from lakehouse.stage import Stage
from pipelines.binding import Bound, BoundJoin
from pipelines.gating.tables import sources_of
from pipelines.plan import APPENDED, EpochPlan
from pipelines.publishing import staged_rows
from pipelines.spec import STREAM_COLUMNS
from pipelines.workspace import Workspace


def gate(workspace: Workspace, bound: Bound, plan: EpochPlan, stage: Stage, entry: Entry) -> Verdict:
    """
    Hold what an epoch has staged against the result, and what that is made of.

    Args:
        workspace: Where both are.
        bound: The join, or the KTable.
        plan: The epoch.
        stage: What it would write.
        entry: Its row for the ledger, with its counts.
    """
    spark, rows, logged = workspace.spark, staged_rows(entry), entry.counts.get("changelog", 0)
    appended = entry.counts.get(APPENDED, 0)
    if appended:
        epoch = None if plan.strategy == "replay" else plan.epoch
        return gate_stream(stage.get(spark, "result"), appended, epoch, *STREAM_COLUMNS)
    if isinstance(bound, BoundJoin) and not bound.streams:
        return _gate_tables(workspace, bound, plan, stage, rows, logged)
    return (
        gate_change_set(spark, stage.get(spark, "result"), rows, bound.result, plan.base_version) if rows else Verdict()
    )


def _gate_tables(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, rows: int, logged: int
) -> Verdict:
    """Gate the change set of a join of tables, and its changelog where that follows the sources commit by commit."""
    spark, base, is_incremental = workspace.spark, plan.base_version, plan.strategy == "incremental"
    if not rows and not logged and not is_incremental:
        return Verdict()
    changes = stage.get(spark, "result") if rows else _no_changes(workspace, bound)
    findings = gate_change_set(spark, changes, rows, bound.result, base, sources_of(workspace, bound, plan)).findings
    if (rows or logged) and bound.changelog is not None and is_incremental:
        changelog, strict = stage.get(spark, "changelog"), bound.semantics == "strict"
        findings += gate_changelog(spark, changelog, changes, logged, bound.result, base, strict=strict).findings
    return Verdict(findings)


def _no_changes(workspace: Workspace, bound: BoundJoin) -> DataFrame:
    """Give a change set without rows: that nothing is to change is an answer too."""
    key = StructType([bound.columns[name] for name in bound.join.key])
    images = [StructField(name, bound.columns) for name in ("before", "after")]
    schema = StructType([StructField("op", StringType()), StructField("key", key), *images])
    return workspace.spark.createDataFrame([], schema)
