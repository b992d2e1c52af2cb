"""Gather the facts of a join and plan its next epoch; reads only."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakehouse.entries import JoinHistory
from lakehouse.errors import CannotContinue, FeedUnavailable, SchemaBroken
from lakehouse.publish import TRANSACTION_RETENTION, check_owner
from lakehouse.sqltext import quote
from lakehouse.tables import CHANGE_FEED, Table, commits_since, find
from pipelines.binding import Bound, BoundJoin, bind_join
from pipelines.plan import EpochPlan, ResultFacts, SourceFacts, plan_epoch
from pipelines.workspace import Workspace


@dataclass(frozen=True)
class Prepared:
    """A plan with what it was made from; `bound` is None for an open epoch, which needs no source and no file."""

    plan: EpochPlan
    history: JoinHistory
    bound: Bound | None


def prepare(workspace: Workspace, name: str, *, backfill: bool = False, gap: str = "") -> Prepared:
    """
    Look at a join's sources, result and ledger, and plan the next epoch.

    Args:
        workspace: Where to work.
        name: The join.
        backfill: A person asked for a reconciliation.
        gap: Why a feed could not be read, when an attempt has just shown it.

    Raises:
        CannotContinue: The recorded versions cannot be continued from.
        LakejoinError: A table is missing or a column unknown.
    """
    refresh = workspace.file.joins[name].refresh
    with ThreadPoolExecutor() as beside:
        looked_at = beside.submit(find, workspace.spark, workspace.table(name))
        binding = beside.submit(bind_join, workspace, name)
        history = workspace.ledger.of(name)
        if history.open is not None:
            # Nothing else matters to an open epoch, not even that a source is gone.
            return Prepared(plan_epoch(name, "", refresh, history, (), None, backfill=backfill), history, None)
        result = looked_at.result()
        bound = binding.result()
    facts = [
        source_facts(workspace, table.address.label, table, history, gap, backfill=backfill) for table in bound.sources
    ]
    found = None if result is None else ResultFacts(result.id, result.version)
    plan = plan_epoch(name, bound.definition, refresh, history, facts, found, backfill=backfill)
    if result is not None:
        check_result(workspace, name, bound, result, history, backfill=backfill)
    return Prepared(plan, history, bound)


def source_facts(
    workspace: Workspace, name: str, table: Table, history: JoinHistory, gap: str, *, backfill: bool
) -> SourceFacts:
    """
    Find out what has become of a source since the last epoch.

    Raises:
        FeedUnavailable: Its change feed is off.
    """
    if not table.feed_on:
        raise FeedUnavailable(
            name,
            "its change feed is off",
            hint=f"ALTER TABLE {table.address.sql} SET TBLPROPERTIES ({CHANGE_FEED} = true)"
            + ("" if history.committed is None else ", then run `lakejoin backfill`"),
        )
    last = history.committed
    recorded = next((s for s in last.sources if s.name == name), None) if last and not backfill else None
    if recorded is None or recorded.id != table.id:
        return SourceFacts(name, table.id, table.version)
    try:
        commits = commits_since(workspace.spark, table, recorded.to_version)
    except FeedUnavailable as error:
        return SourceFacts(name, table.id, table.version, gap=f"{error.problem}: {error.found}")
    with_data = [commit for commit in commits if commit.changes_data]
    versions = tuple(commit.version for commit in with_data)
    changed = [commit.changed_rows for commit in with_data]
    rows = None if None in changed else sum(number or 0 for number in changed)
    return SourceFacts(name, table.id, table.version, versions, gap if versions else "", rows)


def check_result(
    workspace: Workspace, name: str, bound: Bound, result: Table, history: JoinHistory, *, backfill: bool
) -> None:
    """See that the result is as the last epoch left it and has the columns of the join."""
    last = history.committed
    if last is not None and last.result.version is not None and not backfill:
        check_owner(workspace.spark, result, last.result.version, history.run_ids())
    if not result.feed_on:
        raise FeedUnavailable(
            name,
            "the change feed of the result is off",
            hint=f"ALTER TABLE {bound.result.sql} SET TBLPROPERTIES ({CHANGE_FEED} = true)",
        )
    if TRANSACTION_RETENTION in result.properties:
        raise CannotContinue(
            name,
            f"{TRANSACTION_RETENTION} is set on the result",
            expected="no such property: Delta would forget which epochs were written, and write one again",
            found=result.properties[TRANSACTION_RETENTION],
            hint=f"ALTER TABLE {bound.result.sql} UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}')",
        )
    expected = {field.name.lower(): field.dataType for field in bound.columns}
    found = {field.name.lower(): field.dataType for field in result.schema}
    if {n: k.simpleString() for n, k in expected.items()} != {n: k.simpleString() for n, k in found.items()}:
        raise SchemaBroken(
            name,
            "the columns of the result are not those of the join",
            expected=", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in bound.columns),
            found=", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in result.schema),
            hint=f"name the columns in the SELECT list, or drop the table and run `lakejoin backfill --select {name}`",
        )


def must_be_bound(prepared: Prepared) -> BoundJoin:
    """Give the bound join of a plan that computes something."""
    if not isinstance(prepared.bound, BoundJoin):
        raise CannotContinue(prepared.plan.join, f"an open epoch has to be finished first: {prepared.plan.reason}")
    return prepared.bound
