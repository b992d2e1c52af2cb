"""A kind of join that this module alone adds: rows of the left table without a partner in the right one."""

from dataclasses import dataclass, replace

import pytest
from pyspark.sql import DataFrame

from expectations.validation import Verdict
from lakehouse.errors.errors import Drifted, ForeignWriter, GateFailed
from lakehouse.ledger.entries import Entry
from lakehouse.publish.merge import STAGED_COUNTS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import TargetVersions, merged, written
from lakehouse.tables.creation import create
from lakehouse.tables.table import get, read
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Published, compare
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.run.driver import run_join
from pipelines.epochs.views.prepare import prepare
from pipelines.joins.difference import bag_difference, differing
from pipelines.plan.request import Backfill, Request
from pipelines.plan.values import Computed
from pipelines.report import JoinReport
from tests.lake import Lake


@dataclass(frozen=True)
class UnmatchedKind(Kind[BoundJoin]):
    """The rows of a LEFT JOIN of two tables that have no partner, computed in full for each epoch."""

    def prepare(self, request: Request) -> Prepared[BoundJoin]:
        return prepare(self.workspace, self.name, backfill=request.backfill is not None)

    def create_targets(self, epoch: Epoch[BoundJoin]) -> Epoch[BoundJoin]:
        bound, (write,) = epoch.bound, epoch.plan.writes
        if not write.target.is_new:
            return epoch
        create(self.workspace.spark, bound.result, bound.columns, bound.join.key)
        table = get(self.workspace.engine, bound.result)
        target = TargetVersions(bound.result, table.id, table.version)
        return replace(epoch, plan=replace(epoch.plan, writes=(written(write, target),)))

    def compute(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        plan, bound = epoch.plan, epoch.bound
        held = read(self.workspace.spark, bound.result, plan.result.base_version)
        changes = differing(held.select(*bound.columns.names), self._unmatched(bound), bound.join.key, None)
        counts = stage.put("result", changes, STAGED_COUNTS)
        return Computed(counts, (merged(plan.result, counts),))

    def gate(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        if not entry.writes[-1].rows:
            return Verdict()
        staged = stage.get(self.workspace.spark, "result").where("op <> 'delete'").select("after.*")
        matched = staged.join(self._table(epoch.bound, 1), on="k", how="left_semi").count()
        return Verdict((f"{matched} rows have a partner",)) if matched else Verdict()

    def verify(self, against: str = "", published: Published | None = None) -> JoinReport:
        last = self.workspace.ledger.of(self.name).committed
        assert last is not None
        assert last.result.version is not None
        bound = at_recorded(bind_join(self.workspace, self.name), last.sources)
        found = read(self.workspace.spark, bound.result, last.result.version).select(*bound.columns.names)
        total = compare(self.name, bag_difference(self._unmatched(bound), found))
        if total.missing or total.surplus:
            raise Drifted(self.name, "the table has drifted", found="; ".join(total.examples))
        return JoinReport(join=self.name, outcome="done", strategy="verify")

    def _unmatched(self, bound: BoundJoin) -> DataFrame:
        rows = self._table(bound, 0).join(self._table(bound, 1), on="k", how="left_anti")
        return rows.selectExpr("k", "v", "CAST(NULL AS STRING) AS w")

    def _table(self, bound: BoundJoin, place: int) -> DataFrame:
        return read(self.workspace.spark, bound.table(place).address, bound.table(place).version)


@pytest.fixture
def kind(standard: Lake) -> UnmatchedKind:
    pipeline = standard.pipeline()
    return UnmatchedKind(Workspace.open(standard.spark, pipeline.file, pipeline.folder), "result")


def test_a_kind_of_a_test_loads_follows_changes_and_is_verified(standard: Lake, kind: UnmatchedKind) -> None:
    lake = standard
    loaded = run_join(kind)
    assert (loaded.strategy, loaded.counts["inserted"]) == ("load", 1)
    assert lake.rows() == [(1, "a", None)]
    assert kind.verify().outcome == "done"

    lake.sql("INSERT INTO {right} VALUES (1, 'one')")
    lake.sql("DELETE FROM {right} WHERE k = 2")
    moved = run_join(kind)
    assert (moved.strategy, moved.counts["inserted"], moved.counts["deleted"]) == ("incremental", 1, 1)
    assert lake.rows() == [(2, "b", None)]
    assert run_join(kind).outcome == "nothing"
    assert kind.verify().outcome == "done"


@pytest.mark.slow
def test_its_gate_stops_an_epoch_and_its_backfill_mends_what_a_person_changed(standard, kind, monkeypatch):
    lake = standard
    run_join(kind)
    lake.sql("INSERT INTO {left} VALUES (5, 'd')")
    with monkeypatch.context() as patch:
        patch.setattr(
            UnmatchedKind, "_unmatched", lambda kind, bound: kind._table(bound, 0).selectExpr("k", "v", "'' w")
        )
        with pytest.raises(GateFailed, match="2 rows have a partner"):
            run_join(kind)
    assert lake.rows() == [(1, "a", None)]
    assert run_join(kind).counts["inserted"] == 1

    lake.sql("DELETE FROM {result} WHERE k = 5")
    with pytest.raises(ForeignWriter):
        run_join(kind)
    assert run_join(kind, Request(Backfill())).counts["inserted"] == 1
    assert lake.rows() == [(1, "a", None), (5, "d", None)]
