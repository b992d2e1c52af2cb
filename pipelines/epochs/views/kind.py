"""What joins of tables and of pairs share: the result is always the join of its sources at the recorded versions."""

from dataclasses import dataclass, replace
from typing import ClassVar

from expectations.suites import KeyOfResult, Suite, of_table
from lakehouse import limits
from lakehouse.errors.errors import CannotContinue, FeedUnavailable, LakejoinError, PastRowFailed, SchemaBroken
from lakehouse.ledger.entries import COLUMNS, Entry
from lakehouse.publish.merge import OPERATIONS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import CHANGELOG_PART, Append, TargetVersions, Write, written
from lakehouse.tables.creation import create, set_properties
from lakehouse.tables.table import get, read
from lakehouse.values.recorded import Checksum, Slice
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.epochs.comparison import Published
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind
from pipelines.epochs.sources.failing_rows import row_failed
from pipelines.epochs.views.compute import compute_changes
from pipelines.epochs.views.load import load, resume_load
from pipelines.epochs.views.overwrite import compute_overwrite
from pipelines.epochs.views.partial_backfill import plan_subset, subset_of
from pipelines.epochs.views.prepare import prepare, prepare_around
from pipelines.epochs.views.quick_verify import verify_quickly
from pipelines.epochs.views.reconcile import (
    check_sources,
    check_whole,
    checksum_at,
    compute_differences,
    compute_reconciliation,
    expected_rows,
)
from pipelines.epochs.views.shape import Shape
from pipelines.epochs.views.verify import verify_tables
from pipelines.joins.changelog import changelog_schema
from pipelines.language import Condition
from pipelines.plan.decide import check_definition
from pipelines.plan.request import Backfill, Request
from pipelines.plan.values import Computed, InPlace, Resume, Route, Sliced, Staged
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


