"""Plan one epoch of a join with a stream, and create its tables."""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from lakehouse.columns import columns_in
from lakehouse.commit_log import commit_identity
from lakehouse.creation import create
from lakehouse.entries import STATE, Entry, JoinHistory
from lakehouse.errors import BrokenEpoch, CannotContinue, ForeignWriter, NotLoaded, reconcile_hint
from lakehouse.publish import check_owner
from lakehouse.refusals import refuse_forgetting
from lakehouse.tables import Table, commits_since, find, get
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.preflight import (
    Prepared,
    check_columns,
    check_result,
    facts_of,
    is_only_created,
    must_be_bound,
    seen_changes,
    source_facts,
    used_columns,
)
from pipelines.epochs.streams.source_progress import Upstream, new_commits, source_kind, up_to
from pipelines.epochs.streams.state_table import create_state, state_schema
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.cut import find_cut
from pipelines.plan.decide import plan_epoch
from pipelines.plan.facts import SourceFacts
from pipelines.plan.values import EpochPlan, Refresh, SourceRange
from pipelines.spec import STREAM_COLUMNS, Join, statement_of

BACKFILL = "backfill: requested by the user"


def prepare_stream(
    workspace: Workspace, name: str, *, backfill: bool = False, goal: Mapping[str, int] | None = None
) -> Prepared:
    """
    Read the state of the sources, the result and the ledger of a join with a stream, and plan its next epoch.

    Args:
        workspace: Where to work.
        name: The join.
        backfill: Whether the user asked for a backfill, which loads a missing result again and repairs an existing one.
        goal: The versions beyond which nothing is read, by source: those that the run found at its start.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: A table is missing or a column unknown.
    """
    options = workspace.file.joins[name]
    with stream_remedy(name):
        return _prepared(workspace, name, options, backfill=backfill, goal=goal)


def _prepared(
    workspace: Workspace, name: str, options: Join, *, backfill: bool, goal: Mapping[str, int] | None
) -> Prepared:
    with ThreadPoolExecutor() as executor:
        finding_result = executor.submit(find, workspace.engine, workspace.table(name))
        known = executor.submit(workspace.ledger.of, name)
        binding = executor.submit(bind_join, workspace, name, lambda: (finding_result.result(), known.result()))
        is_windowed = statement_of(workspace.file, name).is_windowed
        finding_state = executor.submit(find, workspace.engine, workspace.table(name + STATE)) if is_windowed else None
        history = known.result()
        if history.open is not None:
            return Prepared(plan_epoch(name, "", options.refresh, history, (), None, backfill=backfill), history, None)
        result, bound = finding_result.result(), binding.result()
        state = None if finding_state is None else finding_state.result()
    if result is not None and is_only_created(result, history):
        result = None
    if backfill and result is not None:
        # An explicit backfill overrides the checks below.
        plan = EpochPlan(name, history.next_epoch, "replay", BACKFILL, result_id=result.id, base_version=result.version)
        return Prepared(plan, history, bound)
    bound = up_to(bound, goal or {})
    upstream = Upstream.of(workspace, bound)
    epochs = {made: (0, epoch) for made, epoch in upstream.epochs(bound).items()}
    last = history.committed
    is_from_start = result is None
    clocks = {} if last is None or is_from_start else last.clocks
    cut = None
    if last is not None and not is_from_start:
        # The recorded versions belong to the recorded definition.
        redefined = seen_changes(bound, result, history)
        check_definition(name, bound.definition, last.definition, reconcile_hint(name), redefined)
        recorded = {source.name: source for source in last.sources}
        new, bound = new_commits(workspace, bound, upstream, recorded, clocks, goes_on=goal is not None)
        cut = find_cut(new, options.max_versions, options.max_bytes)
        versions = dict(cut.versions)
        for made, (_, newest) in epochs.items():
            before = recorded[made]
            until = versions.pop(made, before.to_epoch)
            epochs[made] = (before.to_epoch, until)
            if until < newest:
                versions[made] = max(before.to_version, upstream.version(made, until))
        bound = up_to(bound, versions)
    used = used_columns(bound, result)
    facts = [
        SourceFacts(table.address.label, table.id, table.version)
        if source_kind(workspace, table) == "global_table"
        else source_facts(workspace, name, table, history, used, backfill=is_from_start)
        for table in (*bound.sources, *bound.logs.values())
    ]
    facts = [replace(fact, epochs=epochs.get(fact.name, fact.epochs)) for fact in facts]
    # Rows met the tables as they were then, so a feed gap must not cause a full computation.
    refresh: Refresh = options.refresh if last is None else "incremental"
    plan = plan_epoch(
        name, bound.definition, refresh, history, facts, facts_of(result), backfill=backfill and is_from_start
    )
    streams = [bound.table(place) for place in range(1 if bound.is_read_once else len(bound.streams))]
    size = sum(stream.size if is_from_start else _bytes(workspace, stream, plan) for stream in streams)
    more = cut is not None and cut.more
    if more and plan.strategy == "nothing":
        plan = replace(plan, reason="held-back: the new rows are later than rows that other inputs have yet to process")
    plan = replace(plan, clocks=clocks, stream_bytes=size, more=more)
    if result is not None:
        check_result(workspace, name, bound, result, history, backfill=False)
        if bound.state is not None and last is not None:
            state = checked_state(workspace, bound, last, history, state)
            plan = replace(plan, state_id=state.id, state_version=state.version, state_bytes=state.size)
    return Prepared(plan, history, bound)


