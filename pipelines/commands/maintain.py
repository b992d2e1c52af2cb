"""Maintenance of the tables of joins, the ledger and the stages; no row changes, and runs may proceed meanwhile."""

import time
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import AnotherRun, PipelineFileError
from lakehouse.ledger.entries import PUBLISHING, REJECTED, Entry, JoinHistory
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.publish.stage import Stage
from lakehouse.session.files import Files
from lakehouse.tables.creation import optimize, recluster, vacuum
from lakehouse.tables.table import Table, find
from lakehouse.values.recorded import CHANGELOG, FILE_RETENTION, retention_seconds
from lakehouse.values.sqltext import Address
from pipelines.binding.bind import layout_faults
from pipelines.binding.workspace import DRY_RUNS, Workspace
from pipelines.epochs.targets import check_targets
from pipelines.language import changelogs_of, reads
from pipelines.report import JoinReport
from pipelines.report.facts import duration, moment
from pipelines.report.progress import Stopwatch

ACTIVE_STAGE_SECONDS = 86_400.0
"""Age in seconds up to which a stage of an unclosed epoch may belong to an active run."""


def maintain_joins(workspace: Workspace, select: Collection[str] | None = None) -> list[JoinReport]:
    """
    Maintain the tables of joins, the ledger, and the stages.

    Return a report for each changelog source that the joins read, for each join, and for the ledger. `counts` has
    files_added and files_removed (of the newest version), files_deleted (from the storage) and stages_deleted. The
    report of a failed join has its error; the others are maintained.
    """
    histories = workspace.ledger.of_all()
    reports = [_report(workspace, name, histories) for name in workspace.nodes(select)]
    return [*reports, _of_ledger(workspace)]


def _report(workspace: Workspace, name: str, histories: Mapping[str, JoinHistory]) -> JoinReport:
    watch, history = Stopwatch(), histories.get(name, JoinHistory(()))
    try:
        with watch.step("maintain"):
            counts, details = _maintained(workspace, name, history, histories)
    except Exception as error:  # whatever it is, the other tables are maintained
        return JoinReport(join=name, outcome="failed", error=as_known(error, name))
    last = history.committed
    return JoinReport(
        join=name,
        outcome="done" if last else "nothing",
        epoch=last.epoch if last else 0,
        strategy="maintain",
        reason=_summary(counts) if last else "not-loaded: its tables do not exist yet",
        counts=counts,
        seconds=dict(watch.seconds),
        details=details,
    )


