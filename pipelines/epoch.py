"""
Compute one epoch of a table join into its stage.

    feeds ─► net changes ─► touched keys ─► look-up ─► images ─► change set
              changes_…       touched, …    wanted_…             stage: result

What lies between feeds and change set passes through the driver where it is little, and through the stage where not.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.errors import DuplicateKey
from lakehouse.publish import OPERATIONS, STAGED_COUNTS
from lakehouse.session import for_few, settings
from lakehouse.small import TooMuch
from lakehouse.sqltext import quote, row_struct
from lakehouse.stage import Stage, fields_of
from pipelines.binding.bound import BoundJoin
from pipelines.binding.shared_feeds import Distorted
from pipelines.binding.workspace import Workspace
from pipelines.commits import Commits, CommitSources
from pipelines.joins.changelog import changelog_rows
from pipelines.joins.emission_rules import emitted
from pipelines.joins.kernel import change_set, touched_keys
from pipelines.joins.timeline import timeline
from pipelines.plan.values import EpochPlan
from pipelines.sources import EpochSources

EXAMPLES = 5
REMOVE = "remove the surplus rows from the source; nothing was published"
log = logging.getLogger(__name__)


def compute_changes(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    """
    Compute an incremental epoch from the change feeds into the stage's part `result`, its changelog into `changelog`.

    Returns:
        Counts: read (feed rows), null_keys (feed rows without a key), looked_up (rows of the sources that the feeds do
        not bring), files (of the sources that were read for them), touched (result keys that could change), inserted,
        updated, deleted, unchanged, and changelog: rows for the changelog, if one is kept.

    Raises:
        DuplicateKey: A source holds a changed or looked-up key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `conditions.reading` says; it wraps this call.
    """
    size = sum(table.size for table in bound.sources)
    return few_or_many(workspace, plan, size, stage, partial(_compute, workspace, bound, plan, stage))


def few_or_many(
    workspace: Workspace, plan: EpochPlan, size: int, stage: Stage, compute: Callable[[bool], dict[str, int]]
) -> dict[str, int]:
    """
    Compute an epoch through the driver where few rows changed, and through the stage where that proves too much.

    Where a feed proves distorted the epoch is computed once more, with the feed repaired.

    Args:
        workspace: Where to work.
        plan: The epoch.
        size: The bytes of the tables that are looked at.
        stage: Its stage.
        compute: Computes it into its stage; told whether few rows changed.

    Returns:
        What it counted.
    """
    few = plan.few
    while True:
        small = for_few(size) | {"spark.sql.shuffle.partitions": "2"}
        try:
            with settings(workspace.spark, small if few else {}):
                return compute(few)
        except TooMuch:
            log.info("%s: what changed touches more than passes through the driver", plan.join)
            few = False
        except Distorted:
            log.info("%s: rows that a change feed does not show as they are, are read from the table", plan.join)
            stage.delete()


def _compute(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, few: bool) -> dict[str, int]:
    kind = EpochSources if bound.changelog is None else CommitSources
    sources = kind(workspace, bound, plan, stage, few=few)
    sources.read_changes()
    for source, changes in sources.twice.items():
        goes_on = f"{REMOVE}; where that is done, `lakejoin backfill --select {plan.join}` goes on"
        hint = REMOVE if bound.changelog is None else goes_on
        refuse_keys(source, sources.key_of(source), changed_twice(changes), hint)
    none = {**sources.counts, **dict.fromkeys(("touched", "inserted", "updated", "deleted", "unchanged"), 0)}
    commits = None
    if isinstance(sources, CommitSources):
        none["changelog"] = 0
        commits = sources.in_order_of_time()
        if commits is None:
            return none
    touched = touched_keys(bound.join, commits or sources)
    number = 0 if touched is None else sources.pruning(touched).keys
    if touched is None or number == 0:
        return none
    result = in_order(bound, change_set(bound.join, bound.types, sources, touched))
    changelog = None if commits is None else _changelog(bound, plan, commits, touched)
    with ThreadPoolExecutor(max_workers=1) as beside:
        checked = beside.submit(check_looked_up, bound, sources)
        staged = stage.put("result", result, STAGED_COUNTS)
        if changelog is not None:
            staged |= stage.put("changelog", changelog, {"changelog": "count(1)"})
        looked_up = checked.result()
    counts = sources.counts
    counts["looked_up"] += looked_up
    counts["touched"] = touched.count() if number is None else number
    changed = sum(staged[name] for name in OPERATIONS.values())
    return {**counts, **staged, "unchanged": counts["touched"] - changed}


def _changelog(bound: BoundJoin, plan: EpochPlan, commits: Commits, touched: DataFrame) -> DataFrame:
    """Give the epoch's rows of the changelog, in their order."""
    pieces = timeline(bound.join, bound.types, commits, touched)
    rows = emitted(pieces, bound.join, bound.columns, bound.semantics)
    at = commits.order.select(F.col("position").alias("at_position"), "at")
    timed = rows.join(at, on=F.expr("position = at_position"), how="inner")
    return changelog_rows(timed, bound.join.key, bound.columns, plan.epoch).orderBy("_position")


