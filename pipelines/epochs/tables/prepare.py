"""Plan one epoch of a join of tables."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from lakehouse.errors import FeedUnavailable, SchemaBroken
from lakehouse.tables import find
from lakehouse.writes import CHANGELOG_PART, RESULT_PART, Append, Merge
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.preflight import (
    NO_GAPS,
    check_changelog,
    check_result,
    seen_changes,
    source_facts,
    target_of,
    used_columns,
)
from pipelines.plan.decide import plan_epoch, plan_open


def prepare(
    workspace: Workspace, name: str, *, backfill: bool = False, gaps: Mapping[str, str] = NO_GAPS
) -> Prepared[BoundJoin]:
    """
    Read the state of a join's sources, result and ledger, and plan the next epoch.

    Args:
        workspace: Where to work.
        name: The join.
        backfill: Whether the user asked for a backfill.
        gaps: Why feeds could not be read, by source, if an attempt has just shown it.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: A table is missing or a column unknown.
    """
    refresh = workspace.file.joins[name].refresh
    with ThreadPoolExecutor() as executor:
        finding_result = executor.submit(find, workspace.engine, workspace.table(name))
        address = workspace.changelog(name)
        finding_changelog = None if address is None else executor.submit(find, workspace.engine, address)
        known = executor.submit(workspace.ledger.of, name)
        binding = executor.submit(bind_join, workspace, name, lambda: (finding_result.result(), known.result()))
        history = known.result()
        if history.open is not None:
            # An open epoch needs no source, so a missing source must not stop it.
            return Prepared(plan_open(name, history, backfill=backfill), history, None)
        result = finding_result.result()
        changelog = None if finding_changelog is None else finding_changelog.result()
        bound = binding.result()
    used = used_columns(bound, result)
    named = (*((table.address.label, table) for table in bound.sources), *bound.logs.items())
    facts = [
        source_facts(workspace, name, table, history, used, backfill=backfill, gap=gaps.get(source, ""))
        for source, table in named
    ]
    plan = plan_epoch(
        name,
        bound.definition,
        refresh,
        history,
        facts,
        Merge(target_of(bound.result, result), RESULT_PART),
        changelog=None if bound.changelog is None else Append(target_of(bound.changelog, changelog), CHANGELOG_PART),
        backfill=backfill,
        redefined=seen_changes(bound, result, history),
    )
    if changelog is not None:
        check_changelog(workspace, bound, changelog, history, backfill=backfill)
    if result is not None:
        check_result(workspace, name, bound, result, history, backfill=backfill)
    return Prepared(plan, history, bound)


def prepare_around(
    workspace: Workspace, epoch: Epoch[BoundJoin], error: FeedUnavailable | SchemaBroken
) -> Prepared[BoundJoin]:
    """
    Plan an epoch in full that replaces an incremental one, which could not read a feed.

    Args:
        workspace: Where to work.
        epoch: The incremental epoch.
        error: The error of the incremental epoch; it names the source, or the join if no source is known.

    Raises:
        FeedUnavailable, SchemaBroken: The error itself, if the join is not computed in full without a request.
    """
    name, bound = epoch.plan.join, epoch.bound
    if epoch.plan.strategy != "incremental" or workspace.file.joins[name].refresh != "auto":
        raise error
    sources = [*(table.address.label for table in bound.sources), *bound.logs]
    why = dict.fromkeys([error.where] if error.where in sources else sources, error.found or error.problem)
    again = prepare(workspace, name, gaps=why)
    if again.plan.strategy != "reconcile":
        raise error
    return again
