"""Plan one epoch of a join with a stream, and create its tables."""

from collections.abc import Mapping
from dataclasses import replace

from lakehouse.errors.conditions import refuse_forgetting
from lakehouse.errors.errors import ForeignWriter, NotLoaded, Remedy
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.publish.ownership import check_target
from lakehouse.publish.writes import (
    RESULT_PART,
    STATE_PART,
    Append,
    Merge,
    Overwrite,
    Part,
    TargetVersions,
    Write,
    written,
)
from lakehouse.tables.creation import create
from lakehouse.tables.identity import columns_in, commit_identity
from lakehouse.tables.table import Table, commits_since, get
from lakehouse.values.recorded import STATE
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.preflight import (
    Preflight,
    check_columns,
    check_result,
    is_only_created,
    look,
    seen_changes,
    source_facts,
    target_of,
    used_columns,
)
from pipelines.epochs.streams.source_progress import Upstream, new_commits, source_kind, up_to
from pipelines.epochs.streams.state_table import create_state, state_schema
from pipelines.language import STREAM_COLUMNS, statement_of
from pipelines.plan.cut import find_cut
from pipelines.plan.decide import check_definition, check_is_still, plan_epoch, plan_open
from pipelines.plan.values import EpochPlan, Idle, Refresh, SourceFacts, SourceRange, Staged, StreamInput

BACKFILL = "backfill: requested by the user"


def prepare_stream(
    workspace: Workspace, name: str, *, backfill: bool = False, goal: Mapping[str, int] | None = None
) -> Prepared[BoundJoin]:
    """
    Read the state of the sources, the result and the ledger of a join with a stream, and plan its next epoch.

    Args:
        backfill: Whether the user asked for a backfill, which loads a missing result again and repairs an existing one.
        goal: The versions beyond which nothing is read, by source: those that earlier epochs of the run found.

    Raises:
        CannotContinue: The next epoch cannot continue from the recorded versions.
        LakejoinError: A table is missing or a column unknown.
    """
    state = workspace.table(name + STATE) if statement_of(workspace.file, name).is_windowed else None
    found = look(workspace, name, workspace.table(name), state, lambda known: bind_join(workspace, name, known))
    history, bound, result = found.history, found.bound, found.result
    if bound is None:
        return Prepared(plan_open(name, history, backfill=backfill), history, None)
    if result is None or is_only_created(result, history):
        return _prepare_load(workspace, bound, history, backfill=backfill, goal=goal)
    if backfill:
        # An explicit backfill overrides the checks below.
        writes = (Append(target_of(bound.result, result), RESULT_PART),)
        plan = EpochPlan(join=name, epoch=history.next_epoch, strategy="replay", reason=BACKFILL, writes=writes)
        return Prepared(plan, history, bound)
    return _prepare_next(workspace, bound, replace(found, result=result), goal=goal)


def _prepare_load(
    workspace: Workspace, bound: BoundJoin, history: JoinHistory, *, backfill: bool, goal: Mapping[str, int] | None
) -> Prepared[BoundJoin]:
    bound = up_to(bound, goal or {})
    epochs = {made: (0, epoch) for made, epoch in Upstream.of(workspace, bound).epochs(bound).items()}
    facts = _facts(workspace, bound, history, used_columns(bound, None), epochs, is_from_start=True)
    # A dropped result is an error that names the remedies; it must not be computed again by itself.
    refresh: Refresh = workspace.file.joins[bound.join.name].refresh if history.committed is None else "incremental"
    result = Append(TargetVersions.of_new(bound.result), RESULT_PART)
    plan = plan_epoch(bound.join.name, bound.definition, refresh, history, facts, result, backfill=backfill)
    if bound.state is not None:
        plan = replace(plan, writes=(_state_write(plan, TargetVersions.of_new(bound.state)), *plan.writes))
    size = sum(bound.table(index).size for index in _indexes(bound))
    return Prepared(replace(plan, stream=StreamInput(new_bytes=size)), history, bound)


