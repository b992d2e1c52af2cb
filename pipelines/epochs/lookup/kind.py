"""Joins of a stream with tables: each row of the stream meets the tables as they were at its time."""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import RESULT_PART, AppendInPlace
from pipelines.binding.bound import BoundJoin
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.lookup.compute import Lookups, compute_stream
from pipelines.epochs.lookup.gate import gate_lookups
from pipelines.epochs.sources.scratch import Scratch
from pipelines.epochs.streams.kind import StreamKind
from pipelines.plan.request import Request
from pipelines.plan.values import Computed


@dataclass(frozen=True)
class LookupKind(StreamKind):
    """A join of a stream with tables; it buffers nothing."""

    def prepare(self, request: Request) -> Prepared[BoundJoin]:
        """See `Kind.prepare`; many rows are not staged, unless expectations would compute them again and again."""
        prepared = super().prepare(request)
        plan = prepared.plan
        declared = self.workspace.file.joins[self.name].expectations
        is_large = plan.stream.new_bytes > limits.STAGED_STREAM_BYTES and not plan.via_driver
        if plan.strategy not in ("load", "incremental") or declared or not is_large:
            return prepared
        result = AppendInPlace(plan.result, RESULT_PART)
        return replace(prepared, plan=replace(plan, writes=(*plan.writes[:-1], result)))

    def compute_epoch(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """See `StreamKind.compute_epoch`."""
        return compute_stream(self.workspace, epoch, stage)

    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """See `StreamKind.epoch_rows`."""
        return Lookups(self.workspace, epoch, scratch).rows()

    def gate_sources(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
        """See `StreamKind.gate_sources`: look up the rows of the stream once more."""
        return gate_lookups(self.workspace, epoch, stage, entry)
