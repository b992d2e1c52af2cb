"""Validate an epoch of a join whose rows match in any number against its sources."""

from expectations.gate import Paired, gate_changelog, gate_pairs
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.session.session import WITHOUT_BROADCASTS, settings, small_query_settings
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.views.gate import change_set_schema, sources_of


def paired_of(bound: BoundJoin) -> Paired:
    """Return the two inputs of a join whose rows match in any number."""
    join, pairing = bound.join, bound.join.paired
    left, right = pairing.links
    values, kinds = (left.expressions, right.expressions), bound.types[left.input]
    one, other = (join.inputs[place].may_be_absent for place in pairing.places)
    over = (left.over, right.over)
    return Paired(pairing.places, over, values, kinds, join.keys_of_sides, pairing.outer, (one, other))


def gate_changed_pairs(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
    """Validate the change set of a join whose rows match in any number, and the rows of its changelog."""
    plan, bound, spark = epoch.plan, epoch.bound, workspace.spark
    is_incremental, sources = plan.strategy == "incremental", sources_of(workspace, epoch)
    paired = paired_of(bound)
    rows, logged = entry.writes[-1].rows, sum(write.rows for write in entry.writes[:-1])
    if not rows and not is_incremental:
        return Verdict()
    changes = stage.rows(spark, "result")[0] if rows else spark.createDataFrame([], change_set_schema(bound))
    is_small = rows + logged <= limits.CHANGES_VIA_DRIVER and sources.are_small
    with settings(spark, small_query_settings(0) | WITHOUT_BROADCASTS if is_small else {}):
        result = (bound.result, plan.result.base_version)
        verdict = gate_pairs(spark, changes, rows, *result, sources, paired, is_incremental=is_incremental)
        if not is_incremental or bound.changelog is None or not rows + logged:
            return verdict
        log, small = stage.get(spark, "changelog"), sources.are_small
        wrong = paired.keyless
        of_log = gate_changelog(spark, log, changes, logged, *result, strict=True, is_small=small, keyless=wrong)
    return Verdict(verdict.findings + of_log.findings)
