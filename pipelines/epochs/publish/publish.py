"""
Publish a staged change set and close its epoch: merge or append its rows, check the commits, write the committed row.

Everything is read from the ledger's *publishing* row and the stage, so that any later process can do the same again.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from expectations.gate import gate_keys
from lakehouse import limits
from lakehouse.errors.conditions import is_conflict
from lakehouse.ledger.entries import COMMITTED, PUBLISHING, Entry
from lakehouse.publish.merge import ATTEMPTS, OPERATIONS, append, committed_counts, merge
from lakehouse.publish.ownership import FENCED, check_owner
from lakehouse.publish.stage import Deferred, Stage
from lakehouse.publish.writes import (
    RESULT_PART,
    Append,
    AppendInPlace,
    Merge,
    Overwrite,
    OverwriteInPlace,
    TargetVersions,
    Write,
    with_rows,
)
from lakehouse.session.session import settings, small_query_settings
from lakehouse.tables.columns import allow_types
from lakehouse.tables.creation import cluster_again
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.identity import identity_at
from lakehouse.tables.table import Table, get, read, refresh
from lakehouse.values.checksums import has_checksum, whole_facts
from lakehouse.values.recorded import Checksum, SourceVersions
from pipelines.binding.bound import BoundJoin
from pipelines.binding.sources import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.publish.open_epoch import (
    another_run,
    broken,
    fence_of,
    is_closed,
    is_open,
    is_still,
    run_write,
    with_columns,
)
from pipelines.plan.values import Computed
from pipelines.report.progress import Stopwatch


def publishing_entry(
    epoch: Epoch[BoundJoin] | Epoch[BoundKTable], run_id: str, stage: str, computed: Computed
) -> Entry:
    """Build the *publishing* row of an epoch; this row and the stage suffice to finish the epoch."""
    plan = epoch.plan
    return Entry(
        join=plan.join,
        epoch=plan.epoch,
        step=PUBLISHING,
        run_id=run_id,
        strategy=plan.strategy,
        reason=plan.reason,
        definition=epoch.bound.definition,
        sources=tuple(
            SourceVersions(s.name, s.id, s.from_version, s.to_version, *s.epochs, s.columns, s.commit)
            for s in plan.sources
        ),
        writes=computed.writes,
        stage=stage,
        counts=computed.counts,
        clocks=computed.clocks,
        positions=computed.positions,
        checksum=computed.checksum,
        estimates=plan.estimates,
        statement=epoch.bound.statement,
    )


def publish(workspace: Workspace, entry: Entry, watch: Stopwatch, stage: Stage | None = None) -> Entry:
    """
    Publish an epoch from its publishing row and its stage; a second call writes nothing twice.

    A process that computed the epoch passes its stage, which may hold deferred parts.

    Raises:
        BrokenEpoch: The commit changed other rows than were staged; the ledger records this, too.
        ForeignWriter: A foreign write changed the result since the epoch was computed.
        AnotherRun: Another run finished the epoch meanwhile.
    """
    stage = stage or workspace.stage_at(entry.stage)
    entry = entry.with_versions(write_staged(workspace, entry, watch, stage))
    if entry.overwrites_in_place:
        entry = _judged(workspace, entry, watch, stage.deferred.get(RESULT_PART))
    return close(workspace, entry, watch)


def _judged(workspace: Workspace, entry: Entry, watch: Stopwatch, written: Deferred | None) -> Entry:
    """
    Run the gate of keys on a result that was overwritten in place, and return the row with its counts and checksum.

    Raises:
        BrokenEpoch: A key occurs twice or is absent, though no source has such a key; the ledger records this, too.
    """
    spark, target = workspace.spark, entry.result
    table = get(workspace.engine, target.address)
    assert target.version is not None
    if entry.changes_columns:
        run_write(workspace, entry, target, partial(cluster_again, spark, table))
    with watch.step("gate"):
        nulls = table.says_nullable_key
        verdict = gate_keys(spark, target.address, target.version, table.key, may_be_absent=nulls)
    if not verdict.passed:
        raise broken(workspace, entry, "each key once", "; ".join(verdict.findings))
    rows = read(spark, target.address, target.version)
    columns = list(rows.schema)
    with watch.step("checksum"):
        found = dict(written.found) if written is not None else {}
        if not found:  # another run has written them, or this one in several attempts
            facts = (F.expr(sql).alias(name) for name, sql in whole_facts(columns).items())
            found = rows.agg(*facts).collect()[0].asDict()
    checksum = Checksum(**found) if has_checksum(columns) else None
    write = with_rows(entry.writes[-1], found["rows"])
    return replace(entry, counts={**entry.counts, "inserted": found["rows"]}, writes=(write,), checksum=checksum)


def write_staged(
    workspace: Workspace, entry: Entry, watch: Stopwatch, stage: Stage | None = None
) -> tuple[TargetVersions, ...]:
    """
    Write what an epoch, or one slice of it, has staged to its tables, the result last; return them with new versions.

    It raises what `publish` raises.
    """
    _check_result(workspace, entry)
    targets = []
    for write in entry.writes:
        version, staged = write.target.base_version, stage or workspace.stage_at(entry.stage)
        if entry.changes_columns and not entry.is_in_place:
            version = with_columns(workspace, entry, write, staged)
        if not write.is_empty:
            with watch.step(_step(write)):
                version = _write(workspace, entry, write, staged)
        targets.append(replace(write.target, version=version))
    return tuple(targets)


def _step(write: Write) -> str:
    """Return the name of the step that writes a table, under which its seconds are recorded."""
    if write.part != RESULT_PART:
        return write.part
    return "merge" if isinstance(write, Merge) else "overwrite" if isinstance(write, OverwriteInPlace) else "append"


def _check_result(workspace: Workspace, entry: Entry) -> None:
    """Check the result for foreign writes and for its feed, before the epoch writes to the tables beside it."""
    if len(entry.writes) > 1:
        result = is_still(workspace, entry.result, entry.join)
        check_owner(workspace.engine, result, entry.result.base_version, {entry.run_id}, entry.join)


def _write(workspace: Workspace, entry: Entry, write: Write, stage: Stage) -> int:
    """Write a part of the stage to its table, unless it is already written, and return the table's new version."""
    match write:
        case Merge() if write.part != RESULT_PART or write.inserted < write.rows:
            return _merge(workspace, entry, write)
        case Merge() | Append() | Overwrite():  # the gate has shown that the result has no key of an insert
            return append_staged(workspace, entry, write, stage)
        case AppendInPlace() | OverwriteInPlace():
            return write_in_place(workspace, entry, write, stage)


