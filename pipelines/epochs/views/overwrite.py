"""
Replace all rows of a result by the join in one commit, for a join that asks for no exact change feed.

The rows are computed where they are written. The gate checks the keys of the new version, and a version that does not
pass is taken back by RESTORE: an abandoned overwrite leaves the rows of the last epoch.
"""

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from expectations.gate import gate_keys
from expectations.validation import Verdict, import_in_background
from lakehouse.errors.conditions import is_about_a_row, reading, value_error
from lakehouse.errors.errors import FeedUnavailable, GateFailed, Remedy, SourceRecreated
from lakehouse.ledger.entries import REJECTED_IN_PLACE, Entry
from lakehouse.publish.writes import with_rows
from lakehouse.tables.table import read
from lakehouse.values.checksums import Watched
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.publish.gate import OF_YOURS, gate_of_yours
from pipelines.epochs.publish.open_epoch import run_write
from pipelines.epochs.publish.publish import abandon_overwrite, append_rows, close, is_taken_back, publishing_entry
from pipelines.epochs.views.load import checksum_of_written
from pipelines.epochs.views.reconcile import check_sources, count_keyless, expected_rows
from pipelines.epochs.views.shape import Shape
from pipelines.plan.values import Computed
from pipelines.report.progress import Stopwatch

log = logging.getLogger(__name__)


def overwrite(workspace: Workspace, epoch: Epoch[BoundJoin], shape: Shape, watch: Stopwatch) -> Entry:
    """
    Overwrite a result with the meaning of its join at the pinned versions.

    Returns:
        The committed row; counts has inserted and deleted (all rows of the result after and before, as its change feed
        shows them; deleted only if the number is known) and null_keys (source rows without a key).

    Raises:
        DuplicateKey: The new rows hold a key twice because a source does; the result was restored.
        GateFailed: The new rows did not pass the gate; the result was restored.
        ForeignWriter, AnotherRun, BrokenEpoch: As `publish` raises them.
    """
    bound, plan = epoch.bound, epoch.plan
    import_in_background()
    counts = {} if plan.checksum is None else {"deleted": plan.checksum.rows}
    entry = publishing_entry(epoch, uuid.uuid4().hex, "", Computed(counts, plan.writes))
    with watch.step("ledger"):
        workspace.ledger.append(replace(entry, seconds=dict(watch.seconds)))
    return _overwrite(workspace, bound, shape, entry, watch)


def resume_overwrite(workspace: Workspace, entry: Entry, shape: Shape, watch: Stopwatch) -> Entry | None:
    """Finish an overwrite at its recorded versions; abandon it if they are gone or the definition has changed."""
    bound = bind_join(workspace, entry.join)
    if bound.definition != entry.definition:
        abandon_overwrite(workspace, entry, "the definition has changed since the interrupted overwrite")
        return None
    if is_taken_back(workspace, entry):
        abandon_overwrite(workspace, entry, "the interrupted overwrite did not pass its gate")
        return None
    try:
        with reading(entry.join):
            return _overwrite(workspace, at_recorded(bound, entry.sources), shape, entry, watch)
    except (FeedUnavailable, SourceRecreated) as error:
        why = error.problem
        abandon_overwrite(workspace, entry, f"the interrupted overwrite cannot be repeated: {why}")
    except Exception as error:
        if not is_about_a_row(error):
            raise
        why = value_error(error)
    log.warning("%s: the interrupted overwrite was abandoned: %s", entry.join, why)
    return None


def _overwrite(workspace: Workspace, bound: BoundJoin, shape: Shape, entry: Entry, watch: Stopwatch) -> Entry:
    """Replace the rows in one commit, run the gate on the new version, and write the committed row."""
    columns, (write,), watched = list(bound.columns), entry.writes, list[Watched]()

    def rows() -> DataFrame:
        watched[:] = [Watched(expected_rows(workspace, bound), columns)]
        return watched[0].rows

    def replaced() -> tuple[int, int | None]:
        return append_rows(workspace, entry, write.target, rows, overwrite=True)

    with watch.step("overwrite"), ThreadPoolExecutor(max_workers=1) as pool:
        counting = pool.submit(count_keyless, workspace, bound)
        try:
            version, number = run_write(workspace, entry, write.target, replaced)
            counts = {"null_keys": counting.result(), **entry.counts}
        except Exception as error:
            if is_about_a_row(error):  # at these versions it can never end
                abandon_overwrite(workspace, entry, value_error(error))
            raise
    with watch.step("gate"):
        warned = _gate(workspace, bound, shape, entry, version)
    with watch.step("checksum"):
        # Spark may compute no row of an empty result, and no row at all if an earlier run has written them.
        checksum = checksum_of_written(workspace, bound, version, watched[0] if watched and number else None, number)
    if number is None:
        number = read(workspace.spark, bound.result, version).count()
    entry = entry.with_versions([replace(write.target, version=version)])
    entry = replace(entry, counts=counts | {"inserted": number}, writes=(with_rows(entry.writes[0], number),))
    return close(workspace, replace(entry, message="\n".join(warned.findings), checksum=checksum), watch)


def _gate(workspace: Workspace, bound: BoundJoin, shape: Shape, entry: Entry, version: int) -> Verdict:
    """Run the gate of a new version, and return its warnings; take the version back if it does not pass."""
    keyless = shape.keyless(bound.join)
    verdict, warned = gate_keys(workspace.spark, bound.result, version, bound.join.key, keyless), Verdict()
    is_of_yours = verdict.passed
    if is_of_yours:
        verdict, warned = gate_of_yours(workspace, entry.join, partial(read, workspace.spark, bound.result, version))
    if verdict.passed:
        return warned
    found = "; ".join(verdict.findings)
    abandon_overwrite(workspace, entry, f"{REJECTED_IN_PLACE}{found}")
    if not is_of_yours:
        check_sources(workspace, bound)  # names the source and the keys that it holds twice
    raise GateFailed(
        entry.join,
        "the overwritten result did not pass its gate, and has its earlier rows again",
        found=found,
        hint=Remedy(OF_YOURS if is_of_yours else "{reconcile}", entry.join),
    )
