"""A run as a whole: the cut to which it brings its joins, and the rows of the ledger about it."""

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from lakehouse import limits
from lakehouse.errors.errors import AnotherRun
from lakehouse.ledger.entries import Entry
from lakehouse.ledger.runs import BEGUN, COMPLETE, INCOMPLETE, Run, RunResult
from lakehouse.tables.table import Table, find
from lakehouse.values.recorded import SourceVersions
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
        self._is_begun = self._is_of_other = begun_as is not None
        self._since, self._lock = time.monotonic(), Lock()
        self._beside = [name for name in _with_inputs(workspace, nodes) if name not in nodes]
        for name in self._beside:
            self._take(name, self._recorded(name), "it is not selected, and not at the cut")

    @staticmethod
    def to_newest(workspace: Workspace, nodes: Sequence[str]) -> "WholeRun":
        """Return a run to the newest versions of the sources, also of the joins that are read but not selected."""
        joins = [name for name in _with_inputs(workspace, nodes) if name in workspace.file.joins]
        return WholeRun(workspace, nodes, newest_sources(workspace, joins))

    @staticmethod
    def unfinished(workspace: Workspace, nodes: Sequence[str]) -> "WholeRun | None":
        """
        Return the last run if it began and did not end, all of its joins are selected, and its cut can be read.

        It may still be running: then both bring the joins to the same cut.
        """
        try:
            last = unfinished(workspace.ledger.runs(limits.LEDGER_ROWS), nodes) if len(nodes) > 1 else None
            if last is None:
                return None
            cut = recorded_sources(workspace, last.cut)
            if cut is not None:
                return WholeRun(workspace, [name for name in nodes if name in last.names], cut, last.id)
            log.warning("the run %s was not finished, and its cut can no longer be read", last.id)
            reason = "it was not finished, and its cut can no longer be read"
            workspace.ledger.append_run(replace(last, step=INCOMPLETE, reason=reason))
        except Exception:  # each join reports what cannot be read
            log.warning("it is not known whether a run is unfinished", exc_info=True)
        return None

    def at_cut(self, workspace: Workspace) -> Workspace:
        """Return a workspace for the next join: its sources at the cut, results as those that have come there."""
        with self._lock:
            versions = {name: result.version for name, result in self._results.items()}
        results = {name: version for name, version in versions.items() if version is not None}
        return workspace.at(RunVersions(self._cut, results))

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
            is_at_cut = self._is_at_cut(report.join, report.sources)
            here = RunResult(report.join, self._address(report.join), report.result_id, report.result_version)
            result = here if is_at_cut else self._recorded(report.join)
        self._take(report.join, result, MISSES.get(report.outcome, BESIDE))

    def _take(self, name: str, result: RunResult | None, why_not: str) -> None:
        with self._lock:
            if result is None:
                self._misses[name] = why_not
            else:
                self._results[name] = result

    def end(self, reports: Sequence[JoinReport]) -> None:
        """Record how the run ended, unless nothing was done and an earlier run has recorded the same results."""
        is_silent = not self._is_begun and not any(report.outcome == "done" for report in reports)
        if self._is_of_other and any(isinstance(report.error, AnotherRun) for report in reports):
            return  # the run that began it is still at it
        try:
            if is_silent and (self._misses or is_recorded(self._recent(), versions_of(self._results.values()))):
                return
            self._append(
                Run(
                    id=self.id,
                    step=INCOMPLETE if self._misses else COMPLETE,
                    cut=cut_of(self._cut),
                    results=tuple(self._results.get(name, RunResult(name, self._address(name))) for name in self.nodes),
                    reason="; ".join(f"{name}: {why}" for name, why in self._misses.items()),
                    seconds=round(time.monotonic() - self._since, 3),
                )
            )
        except Exception:  # the epochs of the joins are recorded all the same
            log.warning("the end of the run %s was not recorded", self.id, exc_info=True)

    def _append(self, run: Run) -> None:
        self._workspace.ledger.append_run(run)

    def _recent(self) -> list[Run]:
        return self._workspace.ledger.runs(limits.LEDGER_ROWS)

    def _address(self, name: str) -> Address:
        """Return the address of the result of a join, or of the KTable of a changelog source."""
        is_join = name in self._workspace.file.joins
        return self._workspace.table(name) if is_join else ktable_address(self._workspace, name)

    def _recorded(self, name: str) -> RunResult | None:
        """Return the result that an earlier epoch made at the cut; None if none did, or if it is not known."""
        try:
            last = self._workspace.ledger.of(name).last_committed(lambda entry: self._is_within(name, entry))
        except Exception:  # the epochs of the join are recorded all the same
            log.warning("it is not known whether %s is at the cut of its run", name, exc_info=True)
            return None
        if last is None or not self._is_at_cut(name, last.sources):
            return None
        return RunResult(name, self._address(name), last.result.id, last.result.version)

    def _is_within(self, name: str, entry: Entry) -> bool:
        """Return whether an epoch read no data beyond the cut."""
        for source in filter(self._counts, entry.sources):
            wanted = self._wanted(name, source)
            if wanted is None:
                return False
            if source.to_version > wanted and not self._is_quiet(name, source.name, wanted, source.to_version):
                return False
        return True

    def _counts(self, source: SourceVersions) -> bool:
        """Return whether the version of what a join reads is that of a cut: not of a changelog or a global table."""
        file, name = self._workspace.file, source.name
        return name in file.joins or (name in file.sources and file.sources[name].kind != "global_table")

    def _is_result(self, name: str, source: str) -> bool:
        """Return whether a join reads, by the name of a source, a table that lakejoin makes."""
        file = self._workspace.file
        return source in file.joins or (name in file.joins and file.sources[source].kind == "changelog")

    def _wanted(self, name: str, source: SourceVersions) -> int | None:
        """Return the version at which a join reads a table in this run; None if the run has another table, or none."""
        found: RunResult | Table | None
        is_result = self._is_result(name, source.name)
        found = self._results.get(source.name) if is_result else self._cut.get(source.name)
        return None if found is None or found.id != source.id else found.version

    def _is_at_cut(self, name: str, sources: Iterable[SourceVersions]) -> bool:
        """Return whether a join that has read sources up to these versions has all data up to the cut, and no more."""
        for source in filter(self._counts, sources):
            wanted, version = self._wanted(name, source), source.to_version
            if wanted is None:
                return False
            if wanted != version and not self._is_quiet(name, source.name, *sorted((wanted, version))):
                return False
        return True

    def _is_quiet(self, name: str, source: str, after: int, until: int) -> bool:
        """Return whether no commit (after, until] of a source changes data."""
        try:
            is_result = self._is_result(name, source)
            table = find(self._workspace.engine, self._address(source)) if is_result else self._cut[source]
            if table is None:
                return False
            return not with_data(self._workspace, replace(table, version=until), after)
        except Exception:  # commits are missing from the log, or came after it was read
            log.debug("the commits of %s are not known", source, exc_info=True)
            return False


