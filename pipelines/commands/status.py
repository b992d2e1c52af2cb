"""The state of each join: its last epoch, how far it is behind its sources, and how long these stay readable."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import OF_TABLES, CannotContinue, Commands, LakejoinError, Remedy
from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import CHANGE_FEED, Table, find
from lakehouse.values.recorded import FILE_RETENTION, retention_seconds
from lakehouse.values.recorded import SourceVersions as Recorded
from lakehouse.values.sqltext import quote
from pipelines.binding.bind import resolved
from pipelines.binding.input_tables import find_input
from pipelines.binding.workspace import Workspace
from pipelines.commands.history import last_gate, refused_since, seconds_between_runs
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.since import Since, since
from pipelines.epochs.targets import inspect_targets
from pipelines.language import changelog_fingerprint, fingerprint, is_stream, statement_of
from pipelines.plan.decide import OF_KTABLES
from pipelines.plan.values import Refresh
from pipelines.report import JoinStatus, SourceStatus
from pipelines.report.facts import duration, moment
from pipelines.report.state import State

RECREATED = "it was dropped and created again"


@dataclass(frozen=True, kw_only=True)
class ObservedSource:
    """
    A source at the time of the command.

    Args:
        table: None if it does not exist.
        recorded: The versions that the last epoch accounts for; None before the load.
        commits: The commits with data since then, oldest first.
        problem: Why the result cannot continue from the recorded versions; empty if, by the log of the table, it can.
        moved: Whether the source is the result of a join that has committed positions since then, with or without rows.
        changed: The columns that differ from the recorded ones, if the next run reconciles the result because of them.
    """

    name: str
    table: Table | None
    recorded: Recorded | None
    commits: tuple[Commit, ...] = ()
    problem: str = ""
    moved: bool = False
    changed: str = ""


def status_of(workspace: Workspace, name: str, states: dict[str, State] | None = None) -> JoinStatus:
    """
    Return the state of a join, or of a changelog source, from its ledger, its tables and its sources.

    `states` has the states of others that are known already; those of the joins that it reads are added.
    """
    file, settings, history = workspace.file, workspace.deviations, workspace.ledger.of(name)
    (tables, fault), last = inspect_targets(workspace, name, history), history.committed
    if name in file.joins:
        definition, commands = fingerprint(file, name, settings), kind_of(workspace, name).commands
        observations = _observe_inputs(workspace, name, history, {} if states is None else states)
    else:
        definition, commands = changelog_fingerprint(file, name, settings), OF_KTABLES
        table = find(workspace.engine, workspace.source(name))
        observations = (_observe(workspace, name, table, last.sources[0] if last else None, refresh="incremental"),)
    redefined = last is not None and last.definition != definition
    status = judge(name, history, observations, datetime.now(UTC), redefined=redefined, fault=fault, commands=commands)
    if name in file.joins and not status.note:
        status = status.model_copy(update={"note": _layout_note(workspace, name, tables)})
    verified = None if name in file.sources else workspace.ledger.last_verified(name)
    if verified is None:
        return status
    return status.model_copy(update={"verified_at": verified.at, "verified_epoch": verified.epoch})


def _layout_note(workspace: Workspace, name: str, tables: Iterable[Table]) -> str:
    """Return what to do if `cluster_by` is not how the result among the tables is laid out; empty if it is."""
    wanted = workspace.file.joins[name].cluster_by
    if all(table.clustered_by == wanted for table in tables if table.address == workspace.table(name)):
        return ""
    return f"its files are not laid out by `cluster_by`: run `lakejoin maintain --select {name}`"


def judge(
    name: str,
    history: JoinHistory,
    observations: tuple[ObservedSource, ...],
    now: datetime,
    *,
    redefined: bool = False,
    fault: LakejoinError | None = None,
    commands: Commands = OF_TABLES,
) -> JoinStatus:
    """
    Determine the state of a join from its ledger and its sources, left before right.

    `redefined` is about its definition since its last epoch, `fault` is why a run cannot continue from its tables.
    """
    last = history.committed
    between = seconds_between_runs(history)
    state = _state(history, observations, is_stopped=redefined or fault is not None)
    return JoinStatus(
        join=name,
        state=state,
        epoch=last.epoch if last else 0,
        committed_at=last.at if last else None,
        result_version=last.result.version if last else None,
        sources=tuple(source_status(observed, between, now) for observed in observations),
        last_gate=last_gate(history),
        refused=refused_since(history) if state in ("stopped", "unreadable") else "",
        note=Remedy(_note(state, history, fault, redefined=redefined), name).by(commands),
    )


def source_status(observed: ObservedSource, between: float | None, now: datetime) -> SourceStatus:
    """Determine how far the result is behind a source; `between` has the seconds between two runs, None if unknown."""
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
    Warn if changes may be deleted before a run reads them; the warning is empty if no change is at risk.

    Changes stay readable for `retention` seconds, the oldest unread one `until` then; runs are `between` seconds apart.
    """
    if until is not None and until <= now:
        return f"its oldest unread change may have been deleted since {moment(until)}: run now"
    if between is None:
        return ""
    if until is not None and (until - now).total_seconds() < between:
        runs = f"and runs are {duration(between)} apart: run before then"
        return f"its oldest unread change stops being readable at {moment(until)}, {runs}"
    if retention is not None and retention < 2 * between:
        twice = f"less than twice the time between runs, {duration(between)}"
        return f"its changes stay readable for {duration(retention)}, {twice}: raise {FILE_RETENTION} or run more often"
    return ""