def _merge(workspace: Workspace, entry: Entry, write: Merge) -> int:
    target, part = write.target, write.part
    table = is_still(workspace, target, entry.join, feed=target != entry.state)
    fence = fence_of(workspace, entry)
    staged = {"inserted": write.inserted, "updated": write.updated, "deleted": write.deleted}
    ops = [op for op, name in OPERATIONS.items() if staged[name]]

    def merged() -> Commit | None:
        base, stage, columns = target.base_version, workspace.stage_at(entry.stage), write.distinguishing
        still_open = partial(is_open, workspace, entry)
        return merge(workspace.engine, table, stage, ops, fence, base, still_open, part, entry.join, columns)

    with settings(workspace.spark, small_query_settings(table.size) if write.rows <= limits.CHANGES_VIA_DRIVER else {}):
        commit = run_write(workspace, entry, target, merged)
    counted = committed_counts(workspace.engine, table, commit) if commit else dict.fromkeys(staged, 0)
    written = staged if counted is None else {name: counted[name] for name in staged}
    if commit is None or written != staged:
        found = f"{written} in version {commit.version if commit else 'none'} of the {part}"
        raise broken(workspace, entry, str(staged), found)
    return commit.version


def close(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry:
    """Write the committed row of an epoch, whose writes have the new versions, then delete the stage."""
    with watch.step("ledger"):
        entry = entry.with_versions([_identified(workspace, target) for target in entry.targets])
        committed = workspace.ledger.append(replace(entry, step=COMMITTED, seconds=dict(watch.seconds)))
    if entry.stage:
        workspace.stage_at(entry.stage).delete()
    return committed


def _identified(workspace: Workspace, target: TargetVersions) -> TargetVersions:
    """Return a table of an epoch with the commit of its new version: a copy may have another one with this number."""
    assert target.version is not None
    return replace(target, commit=identity_at(workspace.engine, target.address, target.version))


def append_rows(
    workspace: Workspace,
    entry: Entry,
    target: TargetVersions,
    rows: Callable[[], DataFrame],
    *,
    overwrite: bool = False,
) -> tuple[int, int | None]:
    """
    Append an epoch's rows to a table, or replace all of its rows, exactly once, however often it is called.

    Returns:
        The version of the table that holds the rows, and their number; None if the history does not record it.

    Raises:
        ForeignWriter: A foreign write changed the table.
        AnotherRun: Another run finished the epoch meanwhile.
        BrokenEpoch: The table was replaced.
    """
    fence = fence_of(workspace, entry)

    def own_commit(table: Table) -> Commit | None:
        commits = check_owner(workspace.engine, table, target.base_version, {entry.run_id}, entry.join)
        ours = [commit for commit in commits if commit.metadata == fence.user_metadata and commit.changes_data]
        if ours and ours[-1].operation == "RESTORE":  # the epoch is being abandoned
            raise broken(workspace, entry, "its rows", f"a RESTORE removed them in version {ours[-1].version}")
        return ours[-1] if ours else None

    table = is_still(workspace, target, entry.join, feed=target != entry.state)
    commit, attempts = own_commit(table), ATTEMPTS
    while commit is None:
        is_beaten, attempts = False, attempts - 1
        try:
            # A run that wakes up late must not append the rows of an epoch that another run has closed.
            frame, closed = rows(), partial(is_closed, workspace, entry)
            gives = overwrite and entry.changes_columns
            if gives:
                allow_types(workspace.spark, target.address, frame.schema.fields)
            append(frame, target.address, fence, overwrite=overwrite, gives_columns=gives, unless=closed)
        except Exception as error:
            if not is_conflict(error):
                raise
            # Another run appended the same rows, or maintenance rewrote the replaced files: the history shows which.
            is_beaten = True
        commit = own_commit(refresh(workspace.engine, table))
        if commit is None and not (is_beaten and attempts and is_open(workspace, entry)):
            raise another_run(entry)
    counts = committed_counts(workspace.engine, table, commit)
    return commit.version, None if counts is None else counts["inserted"]


def append_staged(workspace: Workspace, entry: Entry, write: Merge | Append | Overwrite, stage: Stage) -> int:
    """Append a part of the stage to its table, of a change set its inserts, or replace all rows of the table by it."""
    has_images = isinstance(write, Overwrite) and write.has_images

    def rows() -> DataFrame:
        if isinstance(write, Merge):
            inserts, on_driver = stage.rows(workspace.spark, write.part)
            return (inserts.coalesce(1) if on_driver else inserts).select("after.*")
        staged = stage.get(workspace.spark, write.part)
        return staged.where("op <> 'delete'").select("after.*") if has_images else staged

    def appended() -> tuple[int, int | None]:
        return append_rows(workspace, entry, write.target, rows, overwrite=isinstance(write, Overwrite))

    with settings(workspace.spark, small_query_settings(0) if write.rows <= limits.CHANGES_VIA_DRIVER else {}):
        version, number = run_write(workspace, entry, write.target, appended)
    _check_number(workspace, entry, write, version, number)
    return version


def write_in_place(workspace: Workspace, entry: Entry, write: AppendInPlace | OverwriteInPlace, stage: Stage) -> int:
    """
    Compute the rows of a deferred part where they are written.

    Aggregates of the rows that the gate has seen must be the same; those of an overwrite, which it has not seen, are
    noted as found.
    """
    deferred, observations = stage.deferred.get(write.part), list[Observation]()
    overwrites = isinstance(write, OverwriteInPlace)

    def rows() -> DataFrame:
        assert deferred is not None, "an epoch in place whose rows are not written is abandoned"
        frame, observation = deferred.observed()
        observations.append(observation)
        return frame

    def written() -> tuple[int, int | None, Mapping[str, Any]]:
        version, number = append_rows(workspace, entry, write.target, rows, overwrite=overwrites)
        # Only a query that has ended has values: after a failed attempt nothing is known but the number of rows, and of
        # an empty result Spark may compute no row.
        return version, number, dict(observations[0].get) if len(observations) == 1 and number != 0 else {}

    version, number, found = run_write(workspace, entry, write.target, written)
    if overwrites:
        if deferred is not None and found:
            _check_number(workspace, entry, with_rows(write, found["rows"]), version, number)
            stage.deferred[write.part] = replace(deferred, found=found)
        return version
    _check_number(workspace, entry, write, version, number)
    if deferred is not None and found and found != deferred.found:
        raise broken(workspace, entry, f"rows with {dict(deferred.found)}", f"{found} in version {version}")
    return version


def fence_off(workspace: Workspace, entry: Entry) -> bool:
    """
    Keep a run that may still be alive from appending the rows of an open epoch, by a commit without rows.

    The commit uses up the transaction of the epoch, so that Delta skips any later append under it. Return whether the
    rows are not in the result, and never will be.
    """
    target, fence = entry.result, fence_of(workspace, entry)
    table = is_still(workspace, target, entry.join)
    nothing = read(workspace.spark, target.address, table.version).where("false")
    try:
        append(nothing, target.address, replace(fence, run_id=f"{FENCED}/{entry.run_id}"))
    except Exception as error:
        if not is_conflict(error):
            raise
    commits = check_owner(
        workspace.engine, refresh(workspace.engine, table), target.base_version, {entry.run_id}, entry.join
    )
    return not any(commit.metadata == fence.user_metadata for commit in commits)


def _check_number(workspace: Workspace, entry: Entry, write: Write, version: int, number: int | None) -> None:
    """Check that a commit has as many rows as the gate has seen, if the history records their number."""
    if number not in (write.rows, None):
        raise broken(workspace, entry, f"{write.rows} rows", f"{number} in version {version} of the {write.part}")