@dataclass(frozen=True)
class ViewKind(Kind[BoundJoin]):
    """
    A join whose result is always the join of its sources.

    Its first load is written in place, and so is an epoch in full of a join that asks for no exact change feed. Any
    other epoch stages a change set, which is merged into the result, and the rows of its changelog. An epoch whose
    feeds cannot be read is computed in full.
    """

    shape: ClassVar[Shape]
    """What a row of the result is."""

    def prepare(self, request: Request) -> Prepared[BoundJoin]:
        """See `Kind.prepare`; a backfill reconciles the result, or the part of it that a condition selects."""
        asked = request.backfill
        if asked is not None and asked.remedy:
            raise LakejoinError(
                self.name,
                f"`--{asked.remedy}` is for joins with a stream",
                hint=f"run `lakejoin backfill --select {self.name}`: it reconciles the result with its sources",
            )
        prepared = prepare(self.workspace, self.name, backfill=asked is not None, evolves=request.is_whole)
        if isinstance(prepared.plan.route, Resume):
            return prepared
        if asked is not None and asked.where is not None:
            prepared = plan_subset(self.workspace, prepared, asked.where)
        plan = prepared.plan
        if plan.result.is_new:
            writes = tuple(Append(write.target, write.part) for write in plan.writes)
            return replace(prepared, plan=replace(plan, route=InPlace(), writes=writes))
        if asked is not None and asked.slices > 1 and plan.changes_columns:
            raise LakejoinError(
                self.name,
                "`--slices` with columns of the result that change: they get their values in one commit",
                hint=f"run `lakejoin backfill --select {self.name}` without it",
            )
        if asked is None or plan.changes_columns:
            return prepared
        return replace(prepared, plan=replace(plan, route=_route(prepared.epoch, asked)))

    def prepare_around(self, epoch: Epoch[BoundJoin], request: Request, error: CannotContinue) -> Prepared[BoundJoin]:
        """See `Kind.prepare_around`; an epoch whose feeds cannot be read is computed in full."""
        if not isinstance(error, FeedUnavailable | SchemaBroken | PastRowFailed):
            raise error
        names_no_feed = error.where == self.name and not isinstance(error, PastRowFailed)
        is_computing = self.workspace.ledger.of(self.name).open is None
        if epoch.plan.strategy == "incremental" and names_no_feed and is_computing:
            check_sources(self.workspace, epoch.bound)  # no feed is named: it may be a source itself
        return prepare_around(self.workspace, epoch, error)

    def row_failed(self, error: Exception) -> LakejoinError:
        """See `Kind.row_failed`; the row is searched for in the sources as they are now."""
        return row_failed(self.workspace, bind_join(self.workspace, self.name), error)

    def verify(self, against: str = "", published: Published | None = None) -> JoinReport:
        """See `Kind.verify`: the recorded versions joined once more, and the last rows of the changelog."""
        return verify_tables(self.workspace, self.name, against, published)

    def verify_quickly(self) -> JoinReport:
        """See `Kind.verify_quickly`."""
        return verify_quickly(self.workspace, self.name)

    def suite(self, bound: BoundJoin) -> Suite:
        """See `Kind.suite`."""
        return of_table(self.sides(bound))

    def sides(self, bound: BoundJoin) -> KeyOfResult:
        """See `Kind.sides`."""
        return self.shape.sides(bound.join)

    def create_targets(self, epoch: Epoch[BoundJoin]) -> Epoch[BoundJoin]:
        """
        Create the changelog if the join keeps one and it does not exist, and let the result say what its key is.

        A load creates its tables itself.
        """
        if isinstance(epoch.plan.route, InPlace):
            return epoch
        if epoch.plan.properties:
            set_properties(self.workspace.spark, epoch.bound.result, epoch.plan.properties)
        return replace(
            epoch, plan=replace(epoch.plan, writes=tuple(self._created(epoch, w) for w in epoch.plan.writes))
        )

    def _created(self, epoch: Epoch[BoundJoin], write: Write) -> Write:
        if not write.target.is_new:
            return write
        assert write.part == CHANGELOG_PART
        address, bound = write.target.address, epoch.bound
        create(self.workspace.spark, address, changelog_schema(bound.columns), bound.join.key)
        table = get(self.workspace.engine, address)
        return written(write, TargetVersions(address, table.id, table.version))

    def compute(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """See `Kind.compute`."""
        if epoch.plan.strategy == "incremental":
            return compute_changes(self.workspace, epoch, stage, self.shape)
        if epoch.plan.strategy == "overwrite":
            found = compute_overwrite(self.workspace, epoch, stage)
        else:
            subset = subset_of(self.workspace, epoch)
            found = compute_reconciliation(self.workspace, epoch, stage, self.shape, subset)
        return replace(found, counts={**found.counts, COLUMNS: 1}) if epoch.plan.changes_columns else found

    def count(self, epoch: Epoch[BoundJoin], stage: Stage) -> dict[str, int]:
        """See `Kind.count`; a load stages nothing, and neither does an overwrite."""
        overwrites = epoch.plan.strategy == "overwrite"
        if not isinstance(epoch.plan.route, InPlace) and not overwrites:
            return super().count(epoch, stage)
        counts = {"null_keys": check_sources(self.workspace, epoch.bound), **dict.fromkeys(OPERATIONS.values(), 0)}
        if overwrites:
            target = epoch.plan.result
            counts["deleted"] = read(self.workspace.spark, target.address, target.base_version).count()
        return {**counts, "inserted": expected_rows(self.workspace, epoch.bound).count()}

    def load(self, epoch: Epoch[BoundJoin], watch: Stopwatch) -> Entry:
        """See `Kind.load`."""
        return load(self.workspace, epoch, self.shape, watch)

    def resume_load(self, entry: Entry, watch: Stopwatch) -> Entry | None:
        """See `Kind.resume_load`."""
        return resume_load(self.workspace, entry, self.shape, watch)

    def at_recorded(self, entry: Entry) -> BoundJoin:
        """See `Kind.at_recorded`."""
        bound = bind_join(self.workspace, self.name)
        check_definition(self.name, bound.definition, entry.definition, "")
        return at_recorded(bound, entry.sources)

    def check_whole(self, epoch: Epoch[BoundJoin]) -> dict[str, int]:
        """See `Kind.check_whole`."""
        return check_whole(self.workspace, epoch, self.shape)

    def compute_slice(self, epoch: Epoch[BoundJoin], part: Slice, stage: Stage) -> Computed:
        """See `Kind.compute_slice`."""
        subset = subset_of(self.workspace, epoch, Condition(part.condition, epoch.bound.join.key))
        return compute_differences(self.workspace, epoch, stage, subset, is_begun=True)

    def checksum(self, bound: BoundJoin, version: int) -> Checksum | None:
        """See `Kind.checksum`."""
        return checksum_at(self.workspace, bound, version)


def _route(epoch: Epoch[BoundJoin], asked: Backfill) -> Route:
    """Choose the route of a backfill: as many slices as the user asked for, or as the size of the sources needs."""
    number = asked.slices or 1 + sum(table.size for table in epoch.bound.sources) // limits.BYTES_PER_SLICE
    return Sliced(number) if number > 1 else Staged()
