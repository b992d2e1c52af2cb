"""
Where each join stands: its last epoch, how far its sources have moved on and how long that can be read. Reads only.

    tables, ledger ─► sightings ─► JoinStatus        (what is right of the first arrow is pure)
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from statistics import median

from lakehouse.columns import changed_columns
from lakehouse.entries import ABANDONED, COMMITTED, PUBLISHING, REJECTED, REJECTED_LOAD, Entry, JoinHistory
from lakehouse.entries import SourceVersions as Recorded
from lakehouse.errors import CannotContinue, LakejoinError
from lakehouse.feed import CHANGE_FEED
from lakehouse.feed_ranges import unrecorded
from lakehouse.tables import Commit, Table, commits_since, find
from lakehouse.times import FILE_RETENTION, retention_seconds
from pipelines.binding.input_tables import find_input
from pipelines.binding.ktable import for_ktable
from pipelines.binding.workspace import Workspace
from pipelines.report import GateStatus, JoinStatus, SourceStatus
from pipelines.report.status import State
from pipelines.report.wording import duration, moment
from pipelines.spec import changelog_fingerprint, fingerprint, is_stream, statement_of


@dataclass(frozen=True)
class ObservedSource:
    """
    A source as it was found.

    Args:
        name: The source.
        table: It, None where there is no such table.
        recorded: What the last epoch accounts for; None before the load.
        commits: The commits with data since then, oldest first.
        problem: Why the result cannot go on from what is recorded; empty if it can, as far as its log tells.
        moved: Whether another join, which makes it, has passed positions since then, with rows or without.
        changed: Which columns are others than then, where the next run reconciles the result for that.
    """

    name: str
    table: Table | None
    recorded: Recorded | None
    commits: tuple[Commit, ...] = ()
    problem: str = ""
    moved: bool = False
    changed: str = ""


def status_of(workspace: Workspace, name: str) -> JoinStatus:
    """
    Look at one join's ledger and sources.

    Raises:
        PipelineFileError: The join's statement cannot be used.
    """
    file = workspace.file
    if name in file.sources:
        return _status_of_ktable(workspace, name)
    history = workspace.ledger.of(name)
    last = history.committed
    recorded = {versions.name: versions for versions in last.sources} if last else {}
    names = statement_of(file, name).sources
    has_stream = is_stream(file, name)
    reconciles = not has_stream and file.joins[name].refresh != "incremental"
    with ThreadPoolExecutor() as side_by_side:
        look = partial(_sight, workspace, reconciles=reconciles)
        observations = tuple(side_by_side.map(look, names, map(recorded.get, names)))
    redefined = last is not None and last.definition != fingerprint(file, name, workspace.deviations)
    remedy = f"`lakejoin backfill --reset --select {name}` begins the result anew" if has_stream else ""
    return judge(name, history, observations, datetime.now(UTC), redefined=redefined, remedy=remedy)


def _status_of_ktable(workspace: Workspace, name: str) -> JoinStatus:
    """Look at the ledger of a changelog source and at its own table, which is what its epochs read."""
    history = workspace.ledger.of(name)
    last = history.committed
    table = find(workspace.spark, workspace.source(name))
    observed = _sighted(workspace, name, table, last.sources[0] if last else None, reconciles=False)
    definition = changelog_fingerprint(workspace.file, name, workspace.deviations)
    redefined = last is not None and last.definition != definition
    found = judge(name, history, (observed,), datetime.now(UTC), redefined=redefined)
    return found.model_copy(update={"note": for_ktable(found.note)})


def judge(
    name: str,
    history: JoinHistory,
    observations: tuple[ObservedSource, ...],
    now: datetime,
    *,
    redefined: bool = False,
    remedy: str = "",
) -> JoinStatus:
    """
    Say where a join stands.

    Args:
        name: The join.
        history: Its ledger.
        observations: Its sources, left before right.
        now: The present, aware.
        redefined: Whether the pipeline file defines it otherwise than when its last epoch ran.
        remedy: What helps where the next run cannot go on; a backfill if it is empty.
    """
    last = history.committed
    between = seconds_between_runs(history)
    state = _state(history, observations)
    return JoinStatus(
        join=name,
        state=state,
        epoch=last.epoch if last else 0,
        committed_at=last.at if last else None,
        result_version=last.result.version if last else None,
        sources=tuple(source_status(observed, between, now) for observed in observations),
        last_gate=last_gate(history),
        note=_note(name, state, history, redefined=redefined, remedy=remedy),
    )


def source_status(observed: ObservedSource, between: float | None, now: datetime) -> SourceStatus:
    """
    Say how far a source has moved on.

    Args:
        observed: The source as it was found.
        between: Seconds between two runs, None if nobody knows.
        now: The present, aware.
    """
    table, recorded, commits = observed.table, observed.recorded, observed.commits
    retention = None if table is None else retention_seconds(table.properties)
    until = _later(commits[0].at, retention) if commits else None
    counted = recorded is not None and not observed.problem
    age = max((now - commits[0].at).total_seconds(), 0.0) if commits else 0.0
    return SourceStatus(
        name=observed.name,
        version=None if table is None else table.version,
        accounted=None if recorded is None else recorded.to_version,
        commits_behind=len(commits) if counted else None,
        seconds_behind=age if counted else None,
        retention_seconds=retention,
        readable_until=until,
        warning=observed.problem or observed.changed or retention_warning(retention, until, between, now),
    )


def retention_warning(retention: float | None, until: datetime | None, between: float | None, now: datetime) -> str:
    """
    Say whether changes could be gone before a run reads them.

    Args:
        retention: Seconds that a change stays readable, None if nobody knows.
        until: When the oldest change that the result does not have stops being readable, None if there is none.
        between: Seconds between two runs, None if nobody knows.
        now: The present, aware.

    Returns:
        The warning; empty if there is nothing to fear.
    """
    if until is not None and until <= now:
        return f"its oldest change that the result does not have may be gone since {moment(until)}: run now"
    if between is None:
        return ""
    if until is not None and (until - now).total_seconds() < between:
        return (
            f"its oldest change that the result does not have stops being readable at {moment(until)},"
            f" and runs are {duration(between)} apart: run before then"
        )
    if retention is not None and retention < 2 * between:
        return (
            f"its changes stay readable for {duration(retention)}, less than twice the time between runs,"
            f" {duration(between)}: raise {FILE_RETENTION} or run more often"
        )
    return ""


def seconds_between_runs(history: JoinHistory) -> float | None:
    """Give the median of the seconds from one recent epoch to the next; None where there are no two."""
    moments = sorted(entry.at for entry in history.recent if entry.step == COMMITTED and entry.at is not None)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments) if later > earlier]
    return median(gaps) if gaps else None


def last_gate(history: JoinHistory) -> GateStatus | None:
    """Give the outcome of the last gate: of the highest epoch that has one, and there of the newest attempt."""
    gates = (gate for gate in map(_gate, history.recent) if gate is not None)
    return max(gates, key=lambda gate: (gate.epoch, gate.at), default=None)


def _gate(entry: Entry) -> GateStatus | None:
    """Tell what a row of the ledger says of a gate; a load is published before its gate, everything else after it."""
    assert entry.at is not None
    if entry.step == COMMITTED or (entry.step == PUBLISHING and entry.strategy != "load"):
        warned = "; ".join(entry.message.splitlines())
        return GateStatus(passed=True, epoch=entry.epoch, at=entry.at, findings=warned)
    if entry.step == REJECTED or (entry.step == ABANDONED and entry.message.startswith(REJECTED_LOAD)):
        findings = entry.message.removeprefix(REJECTED_LOAD)
        return GateStatus(passed=False, epoch=entry.epoch, at=entry.at, findings=findings)
    return None


def _sight(workspace: Workspace, name: str, recorded: Recorded | None, *, reconciles: bool) -> ObservedSource:
    """Look at what a join reads."""
    try:
        table = find_input(workspace, name)
    except LakejoinError as error:
        return ObservedSource(name, None, recorded, problem=error.problem)
    observed = _sighted(workspace, name, table, recorded, reconciles=reconciles)
    if recorded is None or not recorded.to_epoch:
        return observed
    history = workspace.ledger.of(name)
    later = history.between(recorded.to_epoch, history.next_epoch)
    return replace(observed, moved=any(entry.positions for entry in later))


def _sighted(
    workspace: Workspace, name: str, table: Table | None, recorded: Recorded | None, *, reconciles: bool
) -> ObservedSource:
    if table is None:
        return ObservedSource(name, None, recorded, problem="there is no such Delta table")
    if recorded is not None and table.id != recorded.id:
        return ObservedSource(name, table, recorded, problem="it was dropped and created again")
    source = workspace.file.sources.get(name)
    if source is not None and source.kind == "global_table":
        return ObservedSource(name, table, recorded)  # its changes cause nothing
    if not table.feed_on:
        return ObservedSource(name, table, recorded, problem=f"its change feed is off: set {CHANGE_FEED} = true")
    if recorded is None:
        return ObservedSource(name, table, None)
    try:
        commits = commits_since(workspace.spark, table, recorded.to_version)
    except CannotContinue as error:
        return ObservedSource(name, table, recorded, problem=f"{error.problem} ({error.found})")
    changed = changed_columns(workspace.spark, table, recorded, commits)
    with_data = tuple(commit for commit in commits if commit.changes_data)
    if reconciles:
        return ObservedSource(name, table, recorded, with_data, changed=changed)
    return ObservedSource(name, table, recorded, with_data, problem=changed or unrecorded(commits))


def _state(history: JoinHistory, observations: tuple[ObservedSource, ...]) -> State:
    if history.broken is not None:
        return "broken"
    if history.open is not None:
        return "open"
    if history.committed is None:
        return "not loaded"
    if any(observed.problem for observed in observations):
        return "unreadable"
    is_behind = any(observed.commits or observed.moved or observed.changed for observed in observations)
    return "behind" if is_behind else "current"


def _note(name: str, state: State, history: JoinHistory, *, redefined: bool, remedy: str) -> str:
    backfill = f"`lakejoin backfill --select {name}` reconciles the result with the sources as they are now"
    if state == "broken" and history.broken is not None:
        return f"epoch {history.broken.epoch} is broken: {history.broken.message}; {backfill}"
    if state == "open" and history.open is not None:
        return f"epoch {history.open.epoch} waits to be finished by `lakejoin run --select {name}`"
    if redefined:
        return f"it is defined otherwise than when its last epoch ran; {remedy or backfill}"
    return (remedy or backfill) if state == "unreadable" else ""


def _later(at: datetime, seconds: float | None) -> datetime | None:
    """Add seconds to a point in time; None if there are none, or so many that the calendar ends before."""
    try:
        return None if seconds is None else at + timedelta(seconds=seconds)
    except OverflowError:
        return None
