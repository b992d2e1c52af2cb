"""Plan one epoch of the KTable of a changelog source."""

from collections.abc import Callable

from lakehouse.errors.errors import CannotContinue
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.writes import RESULT_PART, Merge
from lakehouse.tables.table import Table
from pipelines.binding.ktable import BoundKTable, bind_ktable, ktable_address
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Prepared
from pipelines.epochs.preflight import (
    check_columns,
    check_result,
    is_only_created,
    look,
    source_facts,
    target_of,
    used_columns,
)
from pipelines.plan.decide import plan_epoch, plan_open
from pipelines.plan.values import Refresh


def prepare_ktable(
    workspace: Workspace, name: str, *, backfill: bool = False, reconcile: bool = False
) -> Prepared[BoundKTable]:
    """
    Read the state of a changelog source, its KTable and the ledger, and plan the next epoch.

    Args:
        backfill: Whether the user asked for a backfill: a missing KTable is loaded again, a KTable that cannot continue
            is reconciled with its source, and any other KTable continues.
        reconcile: Whether to reconcile the KTable even if its source's log shows that it could continue.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: The source is missing or a column unknown.
    """

    def bind(known: Callable[[], object]) -> BoundKTable:
        known()  # the source is not pinned before the ledger is read: it must not be older than what the ledger says
        return bind_ktable(workspace, name)

    found = look(workspace, name, ktable_address(workspace, name), None, bind)
    history, bound, table = found.history, found.bound, found.result
    if bound is None:
        return Prepared(plan_open(name, history, backfill=backfill), history, None)
    if table is not None and is_only_created(table, history):
        table = None
    if table is not None:
        check_columns(name, "KTable of this changelog source", bound.columns, table.schema, bound.columns_remedy)
    try:
        return _planned(workspace, bound, history, table, backfill=reconcile or (backfill and table is None))
    except CannotContinue:
        if not backfill or table is None:
            raise
        return _planned(workspace, bound, history, table, backfill=True)


def _planned(
    workspace: Workspace, bound: BoundKTable, history: JoinHistory, found: Table | None, *, backfill: bool
) -> Prepared[BoundKTable]:
    """Plan the next epoch from the recorded versions; with `backfill`, from the source as it is, regardless of them."""
    name = bound.source.address.label
    # Only the user may ask for a full computation of existing rows; a gap in the feed must not cause one.
    refresh: Refresh = "auto" if history.committed is None else "incremental"
    used = used_columns(bound, found)
    facts = source_facts(workspace, name, bound.source, history, used, backfill=backfill or found is None)
    result = Merge(target_of(bound.result, found), RESULT_PART)
    plan = plan_epoch(name, bound.definition, refresh, history, [facts], result, backfill=backfill)
    if found is not None:
        check_result(workspace, name, bound, found, history, backfill=backfill)
    return Prepared(plan, history, bound)
