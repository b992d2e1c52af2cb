"""Validate an epoch of a join of tables against its sources."""

from expectations.gate import gate_change_set, gate_changelog, prefetch_rows
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.session.session import NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings, small_query_settings
from lakehouse.values.net_changes import all_or_any_null
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Prefetched
from pipelines.epochs.views.gate import change_set_schema, sources_of
from pipelines.language import ResolvedQuery


def prefetch(workspace: Workspace, epoch: Epoch[BoundJoin]) -> Prefetched:
    """Read what the gate needs while the epoch is computed; read rows only for a small epoch."""
    sources, plan = sources_of(workspace, epoch), epoch.plan
    if not plan.via_driver:
        return Prefetched(sources)
    kind, result = change_set_schema(epoch.bound), plan.result
    layout, version = epoch.bound.cluster_by, result.base_version
    return Prefetched(sources, prefetch_rows(workspace.spark, kind, result.address, version, sources, layout))


def gate_tables(
    workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None
) -> Verdict:
    """
    Validate the change set of a join of tables and, in an incremental epoch, the rows of its changelog.

    Args:
        entry: Its row for the ledger, with what it writes.
        prefetched: What `prefetch` returned; None to read everything.
    """
    spark, plan, bound = workspace.spark, epoch.plan, epoch.bound
    base, is_incremental = plan.result.base_version, plan.strategy == "incremental"
    rows, logged = entry.writes[-1].rows, sum(write.rows for write in entry.writes[:-1])
    if not rows and not logged and not is_incremental:
        return Verdict()
    is_small_epoch = rows + logged <= limits.CHANGES_VIA_DRIVER and (plan.via_driver or not is_incremental)
    kind = change_set_schema(bound)
    if prefetched is None:
        prefetched = Prefetched(sources_of(workspace, epoch))
    sources = prefetched.sources
    # Queries over small sources are interpreted, which costs less than compiling them.
    via_driver = (small_query_settings(0) if sources.are_small else NOT_ADAPTIVE) | WITHOUT_BROADCASTS
    with settings(spark, via_driver if is_small_epoch else {}):
        # An empty change set is validated, too.
        changes, held = stage.rows(spark, "result") if rows else (spark.createDataFrame([], kind), True)
        for field in kind:
            staged, expected = changes.schema[field.name].dataType.simpleString(), field.dataType.simpleString()
            if staged != expected:
                return Verdict((f"the stage has {field.name} as {staged}, where the result has {expected}",))
        verdict = gate_change_set(
            spark,
            changes,
            rows,
            bound.result,
            base,
            sources,
            prefetched.rows,
            are_on_driver=held,
            layout=bound.cluster_by,
        )
        findings = verdict.findings
        if (rows or logged) and bound.changelog is not None and is_incremental:
            log, strict, small = stage.get(spark, "changelog"), bound.semantics == "strict", sources.are_small
            wrong, result = _wrong_key(bound.join), (bound.result, base)
            verdict = gate_changelog(spark, log, changes, logged, *result, strict=strict, is_small=small, keyless=wrong)
            findings += verdict.findings
    return Verdict(findings)


def _wrong_key(join: ResolvedQuery) -> str | None:
    """Return the SQL condition of a wrong `key` if parts of it may be null: all of them are."""
    parts = [f"key.k{part}" for part in range(len(join.key))]
    return all_or_any_null(parts, are_all=True) if join.has_absent_keys else None
