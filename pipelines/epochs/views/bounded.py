"""Bound an epoch of tables: `max_versions` and `max_bytes` of the pipeline file limit what it takes of each source."""

from dataclasses import replace
from itertools import count

from lakehouse.ledger.entries import Entry
from lakehouse.tables.table import with_commits_since
from pipelines.binding.bound import BoundJoin
from pipelines.binding.run_versions import arrival, is_readable, with_data
from pipelines.binding.workspace import Workspace
from pipelines.plan.cut import NewCommits, find_cut


def within_bounds(workspace: Workspace, bound: BoundJoin, last: Entry) -> BoundJoin:
    """
    Pin the sources of a join to the versions up to which its next epoch reads them: the join itself if that is all.

    The new commits of all sources are cut at one place of their order, like those of streams. No join that reads
    changelogs of other joins has bounds. An epoch does not end at a version that Delta no longer reads, because its
    commit is older than the retention of removed files: it takes commits within bounds twice as large, again and again,
    until it ends at another one.
    """
    options = workspace.file.joins[bound.join.name]
    if options.max_versions is None and options.max_bytes is None:
        return bound
    recorded = {source.name: source.to_version for source in last.sources}
    tables = {table.address.label: table for table in bound.sources}
    tables = {name: with_commits_since(workspace.engine, table, recorded[name]) for name, table in tables.items()}
    new = []
    for place, (name, table) in enumerate(tables.items()):
        commits = tuple(map(arrival, with_data(workspace, table, recorded[name])))
        new.append(NewCommits(name=name, place=place, recorded=recorded[name], newest=table.version, commits=commits))
    for doubled in count():
        bounds = (None if most is None else most * 2**doubled for most in (options.max_versions, options.max_bytes))
        cut = find_cut(new, *bounds)
        pinned = {name: replace(table, version=cut.versions[name]) for name, table in tables.items()}
        if not cut.more:
            return bound
        if all(is_readable(table, table.commits[0].version) for table in pinned.values()):
            return replace(bound, sources=tuple(pinned.values()))
    raise AssertionError("bounds that grow leave nothing out in the end")
