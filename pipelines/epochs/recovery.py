"""
An epoch that a killed run left open.

It is finished from the ledger's row and the stage alone, or let go: where a person asked for a backfill and it cannot
be finished, or where its stage is gone before anything was written.
"""

import logging
from dataclasses import replace
from pathlib import Path

from lakehouse.conditions import first_line, is_of_spark
from lakehouse.entries import ABANDONED, Entry, TargetVersions
from lakehouse.errors import AnotherRun, BrokenEpoch, CannotContinue, LakejoinError
from lakehouse.publish import run_of
from lakehouse.session import settings
from lakehouse.stage import Stage
from lakehouse.tables import commits_since, find, restore
from pipelines.binding.workspace import Workspace
from pipelines.epochs.preflight import Prepared
from pipelines.epochs.publish import another_run, is_open, is_staged, is_still, publish
from pipelines.epochs.tables.load import resume_load
from pipelines.report.progress import Stopwatch

log = logging.getLogger(__name__)


def finish_open(
    workspace: Workspace, prepared: Prepared, watch: Stopwatch, *, abandon_broken: bool, resets: bool = False
) -> Entry | None:
    """
    Finish the open epoch from the ledger's row.

    Args:
        workspace: Where to work.
        prepared: What the ledger knows.
        watch: Times the steps.
        abandon_broken: Let it go where it cannot be finished: a backfill follows.
        resets: The backfill begins the result, and what waits, anew.

    Returns:
        The committed row; None if the epoch was let go.

    Raises:
        CannotContinue: It cannot be finished.
        AnotherRun: Another run finished it meanwhile.
    """
    entry = prepared.history.open
    assert entry is not None
    try:
        if abandon_broken and (prepared.history.broken is not None or is_gone(workspace, entry)):
            raise BrokenEpoch(entry.join, "broken, or its table is gone")
        return _finished(workspace, entry, watch)
    except AnotherRun:
        raise
    except Exception as error:  # whatever it is, a person who asked for a backfill wants to get beyond it
        if not abandon_broken:
            raise
        why = error.problem if isinstance(error, LakejoinError) else first_line(error)
    abandon(workspace, entry, why, keeps_state=not resets)
    return None


def _finished(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry | None:
    """Finish an open epoch; None if it was let go because nothing of it was written and its stage is gone."""
    refuse_elsewhere(workspace, entry)
    if entry.strategy == "load" and entry.result.base_version < 0:
        return resume_load(workspace, entry, watch)
    if is_staged(entry) and not Path(entry.stage).exists():
        if not is_open(workspace, entry):
            raise another_run(entry)  # the stage went with the epoch
        if _has_written(workspace, entry):
            raise CannotContinue(
                entry.join,
                f"the stage of open epoch {entry.epoch} is gone, and part of the epoch is written",
                expected=f"the folder {entry.stage}, with what is still to be written",
                hint=f"restore the folder, or run `lakejoin backfill --select {entry.join}`, which lets the epoch go",
            )
        log.warning("%s: the stage of epoch %s is gone before anything was written", entry.join, entry.epoch)
        abandon(workspace, entry, "its stage is gone, and nothing of it was written")
        return None
    return publish(workspace, entry, watch)


def _has_written(workspace: Workspace, entry: Entry) -> bool:
    """Tell whether a commit of an epoch is in one of its tables."""
    for target in entry.targets:
        table = is_still(workspace, target, entry.join, feed=False)
        if any(run_of(commit) == entry.run_id for commit in commits_since(workspace.spark, table, target.base_version)):
            return True
    return False


def abandon(workspace: Workspace, entry: Entry, why: str, *, keeps_state: bool = True) -> None:
    """
    Let an open epoch go; what it has written already is mended by the backfill that follows.

    What waits is as it was before, for the epoch that comes instead begins with that. No table and no stage of another
    lake is touched.

    Args:
        workspace: Where to work.
        entry: Its publishing row.
        why: Why it is let go, for the ledger.
        keeps_state: Whether what waits is needed afterwards.

    Raises:
        AnotherRun: Another run finished it meanwhile.
        CannotContinue: What waits cannot be brought back.
    """
    if not is_open(workspace, entry):
        raise another_run(entry)
    state = entry.state if keeps_state else None
    if state is not None and state.base_version >= 0 and _is_here(workspace, state):
        restore_table(workspace, entry, state)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=why))
    if _is_own_stage(workspace, entry):
        Stage(entry.stage).delete()


def is_gone(workspace: Workspace, entry: Entry) -> bool:
    """Tell whether a table that an open epoch is to write was dropped; those of a first load need not be there yet."""
    return any(target.base_version >= 0 and find(workspace.spark, target.address) is None for target in entry.targets)


def elsewhere(workspace: Workspace, entry: Entry) -> list[str]:
    """Name the tables of an epoch, and its stage, that lie elsewhere than the pipeline file says: in another lake."""
    others = [target.address for target in entry.targets if not _is_here(workspace, target)]
    stage = [entry.stage] if entry.stage and not _is_own_stage(workspace, entry) else []
    return [*(address.path or address.table for address in others), *stage]


def _is_here(workspace: Workspace, target: TargetVersions) -> bool:
    return target.address == workspace.table(target.address.label)


def _is_own_stage(workspace: Workspace, entry: Entry) -> bool:
    return entry.stage.startswith(f"{workspace.stages}/")


def refuse_elsewhere(workspace: Workspace, entry: Entry) -> None:
    """
    Keep the epoch of one lake from being finished in the tables of another one.

    Raises:
        CannotContinue: Its tables or its stage lie elsewhere than the pipeline file says.
    """
    others = elsewhere(workspace, entry)
    if others:
        raise CannotContinue(
            entry.join,
            f"open epoch {entry.epoch} was begun in another place: the lake was copied or moved",
            expected=f"tables and a stage of {workspace.file.storage.path or workspace.file.storage.schema_name}",
            found=", ".join(others),
            hint=f"run `lakejoin backfill --select {entry.join}`, which lets the epoch go and leaves these as they are",
        )


def restore_table(workspace: Workspace, entry: Entry, target: TargetVersions) -> None:
    """
    Bring a table back to what it was before an epoch that is let go; one that is gone or replaced stays so.

    Raises:
        CannotContinue: Delta does not bring it back.
    """
    table = find(workspace.spark, target.address)
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
                f"the table cannot be brought back to version {target.base_version}, as it was before an epoch",
                found=first_line(error),
                hint=f"`lakejoin backfill --reset --select {entry.join}` begins it and the result anew",
            ) from error
