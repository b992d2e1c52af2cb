"""Compute what the changes of the sources of a join of tables make of its result, and of its changelog."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.binding.bound import BoundJoin
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.commits import Commits
from pipelines.epochs.sources.reading import EpochSources
from pipelines.epochs.views.shape import Increment
from pipelines.joins.changelog import changelog_rows
from pipelines.joins.emission_rules import emitted
from pipelines.joins.kernel import change_set, touched_keys
from pipelines.joins.timeline import timeline


def increment_of_tables(epoch: Epoch[BoundJoin], sources: EpochSources, commits: Commits | None) -> Increment | None:
    """Find the keys that the changes touch, and compare their rows before and after; see `Shape.increment`."""
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


def _changelog(epoch: Epoch[BoundJoin], commits: Commits, touched: DataFrame) -> DataFrame:
    """Return the epoch's rows of the changelog, in order."""
    bound = epoch.bound
    pieces = timeline(bound.join, bound.types, commits, touched)
    rows = emitted(pieces, bound.join, bound.columns, bound.semantics)
    at = commits.order.select(F.col("position").alias("at_position"), "at")
    timed = rows.join(at, on=F.expr("position = at_position"), how="inner")
    return changelog_rows(timed, bound.join.key, bound.columns, epoch.plan.epoch).orderBy("_position")
