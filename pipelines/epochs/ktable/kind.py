"""The KTables of changelog sources: the newest row of each key, as a table that joins read."""

from dataclasses import dataclass, replace
from typing import ClassVar

from expectations.gate import gate_change_set
from expectations.validation import Verdict
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import CannotContinue, LedgerForgot
from lakehouse.errors.remedies import Commands
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import TargetVersions, written
from lakehouse.tables.creation import create
from lakehouse.tables.table import get
from pipelines.binding.ktable import BoundKTable
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.ktable.compute import compute_ktable
from pipelines.epochs.ktable.prepare import prepare_ktable
from pipelines.plan.remedies import OF_KTABLES
from pipelines.plan.request import Request
from pipelines.plan.values import Computed, Staged


@dataclass(frozen=True)
class KTableKind(Kind[BoundKTable]):
    """
    The KTable of a changelog source.

    A backfill goes on like a run; it reconciles the KTable only if it cannot go on.
    """

    commands: ClassVar[Commands] = OF_KTABLES

    def prepare(self, request: Request) -> Prepared[BoundKTable]:
        """See `Kind.prepare`."""
        return prepare_ktable(self.workspace, self.name, backfill=_may_reconcile(request))

    def prepare_around(
        self, epoch: Epoch[BoundKTable], request: Request, error: CannotContinue
    ) -> Prepared[BoundKTable]:
        """See `Kind.prepare_around`; a KTable is reconciled only if the user asked for a backfill."""
        if not _may_reconcile(request) or epoch.plan.strategy != "incremental" or isinstance(error, LedgerForgot):
            raise error
        with reading(self.name):
            again = prepare_ktable(self.workspace, self.name, backfill=True, reconcile=True)
        if not isinstance(again.plan.route, Staged):  # the epoch stopped while it was published
            raise error
        return again

    def create_targets(self, epoch: Epoch[BoundKTable]) -> Epoch[BoundKTable]:
        """See `Kind.create_targets`."""
        (write,), bound = epoch.plan.writes, epoch.bound
        if not write.target.is_new:
            return epoch
        create(self.workspace.spark, bound.result, bound.columns, bound.spec.key)
        table = get(self.workspace.engine, bound.result)
        write = written(write, TargetVersions(table.address, table.id, table.version))
        return replace(epoch, plan=replace(epoch.plan, writes=(write,)))

    def compute(self, epoch: Epoch[BoundKTable], stage: Stage) -> Computed:
        """See `Kind.compute`."""
        return compute_ktable(self.workspace, epoch, stage)

    def gate(self, epoch: Epoch[BoundKTable], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """See `Kind.gate`: validate the change set against the table that it changes."""
        rows, result = entry.writes[-1].rows, epoch.plan.result
        if not rows:
            return Verdict()
        spark = self.workspace.spark
        return gate_change_set(spark, stage.get(spark, "result"), rows, result.address, result.base_version)


def _may_reconcile(request: Request) -> bool:
    """Return whether the user asked for a backfill; whoever accepts a result as it is asks for none."""
    return request.backfill is not None and request.backfill.remedy != "accept"
