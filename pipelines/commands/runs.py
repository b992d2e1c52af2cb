"""Whole runs as the ledger records them: their list, and the tables of one run, each at its version there."""

import logging
from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.runs import BEGUN, COMPLETE, Run
from lakehouse.tables.table import find, read
from lakehouse.values.recorded import CHANGELOG
from lakehouse.values.sqltext import Address
from pipelines.binding.workspace import Workspace
from pipelines.language.names import nearest
from pipelines.report import RunReport

log = logging.getLogger(__name__)

LAST_COMPLETE = "last complete"
"""The name of the newest complete run that has the results that are asked for."""


class UnknownRun(LakejoinError):
    """No run has this id, or no complete run has the tables that are asked for."""

    exit_code = 2
    code = "UNKNOWN_RUN"


def runs_of(workspace: Workspace, limit: int) -> tuple[RunReport, ...]:
    """List the newest runs, newest first, each at its last step."""
    return tuple(map(_report_on, [*at_last_step(workspace.ledger.runs(3 * limit)).values()][:limit]))


def at_last_step(rows: Iterable[Run]) -> dict[str, Run]:
    """
    Return each run once, by its id in the order of the rows, newest first.

    If two processes have brought the joins of a run to its cut, one may have seen what the other had not yet done.
    """
    last: dict[str, Run] = {}
    for run in rows:
        if run.id not in last or run.step == COMPLETE:
            last[run.id] = run
    return last


def last_run(workspace: Workspace) -> tuple[RunReport, ...]:
    """Return the newest run; none if no run is recorded, or the ledger cannot be read, which each join reports."""
    try:
        return runs_of(workspace, 1)
    except Exception:  # each join reports that the ledger cannot be read
        log.debug("the last run cannot be read", exc_info=True)
        return ()


def _report_on(run: Run) -> RunReport:
    assert run.at is not None
    return RunReport(
        run_id=run.id,
        step=run.step,
        at=run.at,
        cut={source.name: source.version for source in run.cut},
        results={result.name: result.version for result in run.results},
        seconds=run.seconds,
        reason=run.reason,
    )


def find_run(workspace: Workspace, wanted: str, names: Collection[str] = ()) -> Run:
    """
    Return the run with an id, or with the only id that begins so; for `LAST_COMPLETE` the newest complete one.

    The latter is one of the recent runs, and has all sources, results and changelogs among the names.

    Raises:
        UnknownRun: The run is unknown, or has not ended.
    """
    if wanted == LAST_COMPLETE:
        for run in workspace.ledger.runs(limits.LEDGER_ROWS):
            if run.step == COMPLETE and _has(workspace, run, names):
                return run
        of = f" of {', '.join(names)}" if names else ""
        hint = "`lakejoin history --runs` lists the runs; an older one is read by its id"
        raise UnknownRun("runs", f"no recent run{of} is complete", hint=hint)
    found = [*at_last_step(workspace.ledger.runs(limits.LEDGER_ROWS, wanted)).values()]
    if len(found) != 1:
        many = f"{len(found)} runs have an id that begins with `{wanted}`"
        hint = f"`lakejoin history --runs` lists the runs; `{LAST_COMPLETE}` is one, too"
        raise UnknownRun("runs", many if found else f"no run has the id `{wanted}`", hint=hint)
    if found[0].step == BEGUN:
        hint = "run `lakejoin run`, which finishes it unless a later run has gone on from there"
        raise UnknownRun("runs", f"the run {found[0].id} has not ended", hint=hint)
    return found[0]


def _has(workspace: Workspace, run: Run, names: Collection[str]) -> bool:
    """Return whether a run has a version of each of the sources, results and changelogs that have these names."""
    file = workspace.file
    joins = {name if name in file.joins else name.removesuffix(CHANGELOG) for name in names} & {*file.joins}
    published = {result.name for result in run.results if result.version is not None}
    return joins <= published and {*names} & {*file.sources} <= {source.name for source in run.cut}


def read_table(workspace: Workspace, spark: SparkSession, name: str, wanted: str = "") -> DataFrame:
    """
    Read a source, a result or its changelog: as it is, or as a run left it or read it.

    Raises:
        UnknownRun: The run is unknown, or does not have the table.
        LakejoinError: The table does not exist.
    """
    known = tables_of(workspace)
    if name not in known:
        hint = nearest(name, known) or f"known tables: {', '.join(known)}"
        raise LakejoinError(name, "the pipeline file has no such table", hint=hint)
    if not wanted:
        return spark.sql(f"SELECT * FROM {known[name].sql}")
    run = find_run(workspace, wanted, [name])
    return read(spark, known[name], version_in(workspace, run, name))


def tables_of(workspace: Workspace) -> dict[str, Address]:
    """Return the addresses of the sources, the results and the changelogs, by name."""
    file = workspace.file
    logs = {name + CHANGELOG: address for name in file.joins if (address := workspace.changelog(name)) is not None}
    return {**{n: workspace.source(n) for n in file.sources}, **{n: workspace.table(n) for n in file.joins}, **logs}


def version_in(workspace: Workspace, run: Run, name: str) -> int:
    """
    Return the version of a source, a result or a changelog in a run.

    Raises:
        UnknownRun: The run does not have the table, or the table was replaced since.
    """
    recorded = _recorded(workspace, run, name)
    if recorded is None:
        hint = f"choose another run: `lakejoin history --runs` lists them, and `{LAST_COMPLETE}` is one, too"
        raise UnknownRun(name, f"the run {run.id} has no version of it", hint=hint)
    table_id, version = recorded
    address = tables_of(workspace).get(name)
    table = None if address is None else find(workspace.engine, address)
    if table is None or table.id != table_id:
        raise UnknownRun(
            name,
            f"it is another table than in the run {run.id}",
            expected=f"the table with id {table_id}",
            found="no table" if table is None else f"id {table.id}",
            hint="choose a later run: `lakejoin history --runs` lists them",
        )
    return version


def _recorded(workspace: Workspace, run: Run, name: str) -> tuple[str, int] | None:
    """Return the id and the version that a table had in a run; None if it was not part of the run."""
    if name in workspace.file.sources:
        return next(((source.id, source.version) for source in run.cut if source.name == name), None)
    join = name if name in workspace.file.joins else name.removesuffix(CHANGELOG)
    result = next((result for result in run.results if result.name == join), None)
    if result is None or result.id is None or result.version is None:
        return None
    if name == join:
        return result.id, result.version
    entry = workspace.ledger.of(join).at_result(result.version)
    logged = None if entry is None or entry.result.id != result.id else entry.changelog
    return None if logged is None or logged.version is None else (logged.id, logged.version)