def _with_inputs(workspace: Workspace, nodes: Sequence[str]) -> list[str]:
    """Return joins and changelog sources with all that they read, each after what it reads."""
    joins = [f"+{name}" for name in nodes if name in workspace.file.joins]
    return workspace.nodes(joins) if joins else list(nodes)


def unfinished(rows: Sequence[Run], nodes: Collection[str]) -> Run | None:
    """
    Return the newest run that began and has no later row, and all of whose joins are among the nodes.

    A run whose joins a later one has moved on is not finished any more. The rows are newest first.
    """
    ended, moved = set[str](), set[str]()
    for run in rows:
        if run.step == BEGUN and run.id not in ended and run.names.isdisjoint(moved) and run.names <= {*nodes}:
            return run
        ended.add(run.id)
        moved |= run.names
    return None


Versions = Mapping[str, tuple[str | None, int | None]]
"""The table id and the version of results, by name."""


def versions_of(results: Iterable[RunResult]) -> Versions:
    """Return the versions of results."""
    return {result.name: (result.id, result.version) for result in results}


def is_recorded(rows: Iterable[Run], versions: Versions) -> bool:
    """Return whether one of the rows about runs says that results have one cut."""
    return any(run.step == COMPLETE and versions.items() <= versions_of(run.results).items() for run in rows)
