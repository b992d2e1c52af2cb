"""Joins of tables: a row of the result has the key that some of its inputs share, and at most one row of each input."""

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.gate import gate_loaded
from expectations.suites import KeyOfResult, KeyOfSide
from expectations.validation import Verdict
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.values.net_changes import null_key
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Prefetched
from pipelines.epochs.sources.commits import Commits
from pipelines.epochs.sources.reading import EpochSources
from pipelines.epochs.tables.gate import gate_tables, prefetch
from pipelines.epochs.views.gate import sources_of
from pipelines.epochs.views.kind import ViewKind
from pipelines.epochs.views.shape import Increment, Shape
from pipelines.joins.changelog import changelog_rows, emitted
from pipelines.joins.kernel import change_set, touched_keys
from pipelines.joins.timeline import timeline
from pipelines.language import ResolvedQuery


class RowsByKey(Shape):
    """A row for each key of the inputs that share the key of the result."""

    is_cut_by_key = True

    def increment(self, epoch: Epoch[BoundJoin], sources: EpochSources, commits: Commits | None) -> Increment | None:
        """See `Shape.increment`: find the keys that the changes touch, and compare their rows before and after."""
        bound = epoch.bound
        touched = touched_keys(bound.join, commits or sources)
        number = 0 if touched is None else sources.pruning(touched, bound.join.members[0]).keys
        if touched is None or number == 0:
            return None
        return Increment(
            changes=change_set(bound.join, bound.types, sources, touched),
            logged=None if commits is None else _changelog(epoch, commits, touched),
            touched=lambda: touched.count() if number is None else number,
        )

    def keyless(self, join: ResolvedQuery) -> str:
        """See `Shape.keyless`."""
        return null_key(join.key, may_be_absent=join.has_absent_keys)

    def sides(self, join: ResolvedQuery) -> KeyOfResult:
        """See `Shape.sides`: the key as a whole."""
        return (KeyOfSide(join.key, may_have_nulls=join.has_absent_keys),)

    def gate_loaded(self, workspace: Workspace, epoch: Epoch[BoundJoin], version: int, seed: str) -> Verdict:
        """See `Shape.gate_loaded`."""
        bound, sources = epoch.bound, sources_of(workspace, epoch)
        return gate_loaded(workspace.spark, bound.result, version, bound.join.key, sources, seed)


def _changelog(epoch: Epoch[BoundJoin], commits: Commits, touched: DataFrame) -> DataFrame:
    """Return the epoch's rows of the changelog, in order."""
    bound = epoch.bound
    pieces = timeline(bound.join, bound.types, commits, touched)
    rows = emitted(pieces, bound.join, bound.columns, bound.semantics)
    at = commits.order.select(F.col("position").alias("at_position"), "at")
    timed = rows.join(at, on=F.expr("position = at_position"), how="inner")
    return changelog_rows(timed, bound.join.key, bound.columns, epoch.plan.epoch).orderBy("_position")


@dataclass(frozen=True)
class TablesKind(ViewKind):
    """A join of tables: two tables by their keys, a foreign key, or a star of both."""

    shape: ClassVar[Shape] = RowsByKey()

    def prefetch(self, epoch: Epoch[BoundJoin]) -> Prefetched | None:
        """See `Kind.prefetch`."""
        return prefetch(self.workspace, epoch)

    def gate(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """See `Kind.gate`."""
        return gate_tables(self.workspace, epoch, stage, entry, prefetched)
