"""Joins of two streams: rows meet within a window, and are buffered until nothing can meet them any more."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from expectations.suites import Suite, of_two_streams
from expectations.validation import Verdict
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from pipelines.binding.bound import BoundJoin
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.kind import StreamKind
from pipelines.epochs.window.compute import Meetings, compute_windowed
from pipelines.epochs.window.gate import gate_windowed
from pipelines.joins.pairs import is_eager, outer_sides
from pipelines.language import ROW_COLUMNS
from pipelines.plan.values import Computed


@dataclass(frozen=True)
class WindowKind(StreamKind):
    """A join of two streams; its buffered rows are a table beside the result."""

    def suite(self, bound: BoundJoin) -> Suite:
        """See `Kind.suite`; semantics that repeat rows by intent have no rules against repeated rows."""
        rules = [] if is_eager(bound.semantics) else of_two_streams(outer_sides(bound.join), ROW_COLUMNS)
        return super().suite(bound) + rules

    def compute_epoch(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """See `StreamKind.compute_epoch`."""
        return compute_windowed(self.workspace, epoch, stage)

    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """See `StreamKind.epoch_rows`."""
        return Meetings(self.workspace, epoch, scratch).rows()

    def gate_sources(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
        """See `StreamKind.gate_sources`: let the rows meet once more."""
        return gate_windowed(self.workspace, epoch, stage, entry.counts)