def _prepare_next(
    workspace: Workspace, bound: BoundJoin, found: Preflight[BoundJoin], *, goal: Mapping[str, int] | None
) -> Prepared[BoundJoin]:
    """Plan the epoch that follows the last one, up to a cut through the new commits of the sources."""
    name, history, last, result = bound.join.name, found.history, found.history.committed, found.result
    assert result is not None
    epochs: dict[str, tuple[int, int]] = {}
    more = False
    if last is not None:
        # The recorded versions belong to the recorded definition.
        redefined = seen_changes(bound, result, history)
        check_definition(name, bound.definition, last.definition, Remedy("{redefine}", name), redefined)
        bound, epochs, more = _cut(workspace, bound, last, goal)
    facts = _facts(workspace, bound, history, used_columns(bound, result), epochs, is_from_start=False)
    write = Append(target_of(bound.result, result), RESULT_PART)
    # Rows met the tables as they were then, so a feed gap must not cause a full computation.
    plan = plan_epoch(name, bound.definition, "incremental", history, facts, write)
    assert last is not None, "an existing result without an epoch is refused"
    if more and isinstance(plan.route, Idle):
        plan = replace(plan, reason="held-back: the new rows are later than rows that other inputs have yet to process")
    check_result(workspace, name, bound, result, history, backfill=False)
    size = sum(_bytes(workspace, bound.table(index), plan) for index in _indexes(bound))
    plan = replace(plan, stream=StreamInput(last.clocks, size), more=more)
    if bound.state is not None:
        state = checked_state(workspace, bound, last, history, found.beside)
        plan = replace(plan, stream=replace(plan.stream, buffered_bytes=state.size))
        plan = replace(plan, writes=(_state_write(plan, target_of(bound.state, state)), *plan.writes))
    return Prepared(plan, history, bound)


def _state_write(plan: EpochPlan, target: TargetVersions) -> Write:
    """Return how an epoch changes the buffered rows if any of them changes."""
    return Overwrite(target, STATE_PART, has_images=True) if plan.rewrites_state else Merge(target, STATE_PART)


def _cut(
    workspace: Workspace, bound: BoundJoin, last: Entry, goal: Mapping[str, int] | None
) -> tuple[BoundJoin, dict[str, tuple[int, int]], bool]:
    """
    Cut the new commits of the sources at one position of their order.

    Returns:
        The join, with its sources at the versions of the cut; the epochs (from, to] of the joins that make its streams;
        and whether the sources have further commits.
    """
    bound = up_to(bound, goal or {})
    options, upstream = workspace.file.joins[bound.join.name], Upstream.of(workspace, bound)
    recorded = {source.name: source for source in last.sources}
    goes_on = goal is not None or bool(workspace.versions.sources)
    new, bound = new_commits(workspace, bound, upstream, recorded, last.clocks, goes_on=goes_on)
    cut = find_cut(new, options.max_versions, options.max_bytes)
    versions, epochs = dict(cut.versions), {}
    for made, newest in upstream.epochs(bound).items():
        before = recorded[made]
        until = versions.pop(made, before.to_epoch)
        epochs[made] = (before.to_epoch, until)
        if until < newest:
            versions[made] = max(before.to_version, upstream.version(made, until))
    return up_to(bound, versions), epochs, cut.more


def _facts(
    workspace: Workspace,
    bound: BoundJoin,
    history: JoinHistory,
    used: Mapping[str, tuple[str, ...]],
    epochs: Mapping[str, tuple[int, int]],
    *,
    is_from_start: bool,
) -> list[SourceFacts]:
    """Gather what has happened to the sources; a global table is read as it is, so that nothing matters."""
    facts = [
        SourceFacts(table.address.label, table.id, table.version)
        if source_kind(workspace, table) == "global_table"
        else source_facts(workspace, bound.join.name, table, history, used, backfill=is_from_start)
        for table in (*bound.sources, *bound.logs.values())
    ]
    return [replace(fact, epochs=epochs.get(fact.name, fact.epochs)) for fact in facts]


