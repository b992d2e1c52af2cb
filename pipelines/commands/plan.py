"""The plan of the next epoch of a join, from what the joins that it reads have committed so far."""

from collections.abc import Collection
from typing import Any

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable, NotLoaded, SchemaBroken
from pipelines.binding.bound import BoundJoin, notes_on
from pipelines.binding.input_tables import NotYetRun
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Prepared
from pipelines.epochs.kind import Kind
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.run.driver import NEXT
from pipelines.language import changelogs_of, reads
from pipelines.report import JoinReport, PlanReport


def preview(workspace: Workspace, name: str, selected: Collection[str]) -> PlanReport | JoinReport:
    """
    Plan the next epoch of a join, or of the KTable of a changelog source, and write nothing.

    The plan is based on what the joins and changelog sources that it reads have committed; if it depends on the first
    run of one of those, the join is reported as skipped. `selected` has all joins that the run would include.
    """
    read = reads(workspace.file, name) if name in workspace.file.joins else ()
    before = tuple(other for other in read if other in selected)
    logs = changelogs_of(workspace.file, name) if name in workspace.file.joins else ()
    try:
        with reading(name):
            kind = kind_of(workspace, name)
            with kind.explaining_errors():
                prepared = _readable(kind, kind.prepare(NEXT))
        bound = prepared.bound
        readers = {} if bound is None else {table.address.label: table.reader for table in bound.sources}
        return PlanReport.of(prepared.plan, before, notes_on(bound), readers)
    except (NotYetRun, NotLoaded) as error:
        if error.where not in (*before, *logs):
            raise
        reason = f"upstream-not-run: {error.where} has no committed epoch yet; `lakejoin run` runs it first"
        return JoinReport(join=name, outcome="skipped", reason=reason)


def _readable(kind: Kind[Any], prepared: Prepared[Any]) -> Prepared[Any]:
    """
    Read one row of each change feed of an incremental epoch: only Delta knows whether a feed is readable.

    Return the plan; if a feed is not readable, the plan that replaces it in a run, which may fail at a feed.
    """
    plan, bound = prepared.plan, prepared.bound
    if plan.strategy != "incremental" or not isinstance(bound, BoundJoin):
        return prepared
    tables = {table.address.label: table for table in bound.sources}
    try:
        for part in plan.sources:
            if part.has_changes and part.name in tables:
                with reading(plan.join, part.name):
                    table, columns = tables[part.name], bound.used(part.name)
                    changes = kind.workspace.feeds.read(part.name, table, part.read_after, part.to_version, columns)
                    changes.limit(1).collect()
    except (FeedUnavailable, SchemaBroken) as error:
        return kind.prepare_around(prepared.epoch, NEXT, error)
    return prepared
