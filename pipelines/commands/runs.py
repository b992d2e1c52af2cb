"""Whole runs as the ledger records them: their list, and the tables of one run, each at its version there."""

import logging
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession

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
    newest: dict[str, Run] = {}
    for run in workspace.ledger.runs(2 * limit):
        newest.setdefault(run.id, run)
    return tuple(map(_report_on, [*newest.values()][:limit]))


def last_run(workspace: Workspace) -> tuple[RunReport, ...]:
    """Return the newest run; none if no run is recorded, or the ledger cannot be read, which each join reports."""
    try:
        return runs_of(workspace, 1)
    except Exception:
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

    The latter has the results of all joins among the names.

    Raises:
        UnknownRun: The run is unknown, or has not ended.
    """
    runs = workspace.ledger.runs(None)
    if wanted == LAST_COMPLETE:
        joins = {name for name in names if name in workspace.file.joins}
        for run in runs:
            if run.step == COMPLETE and joins <= run.names:
                return run
        of = f" of {', '.join(sorted(joins))}" if joins else ""
        raise UnknownRun("runs", f"no run{of} is complete yet", hint="`lakejoin history --runs` lists the runs")
    found = {run.id: run for run in reversed(runs) if wanted and run.id.startswith(wanted)}
    if len(found) != 1:
        problem = (
            f"{len(found)} runs have an id that begins with `{wanted}`" if found else f"no run has the id `{wanted}`"
        )
        raise UnknownRun(
            "runs", problem, hint=f"`lakejoin history --runs` lists the runs; `{LAST_COMPLETE}` is one, too"
        )
    (run,) = found.values()
    if run.step == BEGUN:
        raise UnknownRun("runs", f"the run {run.id} has not ended", hint="run `lakejoin run`, which finishes it")
    return run


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
    run = find_run(workspace, wanted, [name.removesuffix(CHANGELOG)])
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
    table = find(workspace.engine, tables_of(workspace)[name])
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
    logged = None if entry is None else entry.changelog
    return None if logged is None or logged.version is None else (logged.id, logged.version)