def checked_state(
    workspace: Workspace, bound: BoundJoin, last: Entry, history: JoinHistory, table: Table | None
) -> Table:
    """
    Check that the table of buffered rows is unchanged since the last epoch: nothing else holds these rows.

    Raises:
        ForeignWriter: The table is gone, or a foreign write changed it.
        SchemaBroken: It has other columns.
        CannotContinue: Its properties let Delta forget who wrote to it.
    """
    assert bound.state is not None
    name, recorded = bound.join.name, last.state
    hint = f"run `lakejoin backfill --reset --select {name}` to recreate it and the result"
    assert recorded is not None
    assert recorded.version is not None
    check_is_still(name, "the table of buffered rows", None if table is None else table.id, recorded.id, hint)
    assert table is not None
    try:
        check_owner(workspace.engine, table, recorded.version, history.run_ids(with_abandoned=True), name)
        check_columns(name, "table of buffered rows", state_schema(bound), table.schema, hint)
    except CannotContinue as error:
        error.hint = hint
        error.args = (error.message,)
        raise
    refuse_forgetting(name, table.address, table.properties)
    return table


@contextmanager
def stream_remedy(name: str) -> Iterator[None]:
    """
    Replace the remedies in errors by those of a join with a stream, which nothing reconciles with its current sources.

    Joins with a stream share the protocol of joins of tables, and so their errors. If a hint of these errors names a
    backfill, replace it by a reset, which recreates the result.
    """
    backfill = f"`lakejoin backfill --select {name}`"
    try:
        yield
    except ForeignWriter as error:
        if "--reset" in error.hint:  # only a reset recreates the buffered rows
            raise
        error.hint = f"{backfill} appends missing rows; `--accept` accepts the result as it is, `--reset` recreates it"
        error.args = (error.message,)
        raise
    except CannotContinue as error:
        if not isinstance(error, BrokenEpoch) and "--" not in error.hint.replace("--select", ""):
            error.hint = re.sub(r"`lakejoin backfill[^`]*`", f"`lakejoin backfill --reset --select {name}`", error.hint)
            error.args = (error.message,)
        raise


def plan_reset(workspace: Workspace, name: str, history: JoinHistory) -> tuple[EpochPlan, BoundJoin]:
    """Plan the epoch that recreates a result from the stream and its tables as they are now, replacing all rows."""
    bound, table = up_to(bind_join(workspace, name), {}), get(workspace.engine, workspace.table(name))
    check_columns(name, "result", bound.columns, table.schema, bound.columns_remedy)
    read = (*bound.sources, *bound.logs.values())
    epochs = Upstream.of(workspace, bound).epochs(bound)
    used = used_columns(bound, table)
    ranges = tuple(
        SourceRange(
            found.address.label,
            found.id,
            -1,
            found.version,
            -1,
            epochs=(0, epochs.get(found.address.label, 0)),
            columns=columns_in(found.schema, used.get(found.address.label, ())),
            commit=commit_identity(found, found.version),
        )
        for found in read
    )
    reason, new, epoch = "reset: the user recreated the result", bound.table(0).size, history.next_epoch
    plan = EpochPlan(name, epoch, "reset", reason, ranges, table.id, table.version, stream_bytes=new)
    return (plan if bound.state is None else create_state(workspace, bound, plan)), bound


def plan_flush(workspace: Workspace, name: str) -> tuple[EpochPlan, BoundJoin]:
    """
    Plan the epoch that flushes all buffered rows; it reads nothing of the streams.

    Raises:
        NotLoaded: The join has no epoch yet.
        CannotContinue: The epoch cannot continue from the recorded versions.
    """
    prepared = prepare_stream(workspace, name)
    bound, last = must_be_bound(prepared), prepared.history.committed
    if last is None:
        raise NotLoaded(
            name, "no rows are buffered: the join has not run yet", hint=f"run `lakejoin run --select {name}`"
        )
    ranges = tuple(map(SourceRange.nothing_after, last.sources))
    reason = "flush: the user flushed all buffered rows"
    return replace(
        prepared.plan, strategy="flush", reason=reason, sources=ranges, clocks=last.clocks, more=False
    ), bound


def create_targets(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """Create the empty result, and the state, before the first epoch, and name them in the plan."""
    if plan.strategy != "load":
        return plan
    create(workspace.spark, bound.result, bound.columns, STREAM_COLUMNS)
    table = get(workspace.engine, bound.result)
    check_columns(bound.join.name, "result", bound.columns, table.schema, bound.columns_remedy)
    plan = replace(plan, result_id=table.id, base_version=table.version)
    return plan if bound.state is None else create_state(workspace, bound, plan)


def _bytes(workspace: Workspace, stream: Table, plan: EpochPlan) -> int:
    """Add up the bytes of the new files of a stream."""
    new = next((part for part in plan.sources if part.name == stream.address.label), None)
    if new is None or not new.has_changes:
        return 0
    return sum(commit.added_bytes for commit in commits_since(workspace.engine, stream, new.read_after))
