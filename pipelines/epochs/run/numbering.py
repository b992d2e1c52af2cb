"""
Number an epoch above those that the tables of a join remember.

Delta skips a write under a transaction that a table already has. A ledger that was put back from a copy has forgotten
its last epochs, but the tables have not: an epoch with one of their numbers could never be written.
"""

from dataclasses import replace
from typing import Any

from lakehouse.publish.merge import VERSIONS_PER_EPOCH
from lakehouse.tables.commit_log import last_transaction
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Prepared
from pipelines.epochs.publish.open_epoch import application


def unused_number(workspace: Workspace, prepared: Prepared[Any]) -> Prepared[Any]:
    """
    Return a planned epoch with the first number that neither the ledger nor a table that it writes has used.

    Args:
        workspace: Where the tables are.
        prepared: The planned epoch, numbered by the ledger.
    """
    plan, name = prepared.plan, application(workspace, prepared.plan.join)
    made = (last_transaction(workspace.engine, write.target.address, name) for write in plan.writes)
    used = [version // VERSIONS_PER_EPOCH for version in made if version is not None]
    return replace(prepared, plan=replace(plan, epoch=max([plan.epoch, *(epoch + 1 for epoch in used)])))
