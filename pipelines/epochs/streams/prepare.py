"""Plan one epoch of a join with a stream, and have it computed."""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from lakehouse.columns import columns_in
from lakehouse.commit_log import commit_identity
from lakehouse.entries import STATE, Entry, JoinHistory
from lakehouse.errors import BrokenEpoch, CannotContinue, ForeignWriter, NotLoaded
from lakehouse.publish import check_owner
from lakehouse.refusals import refuse_forgetting
from lakehouse.tables import Table, commits_since, create, find, get
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
from pipelines.epochs.streams.source_progress import Upstream, arrivals, source_kind, up_to
from pipelines.epochs.streams.state_table import create_state, state_schema
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.cut import find_cut
from pipelines.plan.decide import plan_epoch
from pipelines.plan.facts import SourceFacts
from pipelines.plan.remedies import backfill_hint
from pipelines.plan.values import EpochPlan, Refresh, SourceRange
from pipelines.spec import STREAM_COLUMNS, Join, statement_of

BACKFILL = "backfill: asked for by a person"


def prepare_stream(
    workspace: Workspace, name: str, *, backfill: bool = False, goal: Mapping[str, int] | None = None
) -> Prepared:
    """
    Look at the sources, the result and the ledger of a join with a stream, and plan its next epoch.

    Args:
        workspace: Where to work.
        name: The join.
        backfill: A person asked for it: a result that is gone is loaded anew, and one that is there mended.
        goal: The versions beyond which nothing is read, by source: those at which the run found them.

    Raises:
        CannotContinue: The recorded versions cannot be continued from.
        LakejoinError: A table is missing or a column unknown.
    """
    options = workspace.file.joins[name]
    with stream_remedy(name):
        return _prepared(workspace, name, options, backfill=backfill, goal=goal)


