"""
An epoch that a killed run left open.

It is finished from the ledger's row and the stage alone, or let go: where a person asked for a backfill and it cannot
be finished, or where its stage is gone before anything was written.
"""

import logging
from dataclasses import replace
from pathlib import Path

from lakehouse.entries import ABANDONED, Entry, TargetVersions
from lakehouse.errors import AnotherRun, CannotContinue, LakejoinError
from lakehouse.publish import run_of
from lakehouse.session import settings
from lakehouse.stage import Stage
from lakehouse.tables import commits_since, find, restore
from pipelines.first_load import resume_load
from pipelines.prepare import Prepared
from pipelines.publishing import Stopwatch, is_staged, is_still, publish
from pipelines.workspace import Workspace

log = logging.getLogger(__name__)


def finish_open(workspace: Workspace, prepared: Prepared, watch: Stopwatch, *, abandon_broken: bool) -> Entry | None:
    """
    Finish the open epoch from the ledger's row.

    Args:
        workspace: Where to work.
        prepared: What the ledger knows.
        watch: Times the steps.
        abandon_broken: Let it go where it cannot be finished: a backfill follows.

    Returns:
        The committed row; None if the epoch was let go.

    Raises:
        CannotContinue: It cannot be finished.
        AnotherRun: Another run finished it meanwhile.
    """
    entry = prepared.history.open
    assert entry is not None
    if abandon_broken and (prepared.history.broken is not None or is_gone(workspace, entry)):
        abandon(workspace, entry, "broken, or its table is gone")
        return None
    try:
        return _finished(workspace, entry, watch)
    except AnotherRun:
        raise
    except Exception as error:  # whatever it is, a person who asked for a backfill wants to get beyond it
        if not abandon_broken:
            raise
        why = error.problem if isinstance(error, LakejoinError) else str(error).strip().splitlines()[0]
    abandon(workspace, entry, why)
    return None


def _finished(workspace: Workspace, entry: Entry, watch: Stopwatch) -> Entry | None:
    """Finish an open epoch; None if it was let go because nothing of it was written and its stage is gone."""
    refuse_elsewhere(workspace, entry)
    if entry.strategy == "load" and entry.result.base_version < 0:
        return resume_load(workspace, entry, watch)
    if is_staged(entry) and not Path(entry.stage).exists():
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


def abandon(workspace: Workspace, entry: Entry, why: str) -> None:
    """
    Let an open epoch go; what it has written already is mended by the backfill that follows.

    What waits is as it was before, for the epoch that comes instead begins with that. Nothing that lies outside the
    storage is touched.
    """
    is_here = not elsewhere(workspace, entry)
    if is_here and entry.state is not None and entry.state.base_version >= 0:
        put_back(workspace, entry, entry.state)
    workspace.ledger.append(replace(entry, step=ABANDONED, message=why))
    if is_here and entry.stage:
        Stage(entry.stage).delete()


def is_gone(workspace: Workspace, entry: Entry) -> bool:
    """Tell whether a table that an open epoch is to write was dropped; those of a first load need not be there yet."""
    return any(target.base_version >= 0 and find(workspace.spark, target.address) is None for target in entry.targets)


def elsewhere(workspace: Workspace, entry: Entry) -> list[str]:
    """Name the tables of an epoch, and its stage, that lie elsewhere than the pipeline file says: in another lake."""
    places = [target.address for target in entry.targets]
    others = [place.path or place.table for place in places if place != workspace.table(place.label)]
    if entry.stage and not entry.stage.startswith(f"{workspace.stages}/"):
        others.append(entry.stage)
    return others


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


def put_back(workspace: Workspace, entry: Entry, target: TargetVersions) -> None:
    """Bring a table back to what it was before an epoch that is let go; one that is gone or replaced stays so."""
    table = find(workspace.spark, target.address)
    if table is not None and table.id == target.id and table.version > target.base_version:
        options = {"spark.databricks.delta.commitInfo.userMetadata": entry.run_id}
        with settings(workspace.spark, options):
            restore(workspace.spark, table, target.base_version)
