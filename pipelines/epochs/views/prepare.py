"""Plan one epoch of a join of tables."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from expectations.catalogue import of_rows
from lakehouse.errors.errors import FeedUnavailable, PastRowFailed, SchemaBroken
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.writes import CHANGELOG_PART, RESULT_PART, Append, Merge
from lakehouse.tables.table import Table, key_properties
from lakehouse.values.sqltext import quote
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, Found
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.preflight import (
    NO_GAPS,
    Preflight,
    change_of_columns,
    check_changelog,
    check_earlier_columns,
    check_result,
    look,
    seen_changes,
    source_facts,
    target_of,
    used_columns,
)
from pipelines.epochs.views.bounded import within_bounds
from pipelines.plan.cost import FULL, INCREMENTAL, OVERWRITE, Changed, Volume, choice, fan_out_seen
from pipelines.plan.decide import NOT_EXACT, OTHER_COLUMNS, overwriting, plan_epoch, plan_open
from pipelines.plan.values import EpochPlan, SourceFacts


def prepare(
    workspace: Workspace,
    name: str,
    *,
    backfill: bool = False,
    evolves: bool = False,
    gaps: Mapping[str, str] = NO_GAPS,
) -> Prepared[BoundJoin]:
    """
    Read the state of a join's sources, result and ledger, and plan the next epoch.

    Args:
        evolves: Whether the result gets the columns that the statement makes now, also for `*`.
        gaps: Why feeds could not be read, by source, if an attempt has just shown it.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: A table is missing or a column unknown.
    """
    found, new_columns = _look(workspace, name, evolves=evolves), ""
    if not backfill and found.bound is not None:
        new_columns = _new_columns(workspace, found.bound)
        if new_columns:
            found, evolves = _look(workspace, name, evolves=True), True
    history, bound, result = found.history, found.bound, found.result
    if bound is None:
        return Prepared(plan_open(name, history, backfill=backfill), history, None)
    if result is not None:
        bound = replace(bound, cluster_by=result.clustered_by or ())
    planning = _Planning(workspace, name, found, gaps, backfill=backfill, evolves=evolves, new_columns=new_columns)
    plan = planning.plan(bound)
    if plan.strategy == INCREMENTAL and history.committed is not None:
        part = within_bounds(workspace, bound, history.committed)
        if part is not bound:
            bound, plan = part, replace(planning.plan(part, is_part=True), more=True)
    if found.beside is not None:
        check_changelog(workspace, bound, found.beside, history, backfill=backfill, evolves=evolves)
    if result is not None:
        check_result(workspace, name, bound, result, history, backfill=backfill, evolves=evolves)
        if new_columns:
            check_earlier_columns(bound, result)
        if evolves:
            change = change_of_columns(bound, result, found.beside, has_expectations=planning.has_expectations)
            how = f"; {change}" if change else ""
            plan = overwriting(plan, OTHER_COLUMNS) if change is None else replace(plan, reason=f"{plan.reason}{how}")
            plan = replace(plan, changes_columns=change is None or bool(change))
        if plan.strategy in (FULL, OVERWRITE):
            plan = replace(plan, properties=_lacking_properties(bound, result))
    return Prepared(plan, history, bound)


def _look(workspace: Workspace, name: str, *, evolves: bool) -> Preflight[BoundJoin]:
    def bind(known: Found) -> BoundJoin:
        return bind_join(workspace, name, known, keeps_stars=not evolves)

    return look(workspace, name, workspace.table(name), workspace.changelog(name), bind)


def _new_columns(workspace: Workspace, bound: BoundJoin) -> str:
    """
    List the new columns of sources that a run gives the result; none unless the join asks for it.

    Raises:
        SchemaBroken: The join stops where a source has a new column.
    """
    then, new = workspace.file.joins[bound.join.name].on_schema_change, bound.join.left_out
    listed = ", ".join(f"{source}.{quote(column)}" for source, column in new)
    if not new or then == "ignore":
        return ""
    if then == "fail":
        raise SchemaBroken(
            bound.join.name,
            "a source that `*` stands for has new columns, and `on_schema_change: fail` stops the join",
            found=listed,
            hint=f"{bound.evolving_remedy}; or name the columns instead of `*`",
        )
    return listed


@dataclass(frozen=True)
class _Planning:
    """What the next epoch is planned from, up to whichever versions of the sources."""

    workspace: Workspace
    name: str
    found: Preflight[BoundJoin]
    gaps: Mapping[str, str]
    _: KW_ONLY
    backfill: bool
    evolves: bool
    new_columns: str = ""

    @property
    def has_expectations(self) -> bool:
        """Whether expectations of the pipeline file judge staged rows of the result."""
        return bool(of_rows(self.workspace.file.joins[self.name].expectations))

    def plan(self, bound: BoundJoin, *, is_part: bool = False) -> EpochPlan:
        """Plan the epoch up to the pinned versions; a part of the new commits is read from the feeds."""
        history, result, name = self.found.history, self.found.result, self.name
        options, beside = self.workspace.file.joins[name], self.found.beside
        # Your own expectations judge staged rows.
        overwrites = options.feed == "any" and not (self.backfill or self.evolves or self.has_expectations)
        facts = self._facts(bound)
        cost = choice(_volume(bound, facts, result, history), history, in_full=OVERWRITE if overwrites else FULL)
        plan = plan_epoch(
            name,
            bound.definition,
            options.refresh,
            history,
            facts,
            Merge(target_of(bound.result, result), RESULT_PART),
            changelog=None if bound.changelog is None else Append(target_of(bound.changelog, beside), CHANGELOG_PART),
            backfill=self.backfill,
            redefined=seen_changes(bound, result, history),
            new_columns=self.new_columns,
            cost=replace(cost, in_full="") if is_part else cost,
        )
        return overwriting(plan) if overwrites and plan.strategy == FULL else plan

    def _facts(self, bound: BoundJoin) -> list[SourceFacts]:
        """Gather what has happened to the sources, then to the changelogs of the joins among them."""
        name, history = bound.join.name, self.found.history
        used = used_columns(bound, self.found.result, evolves=self.evolves)
        named = (*((table.address.label, table) for table in bound.sources), *bound.logs.items())
        return [
            source_facts(
                self.workspace, name, table, history, used, backfill=self.backfill, gap=self.gaps.get(source, "")
            )
            for source, table in named
        ]


def _volume(
    bound: BoundJoin, facts: Sequence[SourceFacts], result: Table | None, history: JoinHistory
) -> Volume | None:
    """Return how much the epoch reads and writes; None if a commit does not say how much it changed."""
    last = history.committed
    recorded = None if last is None or last.checksum is None else last.checksum.rows
    rows = None if result is None else result.rows if recorded is None else recorded
    # The facts of changelogs follow those of the sources.
    changed = [(fact, table) for fact, table in zip(facts, bound.sources, strict=False) if fact.data_versions]
    return Volume.of(
        (Changed(fact.changed_rows, table.rows) for fact, table in changed),
        rows,
        fan_out_seen(history),
        sources=len(bound.sources),
        commits=sum(len(fact.data_versions) for fact, _ in changed),
        size=sum(table.size for table in bound.sources) + (0 if result is None else result.size),
    )


def _lacking_properties(bound: BoundJoin, result: Table) -> dict[str, str]:
    """
    Return the table properties about its key that a result lacks, as a load gives them.

    Whether parts of the key may be null is not taken back: the rows of an earlier statement are in the result until
    the epoch is published, and a gate may reject it.
    """
    may_be_absent = bound.join.has_absent_keys or result.says_nullable_key
    properties = key_properties(bound.join.key, may_be_absent=may_be_absent)
    return {} if properties.items() <= result.properties.items() else properties


def prepare_around(
    workspace: Workspace, epoch: Epoch[BoundJoin], error: FeedUnavailable | SchemaBroken | PastRowFailed
) -> Prepared[BoundJoin]:
    """
    Plan an epoch in full that replaces an incremental one, which could not read a feed.

    Args:
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
    if again.plan.strategy not in (FULL, OVERWRITE):
        raise error
    if isinstance(error, PastRowFailed):
        not_exact = NOT_EXACT if again.plan.strategy == OVERWRITE else ""
        return replace(again, plan=replace(again.plan, reason=f"past-row-failed: {error.problem}{not_exact}"))
    return again
