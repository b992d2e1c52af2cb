"""Validate an epoch of a join of tables: describe its sources as plain values that do not depend on `joins/`."""

import uuid
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from expectations.gate import (
    Paired,
    Reference,
    Rows,
    Sources,
    Statement,
    gate_change_set,
    gate_changelog,
    gate_pairs,
    prefetch_rows,
)
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.session.session import NOT_ADAPTIVE, WITHOUT_BROADCASTS, settings, small_query_settings
from lakehouse.values.compare import contains
from lakehouse.values.net_changes import all_or_any_null, key_struct, null_key
from lakehouse.values.sqltext import row_struct
from pipelines.binding.bound import BoundJoin, rows_of
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.kind import Prefetched
from pipelines.spec import ResolvedQuery


def statement_of(join: ResolvedQuery) -> Statement:
    """Return the plain statement of a join."""
    return Statement(
        tuple(item.alias for item in join.inputs),
        tuple((step.how, step.on) for step in join.steps),
        join.where,
        tuple((output.name, output.expression) for output in join.outputs),
    )


def sources_of(workspace: Workspace, epoch: Epoch[BoundJoin]) -> Sources:
    """
    Return the sources of a join of tables at the versions that an epoch pinned.

    Args:
        workspace: Where they are.
        epoch: The epoch; if it is incremental, each source comes with its changed keys.
    """
    bound = epoch.bound
    join = bound.join
    inputs = []
    for place, item in enumerate(join.inputs):
        table = bound.table(place)
        rows = rows_of(workspace, item, table, table.version)
        changed = _changed(workspace, epoch, place)
        old = None if changed is None else partial(_old_rows, workspace, epoch, place)
        inputs.append(Rows(rows, item.key, bound.types[place], changed, table.size, item.may_be_absent, old))
    references = tuple(
        Reference(link.input, link.over, link.expressions, link.null_safe, link.followed.parts) for link in join.links
    )
    size = sum(table.size for table in bound.sources)
    return Sources(statement_of(join), inputs, join.members, references, size, uuid.uuid4().hex)


def paired_of(bound: BoundJoin) -> Paired | None:
    """Return the two inputs of a join whose rows match in any number; None for other joins."""
    join = bound.join
    if join.pairing is None:
        return None
    left, right = join.pairing.links
    values, kinds = (left.expressions, right.expressions), bound.types[left.input]
    one, other = (join.inputs[place].may_be_absent for place in join.pairing.places)
    over = (left.over, right.over)
    return Paired(join.pairing.places, over, values, kinds, join.keys_of_sides, join.pairing.outer, (one, other))


def prefetch(workspace: Workspace, epoch: Epoch[BoundJoin]) -> Prefetched | None:
    """Read what the gate needs while the epoch is computed; read rows only for a small epoch."""
    if epoch.bound.join.pairing is not None:
        return None
    sources, plan = sources_of(workspace, epoch), epoch.plan
    if not plan.via_driver:
        return Prefetched(sources)
    kind, result = _change_set_schema(epoch.bound), plan.result
    return Prefetched(sources, prefetch_rows(workspace.spark, kind, result.address, result.base_version, sources))


def gate_tables(
    workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, prefetched: Prefetched | None
) -> Verdict:
    """
    Validate the change set of a join of tables and, in an incremental epoch, the rows of its changelog.

    Args:
        workspace: Where the tables are.
        epoch: The epoch.
        stage: Its stage.
        entry: Its row for the ledger, with what it writes.
        prefetched: What `prefetch` returned; None to read everything.
    """
    spark, plan, bound = workspace.spark, epoch.plan, epoch.bound
    paired = paired_of(bound)
    if paired is not None:
        return _gate_pairs(workspace, epoch, stage, entry, paired)
    base, is_incremental = plan.result.base_version, plan.strategy == "incremental"
    rows, logged = entry.writes[-1].rows, sum(write.rows for write in entry.writes[:-1])
    if not rows and not logged and not is_incremental:
        return Verdict()
    is_small_epoch = rows + logged <= limits.CHANGES_VIA_DRIVER and (plan.via_driver or not is_incremental)
    kind = _change_set_schema(bound)
    if prefetched is None:
        prefetched = Prefetched(sources_of(workspace, epoch))
    sources = prefetched.sources
    # Queries over small sources are interpreted, which costs less than compiling them.
    via_driver = (small_query_settings(0) if sources.are_small else NOT_ADAPTIVE) | WITHOUT_BROADCASTS
    with settings(spark, via_driver if is_small_epoch else {}):
        # An empty change set is validated, too.
        changes, held = stage.rows(spark, "result") if rows else (spark.createDataFrame([], kind), True)
        for field in kind:
            staged, expected = changes.schema[field.name].dataType.simpleString(), field.dataType.simpleString()
            if staged != expected:
                return Verdict((f"the stage has {field.name} as {staged}, where the result has {expected}",))
        verdict = gate_change_set(
            spark, changes, rows, bound.result, base, sources, prefetched.rows, are_on_driver=held
        )
        findings = verdict.findings
        if (rows or logged) and bound.changelog is not None and is_incremental:
            log, strict, small = stage.get(spark, "changelog"), bound.semantics == "strict", sources.are_small
            wrong, result = _wrong_key(bound.join), (bound.result, base)
            verdict = gate_changelog(spark, log, changes, logged, *result, strict=strict, is_small=small, keyless=wrong)
            findings += verdict.findings
    return Verdict(findings)


