"""Joins whose rows match in any number: a row of the result is a pair of rows, or an unmatched row of an outer side."""

from dataclasses import dataclass
from typing import ClassVar

from expectations.gate import gate_loaded_pairs
from expectations.suites import KeyOfResult, KeyOfSide
from expectations.validation import Verdict
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.values.net_changes import null_key, wrong_key
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Prefetched
from pipelines.epochs.pairs.gate import gate_changed_pairs, paired_of
from pipelines.epochs.sources.commits import Commits
from pipelines.epochs.sources.reading import EpochSources
from pipelines.epochs.views.gate import sources_of
from pipelines.epochs.views.kind import ViewKind
from pipelines.epochs.views.shape import Increment, Shape
from pipelines.joins.changelog import changelog_rows
from pipelines.joins.pairing import change_set_of_pairs
from pipelines.joins.segments import changelog_of_pairs
from pipelines.language import ResolvedQuery


class PairsOfRows(Shape):
    """A row for each pair of matching rows, keyed by both; unmatched rows of an outer side lack one key."""

    is_cut_by_key = False

    def increment(self, epoch: Epoch[BoundJoin], sources: EpochSources, commits: Commits | None) -> Increment | None:
        """See `Shape.increment`: compare the pairs of touched rows before and after."""
        bound = epoch.bound
        changes, logged = change_set_of_pairs(bound.join, bound.types, sources), None
        if commits is not None:
            logged = changelog_of_pairs(bound.join, bound.types, commits, commits.order, bound.columns)
        if logged is not None:
            # A tombstone precedes the upserts of other keys at its position, so that no row stands beside its match.
            logged = changelog_rows(logged, bound.join.key, bound.columns, epoch.plan.epoch).orderBy("_position", "_op")
        return None if changes is None and logged is None else Increment(changes=changes, logged=logged)

    def keyless(self, join: ResolvedQuery) -> str:
        """See `Shape.keyless`."""
        if not join.has_absent_keys:
            return null_key(join.key)
        sides = [[quote(name) for name in names] for names in join.keys_of_sides]
        return wrong_key(sides, _may_be_absent(join))

    def sides(self, join: ResolvedQuery) -> KeyOfResult:
        """See `Shape.sides`: that of both sides if a row may lack one of them, else as a whole."""
        if not join.has_absent_keys:
            return (KeyOfSide(join.key, may_have_nulls=False),)
        absent, (left, right), outer = _may_be_absent(join), join.keys_of_sides, join.paired.outer
        return KeyOfSide(left, outer[1], absent[0]), KeyOfSide(right, outer[0], absent[1])

    def gate_loaded(self, workspace: Workspace, epoch: Epoch[BoundJoin], version: int, seed: str) -> Verdict:
        """See `Shape.gate_loaded`."""
        bound, sources = epoch.bound, sources_of(workspace, epoch)
        return gate_loaded_pairs(workspace.spark, bound.result, version, sources, paired_of(bound), seed)


def _may_be_absent(join: ResolvedQuery) -> list[bool]:
    """Return for the left and the right input whether it is a join that may lack the row of a key."""
    return [join.inputs[place].may_be_absent for place in join.paired.places]


@dataclass(frozen=True)
class PairsKind(ViewKind):
    """A join of two inputs of any cardinality, with look-ups of either."""

    shape: ClassVar[Shape] = PairsOfRows()

    def gate(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """See `Kind.gate`; it reads everything itself."""
        return gate_changed_pairs(self.workspace, epoch, stage, entry)
