"""
A run with nothing to do, found in logs and ledger alone: a scheduled job without news need not start Spark.

Anything that a run could do, report or refuse is a reason to start Spark, and so is any doubt.
"""

import logging
from collections.abc import Collection, Sequence

from lakehouse import limits
from lakehouse.errors.conditions import refuse_forgetting
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.tables.table import find
from pipelines.binding.bind import has_faults, resolved
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from pipelines.commands.whole_run import is_recorded, unfinished
from pipelines.language import is_stream, reads, statement_of
from pipelines.plan.decide import NO_CHANGES
from pipelines.report import JoinReport, versions_after
from pipelines.report.progress import Stopwatch
from pipelines.report.state import State

log = logging.getLogger(__name__)


def reports_of_idle(workspace: Workspace, select: Collection[str] | None = None) -> list[JoinReport] | None:
    """
    Return the reports of a run in which no join has anything to do; None if one may have, or is read through Spark.

    Raises:
        LakejoinError: The selection is invalid.
    """
    reports, states, nodes = list[JoinReport](), dict[str, State](), workspace.nodes(select)
    try:
        for name in nodes:
            watch = Stopwatch(lambda _: None)
            with watch.step("plan"):
                if not _is_idle(workspace, name, states):
                    return None
                history = workspace.ledger.of(name)
            assert history.committed is not None
            reports.append(
                JoinReport(
                    join=name,
                    outcome="nothing",
                    epoch=history.next_epoch,
                    strategy="nothing",
                    reason=NO_CHANGES,
                    seconds=dict(watch.seconds),
                    **versions_after(history.committed),
                )
            )
        return reports if _is_recorded(workspace, nodes, reports) else None
    except Exception:  # the run itself reports it
        log.debug("the run is not idle", exc_info=True)
        return None


def _is_recorded(workspace: Workspace, nodes: Sequence[str], reports: Sequence[JoinReport]) -> bool:
    """Return whether no run that these joins belong to is unfinished, and the ledger has a run with their results."""
    rows = workspace.ledger.runs(limits.LEDGER_ROWS)
    if len(nodes) > 1 and unfinished(rows, nodes) is not None:
        return False
    return is_recorded(rows, {report.join: (report.result_id, report.result_version) for report in reports})


def _is_idle(workspace: Workspace, name: str, states: dict[str, State]) -> bool:
    engine, file = workspace.engine, workspace.file
    is_join = name in file.joins
    sources = [each for each in (statement_of(file, name).sources if is_join else (name,)) if each in file.sources]
    addresses = [*map(workspace.source, sources), workspace.table(name), workspace.table(LEDGER)]
    if not engine.is_embedded or any(map(engine.why_spark, addresses)):
        return False
    if any(file.sources[source].kind == "global_table" for source in sources):
        return False  # nobody records the columns of a global table
    last = workspace.ledger.of(name).committed
    if last is None or status_of(workspace, name, states).state != "current":
        return False
    for target in last.targets:
        table = find(engine, workspace.table(target.address.label))
        if table is None or (target == last.result and not table.feed_on):
            return False
        refuse_forgetting(name, table.address, table.properties)
    return not is_join or _is_join_as_before(workspace, name, keeps=last.changelog is not None)


def _is_join_as_before(workspace: Workspace, name: str, *, keeps: bool) -> bool:
    """Return whether a join has the changelog of its last epoch, reads no other, and binding finds no fault."""
    file, changelog = workspace.file, workspace.changelog(name)
    if (changelog is not None) != keeps:
        return False
    if (keeps or is_stream(file, name)) and any(not is_stream(file, other) for other in reads(file, name)):
        return False  # the changelog of such a join may have new rows though its result has no new version
    query, tables, _ = resolved(workspace, name)
    return not query.left_out and not has_faults(workspace, query, tables)
