"""
Load a result for the first time: write the whole join as one sorted commit, and run its gate on the written table.

The changelog, if the join keeps one, begins with the loaded rows. A load has no stage. Its *publishing* row names the
versions, so that an interrupted load is repeated at the same ones. The table is a result only once the ledger says
*committed*; it is dropped if its gate fails.
"""

import logging
import uuid
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from expectations.validation import Verdict, import_in_background
from lakehouse.errors.conditions import is_about_a_row, reading, value_error
from lakehouse.errors.errors import AnotherRun, FeedUnavailable, GateFailed, SourceRecreated
from lakehouse.ledger.entries import REJECTED_LOAD, Entry
from lakehouse.publish.merge import append, committed_counts
from lakehouse.publish.ownership import check_owner
from lakehouse.publish.writes import CHANGELOG_PART, RESULT_PART, Append, TargetVersions
from lakehouse.tables.creation import create
from lakehouse.tables.table import get, key_properties, read
from lakehouse.values.checksums import Watched, has_checksum
from lakehouse.values.recorded import Checksum
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.publish.gate import gate_of_yours
from pipelines.epochs.publish.open_epoch import abandon_load, fence_of
from pipelines.epochs.publish.publish import append_rows, close, publishing_entry
from pipelines.epochs.views.in_order import rows_in_order
from pipelines.epochs.views.reconcile import changelog_before, check_sources, checksum_at
from pipelines.epochs.views.shape import Shape
from pipelines.joins.changelog import changelog_schema, missing_rows
from pipelines.plan.values import Computed, EpochPlan, SourceRange
from pipelines.report.progress import Stopwatch

log = logging.getLogger(__name__)


def load(workspace: Workspace, epoch: Epoch[BoundJoin], shape: Shape, watch: Stopwatch) -> Entry:
    """
    Load a result that does not exist yet.

    Returns:
        The committed row; counts has inserted and null_keys (source rows without a key).

    Raises:
        DuplicateKey: A source holds a key twice.
        AnotherRun: Another run loads the result.
        GateFailed: The loaded table did not pass its gate and was dropped.
    """
    bound, plan = epoch.bound, epoch.plan
    import_in_background()
    with watch.step("check"), reading(plan.join):
        counts = {"null_keys": check_sources(workspace, bound)}
    entry = publishing_entry(epoch, uuid.uuid4().hex, "", Computed(counts, plan.writes))
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _write_load(workspace, bound, shape, entry, watch)


def resume_load(workspace: Workspace, entry: Entry, shape: Shape, watch: Stopwatch) -> Entry | None:
    """Finish a first load at its recorded versions, or abandon it if they are gone or the definition has changed."""
    bound = bind_join(workspace, entry.join)
    if bound.definition == entry.definition:
        try:
            with reading(entry.join):
                return _write_load(workspace, at_recorded(bound, entry.sources), shape, entry, watch)
        except (FeedUnavailable, SourceRecreated):
            log.warning("%s: the versions of the interrupted load are gone; starting the load again", entry.join)
        except Exception as error:
            if not is_about_a_row(error):
                raise
            log.warning("%s: the interrupted load was abandoned: %s", entry.join, value_error(error))
            return None
    why = "the interrupted load cannot be repeated: its versions are gone, or the definition has changed"
    abandon_load(workspace, entry, why)
    return None