def _indexes(bound: BoundJoin) -> range:
    return range(1 if bound.is_read_once else len(bound.streams))


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
        check_target(workspace.engine, table, recorded, history.run_ids(with_abandoned=True), name)
    except ForeignWriter as error:  # only a reset recreates the buffered rows
        raise ForeignWriter(
            error.where, error.problem, expected=error.expected, found=error.found, hint=hint
        ) from error
    check_columns(name, "table of buffered rows", state_schema(bound), table.schema, hint)
    refuse_forgetting(name, table.address, table.properties)
    return table


def plan_reset(workspace: Workspace, prepared: Prepared[BoundJoin]) -> Prepared[BoundJoin]:
    """Plan the epoch that recreates a result from the stream and its tables as they are now, replacing all rows."""
    name, bound = prepared.plan.join, up_to(prepared.epoch.bound, {})
    table = get(workspace.engine, bound.result)
    check_columns(name, "result", bound.columns, table.schema, bound.columns_remedy)
    epochs = Upstream.of(workspace, bound).epochs(bound)
    used = used_columns(bound, table)
    ranges = tuple(
        SourceRange(
            name=found.address.label,
            id=found.id,
            from_version=-1,
            to_version=found.version,
            read_after=-1,
            epochs=(0, epochs.get(found.address.label, 0)),
            columns=columns_in(found.schema, used.get(found.address.label, ())),
            commit=commit_identity(found, found.version),
        )
        for found in (*bound.sources, *bound.logs.values())
    )
    state = [] if bound.state is None else [Overwrite(TargetVersions.of_new(bound.state), STATE_PART, has_images=True)]
    plan = EpochPlan(
        join=name,
        epoch=prepared.plan.epoch,
        strategy="reset",
        reason="reset: the user recreated the result",
        sources=ranges,
        writes=(*state, Overwrite(target_of(bound.result, table), RESULT_PART)),
        stream=StreamInput(new_bytes=bound.table(0).size),
    )
    return replace(prepared, plan=plan, bound=bound)


def plan_flush(prepared: Prepared[BoundJoin]) -> Prepared[BoundJoin]:
    """
    Plan the epoch that flushes all buffered rows instead of the next one; it reads nothing of the streams.

    Raises:
        NotLoaded: The join has no epoch yet.
    """
    name, last = prepared.plan.join, prepared.history.committed
    if last is None:
        raise NotLoaded(
            name, "no rows are buffered: the join has not run yet", hint=f"run `lakejoin run --select {name}`"
        )
    plan = replace(
        prepared.plan,
        strategy="flush",
        reason="flush: the user flushed all buffered rows",
        sources=tuple(map(SourceRange.nothing_after, last.sources)),
        route=Staged(),
        stream=replace(prepared.plan.stream, clocks=last.clocks),
    )
    return replace(prepared, plan=plan)


def create_targets(workspace: Workspace, epoch: Epoch[BoundJoin]) -> Epoch[BoundJoin]:
    """Create the empty result before the first epoch, and the buffered rows before the first one and before a reset."""
    writes = tuple(
        written(write, _created(workspace, epoch, write.part)) if write.target.is_new else write
        for write in epoch.plan.writes
    )
    return replace(epoch, plan=replace(epoch.plan, writes=writes))


def _created(workspace: Workspace, epoch: Epoch[BoundJoin], part: Part) -> TargetVersions:
    bound = epoch.bound
    if part == STATE_PART:
        return create_state(workspace, bound, must_be_empty=epoch.plan.strategy == "load")
    create(workspace.spark, bound.result, bound.columns, STREAM_COLUMNS)
    table = get(workspace.engine, bound.result)
    check_columns(bound.join.name, "result", bound.columns, table.schema, bound.columns_remedy)
    return target_of(bound.result, table)


def _bytes(workspace: Workspace, stream: Table, plan: EpochPlan) -> int:
    """Add up the bytes of the new files of a stream."""
    new = next((part for part in plan.sources if part.name == stream.address.label), None)
    if new is None or not new.has_changes:
        return 0
    return sum(commit.added_bytes for commit in commits_since(workspace.engine, stream, new.read_after))
