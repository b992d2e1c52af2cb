"""Replace all rows of a result by the join in one commit, for a join that asks for no exact change feed."""

from lakehouse.publish.stage import Deferred, Stage
from lakehouse.publish.writes import RESULT_PART
from lakehouse.tables.table import read
from lakehouse.values.checksums import whole_facts
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.views.reconcile import check_sources, expected_rows
from pipelines.plan.values import Computed


def compute_overwrite(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
    """
    Defer the meaning of a join at the pinned versions, to be computed where it replaces the rows of the result.

    No key of the result can occur twice, because no key of a source does.

    Returns:
        Counts: null_keys (source rows without a key) and deleted (the rows of the result before, as its change feed
        shows them; only if their number is known).

    Raises:
        DuplicateKey: A source holds a key twice.
    """
    bound, plan = epoch.bound, epoch.plan
    counts = {"null_keys": check_sources(workspace, bound)}
    if plan.checksum is not None:
        counts["deleted"] = plan.checksum.rows
    elif plan.changes_columns:  # as a dry run counts them
        counts["deleted"] = read(workspace.spark, bound.result, plan.result.base_version).count()
    facts = whole_facts(list(bound.columns))
    stage.deferred[RESULT_PART] = Deferred(expected_rows(workspace, bound), facts, {})
    return Computed(counts, plan.writes)
