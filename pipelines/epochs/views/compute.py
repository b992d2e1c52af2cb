"""
Compute one incremental epoch of a view into its stage.

    feeds ─► net changes ─► touched keys ─► look-up ─► images ─► change set
              changes_…       touched, …    wanted_…             stage: result

The rows between feeds and change set pass through the driver if they are small enough, else through the stage.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import DataFrame

from lakehouse.publish.merge import OPERATIONS, STAGED_COUNTS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import CHANGELOG_PART, Append, Write, merged
from lakehouse.values.checksums import HASHES, MOVES, after_changes, has_checksum, with_hashes
from lakehouse.values.net_changes import fields_of
from lakehouse.values.recorded import Checksum
from lakehouse.values.sqltext import row_struct
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.commits import CommitReader, in_order_of_time
from pipelines.epochs.sources.duplicate_keys import REMOVE, duplicates_in_changes, refuse_keys
from pipelines.epochs.sources.feeds import Changes, SourceFeeds, net_changes, read_changes
from pipelines.epochs.sources.reading import EpochSources, check_looked_up
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.epochs.views.shape import Shape
from pipelines.plan.values import Computed, EpochPlan


def compute_changes(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, shape: Shape) -> Computed:
    """
    Compute an incremental epoch from the change feeds into the stage's part `result`, its changelog into `changelog`.

    Returns:
        Counts: read (feed rows), null_keys (feed rows without a key), looked_up (source rows that the feeds do not
        contain), files (source files that were read for these), touched (result keys that could change), inserted,
        updated, deleted, unchanged, and changelog (rows for the changelog, if the join keeps one).

    Raises:
        DuplicateKey: A source holds a changed or looked-up key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read; `conditions.reading`, which wraps this call, raises them.
    """
    size = sum(table.size for table in epoch.bound.sources)
    return via_driver_or_stage(workspace, epoch.plan, size, stage, partial(_compute, workspace, epoch, shape))


def writes_of_tables(plan: EpochPlan, counts: Mapping[str, int]) -> tuple[Write, ...]:
    """Return what an epoch of a join of tables writes: rows for its changelog, and the change set of its result."""
    logged = [] if plan.changelog is None else [Append(plan.changelog, CHANGELOG_PART, counts.get("changelog", 0))]
    return (*logged, merged(plan.result, counts))


def put_changes(
    stage: Stage, bound: BoundJoin, changes: DataFrame, facts: Mapping[str, str], *, via_driver: bool = False
) -> dict[str, int]:
    """
    Write a change set into the stage's part `result`.

    Args:
        changes: `op`, `key`, `before`, `after`, in the order of the result's columns, and others.
        facts: Aggregates of the changes, as SQL by name.
        via_driver: Whether the driver writes the rows.

    Returns:
        The values of the aggregates and, unless the result has no checksum, of `checksums.MOVES`.
    """
    if not has_checksum(list(bound.columns)):
        return stage.put("result", changes, facts, via_driver=via_driver)
    changes = with_hashes(changes, list(bound.columns))
    return stage.put("result", changes, {**facts, **MOVES}, via_driver=via_driver, hidden=HASHES)


def computed(plan: EpochPlan, counts: Mapping[str, int], before: Checksum | None) -> Computed:
    """
    Return the outcome of computing a change set.

    Args:
        counts: With what `put_changes` returned.
        before: The checksum of the result before it; None if it is unknown.
    """
    reported = {name: number for name, number in counts.items() if name not in MOVES}
    after = after_changes(before, counts) if MOVES.keys() <= counts.keys() else None
    return Computed(reported, writes_of_tables(plan, reported), checksum=after)


def _compute(workspace: Workspace, epoch: Epoch[BoundJoin], shape: Shape, scratch: Scratch) -> Computed:
    return computed(epoch.plan, _counts(workspace, epoch, shape, scratch), epoch.plan.checksum)


def _counts(workspace: Workspace, epoch: Epoch[BoundJoin], shape: Shape, scratch: Scratch) -> dict[str, int]:
    """Compute an epoch into its stage; return its counts, and how it moves the checksum of the result."""
    bound, is_logged = epoch.bound, epoch.bound.changelog is not None
    feeds = SourceFeeds(workspace, epoch, scratch, "commit by commit" if is_logged else "netted")
    read = _read(feeds)
    sources = EpochSources(feeds, read)
    nothing = ("touched", "inserted", "updated", "deleted", "unchanged", *MOVES, *(["changelog"] if is_logged else []))
    none = {**sources.counts, **dict.fromkeys(nothing, 0)}
    commits = in_order_of_time(sources, bound, read) if is_logged else None
    found = shape.increment(epoch, sources, commits) if commits is not None or not is_logged else None
    if found is None:
        check_looked_up(bound, sources)  # a row may add a key that is there, and change no value that a semi join finds
        return none
    staged: dict[str, int] = {}
    with ThreadPoolExecutor(max_workers=1) as executor:
        checked = executor.submit(check_looked_up, bound, sources)
        stage, few = scratch.stage, scratch.via_driver
        if found.changes is not None:
            staged |= put_changes(stage, bound, in_order(bound, found.changes), STAGED_COUNTS, via_driver=few)
        if found.logged is not None:
            staged |= stage.put("changelog", found.logged, {"changelog": "count(1)"}, via_driver=few)
        looked_up = checked.result()
    changed, counts = sum(staged.get(name, 0) for name in OPERATIONS.values()), sources.counts
    counts["looked_up"] += looked_up
    touched = changed if found.touched is None else found.touched()
    return {**none, **counts, **staged, "touched": touched, "unchanged": touched - changed}


def _read(feeds: SourceFeeds) -> dict[int, Changes]:
    """Read the changes of the inputs that have some; those of each commit, too, for a changelog."""
    bound = feeds.bound
    if bound.changelog is None:
        read = read_changes(bound, filter(feeds.has_changes, bound.join.feeds), partial(net_changes, feeds))
    else:
        reader = CommitReader(feeds, row_by_row=bound.semantics != "strict")
        read = read_changes(bound, filter(reader.has_changes, bound.join.feeds), reader.with_net)
    for place, changes in read.items():
        if changes.twice is not None:
            then_backfill = f"{REMOVE}; then run `lakejoin backfill --select {bound.join.name}` to continue"
            hint = REMOVE if bound.changelog is None else then_backfill
            item = feeds.input_of(place)
            refuse_keys(item.source, item.source_key, duplicates_in_changes(changes.twice), hint)
    return read


def in_order(bound: BoundJoin, changes: DataFrame, *, keep_copies: bool = False) -> DataFrame:
    """Arrange the rows of a change set in the column order of the result."""
    order = bound.columns.fieldNames()
    is_in_order = fields_of(changes, "after").fieldNames() == order

    def arranged(image: str) -> str:
        return image if is_in_order else f"IF({image} IS NULL, NULL, {row_struct(order, f'{image}.')}) AS {image}"

    return changes.selectExpr("op", "key", arranged("before"), arranged("after"), *(["copies"] if keep_copies else []))
