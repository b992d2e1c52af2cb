"""
Compute one epoch of a table join into its stage.

    feeds ─► net changes ─► touched keys ─► look-up ─► images ─► change set
      (stage: changes_left, changes_right)                        (stage: result)
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from lakehouse.changes import key_struct, net, null_key
from lakehouse.errors import DuplicateKey
from lakehouse.feed import read_feed
from lakehouse.pruning import Pruning, pruning
from lakehouse.publish import staged_counts
from lakehouse.sqltext import quote, text
from lakehouse.stage import Stage
from lakehouse.tables import Table, read
from pipelines.binding import BoundJoin, rows_of
from pipelines.joins.difference import NEW, OLD, as_image, difference
from pipelines.joins.kernel import change_set, images
from pipelines.joins.meaning import meaning
from pipelines.joins.table_table import touched_keys
from pipelines.plan import EpochPlan, SourceRange
from pipelines.spec import Input
from pipelines.workspace import Workspace

EXAMPLES = 5


@dataclass(frozen=True)
class Side:
    """One source of an epoch: its place in the join, its table and the versions that the epoch accounts for."""

    part: str
    input: Input
    table: Table
    range: SourceRange


def compute_changes(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    """
    Compute an incremental epoch from the change feeds into the stage's part `result`.

    Returns:
        Counts: read (feed rows), null_keys (feed rows without a key), touched (result keys that could change),
        inserted, updated, deleted, unchanged.

    Raises:
        DuplicateKey: A source holds a changed or looked-up key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `tables.reading` says; it wraps this call.
    """
    sides = [
        Side(part, side, table, versions)
        for (part, side, table), versions in zip(bound.sides, plan.sources, strict=True)
    ]
    counts = {"read": 0, "null_keys": 0}
    changes = {}
    for side in sides:
        changes[side.part], seen = _net_changes(workspace, bound, side, stage)
        for name, number in seen.items():
            counts[name] += number
    touched = touched_keys(changes["left"], changes["right"])
    wanted = pruning(touched)
    if wanted.keys == 0:
        return {**counts, "touched": 0, "inserted": 0, "updated": 0, "deleted": 0, "unchanged": 0}
    state = [
        images(changes[side.part], _look_up(workspace, bound, side, touched, wanted), side.input, bound.types)
        for side in sides
    ]
    result = _in_order(bound, change_set(state[0], state[1], bound.join))
    with ThreadPoolExecutor(max_workers=1) as beside:
        unique = beside.submit(_refuse_duplicates, workspace, bound, sides, changes, touched, wanted)
        stage.put("result", result)
        unique.result()
    counts["touched"] = touched.count() if wanted.keys is None else wanted.keys
    counts.update(staged_counts(stage.get(workspace.spark, "result")))
    counts["unchanged"] = counts["touched"] - counts["inserted"] - counts["updated"] - counts["deleted"]
    return counts


def compute_reconciliation(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    """
    Compute what the result differs by from the meaning at the pinned versions into the stage's part `result`.

    Returns:
        Counts: null_keys (source rows without a key), inserted, updated, deleted.

    Raises:
        DuplicateKey: A source, or the result, holds a key twice, or the result holds rows without a key.
    """
    counts = {"null_keys": check_sources(workspace, bound)}
    held = read(workspace.spark, bound.result, plan.base_version)
    _refuse_keyless(bound, held)
    expected = expected_rows(workspace, bound)
    names = bound.columns.fieldNames()
    old = held.select(*(F.col(quote(field.name)).cast(field.dataType).alias(field.name) for field in bound.columns))
    new = expected.select(*(F.col(quote(name)) for name in names))
    changes = difference(as_image(old, OLD).unionAll(as_image(new, NEW)), bound.join.key)
    stage.put("result", _in_order(bound, changes, keep_copies=True))
    staged = stage.get(workspace.spark, "result")
    twice = staged.where("copies > 1").select("key").limit(EXAMPLES).collect()
    if twice:
        raise DuplicateKey(
            bound.result.label,
            "the result holds a key more than once",
            found=_examples([row["key"] for row in twice]),
            hint="remove the surplus rows, or drop the table and run `lakejoin backfill` again",
        )
    counts.update(staged_counts(staged))
    return counts


def expected_rows(workspace: Workspace, bound: BoundJoin) -> DataFrame:
    """Give the meaning of the join at the pinned versions: the columns of the result, the key first."""
    left, right = (rows_of(workspace, side, table, table.version) for _, side, table in bound.sides)
    rows = meaning(left, right, bound.join)
    return rows.select(*(F.col(quote(name)) for name in bound.columns.fieldNames()))


def check_sources(workspace: Workspace, bound: BoundJoin) -> int:
    """
    Look through whole sources for keys that are there twice.

    Returns:
        How many rows have no key; they take no part.

    Raises:
        DuplicateKey: With examples.
    """
    without_key = 0
    for _, side, table in bound.sides:
        rows = read(workspace.spark, table.address, table.version)
        keys = rows.select(
            F.expr(null_key(side.key)).alias("missing"), F.expr(key_struct(side.key, bound.types)).alias("key")
        )
        without_key += keys.where("missing").count()
        twice = keys.where("NOT missing").groupBy("key").count().where("count > 1").select("key").limit(EXAMPLES)
        _refuse_keys(table.address.label, [row["key"] for row in twice.collect()])
    return without_key


def _net_changes(
    workspace: Workspace, bound: BoundJoin, side: Side, stage: Stage
) -> tuple[DataFrame, Mapping[str, int]]:
    """Net one feed into the stage; a source without changes has an empty frame and costs no query."""
    kinds = {name: side.table.schema[name].dataType for name in side.input.columns}
    key = side.input.key
    if not side.range.has_changes:
        nothing = rows_of(workspace, side.input, side.table, side.range.to_version).where(F.lit(False))
        return net(nothing.withColumn("_change_type", F.lit("insert")), key, bound.types, kinds), {}
    feed = read_feed(
        workspace.spark, side.table.address, side.range.read_after, side.range.to_version, side.input.columns
    )
    seen = Observation()
    observed = feed.observe(
        seen,
        F.count(F.lit(1)).alias("read"),
        F.count(F.expr(f"IF({null_key(key)}, 1, NULL)")).alias("null_keys"),
    )
    part = f"changes_{side.part}"
    stage.put(part, net(observed, key, bound.types, kinds))
    return stage.get(workspace.spark, part), seen.get


def _look_up(workspace: Workspace, bound: BoundJoin, side: Side, touched: DataFrame, wanted: Pruning) -> DataFrame:
    rows = rows_of(workspace, side.input, side.table, side.range.to_version)
    return _only(rows, side, touched, wanted, bound)


def _only(rows: DataFrame, side: Side, touched: DataFrame, wanted: Pruning, bound: BoundJoin) -> DataFrame:
    """Keep the rows with a touched key: by literals, which prune files, then exactly."""
    predicate = wanted.predicate(side.input.key)
    if predicate is not None:
        rows = rows.where(predicate)
    if wanted.exact:
        return rows
    condition = f"{key_struct(side.input.key, bound.types, 'source.')} = touched.key"
    return rows.alias("source").join(touched.alias("touched"), on=F.expr(condition), how="left_semi")


def _refuse_duplicates(
    workspace: Workspace,
    bound: BoundJoin,
    sides: Sequence[Side],
    changes: Mapping[str, DataFrame],
    touched: DataFrame,
    wanted: Pruning,
) -> None:
    """Look for touched keys that a source holds twice: by the key columns alone, both sources in one query."""
    suspects = []
    for side in sides:
        rows = read(workspace.spark, side.table.address, side.range.to_version)
        held = _only(rows.select(*(F.col(quote(name)) for name in side.input.key)), side, touched, wanted, bound)
        keys = held.select(F.expr(key_struct(side.input.key, bound.types)).alias("key"))
        twice = keys.groupBy("key").count().where("count > 1").select("key")
        left_over = changes[side.part].where("copies > 1").select("key")
        suspects.append(twice.unionAll(left_over).select(F.lit(side.part).alias("part"), "key"))
    examples = suspects[0].unionAll(suspects[1]).limit(EXAMPLES).collect()
    for side in sides:
        _refuse_keys(side.table.address.label, [row["key"] for row in examples if row["part"] == side.part])


def _refuse_keys(label: str, examples: Sequence[Row]) -> None:
    if examples:
        raise DuplicateKey(
            label,
            "a key is there more than once",
            expected="at most one row for each key",
            found=_examples(examples),
            hint="remove the surplus rows from the source; nothing was published",
        )


def _refuse_keyless(bound: BoundJoin, held: DataFrame) -> None:
    number = held.where(null_key(bound.join.key)).count()
    if number:
        raise DuplicateKey(
            bound.result.label,
            "the result holds rows without a key",
            found=f"{number} rows with a null in {', '.join(bound.join.key)}",
            hint="remove these rows, or drop the table and run `lakejoin backfill` again",
        )


def _examples(keys: Sequence[Row]) -> str:
    return "; ".join(", ".join(str(part) for part in key) for key in keys)


def _in_order(bound: BoundJoin, changes: DataFrame, *, keep_copies: bool = False) -> DataFrame:
    """Bring a change set's rows into the column order of the result."""
    order = bound.columns.fieldNames()

    def arranged(image: str) -> str:
        fields = ", ".join(f"{text(name)}, {image}.{quote(name)}" for name in order)
        return f"IF({image} IS NULL, NULL, named_struct({fields})) AS {image}"

    return changes.selectExpr("op", "key", arranged("before"), arranged("after"), *(["copies"] if keep_copies else []))