def _maintained(
    workspace: Workspace, name: str, history: JoinHistory, histories: Mapping[str, JoinHistory]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Maintain the tables of a join, and return the counts and what was not done, with the reason."""
    if history.open is not None:
        problem = f"epoch {history.open.epoch} is being published, or was left open"
        hint = f"wait for that run, or run `lakejoin run --select {name}`; then run `lakejoin maintain` again"
        raise AnotherRun(name, problem, hint=hint)
    counts = dict.fromkeys(("files_removed", "files_added", "files_deleted", "stages_deleted"), 0)
    details = []
    unread = _oldest_unread(workspace, name, history, histories)
    for table in check_targets(workspace, name, history):
        join = workspace.file.joins.get(name) if table.address == workspace.table(name) else None
        if join is not None and table.clustered_by != join.cluster_by:
            files = _laid_out(workspace, name, table, join.cluster_by)
        else:
            files = optimize(workspace.engine, table)
        counts |= {part: counts[part] + number for part, number in files.items()}
        if why := _why_retained(table.address, retention_seconds(table.properties), unread):
            details.append(why)
        else:
            counts["files_deleted"] += vacuum(workspace.engine, table)
    counts["stages_deleted"] = sum([stage.delete() for stage in [*_stale(workspace, name, history)]])
    return counts, tuple(details)


def _laid_out(workspace: Workspace, name: str, table: Table, cluster_by: tuple[str, ...]) -> dict[str, int]:
    """Lay out the result of a join as its `cluster_by` now says, if that is possible."""
    if faults := list(layout_faults(name, cluster_by, table.schema)):
        raise PipelineFileError(workspace.file.pipeline, faults)
    return recluster(workspace.engine, table, cluster_by)


def _of_ledger(workspace: Workspace) -> JoinReport:
    """Maintain the ledger. Its rows are never deleted; a run reads only those of its joins."""
    watch, address = Stopwatch(), workspace.table(LEDGER)
    table = find(workspace.engine, address)
    if table is None:
        reason = "not-loaded: it does not exist yet"
        return JoinReport(join=LEDGER, outcome="nothing", strategy="maintain", reason=reason)
    try:
        with watch.step("maintain"):
            files = optimize(workspace.engine, table)
            counts = {**files, "files_deleted": vacuum(workspace.engine, table)}
    except Exception as error:
        return JoinReport(join=LEDGER, outcome="failed", error=as_known(error, LEDGER))
    fields = {"reason": _summary(counts), "counts": counts, "seconds": dict(watch.seconds)}
    return JoinReport(join=LEDGER, outcome="done", strategy="maintain", **fields)


def _summary(counts: Mapping[str, int]) -> str:
    stages = f", {counts['stages_deleted']:,} stages deleted" if counts.get("stages_deleted") else ""
    files = f"{counts['files_removed']:,} files rewritten as {counts['files_added']:,}"
    return f"{files}, {counts['files_deleted']:,} deleted{stages}"


def _oldest_unread(
    workspace: Workspace, name: str, history: JoinHistory, histories: Mapping[str, JoinHistory]
) -> tuple[str, datetime] | None:
    """Return the reader of a join that is furthest behind, with the time of its oldest unread changes, if any."""
    unread_changes = []
    for reader in workspace.file.joins:
        last = histories.get(reader, JoinHistory(())).committed
        if last is None or name not in (*reads(workspace.file, reader), *changelogs_of(workspace.file, reader)):
            continue
        seen = min((_epoch_read(history, name, last)), default=0)
        after = (entry for entry in history.since(seen) if entry.epoch > seen)
        later = [entry.at for entry in after if entry.step == PUBLISHING and entry.at]
        unread_changes += [(min(later), reader)] if later else []
    return (min(unread_changes)[1], min(unread_changes)[0]) if unread_changes else None


def _epoch_read(history: JoinHistory, name: str, reader: Entry) -> Iterator[int]:
    """Return for each table of a join the epoch up to which another join has read it."""
    for source in reader.sources:
        if source.name == name:
            entry = history.at_result(source.to_version)
            yield source.to_epoch or (0 if entry is None else entry.epoch)
        elif source.name == name + CHANGELOG:
            yield history.epoch_of_changelog(source.to_version)


def _why_retained(address: Address, retention: float | None, unread: tuple[str, datetime] | None) -> str:
    """Explain why files of a table may not be removed; empty if they may."""
    if unread is None:
        return ""
    reader, since = unread
    if retention is not None and (datetime.now(UTC) - since).total_seconds() < retention:
        return ""
    unknown = "the retention of the table is unknown"
    retained = unknown if retention is None else f"changes are kept for {duration(retention)}"
    because = f"{reader} has yet to read changes since {moment(since)} and {retained}"
    remedy = f"run `lakejoin run --select {reader}`, or raise {FILE_RETENTION}"
    return f"{address.label}: old files are kept, because {because}: {remedy}"


def _stale(workspace: Workspace, name: str, history: JoinHistory) -> Iterator[Stage]:
    """
    Find the stages that no epoch needs: those of closed epochs, and old ones of unfinished attempts.

    The stage of a rejected attempt is kept until its epoch is closed.
    """
    rejected = {entry.stage for entry in history.recent if entry.step == REJECTED and entry.epoch >= history.next_epoch}
    own = [workspace.ledger.id] if history.recent else []  # without rows the ledger may not exist
    for ledger in (*own, DRY_RUNS):
        folder = f"{workspace.stages}/{ledger}/{name}"
        for attempt, modified in _attempts(workspace.engine.files, folder).items():
            epoch = attempt.rpartition("/")[2].partition("-")[0]
            is_closed = ledger != DRY_RUNS and epoch.isdecimal() and int(epoch) < history.next_epoch
            is_old = time.time() - modified > ACTIVE_STAGE_SECONDS
            if is_closed or (is_old and attempt not in rejected):
                yield workspace.stage_at(attempt)


def _attempts(files: Files, folder: str) -> dict[str, float]:
    """Return the stages in a folder with the seconds since 1970 of the newest file or folder of each, its own too."""
    found = files.listed(folder, recursive=True)
    newest = {one.path: one.modified or 0.0 for one in found if one.is_folder and one.path == f"{folder}/{one.name}"}
    for one in found:
        attempt = f"{folder}/{one.path[len(folder) + 1 :].partition('/')[0]}"
        if attempt in newest:
            newest[attempt] = max(newest[attempt], one.modified or 0.0)
    return newest