def _write_load(workspace: Workspace, bound: BoundJoin, shape: Shape, entry: Entry, watch: Stopwatch) -> Entry:
    """Create the result, fill it in one commit, run its gate on the table, and write the committed row."""
    spark, engine = workspace.spark, workspace.engine
    with watch.step("load"):
        try:
            watched = _write_rows(workspace, bound, entry, is_cut=shape.is_cut_by_key)
        except Exception as error:
            if is_about_a_row(error):  # at these versions the load can never end
                abandon_load(workspace, entry, value_error(error))
            raise
        table = get(engine, bound.result)
        commits = check_owner(engine, table, 0, {entry.run_id})
    commit = next((commit for commit in commits if commit.metadata == entry.run_id and commit.changes_data), None)
    if commit is None:
        raise AnotherRun(entry.join, f"epoch {entry.epoch} was written by another run meanwhile")
    with watch.step("gate"):
        epoch = Epoch(bound, _plan_of(entry))
        verdict, warned = shape.gate_loaded(workspace, epoch, commit.version, entry.run_id), Verdict()
        if verdict.passed:
            loaded = partial(read, spark, bound.result, commit.version)
            verdict, warned = gate_of_yours(workspace, entry.join, loaded)
    if not verdict.passed:
        message = "; ".join(verdict.findings)
        abandon_load(workspace, entry, f"{REJECTED_LOAD}{message}")
        raise GateFailed(entry.join, "the loaded result did not pass its gate and was dropped", found=message)
    found = committed_counts(engine, table, commit)
    counts = {**entry.counts, "inserted": 0, **(found or {})}
    writes = [Append(TargetVersions(bound.result, table.id, -1, commit.version), RESULT_PART, counts["inserted"])]
    if entry.changelog is not None:
        with watch.step("changelog"):
            changelog, counts["changelog"] = _load_changelog(workspace, bound, entry, entry.changelog, commit.version)
        writes.insert(0, Append(changelog, CHANGELOG_PART, counts["changelog"]))
    with watch.step("checksum"):
        observed = watched if found is not None and found["inserted"] else None  # Spark may compute no empty result
        checksum = _checksum(workspace, bound, commit.version, observed, counts["inserted"])
    entry = replace(entry, counts=counts, writes=tuple(writes), message="\n".join(warned.findings), checksum=checksum)
    return close(workspace, entry, watch)


def _write_rows(workspace: Workspace, bound: BoundJoin, entry: Entry, *, is_cut: bool) -> Watched | None:
    """Create the result and write all rows; return them if this call has written them, and no run before it."""
    engine = workspace.engine
    key = bound.join.key
    properties = key_properties(key, may_be_absent=bound.join.has_absent_keys)
    create(workspace.spark, bound.result, bound.columns, key, properties=properties, cluster_by=bound.cluster_by)

    def is_made() -> bool:
        made = check_owner(engine, get(engine, bound.result), 0, {entry.run_id})
        return any(commit.metadata == entry.run_id for commit in made)

    if is_made():
        return None
    watched = Watched(rows_in_order(workspace, bound, is_cut=is_cut), list(bound.columns))
    is_written = append(watched.rows, bound.result, fence_of(workspace, entry), unless=is_made)
    return watched if is_written else None


def _checksum(
    workspace: Workspace, bound: BoundJoin, version: int, observed: Watched | None, number: int
) -> Checksum | None:
    """Return the checksum of the result: as observed while its rows were written, or computed from the table."""
    found = observed.checksum if observed is not None and has_checksum(list(bound.columns)) else None
    return found if found is not None and found.rows == number else checksum_at(workspace, bound, version)


def _plan_of(entry: Entry) -> EpochPlan:
    sources = tuple(map(SourceRange.recorded, entry.sources))
    return EpochPlan(join=entry.join, epoch=entry.epoch, strategy="load", reason=entry.reason, sources=sources)


def _load_changelog(
    workspace: Workspace, bound: BoundJoin, entry: Entry, changelog: TargetVersions, version: int
) -> tuple[TargetVersions, int]:
    """Append what the changelog lacks of the loaded result; continue a changelog that an earlier result left."""
    spark, key = workspace.spark, bound.join.key
    create(spark, changelog.address, changelog_schema(bound.columns), key)
    target = replace(
        changelog, id=get(workspace.engine, changelog.address).id, base_version=max(changelog.base_version, 0)
    )

    def rows() -> DataFrame:
        logged = changelog_before(workspace, target, entry.join, entry.epoch)
        loaded = read(spark, bound.result, version)
        return missing_rows(logged, loaded, key, bound.columns, entry.epoch)

    made, number = append_rows(workspace, entry, target, rows)
    return replace(target, version=made), number or 0
