"""
The versions of sources to which a run brings all of its joins: its cut.

Tables may be cut anywhere. Streams, and the tables that their rows look up, are cut at one place of the order of their
commits: a row meets the tables as they were when it came.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from lakehouse.ledger.entries import Entry
from lakehouse.ledger.runs import CutSource
from lakehouse.tables.delta_log import Commit, open_log
from lakehouse.tables.identity import commit_identity
from lakehouse.tables.table import Table, commits_since, find, get, read, refresh, table_detail, with_commits_since
from lakehouse.values.recorded import file_retention_seconds, micros
from pipelines.binding.workspace import Workspace
from pipelines.language import is_stream, statement_of
from pipelines.plan.cut import NewCommit, NewCommits, find_cut

LOOKS = 3
"""The most reads of sources in search of a moment at which none of them has a newer commit."""

log = logging.getLogger(__name__)


def newest_sources(workspace: Workspace, names: Iterable[str]) -> dict[str, Table]:
    """
    Pin the sources that joins read, all at the same time; a source that cannot be read is left to the joins' own error.

    The tables have their newest commits, later ones than the pinned version too.
    """
    file = workspace.file
    read_by = {name: statement_of(file, name) for name in names}
    sources = dict.fromkeys(source for statement in read_by.values() for source in statement.sources)
    with ThreadPoolExecutor() as executor:
        listed = [source for source in sources if source in file.sources]
        found = dict(zip(listed, executor.map(partial(_found, workspace), listed), strict=True))
    tables = {name: table for name, table in found.items() if table is not None}
    ordered = {
        source: tables[source]
        for name, statement in read_by.items()
        if is_stream(file, name)
        for source in statement.sources
        if source in tables and file.sources[source].kind in ("stream", "table")
    }
    try:
        return tables | _at_one_place(workspace, ordered)
    except Exception:  # a table that was dropped since, for one; each join that reads it reports it
        log.debug("the sources of streams are not cut at one place", exc_info=True)
        return tables


def _found(workspace: Workspace, source: str) -> Table | None:
    try:
        return find(workspace.engine, workspace.source(source))
    except Exception:  # each join that reads it reports it
        log.debug("%s is not pinned", source, exc_info=True)
        return None


def _at_one_place(workspace: Workspace, tables: Mapping[str, Table]) -> dict[str, Table]:
    """Cut sources of streams at one place of the order of their commits, as their joins do."""
    if not tables:
        return {}
    with ThreadPoolExecutor() as executor:
        for _ in range(LOOKS):
            found = executor.map(partial(refresh, workspace.engine), tables.values())
            seen, tables = tables, dict(zip(tables, found, strict=True))
            later = {name: with_data(workspace, tables[name], table.version) for name, table in seen.items()}
            if not any(later.values()):
                return dict(seen)
    cut = find_cut([_new(workspace, place, seen[name], later[name]) for place, name in enumerate(seen)])
    return {name: replace(table, version=cut.versions[name]) for name, table in seen.items()}


def _new(workspace: Workspace, place: int, table: Table, later: Sequence[Commit]) -> NewCommits:
    known = [commit for commit in reversed(table.commits) if commit.version <= table.version]
    return NewCommits(
        name=table.address.label,
        place=place,
        recorded=known[0].version - 1,
        newest=table.version,
        commits=tuple(arrival(commit) for commit in known if commit.changes_data),
        later=arrival(later[0]) if later else None,
        is_last=is_stream(workspace.file, table.address.label),
    )


def with_data(workspace: Workspace, table: Table, after: int) -> list[Commit]:
    """Return the commits with data of a table after a version, oldest first."""
    return [commit for commit in commits_since(workspace.engine, table, after) if commit.changes_data]


def arrival(commit: Commit) -> NewCommit:
    """Return a commit as `find_cut` takes it."""
    return NewCommit(commit.version, micros(commit.at), commit.added_bytes)


def source_table(workspace: Workspace, name: str) -> Table:
    """
    Return a source as a run has pinned it, else at its newest version.

    Delta does not read a version, other than the newest, whose commit is older than the retention of removed files. If
    the pinned version has become such a one, the source is at its newest version, too: the run is not complete then.
    """
    table = workspace.versions.sources.get(name)
    if table is None:
        return get(workspace.engine, workspace.source(name))
    opened, _ = open_log(workspace.engine, table.address)
    detail = table_detail(workspace.spark, table.address) if opened is None else {"id": opened.id}
    is_same = detail is not None and detail["id"] == table.id
    if is_same and is_readable(table, None if opened is None else opened.version):
        return table
    now = get(workspace.engine, table.address)
    return table if (now.id, now.version) == (table.id, table.version) else now


def result_table(workspace: Workspace, name: str, at: Callable[[Entry], Table]) -> Table | None:
    """
    Return the result of a join, or the KTable of a changelog source, as joins of a run read it, by `at` of an epoch.

    It is that of the last committed epoch; if another run has gone on, that of the epoch which belongs to this run, for
    as long as Delta reads it. None is returned if no epoch is committed.
    """
    history = workspace.ledger.of(name)  # read before the table, which may be newer but not older
    last, version = history.committed, workspace.versions.results.get(name)
    if last is None:
        return None
    of_run = None if version is None else history.at_result(version)
    if of_run is not None and of_run.result.id == last.result.id and of_run.epoch < last.epoch:
        table = at(of_run)
        if is_readable(table, last.result.version):
            return table
    return at(last)


def is_readable(table: Table, newest: int | None = None) -> bool:
    """
    Return whether Delta still reads a table at its version, as far as its commits show it.

    `newest` is the newest version of the table, which Delta always reads; None if it is not known.
    """
    if newest == table.version:
        return True
    made = next((commit.at for commit in table.commits if commit.version == table.version), None)
    retention = file_retention_seconds(table.properties)
    return made is not None and (retention is None or (datetime.now(UTC) - made).total_seconds() < retention)


def cut_of(tables: Mapping[str, Table]) -> tuple[CutSource, ...]:
    """Return pinned sources as the ledger records them."""
    return tuple(
        CutSource(name, table.id, table.version, commit_identity(table, table.version))
        for name, table in tables.items()
    )


def recorded_sources(workspace: Workspace, cut: Iterable[CutSource]) -> dict[str, Table] | None:
    """Pin sources to a recorded cut; return None if one of them is another table now, or no longer has this version."""
    tables = {}
    for recorded in cut:
        table = _found(workspace, recorded.name) if recorded.name in workspace.file.sources else None
        if table is None or table.id != recorded.id or table.version < recorded.version:
            return None
        table = with_commits_since(workspace.engine, table, recorded.version)
        if commit_identity(table, recorded.version).contradicts(recorded.commit):
            return None
        if table.version > recorded.version:
            try:
                schema = read(workspace.spark, table.address, recorded.version).schema
            except Exception:  # Delta no longer reads the version
                log.debug("version %s of %s cannot be read", recorded.version, recorded.name, exc_info=True)
                return None
            table = replace(table, version=recorded.version, schema=schema)
        tables[recorded.name] = table
    return tables
