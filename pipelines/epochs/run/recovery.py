"""
Finish or abandon an epoch that a killed run left open.

The epoch is finished from the ledger's row and the stage alone. It is abandoned if the user asked for a backfill and it
cannot be finished, or if its stage is gone before anything was written.
"""

import logging
from dataclasses import replace
from typing import Any

from lakehouse.errors.conditions import first_line, is_of_spark
from lakehouse.errors.errors import AnotherRun, BrokenEpoch, CannotContinue, DefinitionChanged, LakejoinError, Remedy
from lakehouse.ledger.entries import ABANDONED, Entry, JoinHistory
from lakehouse.publish.ownership import run_of
from lakehouse.publish.writes import TargetVersions
from lakehouse.session.session import settings
from lakehouse.tables.creation import restore
from lakehouse.tables.table import commits_since, find
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kind import Kind
from pipelines.epochs.publish.open_epoch import abandon_load, another_run, is_open, is_still
from pipelines.epochs.publish.publish import fence_off, publish
from pipelines.report.progress import Stopwatch

log = logging.getLogger(__name__)


def finish_open(
    kind: Kind[Any], history: JoinHistory, watch: Stopwatch, *, abandon_broken: bool, resets: bool = False
) -> Entry | None:
    """
    Finish the open epoch from the ledger's row; return its committed row, or None if it was abandoned.

    Args:
        abandon_broken: Whether to abandon the epoch if it cannot be finished: a backfill follows.
        resets: Whether that backfill recreates the result and the buffered rows.

    Raises:
        CannotContinue: The epoch cannot be finished.
        AnotherRun: Another run finished it meanwhile.
    """
    workspace, entry = kind.workspace, history.open
    assert entry is not None
    try:
        if abandon_broken and (history.broken is not None or is_gone(workspace, entry)):
            raise BrokenEpoch(entry.join, "the epoch is broken, or a table of it is gone")
        return _finish(kind, entry, watch)
    except AnotherRun:
        raise
    except Exception as error:  # an explicit backfill overrides any error
        if not abandon_broken:
            raise
        why = error.problem if isinstance(error, LakejoinError) else first_line(error)
        if entry.result.is_new and not is_open(workspace, entry):  # the load has abandoned itself
            return None
    abandon(workspace, entry, why, keeps_state=not resets)
    return None


def _finish(kind: Kind[Any], entry: Entry, watch: Stopwatch) -> Entry | None:
    """Finish an open epoch; return None if it was abandoned, because its rows are in no stage and in no table."""
    workspace = kind.workspace
    refuse_elsewhere(workspace, entry)
    if entry.result.is_new:
        try:
            return kind.resume_load(entry, watch)
        except DefinitionChanged as error:
            log.warning("%s: the interrupted load is abandoned: %s", entry.join, error.problem)
            abandon_load(workspace, entry, error.problem)
            return None
    if entry.is_in_place and not _has_written(workspace, entry) and fence_off(workspace, entry):
        abandon(workspace, entry, "its rows were in no stage, and nothing was written; the next epoch computes them")
        return None
    if entry.is_staged and not workspace.stage_at(entry.stage).exists():
        if not is_open(workspace, entry):
            raise another_run(entry)  # the other run deleted the stage
        if _has_written(workspace, entry):
            raise CannotContinue(
                entry.join,
                f"the stage of open epoch {entry.epoch} is gone, and part of the epoch is written",
                expected=f"the folder {entry.stage}, with the rows that are still to be written",
                hint=Remedy("restore the folder, or {abandon}", entry.join),
            )
        log.warning("%s: the stage of epoch %s is gone before anything was written", entry.join, entry.epoch)
        abandon(workspace, entry, "the stage is gone, and nothing was written")
        return None
    return publish(workspace, entry, watch)


def _has_written(workspace: Workspace, entry: Entry) -> bool:
    for target in entry.targets:
        table = is_still(workspace, target, entry.join, feed=False)
        if any(
            run_of(commit) == entry.run_id for commit in commits_since(workspace.engine, table, target.base_version)
        ):
            return True
    return False


def abandon(workspace: Workspace, entry: Entry, why: str, *, keeps_state: bool = True) -> None:
    """
    Abandon an open epoch, with the reason for the ledger; the backfill that follows corrects what it has written.

    With `keeps_state` the buffered rows are restored, because the next epoch starts from them. Tables and stages of
    another lake stay untouched.

    Raises:
        AnotherRun: Another run finished the epoch meanwhile.
        CannotContinue: The buffered rows cannot be restored.
    """
    if not is_open(workspace, entry):
        raise another_run(entry)
    state = entry.state if keeps_state else None
    if state is not None and not state.is_new and _is_here(workspace, state):
        restore_table(workspace, entry, state)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=why))
    if _is_own_stage(workspace, entry):
        workspace.stage_at(entry.stage).delete()


def is_gone(workspace: Workspace, entry: Entry) -> bool:
    """Return whether a table that an open epoch writes was dropped; the tables of a first load may not exist yet."""
    return any(not target.is_new and find(workspace.engine, target.address) is None for target in entry.targets)


def elsewhere(workspace: Workspace, entry: Entry) -> list[str]:
    """List the tables of an epoch, and its stage, that lie in another lake than the pipeline file says."""
    others = [target.address for target in entry.targets if not _is_here(workspace, target)]
    stage = [entry.stage] if entry.stage and not _is_own_stage(workspace, entry) else []
    return [*(address.path or address.table for address in others), *stage]


def _is_here(workspace: Workspace, target: TargetVersions) -> bool:
    return target.address == workspace.table(target.address.label)


def _is_own_stage(workspace: Workspace, entry: Entry) -> bool:
    return entry.stage.startswith(f"{workspace.stages}/")


def refuse_elsewhere(workspace: Workspace, entry: Entry) -> None:
    """
    Check that the tables and the stage of an open epoch lie in the lake of the pipeline file.

    Raises:
        CannotContinue: They lie in another lake.
    """
    others = elsewhere(workspace, entry)
    if others:
        raise CannotContinue(
            entry.join,
            f"open epoch {entry.epoch} belongs to another lake: this one was copied or moved",
            expected=f"tables and a stage in {workspace.file.storage.path or workspace.file.storage.schema_name}",
            found=", ".join(others),
            hint=Remedy("{abandon} and leaves these alone", entry.join),
        )


def restore_table(workspace: Workspace, entry: Entry, target: TargetVersions) -> None:
    """
    Restore a table to its version before an abandoned epoch; leave a dropped or replaced table as it is.

    Raises:
        CannotContinue: Delta cannot restore the version.
    """
    table = find(workspace.engine, target.address)
    if table is not None and table.id == target.id and table.version > target.base_version:
        options = {"spark.databricks.delta.commitInfo.userMetadata": entry.run_id}
        try:
            with settings(workspace.spark, options):
                restore(workspace.spark, table, target.base_version)
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise CannotContinue(
                target.address.label,
                f"the table cannot be restored to version {target.base_version}, its last before the abandoned epoch",
                found=first_line(error),
                hint=f"run `lakejoin backfill --reset --select {entry.join}` to recreate it and the result",
            ) from error
