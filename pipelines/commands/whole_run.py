"""A run as a whole: the cut to which it brings its joins, and the rows of the ledger about it."""

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from lakehouse import limits
from lakehouse.ledger.entries import Entry
from lakehouse.ledger.runs import BEGUN, COMPLETE, INCOMPLETE, Run, RunResult
from lakehouse.tables.table import Table, find
from lakehouse.values.sqltext import Address
from pipelines.binding.run_versions import cut_of, newest_sources, recorded_sources, with_data
from pipelines.binding.sources import ktable_address
from pipelines.binding.workspace import RunVersions, Workspace
from pipelines.report import JoinReport

MISSES: Mapping[str, str] = {"failed": "it failed", "skipped": "it was skipped"}
BESIDE = "it is not at the cut: another run has read further, or rows are held back"
"""Why a join has no result in a run, by its outcome."""

log = logging.getLogger(__name__)


class WholeRun:
    """
    A run of joins and changelog sources, the `nodes`, to the versions of their sources that were pinned at its start.

    With several of them it has a row in the ledger before its first epoch: if it is killed, the next run goes on to the
    same cut. The methods may be called from several threads.
    """

    def __init__(
        self, workspace: Workspace, nodes: Sequence[str], cut: Mapping[str, Table], begun_as: str | None = None
    ) -> None:
        self.id = begun_as or uuid.uuid4().hex
        self.nodes = nodes
        self._workspace, self._cut = workspace, cut
        self._results: dict[str, RunResult] = {}
        self._misses: dict[str, str] = {}
        self._is_begun = begun_as is not None
        self._since, self._lock = time.monotonic(), Lock()

    @staticmethod
    def to_newest(workspace: Workspace, nodes: Sequence[str]) -> "WholeRun":
        """Return a run to the newest versions of the sources."""
        joins = [name for name in nodes if name in workspace.file.joins]
        return WholeRun(workspace, nodes, newest_sources(workspace, joins))

    @staticmethod
    def unfinished(workspace: Workspace, nodes: Sequence[str]) -> "WholeRun | None":
        """
        Return the last run if it began and did not end, all of its joins are selected, and its cut can be read.

        It may still be running: then both bring the joins to the same cut.
        """
        if len(nodes) < 2:
            return None
        for last in workspace.ledger.runs(1):
            if last.step != BEGUN or not last.names <= {*nodes}:
                return None
            cut = recorded_sources(workspace, last.cut)
            if cut is None:
                log.warning("the run %s was not finished, and its cut can no longer be read", last.id)
                return None
            return WholeRun(workspace, [name for name in nodes if name in last.names], cut, last.id)
        return None

    def workspace(self) -> Workspace:
        """Return the workspace for the next join: with the sources at the cut, and the results that have take it."""
        with self._lock:
            versions = {name: result.version for name, result in self._results.items()}
        results = {name: version for name, version in versions.items() if version is not None}
        return self._workspace.at(RunVersions(self._cut, results))

    def begin(self) -> None:
        """Record the run before its first epoch, unless one row at its end says it all."""
        with self._lock:
            if not self._is_begun and len(self.nodes) > 1:
                results = tuple(RunResult(name, self._address(name)) for name in self.nodes)
                self._append(Run(id=self.id, step=BEGUN, cut=cut_of(self._cut), results=results))
                self._is_begun = True

    def take(self, report: JoinReport) -> None:
        """Take the report of a join: its result is read by later joins if it is at the cut."""
        result = None
        if report.outcome in ("done", "nothing"):
            try:
                result = self._result_of(report)
            except Exception:  # the epochs of the join are recorded all the same
                log.warning("it is not known whether %s is at the cut of its run", report.join, exc_info=True)
        with self._lock:
            if result is None:
                self._misses[report.join] = MISSES.get(report.outcome, BESIDE)
            else:
                self._results[report.join] = result

    def end(self, reports: Sequence[JoinReport]) -> None:
        """Record how the run ended, unless nothing was done and an earlier run has recorded the same results."""
        is_silent = not self._is_begun and not any(report.outcome == "done" for report in reports)
        if is_silent and (self._misses or self._is_recorded()):
            return
        results = tuple(self._results.get(name, RunResult(name, self._address(name))) for name in self.nodes)
        self._append(
            Run(
                id=self.id,
                step=INCOMPLETE if self._misses else COMPLETE,
                cut=cut_of(self._cut),
                results=results,
                reason="; ".join(f"{name}: {why}" for name, why in self._misses.items()),
                seconds=round(time.monotonic() - self._since, 3),
            )
        )

    def _append(self, run: Run) -> None:
        self._workspace.ledger.append_run(run)

    def _is_recorded(self) -> bool:
        results = self._results.values()
        return is_recorded(self._workspace, {result.name: (result.id, result.version) for result in results})

    def _address(self, name: str) -> Address:
        """Return the address of the result of a join, or of the KTable of a changelog source."""
        is_join = name in self._workspace.file.joins
        return self._workspace.table(name) if is_join else ktable_address(self._workspace, name)

    def _result_of(self, report: JoinReport) -> RunResult | None:
        """Return the version of a result at the cut; None if no epoch reached it."""
        address = self._address(report.join)
        if self._is_at_cut(report.join, report.sources):
            return RunResult(report.join, address, report.result_id, report.result_version)
        entry = self._workspace.ledger.of(report.join).last_committed(lambda entry: self._is_within(report.join, entry))
        if entry is None or not self._is_at_cut(report.join, {s.name: s.to_version for s in entry.sources}):
            return None
        return RunResult(report.join, address, entry.result.id, entry.result.version)

    def _is_within(self, name: str, entry: Entry) -> bool:
        """Return whether an epoch read nothing beyond the cut."""
        versions = ((source.to_version, self._wanted(name, source.name)) for source in entry.sources)
        return all(wanted is None or version <= wanted for version, wanted in versions)

    def _wanted(self, name: str, source: str) -> int | None:
        """Return the version at which a join reads a source in this run; None if the run does not say."""
        if source in self._workspace.file.joins or (
            name in self._workspace.file.joins and self._kind(source) == "changelog"
        ):
            result = self._results.get(source)
            return None if result is None else result.version
        table = self._cut.get(source)
        return None if table is None or self._kind(source) == "global_table" else table.version

    def _kind(self, source: str) -> str:
        known = self._workspace.file.sources.get(source)
        return "join" if known is None else known.kind

    def _is_at_cut(self, name: str, versions: Mapping[str, int]) -> bool:
        """Return whether a join that has read sources up to these versions has all data up to the cut, and no more."""
        for source, version in versions.items():
            wanted = self._wanted(name, source)
            if wanted is None and self._kind(source) in ("table", "stream"):
                return False  # it could not be pinned
            if wanted not in (None, version) and not self._is_quiet(name, source, *sorted((wanted, version))):
                return False
        return bool(versions)

    def _is_quiet(self, name: str, source: str, after: int, until: int) -> bool:
        """Return whether no commit (after, until] of a source changes data."""
        table = self._cut.get(source)
        if table is None or (name in self._workspace.file.joins and self._kind(source) == "changelog"):
            table = find(self._workspace.engine, self._address(source))
        if table is None:
            return False
        try:
            return not with_data(self._workspace, replace(table, version=until), after)
        except Exception:  # commits are missing from the log, or came after it was read
            log.debug("the commits of %s are not known", source, exc_info=True)
            return False


def is_recorded(workspace: Workspace, results: Mapping[str, tuple[str | None, int | None]]) -> bool:
    """Return whether one of the newest rows about runs says that results, by table id and version, have one cut."""
    for run in workspace.ledger.runs(limits.LEDGER_ROWS):
        recorded = {result.name: (result.id, result.version) for result in run.results}
        if run.step == COMPLETE and results.items() <= recorded.items():
            return True
    return False
