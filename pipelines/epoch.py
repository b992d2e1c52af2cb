"""
Compute one epoch of a table join into its stage.

    feeds ─► net changes ─► touched keys ─► look-up ─► images ─► change set
              changes_…       touched, …    wanted_…             stage: result

What lies between feeds and change set passes through the driver where it is little, and through the stage where not.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.errors import DuplicateKey
from lakehouse.publish import STAGED_COUNTS
from lakehouse.session import settings
from lakehouse.small import TooMuch
from lakehouse.sqltext import quote, text
from lakehouse.stage import Stage
from lakehouse.tables import read, read_rows
from pipelines.binding import BoundJoin, rows_of
from pipelines.joins.difference import NEW, OLD, as_image, difference
from pipelines.joins.kernel import change_set, touched_keys
from pipelines.joins.meaning import meaning
from pipelines.plan import EpochPlan
from pipelines.sources import EpochSources
from pipelines.workspace import Workspace

EXAMPLES = 5
NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""Plans that Spark changes while they run pay for themselves with many rows only."""

log = logging.getLogger(__name__)


def compute_changes(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> dict[str, int]:
    """
    Compute an incremental epoch from the change feeds into the stage's part `result`.

    Returns:
        Counts: read (feed rows), null_keys (feed rows without a key), looked_up (rows of the sources that the feeds do
        not bring), files (of the sources that were read for them), touched (result keys that could change), inserted,
        updated, deleted, unchanged.

    Raises:
        DuplicateKey: A source holds a changed or looked-up key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `tables.reading` says; it wraps this call.
    """
    if plan.few:
        try:
            with settings(workspace.spark, NOT_ADAPTIVE | {"spark.sql.shuffle.partitions": "2"}):
                return _compute(workspace, bound, plan, stage, few=True)
        except TooMuch:
            log.info("%s: what changed touches more than passes through the driver", plan.join)
    return _compute(workspace, bound, plan, stage, few=False)


def _compute(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, *, few: bool) -> dict[str, int]:
    sources = EpochSources(workspace, bound, plan, stage, few=few)
    sources.read_changes()
    for source, changes in sources.twice.items():
        _refuse_keys(source, [list(row["key"]) for row in changes.select("key").limit(EXAMPLES).collect()])
    touched = touched_keys(bound.join, sources)
    number = 0 if touched is None else sources.pruning(touched).keys
    if touched is None or number == 0:
        return {**sources.counts, **dict.fromkeys(("touched", "inserted", "updated", "deleted", "unchanged"), 0)}
    result = _in_order(bound, change_set(bound.join, bound.types, sources, touched))
    with ThreadPoolExecutor(max_workers=1) as beside:
        checked = beside.submit(_check_looked_up, bound, sources)
        staged = stage.put("result", result, STAGED_COUNTS)
        looked_up = checked.result()
    counts = sources.counts
    counts["looked_up"] += looked_up
    counts["touched"] = touched.count() if number is None else number
    return {**counts, **staged, "unchanged": counts["touched"] - sum(staged.values())}


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
    facts = {**STAGED_COUNTS, "copies": "max(copies)"}
    found = stage.put("result", _in_order(bound, changes, keep_copies=True), facts)
    if (found.pop("copies") or 0) > 1:
        staged = stage.get(workspace.spark, "result")
        twice = staged.where("copies > 1").select("key").limit(EXAMPLES).collect()
        raise DuplicateKey(
            bound.result.label,
            "the result holds a key more than once",
            found=_examples([row["key"] for row in twice]),
            hint="remove the surplus rows, or drop the table and run `lakejoin backfill` again",
        )
    return {**counts, **found}


def expected_rows(workspace: Workspace, bound: BoundJoin) -> DataFrame:
    """Give the meaning of the join at the pinned versions: the columns of the result, the key first."""
    inputs = [(item, bound.table(place)) for place, item in enumerate(bound.join.inputs)]
    rows = meaning([rows_of(workspace, item, table, table.version) for item, table in inputs], bound.join)
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
    for source, table in zip(bound.join.sources, bound.sources, strict=True):
        key = bound.join.inputs[bound.join.places(source)[0]].key
        rows = read_rows(workspace.spark, table, table.version)
        # Where the table's statistics say that there is none, no file is read.
        without_key += rows.where(null_key(key)).count()
        parts = [F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(key)]
        twice = rows.where(f"NOT {null_key(key)}").groupBy(*parts).count().where("count > 1").drop("count")
        _refuse_keys(table.address.label, [tuple(row) for row in twice.limit(EXAMPLES).collect()])
    return without_key


def _check_looked_up(bound: BoundJoin, sources: EpochSources) -> int:
    """
    Look for looked-up keys that a source holds twice: by the key columns alone, all in one query.

    Returns:
        How many rows these are.
    """
    keys = {
        place: held.groupBy("key").agg(F.count(F.lit(1)).alias("copies")) for place, held in sources.unchecked.items()
    }
    if not keys:
        return 0
    totals = [
        found.agg(F.lit(place).alias("place"), F.sum("copies").alias("rows"), F.max("copies").alias("copies"))
        for place, found in keys.items()
    ]
    looked_up = 0
    for row in reduce(DataFrame.unionAll, totals).collect():
        looked_up += row["rows"] or 0
        if (row["copies"] or 0) > 1:
            parts = [F.col(f"key.k{part}").cast("string") for part in range(len(bound.types[row["place"]]))]
            twice = keys[row["place"]].where("copies > 1").select(F.array(*parts).alias("key")).limit(EXAMPLES)
            _refuse_keys(bound.table(row["place"]).address.label, [found["key"] for found in twice.collect()])
    return looked_up


def _refuse_keys(label: str, examples: Sequence[Sequence[object]]) -> None:
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


def _examples(keys: Sequence[Sequence[object]]) -> str:
    return "; ".join(", ".join(str(part) for part in key) for key in keys)


def _in_order(bound: BoundJoin, changes: DataFrame, *, keep_copies: bool = False) -> DataFrame:
    """Bring a change set's rows into the column order of the result."""
    order = bound.columns.fieldNames()

    def arranged(image: str) -> str:
        fields = ", ".join(f"{text(name)}, {image}.{quote(name)}" for name in order)
        return f"IF({image} IS NULL, NULL, named_struct({fields})) AS {image}"

    return changes.selectExpr("op", "key", arranged("before"), arranged("after"), *(["copies"] if keep_copies else []))