def _gate_pairs(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry, paired: Paired) -> Verdict:
    """Validate the change set of a join whose rows match in any number, and the rows of its changelog."""
    plan, bound, spark = epoch.plan, epoch.bound, workspace.spark
    is_incremental, sources = plan.strategy == "incremental", sources_of(workspace, epoch)
    rows, logged = entry.writes[-1].rows, sum(write.rows for write in entry.writes[:-1])
    if not rows and not is_incremental:
        return Verdict()
    changes = stage.rows(spark, "result")[0] if rows else spark.createDataFrame([], _change_set_schema(bound))
    is_small = rows + logged <= limits.CHANGES_VIA_DRIVER and sources.are_small
    with settings(spark, small_query_settings(0) | WITHOUT_BROADCASTS if is_small else {}):
        result = (bound.result, plan.result.base_version)
        verdict = gate_pairs(spark, changes, rows, *result, sources, paired, is_incremental=is_incremental)
        if not is_incremental or bound.changelog is None or not rows + logged:
            return verdict
        log, small = stage.get(spark, "changelog"), sources.are_small
        wrong = paired.keyless
        of_log = gate_changelog(spark, log, changes, logged, *result, strict=True, is_small=small, keyless=wrong)
    return Verdict(verdict.findings + of_log.findings)


def _change_set_schema(bound: BoundJoin) -> StructType:
    """Return the schema of a staged change set."""
    key = StructType([bound.columns[name] for name in bound.join.key])
    images = [StructField(name, bound.columns) for name in ("before", "after")]
    return StructType([StructField("op", StringType()), StructField("key", key), *images])


def inspect_maps(workspace: Workspace, epoch: Epoch[BoundJoin]) -> None:
    """
    Inspect the feeds of sources with map columns, because Delta's feed may reorder the entries of a map.

    Args:
        workspace: Where they are.
        epoch: The epoch; only an incremental one reads feeds.
    """
    bound, plan = epoch.bound, epoch.plan
    ranges = {part.name: part for part in plan.sources}
    for table in bound.sources if plan.strategy == "incremental" else ():
        name, part = table.address.label, ranges[table.address.label]
        names = [name for name in bound.used(name) if contains(table.schema[name].dataType, MapType)]
        if names and part.has_changes:
            workspace.feeds.inspect(name, table, part.read_after, part.to_version, names)


def _changed(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame | None:
    """Read the distinct keys of the feed of an input, in any image; None if the epoch reads no feed of the input."""
    bound, plan = epoch.bound, epoch.plan
    item, table = bound.join.inputs[place], bound.table(place)
    (versions,) = (part for part in plan.sources if part.name == item.source)
    if plan.strategy != "incremental" or not versions.has_changes:
        return None
    feed = workspace.feeds.read(item.source, table, versions.read_after, versions.to_version, item.key)
    changed = feed.where(f"NOT {null_key(item.key, may_be_absent=item.may_be_absent)}")
    return changed.select(F.expr(key_struct(item.key, bound.types[place])).alias("key")).distinct()


def _old_rows(workspace: Workspace, epoch: Epoch[BoundJoin], place: int) -> DataFrame:
    """Read the rows of an input that changed in an epoch as they were before it: the first images of their keys."""
    bound, item = epoch.bound, epoch.bound.join.inputs[place]
    (versions,) = (part for part in epoch.plan.sources if part.name == item.source)
    feed = workspace.feeds.read(item.source, bound.table(place), versions.read_after, versions.to_version, item.columns)
    is_old = "_change_type IN ('delete', 'update_preimage')"
    first = feed.where(f"NOT {null_key(item.key, may_be_absent=item.may_be_absent)}")
    first = first.groupBy(F.expr(key_struct(item.key, bound.types[place]))).agg(
        F.expr(f"min_by({row_struct(item.columns, '')}, _commit_version) FILTER (WHERE {is_old}) AS old"),
        F.expr(f"min(_commit_version) FILTER (WHERE {is_old}) AS replaced"),
        F.expr(f"min(_commit_version) FILTER (WHERE NOT {is_old}) AS inserted"),
    )
    return first.where("replaced <= coalesce(inserted, replaced)").select("old.*")


def _wrong_key(join: ResolvedQuery) -> str | None:
    """Return the SQL condition of a wrong `key` if parts of it may be null: all of them are."""
    parts = [f"key.k{part}" for part in range(len(join.key))]
    return all_or_any_null(parts, are_all=True) if join.has_absent_keys else None
