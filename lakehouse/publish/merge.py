"""
Publish a change set as one commit of the result: append a first load and inserts alone, merge anything else.

A transaction id that names the ledger and the join, with the epoch as its version, fences both: a run that resumes too
late writes nothing. The MERGE is conditional and null-safe, so a second MERGE of a change set makes no commit.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakehouse.errors.conditions import is_conflict
from lakehouse.errors.errors import AnotherRun
from lakehouse.publish.ownership import check_owner
from lakehouse.publish.stage import Stage
from lakehouse.session.engine import Engine
from lakehouse.session.session import settings
from lakehouse.session.writing import write
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import Table, read_feed, refresh
from lakehouse.values.compare import is_exact, same
from lakehouse.values.net_changes import fields_of
from lakehouse.values.pruning import null_safe_predicate, pruning
from lakehouse.values.sqltext import Address, numbered, quote, row_struct

OPERATIONS = {"insert": "inserted", "update": "updated", "delete": "deleted"}
"""The operations of a change set, and the name under which the rows of each are counted."""

STAGED_COUNTS = {name: f"count_if(op = '{op}')" for op, name in OPERATIONS.items()}
"""The counts to take while a change set is staged, as SQL by name."""

_METRICS = {name: f"numTargetRows{name.capitalize()}" for name in OPERATIONS.values()}
"""The metric of a MERGE for each count."""

_CHANGE_TYPES = {"inserted": "insert", "updated": "update_postimage", "deleted": "delete"}
"""The change type in a feed for each count."""

VERSIONS_PER_EPOCH = 1_000_000
"""The number of Delta transaction versions of one epoch: far more than it has slices."""
ATTEMPTS = 5


@dataclass(frozen=True)
class Fence:
    """
    The owner of a commit: Delta's application id (the ledger's table id and the join), the epoch, the run and, if it
    writes one slice of a backfill, its number from 0.
    """

    app_id: str
    epoch: int
    run_id: str
    slice: int | None = None

    @property
    def version(self) -> str:
        """Delta's transaction version: the epoch x 1,000,000, plus the number of the slice."""
        return str(self.epoch * VERSIONS_PER_EPOCH + (self.slice or 0))

    @property
    def user_metadata(self) -> str:
        """The user metadata of the commit: the run and, for a slice, its number."""
        return self.run_id if self.slice is None else f"{self.run_id}/{self.slice}"


def append(
    frame: DataFrame,
    address: Address,
    fence: Fence,
    *,
    overwrite: bool = False,
    gives_columns: bool = False,
    unless: Callable[[], bool] = lambda: False,
) -> bool:
    """
    Append a frame, by column names, or overwrite all rows by it, exactly once per epoch and slice: Delta skips a write
    that was made before. Return whether the rows were computed; they are not if `unless`, called under the lock of the
    table, returns true.

    Args:
        gives_columns: Whether an overwrite gives the table the columns of the frame, too. Delta then forgets how the
            table is clustered, see `creation.cluster_again`.
    """
    writer = frame.write.format("delta").mode("overwrite" if overwrite else "append")
    writer = writer.option("txnAppId", fence.app_id).option("txnVersion", fence.version)
    writer = writer.option("userMetadata", fence.user_metadata)
    if gives_columns:
        writer = writer.option("overwriteSchema", "true")
    elif overwrite:
        # Without a condition on the replaced rows Delta forgets the clustering, and a catalog makes a new table.
        writer = writer.option("replaceWhere", "true")

    def save() -> bool:
        if unless():
            return False
        if address.path:
            writer.save(address.path)
        else:
            writer.saveAsTable(address.table)
        return True

    return write(f"load {address.label}", save, address.path)