def _observe_inputs(
    workspace: Workspace, name: str, history: JoinHistory, states: dict[str, State]
) -> tuple[ObservedSource, ...]:
    names = statement_of(workspace.file, name).sources
    recorded = {versions.name: versions for versions in history.committed.sources} if history.committed else {}
    refresh = "incremental" if is_stream(workspace.file, name) else workspace.file.joins[name].refresh
    with ThreadPoolExecutor() as executor:
        observe = partial(_observe_input, workspace, refresh=refresh, states=states)
        observed = tuple(executor.map(observe, names, map(recorded.get, names)))
    return tuple(_with_new_columns(workspace, name, observed)) if recorded else observed


def _with_new_columns(
    workspace: Workspace, name: str, observations: Sequence[ObservedSource]
) -> Iterator[ObservedSource]:
    """Add the new columns of sources that the next run gives to the result, or because of which it stops."""
    then, new = workspace.file.joins[name].on_schema_change, dict[str, list[str]]()
    if then != "ignore" and not any(observed.problem for observed in observations):
        with suppress(LakejoinError):  # a fault of the file is told elsewhere
            for source, column in resolved(workspace, name)[0].left_out:
                new.setdefault(source, []).append(quote(column))
    for observed in observations:
        told = f"it gained {', '.join(new.get(observed.name, ()))}"
        if observed.name not in new or observed.problem:
            yield observed
        elif then == "fail":
            yield replace(observed, problem=f"{told}, and `on_schema_change: fail` stops the join")
        else:
            yield replace(observed, changed=f"{told}: the next run gives the result the new columns")


def _observe_input(
    workspace: Workspace, name: str, recorded: Recorded | None, *, refresh: Refresh, states: dict[str, State]
) -> ObservedSource:
    try:
        table = find_input(workspace, name)
        observed = _observe(workspace, name, table, recorded, refresh=refresh)
        is_behind = not observed.problem and _is_behind(workspace, name, states)
    except Exception as error:  # a source that cannot be reached, or whose log is corrupt, is a fact like others
        return ObservedSource(name=name, table=None, recorded=recorded, problem=as_known(error, name).problem)
    if is_behind:
        observed = replace(observed, changed=observed.changed or "it is behind its own sources")
    if recorded is None or not recorded.to_epoch:
        return observed
    history = workspace.ledger.of(name)
    later = history.between(recorded.to_epoch, history.next_epoch)
    return replace(observed, moved=any(entry.positions for entry in later))


