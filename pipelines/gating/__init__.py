"""What an epoch is about to publish, and how it is held against result and sources, by the kind of join."""

from expectations.gate import gate_change_set, gate_changelog, gate_stream
from expectations.validation import Verdict
from lakehouse.entries import Entry
from lakehouse.stage import Stage
from pipelines.binding import Bound, BoundJoin
from pipelines.gating.met import gate_meetings
from pipelines.plan import APPENDED, EpochPlan
from pipelines.publishing import staged_rows
from pipelines.spec import STREAM_COLUMNS
from pipelines.workspace import Workspace


def gate(workspace: Workspace, bound: Bound, plan: EpochPlan, stage: Stage, entry: Entry) -> Verdict:
    """Gate the change set, and the rows of the changelog where these follow the sources commit by commit."""
    spark, rows, logged = workspace.spark, staged_rows(entry), entry.counts.get("changelog", 0)
    appended = entry.counts.get(APPENDED, 0)
    met: tuple[str, ...] = ()
    if isinstance(bound, BoundJoin) and bound.join.window is not None:
        met = gate_meetings(workspace, bound, plan, stage, entry.counts).findings
    if appended:
        epoch = None if plan.strategy == "replay" else plan.epoch
        counted = gate_stream(stage.get(spark, "result"), appended, epoch, *STREAM_COLUMNS)
        return Verdict(counted.findings + met)
    if met or (not rows and not logged):
        return Verdict(met)
    changes, base = stage.get(spark, "result"), plan.base_version
    findings = gate_change_set(spark, changes, rows, bound.result, base).findings if rows else ()
    if isinstance(bound, BoundJoin) and bound.changelog is not None and plan.strategy == "incremental":
        changelog, strict = stage.get(spark, "changelog"), bound.semantics == "strict"
        findings += gate_changelog(spark, changelog, changes, logged, bound.result, base, strict=strict).findings
    return Verdict(findings)