def merge(
    engine: Engine,
    table: Table,
    stage: Stage,
    ops: Collection[str],
    fence: Fence,
    base_version: int,
    still_open: Callable[[], bool],
    part: str = "result",
    join: str = "",
    distinguishing: Sequence[str] = (),
) -> Commit | None:
    """
    Merge a staged change set into its table, as one commit. Return the commit, found in the table's history by run id,
    whether this call or an earlier one made it; None if nothing was left to change.

    Args:
        stage: The stage; the part has `op`, `key`, `after` and, if `distinguishing` is empty, `before`.
        ops: The operations in the change set: insert, update, delete.
        base_version: The version that the change set was computed against.
        still_open: Returns whether the epoch is still open in the ledger.
        join: The join that maintains the table, if the table has another name.
        distinguishing: Columns that distinguish each staged update from the row it replaces; computed if empty.

    Raises:
        ForeignWriter: A foreign write changed the table after the base version.
        AnotherRun: Another run finished the epoch or began a later one.
    """
    address, spark = table.address, engine.spark
    changes, on_driver = stage.rows(spark, part)
    null_safe = stage.has_null_keys(part)
    layout = table.clustered_by or ()
    statement = merge_statement(
        address, stage, changes, ops, part, distinguishing, layout, on_driver=on_driver, null_safe=null_safe
    )
    options = {
        "spark.databricks.delta.write.txnAppId": fence.app_id,
        "spark.databricks.delta.write.txnVersion": fence.version,
        "spark.databricks.delta.commitInfo.userMetadata": fence.user_metadata,
    }
    for attempt in range(1, ATTEMPTS + 1):
        check_owner(engine, table, base_version, {fence.run_id}, join)
        try:
            metrics = write(f"merge into {address.label}", lambda: _with(spark, options, statement), table.location)
            break
        except Exception as error:
            if "CONCURRENT_TRANSACTION" in str(error):
                raise _another_run(address.label, fence) from error
            if not is_conflict(error) or attempt == ATTEMPTS:
                raise
            time.sleep(0.2 * 2**attempt)
            table = refresh(engine, table)
    if not metrics and not still_open():
        raise _another_run(address.label, fence)
    commits = check_owner(engine, refresh(engine, table), base_version, {fence.run_id}, join)
    # Take the newest commit: the abandonment of an epoch may have restored the table under the same run id. Auto
    # compaction has the metadata of the commit that it follows, but changes no data.
    own = (commit for commit in reversed(commits) if commit.metadata == fence.user_metadata and commit.changes_data)
    return next(own, None)


def merge_statement(
    address: Address,
    stage: Stage,
    changes: DataFrame,
    ops: Collection[str],
    part: str = "result",
    distinguishing: Sequence[str] = (),
    layout: Sequence[str] = (),
    *,
    on_driver: bool = False,
    null_safe: bool = False,
) -> str:
    """
    Build the MERGE statement of a staged change set.

    The clauses match the operations in the change set: without an insert, the join with the target is an inner join and
    broadcasts the small side. Updates assign only the columns that may differ. The staged keys themselves prune the
    target, so no row can be missed. If it is laid out by other columns, the staged rows prune it by these, too: as they
    were before the change, where the gate has found each of them, and those to insert as they will be. Where some keys
    have nulls, which are values, rows match null-safely.
    """
    key = fields_of(changes, "key").fieldNames()
    columns = fields_of(changes, "after")
    keys = changes.select(F.expr(numbered(quote("key", name) for name in key)).alias("key"))
    equal = "<=>" if null_safe else "="
    condition = " AND ".join(f"t.{quote(name)} {equal} s.key.{quote(name)}" for name in key)
    ranges = 1 if layout else None  # the files have no ranges of the key then
    pruned = null_safe_predicate(keys, key, "t.", ranges) if null_safe else pruning(keys, ranges).predicate(key, "t.")
    located = null_safe_predicate(_placed(changes, layout), layout, "t.") if layout else None
    source, clauses = ["op", "key"], []
    if "delete" in ops:
        clauses.append("WHEN MATCHED AND s.op = 'delete' THEN DELETE")
    if "update" in ops:
        compared, changed = [columns[name] for name in distinguishing], list(columns)
        if not compared:
            compared, changed = _differing(changes, columns, on_driver=on_driver)
        unequal = (f"NOT {same(f't.{quote(f.name)}', f's.after.{quote(f.name)}', f.dataType)}" for f in compared)
        differs = " OR ".join(unequal)
        assigned = ", ".join(f"t.{quote(f.name)} = s.after.{quote(f.name)}" for f in changed)
        clauses.append(f"WHEN MATCHED AND s.op = 'update' AND ({differs}) THEN UPDATE SET {assigned}")
        source.append(f"{row_struct((f.name for f in changed), 'after.')} AS after")
    if "insert" in ops:
        names = [quote(name) for name in columns.fieldNames()]
        values = ", ".join(f"s.after.{name}" for name in names)
        clauses.append(f"WHEN NOT MATCHED AND s.op = 'insert' THEN INSERT ({', '.join(names)}) VALUES ({values})")
        source[2:] = ["after"]
    into = f"MERGE INTO {address.sql} t USING (SELECT {', '.join(source)} FROM {stage.sql(part)}) s"
    on = " AND ".join([condition, *filter(None, (pruned, located))])
    return "\n".join([into, f"ON {on}", *clauses])


