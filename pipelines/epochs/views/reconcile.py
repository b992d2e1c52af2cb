"""Compute a join in full, compare its meaning with the result, and stage only the rows that differ."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.conditions import reading, reading_whole
from lakehouse.errors.errors import CannotContinue, DuplicateKey
from lakehouse.publish.merge import STAGED_COUNTS
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.columns import as_columns
from lakehouse.tables.table import Table, has_no_null, read, read_rows
from lakehouse.values.checksums import NEW_HASH, Compared, checksum_of, compare_checksums, has_checksum, row_hash
from lakehouse.values.compare import is_collated
from lakehouse.values.net_changes import null_key
from lakehouse.values.recorded import Checksum
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.sources.duplicate_keys import EXAMPLES, Duplicate, duplicates_in_table, listed, refuse_keys
from pipelines.epochs.views.compute import computed, in_order, put_changes
from pipelines.epochs.views.shape import Shape
from pipelines.joins.changelog import changelog_schema, missing_rows
from pipelines.joins.difference import Subset, differing
from pipelines.joins.meaning import hashed_meaning, hashed_rows, meaning
from pipelines.language import Input
from pipelines.plan.values import Computed


def compute_reconciliation(
    workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, shape: Shape, subset: Subset | None = None
) -> Computed:
    """
    Compute where the result differs from the meaning at the pinned versions, into the stage's part `result`.

    Args:
        subset: The part of the result to reconcile; all of it if None.

    Returns:
        Counts: null_keys (source rows without a key), inserted, updated, deleted, and changelog (rows of the part
        `changelog`, if the join keeps one).

    Raises:
        DuplicateKey: A source, or the result, holds a key twice, or the result holds rows without a key.
    """
    counts = check_whole(workspace, epoch, shape)
    found = compute_differences(workspace, epoch, stage, subset)
    return replace(found, counts={**counts, **found.counts})


def check_whole(workspace: Workspace, epoch: Epoch[BoundJoin], shape: Shape) -> dict[str, int]:
    """
    Check whole sources and the result for rows that cannot be compared; return null_keys (source rows without a key).

    Raises:
        DuplicateKey: A source holds a key twice, or the result holds rows without a key.
    """
    bound, plan = epoch.bound, epoch.plan
    counts = {"null_keys": check_sources(workspace, bound)}
    _refuse_keyless(bound, read(workspace.spark, bound.result, plan.result.base_version), shape)
    return counts


def compute_differences(
    workspace: Workspace,
    epoch: Epoch[BoundJoin],
    stage: Stage,
    subset: Subset | None = None,
    *,
    is_begun: bool = False,
) -> Computed:
    """
    Run `compute_reconciliation` on tables that `check_whole` has already checked.

    Args:
        subset: The part of the result to reconcile; all of it if None.
        is_begun: Whether the changelog may already hold rows of this epoch, about other parts of the result.

    Returns:
        The counts of `compute_reconciliation` without null_keys, and the checksum of the result afterwards; None if the
        epoch is begun.

    Raises:
        DuplicateKey: The result holds a key twice.
    """
    bound, plan = epoch.bound, epoch.plan
    expected = expected_rows(workspace, bound)
    held = read(workspace.spark, bound.result, plan.result.base_version)
    names = bound.columns.fieldNames()
    old = as_columns(held, bound.columns)
    rest = _without_equal_parts(workspace, bound, old, expected.select(*map(quote, names)), subset)
    changes = differing(rest.old, rest.new, bound.join.key, subset)
    before = rest.before
    if before is None and not is_begun and has_checksum(list(bound.columns)):
        before = checksum_of(old)
    facts = {**STAGED_COUNTS, "copies": "max(copies)"}
    found = put_changes(stage, bound, in_order(bound, changes, keep_copies=True), facts)
    if (found.pop("copies") or 0) > 1:
        staged = stage.get(workspace.spark, "result")
        twice = staged.where("copies > 1").select("key", "copies").limit(EXAMPLES).collect()
        raise DuplicateKey(
            bound.result.label,
            "the result holds a key more than once",
            found=listed(bound.join.key, [Duplicate(row["key"], f"{row['copies']} rows") for row in twice]),
            hint=f"remove the surplus rows, or drop the table, and run `lakejoin backfill --select {plan.join}` again",
        )
    if plan.changelog is not None and not plan.changelog.is_new:  # a dry run does not create it
        logged = changelog_before(workspace, plan.changelog, plan.join, plan.epoch + is_begun)
        logged = as_columns(logged, changelog_schema(bound.columns))
        rows = missing_rows(logged, expected, bound.join.key, bound.columns, plan.epoch, subset)
        found |= stage.put("changelog", rows, {"changelog": "count(1)"})
    return computed(plan, found, before)


class _Rest(NamedTuple):
    """What is left of two states of a result to compare, and the checksum of the old one if all of it was read."""

    old: DataFrame
    new: DataFrame
    before: Checksum | None = None


def _without_equal_parts(
    workspace: Workspace, bound: BoundJoin, old: DataFrame, new: DataFrame, subset: Subset | None
) -> _Rest:
    """Leave out parts of two states that have the same checksums, unless the tables are small."""
    columns, key = list(bound.columns), bound.join.key
    is_small = sum(table.size for table in bound.sources) <= limits.SMALL_BYTES
    if is_small or any(is_collated(bound.columns[name].dataType) for name in key):
        return _Rest(old, new)  # keys under a collation that are equal may be in different parts
    if subset is not None:
        old, new = subset.rows(old), subset.rows(new)
    found = compare_with_join(workspace, bound, old, subset)
    differs = found.predicate(columns, key)
    before = found.other if subset is None and has_checksum(columns) else None
    return _Rest(old.where(differs), new.where(differs), before)


def compare_with_join(
    workspace: Workspace, bound: BoundJoin, found: DataFrame, subset: Subset | None = None
) -> Compared:
    """
    Compare rows with the meaning of a join at the pinned versions by checksums; the wide rows of neither are shuffled.

    Args:
        found: The rows, with the columns of the result in its types.
        subset: The part of the result from which the rows are; None for all of it.
    """
    columns, key = list(bound.columns), bound.join.key
    expected = hashed_meaning(whole_inputs(workspace, bound), bound.join, bound.columns)
    if subset is not None:
        expected = subset.rows(expected)
    found = hashed_rows(found.withColumn(NEW_HASH, F.expr(row_hash(columns))), bound.join, bound.columns)
    return compare_checksums(expected, found, key)


def checksum_at(workspace: Workspace, bound: BoundJoin, version: int | None) -> Checksum | None:
    """Compute the checksum of the result at a version; return None if it has none."""
    if not has_checksum(list(bound.columns)):
        return None
    assert version is not None, "the version of a written result is known"
    return checksum_of(read(workspace.spark, bound.result, version).select(*map(quote, bound.columns.fieldNames())))


def changelog_before(workspace: Workspace, changelog: TargetVersions, join: str, epoch: int) -> DataFrame:
    """
    Read a changelog that an epoch is to bring up to date with a result.

    Raises:
        CannotContinue: It holds rows of that epoch or a later one, so that appended rows would not be its last ones.
    """
    rows = read(workspace.spark, changelog.address, changelog.base_version)
    newest = rows.agg(F.max("_epoch")).collect()[0][0]
    if newest is not None and newest >= epoch:
        raise CannotContinue(
            changelog.address.label,
            "the changelog holds rows of epochs that the ledger does not know",
            expected=f"rows of epochs before {epoch}",
            found=f"rows of epoch {newest}",
            hint=f"drop the changelog, then run `lakejoin backfill --select {join}`, which recreates it",
        )
    return rows


def expected_rows(workspace: Workspace, bound: BoundJoin) -> DataFrame:
    """Return the meaning of the join at the pinned versions: the columns of the result, the key first."""
    rows = meaning(whole_inputs(workspace, bound), bound.join)
    return rows.select(*(F.col(quote(name)) for name in bound.columns.fieldNames()))


def whole_inputs(workspace: Workspace, bound: BoundJoin) -> list[DataFrame]:
    """Return the rows of each input of a join at the pinned versions, with the columns that the join uses."""
    inputs = [(item, bound.table(place)) for place, item in enumerate(bound.join.inputs)]
    return [rows_of(workspace, item, table, table.version) for item, table in inputs]


def check_sources(workspace: Workspace, bound: BoundJoin) -> int:
    """
    Check whole sources for duplicate keys; return the number of rows without a key, which take no part in the join.

    Raises:
        DuplicateKey: A source holds a key twice; the error gives examples.
    """
    places = bound.join.feeds
    items = [bound.join.inputs[place].ungrouped for place in places]
    tables = [bound.table(place) for place in places]
    without_key: dict[str, int] = {}
    with ThreadPoolExecutor() as pool:
        found = pool.map(partial(_find_unusable, workspace, bound.join.name), tables, items)
        for item, (number, examples) in zip(items, found, strict=True):
            refuse_keys(item.source, item.source_key, examples)
            without_key[item.source] = number
    return sum(without_key.values())


def _without_key(workspace: Workspace, table: Table, item: Input) -> int:
    """Return the number of rows of a source without a key; it is not read if its statistics rule such rows out."""
    if has_no_null(workspace.engine, table, item.source_key):
        return 0
    rows = read_rows(workspace.spark, table, table.version)
    return rows.where(null_key(item.source_key, may_be_absent=item.may_be_absent)).count()


def _find_unusable(workspace: Workspace, join: str, table: Table, item: Input) -> tuple[int, list[Duplicate]]:
    """Return the number of rows of a source without a key, and examples of keys that an input has more than once."""
    key, absent = item.key, item.may_be_absent
    rows = rows_of(workspace, item, table, table.version)
    is_newest = not table.commits or table.version >= table.commits[0].version
    with (reading_whole if is_newest else reading)(join, table.address.label):
        number = _without_key(workspace, table, item)
        return number, duplicates_in_table(rows, key, may_be_absent=absent)


def _refuse_keyless(bound: BoundJoin, held: DataFrame, shape: Shape) -> None:
    join = bound.join
    number = held.where(shape.keyless(join)).count()
    if number:
        raise DuplicateKey(
            bound.result.label,
            "the result holds rows without a key",
            found=f"{number} rows with a null in {', '.join(bound.join.key)}",
            hint=f"remove these rows, or drop the table, and run `lakejoin backfill --select {bound.join.name}` again",
        )
