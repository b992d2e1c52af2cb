"""Compute what the changes of the sources make of the pairs of a result, and of its changelog."""

from pipelines.binding.bound import BoundJoin
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.commits import Commits
from pipelines.epochs.sources.reading import EpochSources
from pipelines.epochs.views.shape import Increment
from pipelines.joins.changelog import changelog_rows
from pipelines.joins.pairing import change_set_of_pairs
from pipelines.joins.segments import changelog_of_pairs


def increment_of_pairs(epoch: Epoch[BoundJoin], sources: EpochSources, commits: Commits | None) -> Increment | None:
    """Compare the pairs of touched rows before and after; see `Shape.increment`."""
    bound = epoch.bound
    changes, logged = change_set_of_pairs(bound.join, bound.types, sources), None
    if commits is not None:
        logged = changelog_of_pairs(bound.join, bound.types, commits, commits.order, bound.columns)
    if logged is not None:
        # A tombstone precedes the upserts of other keys at its position, so that no row stands beside its match.
        logged = changelog_rows(logged, bound.join.key, bound.columns, epoch.plan.epoch).orderBy("_position", "_op")
    return None if changes is None and logged is None else Increment(changes=changes, logged=logged)