def _prepared(
    workspace: Workspace, name: str, options: Join, *, backfill: bool, goal: Mapping[str, int] | None
) -> Prepared:
    with ThreadPoolExecutor() as beside:
        looked_at = beside.submit(find, workspace.spark, workspace.table(name))
        known = beside.submit(workspace.ledger.of, name)
        binding = beside.submit(bind_join, workspace, name, lambda: (looked_at.result(), known.result()))
        is_windowed = statement_of(workspace.file, name).is_windowed
        waits = beside.submit(find, workspace.spark, workspace.table(name + STATE)) if is_windowed else None
        history = known.result()
        if history.open is not None:
            return Prepared(plan_epoch(name, "", options.refresh, history, (), None, backfill=backfill), history, None)
        result, bound = looked_at.result(), binding.result()
        state = None if waits is None else waits.result()
    if result is not None and is_only_created(result, history):
        result = None
    if backfill and result is not None:
        # Whatever speaks against going on, a person has asked for it to be mended.
        plan = EpochPlan(name, history.next_epoch, "replay", BACKFILL, result_id=result.id, base_version=result.version)
        return Prepared(plan, history, bound)
    bound = up_to(bound, goal or {})
    upstream = Upstream.of(workspace, bound)
    epochs = {made: (0, epoch) for made, epoch in upstream.epochs(bound).items()}
    last = history.committed
    anew = result is None
    clocks = {} if last is None or anew else last.clocks
    pins = None
    if last is not None and not anew:
        # What is recorded of a source must be there to go on from.
        redefined = seen_changes(bound, result, history)
        check_definition(name, bound.definition, last.definition, backfill_hint(name), redefined)
        recorded = {source.name: source for source in last.sources}
        came, bound = arrivals(workspace, bound, upstream, recorded, clocks, goes_on=goal is not None)
        pins = find_cut(came, options.max_versions, options.max_bytes)
        versions = dict(pins.versions)
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
        else source_facts(workspace, name, table, history, used, backfill=anew)
        for table in (*bound.sources, *bound.logs.values())
    ]
    facts = [replace(fact, epochs=epochs.get(fact.name, fact.epochs)) for fact in facts]
    # What met the tables as they were is not computed in full again: a gap in a feed is no reason to.
    refresh: Refresh = options.refresh if last is None else "incremental"
    plan = plan_epoch(name, bound.definition, refresh, history, facts, facts_of(result), backfill=backfill and anew)
    streams = [bound.table(place) for place in range(1 if bound.is_read_once else len(bound.streams))]
    size = sum(stream.size if anew else _bytes(workspace, stream, plan) for stream in streams)
    more = pins is not None and pins.more
    if more and plan.strategy == "nothing":
        plan = replace(plan, reason="held-back: what came is later than what other inputs have yet to take")
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
    See that the table of rows that wait, as it was found, is as the last epoch left it: nothing else knows what waits.

    Raises:
        ForeignWriter: It is gone, or somebody else wrote to it.
        SchemaBroken: It has other columns.
        CannotContinue: Delta is set to forget who wrote to it.
    """
    assert bound.state is not None
    name, recorded = bound.join.name, last.state
    hint = f"`lakejoin backfill --reset --select {name}` begins it and the result anew"
    assert recorded is not None
    assert recorded.version is not None
    check_is_still(name, "the table of rows that wait", None if table is None else table.id, recorded.id, hint)
    assert table is not None
    try:
        check_owner(workspace.spark, table, recorded.version, history.run_ids(with_abandoned=True), name)
        check_columns(name, "table of rows that wait", state_schema(bound), table.schema, hint)
    except CannotContinue as error:
        error.hint = hint
        error.args = (error.message,)
        raise
    refuse_forgetting(name, table.address, table.properties)
    return table


@contextmanager
def stream_remedy(name: str) -> Iterator[None]:
    """
    Let errors name the ways on that a join with a stream has: nothing reconciles it with the sources as they are now.

    It shares its protocol with joins of tables, and so their errors; where a hint of these names a backfill, it begins
    the result anew here.
    """
    backfill = f"`lakejoin backfill --select {name}`"
    try:
        yield
    except ForeignWriter as error:
        if "--reset" in error.hint:  # what waits, which only that begins anew
            raise
        error.hint = (
            f"{backfill} appends rows that are gone; `--accept` takes the result as it is, `--reset` begins it anew"
        )
        error.args = (error.message,)
        raise
    except CannotContinue as error:
        if not isinstance(error, BrokenEpoch) and "--" not in error.hint.replace("--select", ""):
            error.hint = re.sub(r"`lakejoin backfill[^`]*`", f"`lakejoin backfill --reset --select {name}`", error.hint)
            error.args = (error.message,)
        raise


def plan_reset(workspace: Workspace, name: str, history: JoinHistory) -> tuple[EpochPlan, BoundJoin]:
    """Plan the epoch that begins a result anew: from the stream and its tables as they are now, over all it holds."""
    bound, table = up_to(bind_join(workspace, name), {}), get(workspace.spark, workspace.table(name))
    check_columns(name, "result", bound.columns, table.schema, bound.reshaped)
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
    reason, came, epoch = "reset: a person began the result anew", bound.table(0).size, history.next_epoch
    plan = EpochPlan(name, epoch, "reset", reason, ranges, table.id, table.version, stream_bytes=came)
    return (plan if bound.state is None else create_state(workspace, bound, plan)), bound


def plan_flush(workspace: Workspace, name: str) -> tuple[EpochPlan, BoundJoin]:
    """
    Plan the epoch that lets all rows go that wait: it reads nothing of the streams.

    Raises:
        NotLoaded: The join has no epoch yet.
        CannotContinue: The recorded versions cannot be continued from.
    """
    prepared = prepare_stream(workspace, name)
    bound, last = must_be_bound(prepared), prepared.history.committed
    if last is None:
        raise NotLoaded(name, "nothing waits: it has not run yet", hint=f"run `lakejoin run --select {name}`")
    ranges = tuple(map(SourceRange.nothing_after, last.sources))
    reason = "flush: a person let all rows go that wait"
    return replace(
        prepared.plan, strategy="flush", reason=reason, sources=ranges, clocks=last.clocks, more=False
    ), bound


def create_targets(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """Create the result before the first epoch, empty, and name it in the plan."""
    if plan.strategy != "load":
        return plan
    create(workspace.spark, bound.result, bound.columns, STREAM_COLUMNS)
    table = get(workspace.spark, bound.result)
    check_columns(bound.join.name, "result", bound.columns, table.schema, bound.reshaped)
    plan = replace(plan, result_id=table.id, base_version=table.version)
    return plan if bound.state is None else create_state(workspace, bound, plan)


def _bytes(workspace: Workspace, stream: Table, plan: EpochPlan) -> int:
    """Add up the bytes of the files that came to a stream."""
    came = next((part for part in plan.sources if part.name == stream.address.label), None)
    if came is None or not came.has_changes:
        return 0
    return sum(commit.added_bytes for commit in commits_since(workspace.spark, stream, came.read_after))