def _is_behind(workspace: Workspace, name: str, states: dict[str, State]) -> bool:
    """Return whether an input is a join, or a KTable, that is behind its own sources."""
    source = workspace.file.sources.get(name)
    if source is not None and source.kind != "changelog":
        return False
    if name not in states:
        states[name] = status_of(workspace, name, states).state
    return states[name] == "behind"


def _observe(
    workspace: Workspace, name: str, table: Table | None, recorded: Recorded | None, *, refresh: Refresh
) -> ObservedSource:
    seen = partial(ObservedSource, name=name, table=table, recorded=recorded)
    if table is None:
        return seen(problem="the Delta table does not exist")
    source = workspace.file.sources.get(name)
    if source is not None and source.kind == "global_table":  # read as it is: its changes trigger no epoch
        is_other = recorded is not None and table.id != recorded.id
        return seen(problem=RECREATED if is_other else "")
    may_be_recreated = source is not None and source.on_recreated_source == "reconcile" and refresh == "auto"
    happened = None if recorded is None else since(workspace.engine, table, recorded)
    if happened is not None and (another := _another(happened)):
        if may_be_recreated or refresh == "full":
            return seen(changed=f"{another}: the next run reconciles the result with it")
        return seen(problem=another)
    if not table.feed_on:
        return seen(problem=f"its change feed is off: set {CHANGE_FEED} = true")
    if happened is None:
        return seen()
    if happened.missing is not None:
        why = _shown(happened.missing)
        is_in_full = refresh != "incremental"
        return seen(changed=f"{why}: the next run computes the result in full") if is_in_full else seen(problem=why)
    if refresh == "incremental":
        return seen(commits=happened.commits, problem=happened.changed or happened.unrecorded)
    return seen(commits=happened.commits, changed=happened.changed)


def _another(happened: Since) -> str:
    """Return why a source is not the table that the last epoch read, as it was then; empty if it is."""
    if happened.is_recreated:
        return RECREATED
    if happened.is_restored:
        return "it was restored from a copy, or its log was changed"
    return "" if happened.older is None else _shown(happened.older)


def _shown(error: CannotContinue) -> str:
    return f"{error.problem} ({error.found})"


def _state(history: JoinHistory, observations: tuple[ObservedSource, ...], *, is_stopped: bool) -> State:
    if history.broken is not None:
        return "broken"
    if history.open is not None:
        return "open"
    if history.committed is None:
        return "not loaded"
    if is_stopped:
        return "stopped"
    if any(observed.problem for observed in observations):
        return "unreadable"
    is_behind = any(observed.commits or observed.moved or observed.changed for observed in observations)
    return "behind" if is_behind else "current"


def _note(state: State, history: JoinHistory, fault: LakejoinError | None, *, redefined: bool) -> str:
    """Return what to do, with actions as in a `Remedy`; empty if nothing has to be done."""
    if state == "broken" and history.broken is not None:
        return f"epoch {history.broken.epoch} is broken: {history.broken.message}; {{abandon}}"
    if state == "open" and history.open is not None:
        return f"epoch {history.open.epoch} is not finished: {{run}}"
    if fault is not None:
        return f"{fault.where}: {fault.problem} ({fault.found}); {fault.hint}"
    if redefined:
        return "its definition has changed since its last epoch; {reconcile}"
    return "{reconcile}" if state == "unreadable" else ""


def _later(at: datetime, seconds: float | None) -> datetime | None:
    """Add seconds to a point in time; return None without seconds, or if the sum is beyond the last date."""
    try:
        return None if seconds is None else at + timedelta(seconds=seconds)
    except OverflowError:
        return None
