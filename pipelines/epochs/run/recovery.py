"""
Finish or abandon an epoch that a killed run left open.

The epoch is finished from the ledger's row and the stage alone. It is abandoned if the user asked for a backfill and it
cannot be finished, or if its stage is gone before anything was written.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakehouse.errors.conditions import first_line
from lakehouse.errors.errors import AnotherRun, BrokenEpoch, CannotContinue, DefinitionChanged, LakejoinError, Remedy
from lakehouse.ledger.entries import ABANDONED, Entry, JoinHistory
from lakehouse.publish.ownership import run_of
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.table import commits_since, find
from pipelines.binding.workspace import Workspace
from pipelines.epochs.kind import Kind
from pipelines.epochs.publish.open_epoch import abandon_load, another_run, is_open, is_still, restore_table
from pipelines.epochs.publish.publish import abandon_overwrite, fence_off, publish, take_back
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
    if entry.result.is_new or entry.overwrites_in_place:
        try:
            return kind.resume_load(entry, watch)
        except DefinitionChanged as error:
            log.warning("%s: the interrupted epoch is abandoned: %s", entry.join, error.problem)
            (abandon_load if entry.result.is_new else abandon_overwrite)(workspace, entry, error.problem)
            return None
    if entry.is_in_place and not _has_written(workspace, entry) and fence_off(workspace, entry):
        abandon(workspace, entry, "its rows were in no stage, and nothing was written; the next epoch computes them")
        return None
    if entry.is_staged and not Path(entry.stage).exists():
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

    With `keeps_state` the buffered rows are restored, because the next epoch starts from them; a result that was
    overwritten in place is restored, too. Tables and stages of another lake stay untouched.

    Raises:
        AnotherRun: Another run finished the epoch meanwhile.
        CannotContinue: The buffered rows or the result cannot be restored.
    """
    if not is_open(workspace, entry):
        raise another_run(entry)
    state = entry.state if keeps_state else None
    if state is not None and not state.is_new and _is_here(workspace, state):
        restore_table(workspace, entry, state)
    if entry.overwrites_in_place and _is_here(workspace, entry.result):
        take_back(workspace, entry)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=why))
    if _is_own_stage(workspace, entry):
        Stage(entry.stage).delete()


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