def _placed(changes: DataFrame, layout: Sequence[str]) -> DataFrame:
    """Return as `key` (struct<k0, …>) the distinct values of some columns in the rows to replace or to insert."""
    row = "coalesce(before, after)"
    return changes.select(F.expr(numbered(f"{row}.{quote(name)}" for name in layout)).alias("key")).distinct()


_Fields = list[StructField]


def _differing(changes: DataFrame, columns: StructType, *, on_driver: bool) -> tuple[_Fields, _Fields]:
    """
    Return the columns that distinguish each staged update from the row that it replaces (one column if one suffices,
    else all columns that differ), and the columns to assign: those that differ, and those whose equal values may not be
    identical. MERGE reads the columns of its conditions once more from each touched file, and plans each assignment.
    """
    flags = (
        f"IF({same(f'before.{quote(f.name)}', f'after.{quote(f.name)}', f.dataType)}, NULL, '{n}')"
        for n, f in enumerate(columns)
    )
    # One expression for all columns: to plan an aggregate for each of 2,000 columns takes longer than the MERGE.
    parts = f"split(concat_ws(',', '', {', '.join(flags)}), ',') AS parts"
    updates = changes.where("op = 'update'").selectExpr(parts)
    if on_driver:  # few rows, which no query has to count
        counts = Counter(chain.from_iterable(row[0] for row in updates.collect()))
    else:
        counted = updates.selectExpr("explode(parts) AS part").groupBy("part").count()
        counts = Counter({row[0]: row[1] for row in counted.collect()})
    total = counts.pop("", 0)
    if not counts:
        return list(columns), list(columns)
    numbers = {field.name: counts.get(str(n), 0) for n, field in enumerate(columns)}
    differing = [field for field in columns if numbers[field.name]]
    sufficient = [field for field in differing if numbers[field.name] == total]
    return sufficient[:1] or differing, [f for f in columns if numbers[f.name] or not is_exact(f.dataType)]


def committed_counts(engine: Engine, table: Table, commit: Commit) -> dict[str, int] | None:
    """
    Count the rows that one of our MERGE commits inserted, updated and deleted, or that an append or overwrite inserted:
    by its metrics or, if `delta.history.metricsEnabled` suppressed them, by the change feed. Return None if the table
    has neither. Any other operation has counts of zero.
    """
    names = {"MERGE": _METRICS, "WRITE": {"inserted": "numOutputRows"}}.get(commit.operation, {})
    counts = dict.fromkeys(OPERATIONS.values(), 0)
    if all(commit.metrics.get(name, "").isdecimal() for name in names.values()):
        return counts | {count: int(commit.metrics[name]) for count, name in names.items()}
    if not table.feed_on:
        return None
    feed = read_feed(engine.spark, table.address, commit.version - 1, commit.version, ())
    changes = {row[0]: row[1] for row in feed.groupBy("_change_type").count().collect()}
    return counts | {count: changes.get(_CHANGE_TYPES[count], 0) for count in names}


def _with(spark: SparkSession, options: Mapping[str, str], statement: str) -> Sequence[object]:
    with settings(spark, options):
        return spark.sql(statement).collect()


def _another_run(label: str, fence: Fence) -> AnotherRun:
    return AnotherRun(
        label,
        f"epoch {fence.epoch} was written by another run meanwhile",
        hint="run again: the next epoch starts from what that run published",
    )