def check_looked_up(bound: BoundJoin, sources: EpochSources) -> int:
    """
    Look for looked-up keys that a source holds twice: by the key columns alone, all in one query.

    Returns:
        How many rows these are.
    """
    keys = [(place, held.groupBy("key").agg(F.count(F.lit(1)).alias("copies"))) for place, held in sources.unchecked]
    if not keys:
        return 0
    totals = [
        found.agg(F.lit(number).alias("number"), F.sum("copies").alias("rows"), F.max("copies").alias("copies"))
        for number, (_, found) in enumerate(keys)
    ]
    looked_up = 0
    for row in reduce(DataFrame.unionAll, totals).collect():
        looked_up += row["rows"] or 0
        if (row["copies"] or 0) > 1:
            place, found = keys[row["number"]]
            parts = [F.col(f"key.k{part}").cast("string") for part in range(len(bound.types[place]))]
            twice = found.where("copies > 1").select(F.array(*parts), "copies").limit(EXAMPLES)
            examples = [Twice(key, f"{copies} rows") for key, copies in twice.collect()]
            refuse_keys(bound.table(place).address.label, bound.join.inputs[place].key, examples)
    return looked_up


class Twice(NamedTuple):
    """A key that a table holds more than once: its values, and how many rows have it, in words."""

    key: Sequence[object]
    rows: str


def changed_twice(changes: DataFrame) -> list[Twice]:
    """Return examples of keys that changes make hold several rows; the table may hold more than the changes show."""
    rows = changes.select("key", "copies").limit(EXAMPLES).collect()
    return [Twice(tuple(row["key"]), f"{row['copies']} rows or more") for row in rows]


def held_twice(rows: DataFrame, key: Sequence[str]) -> list[Twice]:
    """Return examples of keys that several rows of a table have; rows without a key do not count."""
    parts = [F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(key)]
    twice = rows.where(f"NOT {null_key(key)}").groupBy(*parts).count().where("count > 1")
    return [Twice(tuple(row)[:-1], f"{row['count']} rows") for row in twice.limit(EXAMPLES).collect()]


def refuse_keys(label: str, key: Sequence[str], examples: Sequence[Twice], hint: str = REMOVE) -> None:
    """
    Stop where keys were found that a table holds twice.

    Args:
        label: The table.
        key: The names of its key columns.
        examples: Keys that it holds twice.
        hint: What helps.

    Raises:
        DuplicateKey: There is an example.
    """
    if examples:
        raise DuplicateKey(
            label,
            "a key is there more than once",
            expected="at most one row for each key",
            found=listed(key, examples),
            hint=hint,
        )


def listed(key: Sequence[str], examples: Sequence[Twice]) -> str:
    """Write keys for a message, each with the names of its columns and its rows: `k=3 (2 rows)`."""
    named = (
        ", ".join(f"{name}={value}" for name, value in zip(key, one.key, strict=True)) + f" ({one.rows})"
        for one in examples
    )
    return "; ".join(named)


def in_order(bound: BoundJoin, changes: DataFrame, *, keep_copies: bool = False) -> DataFrame:
    """Bring a change set's rows into the column order of the result."""
    order = bound.columns.fieldNames()
    is_in_order = fields_of(changes, "after").fieldNames() == order

    def arranged(image: str) -> str:
        return image if is_in_order else f"IF({image} IS NULL, NULL, {row_struct(order, f'{image}.')}) AS {image}"

    return changes.selectExpr("op", "key", arranged("before"), arranged("after"), *(["copies"] if keep_copies else []))
