"""
Plan and compute one epoch of a join with a stream.

    rows of the stream ─► look-up in each table as it was at their position ─► SELECT list ─► stage: result
                                   ▲
    feeds of the tables ─► changes of every commit, in the order of time ─► versions

The first epoch takes the stream's snapshot, which meets the tables as they are; from there the feed takes over.
"""

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.entries import STATE, Entry, JoinHistory
from lakehouse.errors import BrokenEpoch, CannotContinue, DuplicateKey, ForeignWriter, NotLoaded
from lakehouse.publish import check_owner
from lakehouse.sqltext import quote
from lakehouse.stage import Stage
from lakehouse.tables import Commit, Table, commits_since, create, find, get, read, read_rows, refresh
from lakehouse.times import micros
from pipelines.arrived import Arrived, as_time
from pipelines.binding import BoundJoin, bind_join
from pipelines.epoch import EXAMPLES, check_looked_up, few_or_many, refuse_keys
from pipelines.joins.changelog import BACKFILL as BACKFILL_CAUSE
from pipelines.joins.stream_stream import HAS_VALUE
from pipelines.joins.stream_table import as_rows, emitted, look_up
from pipelines.joins.watermarks import VERSION
from pipelines.pins import Arrival, Arrivals, pin
from pipelines.plan import Computed, EpochPlan, Refresh, SourceFacts, SourceRange, check_is_still, plan_epoch
from pipelines.prepare import (
    Prepared,
    check_columns,
    check_result,
    facts_of,
    is_only_created,
    must_be_bound,
    refuse_forgetting,
    source_facts,
)
from pipelines.spec import STREAM_COLUMNS, Join, statement_of
from pipelines.stream_sources import StreamSources
from pipelines.window_epoch import compute_windowed
from pipelines.window_state import create_state, state_schema
from pipelines.workspace import Workspace

EPOCH, POSITION = STREAM_COLUMNS
LOOKS = 3
"""So often the sources are looked at for one at which nothing came meanwhile."""

BACKFILL = "backfill: asked for by a person"
WHOLE = ("load", "reset")
"""Strategies that take the snapshot of the stream."""


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
    with way_on_of_stream(name):
        return _prepared(workspace, name, options, backfill=backfill, goal=goal)


def _prepared(
    workspace: Workspace, name: str, options: Join, *, backfill: bool, goal: Mapping[str, int] | None
) -> Prepared:
    with ThreadPoolExecutor() as beside:
        looked_at = beside.submit(find, workspace.spark, workspace.table(name))
        binding = beside.submit(bind_join, workspace, name)
        is_windowed = statement_of(workspace.file, name).is_windowed
        waits = beside.submit(find, workspace.spark, workspace.table(name + STATE)) if is_windowed else None
        history = workspace.ledger.of(name)
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
    bound = _up_to(bound, goal or {})
    last = history.committed
    anew = result is None
    clocks = {} if last is None or anew else last.clocks
    pins = None
    if last is not None and not anew:
        recorded = {source.name: source.to_version for source in last.sources}
        arrivals, bound = _arrivals(workspace, bound, recorded, clocks, goes_on=goal is not None)
        pins = pin(arrivals, options.max_versions, options.max_bytes)
        bound = _up_to(bound, pins.versions)
    facts = [
        SourceFacts(table.address.label, table.id, table.version)
        if _kind(workspace, table) == "global_table"
        else source_facts(workspace, table.address.label, table, history, "", backfill=anew)
        for table in (*bound.sources, *bound.logs.values())
    ]
    # What met the tables as they were is not computed in full again: a gap in a feed is no reason to.
    refresh: Refresh = options.refresh if last is None else "incremental"
    plan = plan_epoch(name, bound.definition, refresh, history, facts, facts_of(result), backfill=backfill and anew)
    streams = [bound.table(place) for place in range(len(bound.streams))]
    came = sum(stream.size if anew else _bytes(workspace, stream, plan) for stream in streams)
    plan = replace(plan, clocks=clocks, stream_bytes=came, more=pins is not None and pins.more)
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
        check_owner(workspace.spark, table, recorded.version, history.run_ids(let_go=True), name)
        refuse_forgetting(name, table)
        check_columns(name, "table of rows that wait", state_schema(bound), table.schema)
    except CannotContinue as error:
        error.hint = hint
        error.args = (error.message,)
        raise
    return table


@contextmanager
def way_on_of_stream(name: str) -> Iterator[None]:
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
    bound, table = _up_to(bind_join(workspace, name), {}), get(workspace.spark, workspace.table(name))
    check_columns(name, "result", bound.columns, table.schema)
    read = (*bound.sources, *bound.logs.values())
    ranges = tuple(SourceRange(found.address.label, found.id, -1, found.version, -1) for found in read)
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
    ranges = tuple(
        SourceRange(source.name, source.id, source.to_version, source.to_version, source.to_version)
        for source in last.sources
    )
    reason = "flush: a person let all rows go that wait"
    return replace(
        prepared.plan, strategy="flush", reason=reason, sources=ranges, clocks=last.clocks, more=False
    ), bound


def compute_epoch(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """Compute an epoch of a join with a stream, as `compute_stream` or `compute_windowed` says."""
    if bound.join.window is None:
        return compute_stream(workspace, bound, plan, stage)
    computed = compute_windowed(workspace, bound, plan, stage)
    return replace(computed, clocks=clocks_after(workspace, bound, plan, computed.clocks))


def compute_stream(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage) -> Computed:
    """
    Compute an epoch of a join with a stream into the stage's part `result`.

    Returns:
        The clocks after the epoch, and counts: read (rows that came to the stream, and feed rows of the tables),
        null_values (rows of the stream without a value), null_keys (feed rows of tables without a key, and rows of the
        stream that an inner join drops for a null key), ignored_changes (rows that were updated or deleted, and passed
        over), behind_cut (rows and changes that came too late for the order that their time gives them), looked_up,
        files, and appended.

    Raises:
        CannotContinue: A commit of the stream changed or deleted rows, or rows lack what orders them.
        DuplicateKey: A table holds a key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read, as `tables.reading` says; it wraps this call.
    """
    assert plan.strategy in ("incremental", *WHOLE), plan.strategy
    reached: dict[str, int] = {}
    size = sum(table.size for table in bound.sources[1:])
    counts = few_or_many(workspace, plan, size, partial(_compute, workspace, bound, plan, stage, reached))
    return Computed(counts, clocks_after(workspace, bound, plan, reached))


def clocks_after(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, reached: Mapping[str, int]) -> dict[str, int]:
    """
    Say how far the time of each source goes once an epoch is through.

    Args:
        workspace: Where to work.
        bound: The join.
        plan: The epoch.
        reached: The greatest time of what was read of each source; of a first load, where what is read has no time of
            its own, that of its newest commit with data counts, or the greatest value of what orders its rows.
    """
    clocks = dict(plan.clocks)
    for name, time in reached.items():
        clocks[name] = max(time, clocks.get(name, time))
    if plan.strategy in WHOLE:
        # Where what is read has times of its own, the feed that follows has those of its commits.
        for table in bound.sources:
            if _kind(workspace, table) != "global_table":
                newest = _newest_time(workspace, bound, table)
                if newest is not None:
                    clocks[table.address.label] = newest
    return clocks


def made_ready(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """Create the result before the first epoch, empty, and name it in the plan."""
    if plan.strategy != "load":
        return plan
    create(workspace.spark, bound.result, bound.columns, STREAM_COLUMNS)
    table = get(workspace.spark, bound.result)
    check_columns(bound.join.name, "result", bound.columns, table.schema)
    plan = replace(plan, result_id=table.id, base_version=table.version)
    return plan if bound.state is None else create_state(workspace, bound, plan)


class Lookups:
    """The look-ups of one epoch."""

    def __init__(self, workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, few: bool) -> None:
        self._workspace, self._bound, self._plan = workspace, bound, plan
        self.sources = StreamSources(workspace, bound, plan, stage, few=few)
        self.arrived = Arrived(workspace, bound, plan)
        self._few = few
        self._made = Observation()

    def rows(self) -> DataFrame:
        """Give the rows of the result, with `_epoch` and `_position`."""
        bound, sources = self._bound, self.sources
        sources.read_changes()
        for source, changes in sources.twice.items():
            refuse_keys(source, [list(row["key"]) for row in changes.select("key").limit(EXAMPLES).collect()])
        came = self.arrived.frame.drop(VERSION, HAS_VALUE)
        if self._few or not all(sources.is_met_whole(link.input) for link in bound.join.links):
            came = sources.kept("arrived", came)
            self.arrived.facts()
        rows = as_rows(came, bound.join.inputs[0])
        for number, link in enumerate(bound.join.links):
            if number and link.over and not sources.is_met_whole(link.input):
                rows = sources.kept(f"met_{number}", rows)
            to_all = sources.is_sent_to_all(link.input)
            rows = look_up(rows, link, bound.join, bound.types, sources.versions(link, rows), broadcast=to_all)
        made = emitted(rows, bound.join).observe(
            self._made,
            F.count(F.lit(1)).alias("rows"),
            F.count("row").alias("appended"),
            F.count(F.expr("IF(null_key, 1, NULL)")).alias("null_keys"),
        )
        values = [
            F.col(f"row.{quote(field.name)}").cast(field.dataType).alias(field.name)
            for field in bound.columns
            if field.name not in STREAM_COLUMNS
        ]
        epoch = F.lit(self._plan.epoch).cast("bigint").alias(EPOCH)
        return made.where("row IS NOT NULL").select(*values, epoch, F.col("position").alias(POSITION))

    def counts(self) -> dict[str, int]:
        """
        Count what was read; the rows have been.

        Raises:
            CannotContinue: As `Arrived.facts`.
            DuplicateKey: A table holds a key twice.
        """
        facts = self.arrived.facts()
        if self._made.get["rows"] != self.arrived.number:
            self._refuse_twice()
        looked_up = check_looked_up(self._bound, self.sources)
        counts = self.sources.counts
        return {
            **counts,
            **facts,
            "looked_up": counts["looked_up"] + looked_up,
            "read": counts["read"] + facts["read"],
            "null_keys": counts["null_keys"] + self._made.get["null_keys"],
            "behind_cut": facts["behind_cut"] + self.sources.behind_cut,
            "appended": self._made.get["appended"],
        }

    def reached(self) -> dict[str, int]:
        """Give the greatest time of what was read of each source."""
        assert self._bound.stream is not None
        came = self.arrived.reached
        return {**self.sources.reached, **({} if came is None else {self._bound.stream.source: came})}

    def _refuse_twice(self) -> None:
        for place in range(1, len(self._bound.join.inputs)):
            item, table = self._bound.join.inputs[place], self._bound.table(place)
            rows = read_rows(self._workspace.spark, table, table.version).where(f"NOT {null_key(item.key)}")
            parts = [F.col(quote(name)).alias(f"k{part}") for part, name in enumerate(item.key)]
            twice = rows.groupBy(*parts).count().where("count > 1").drop("count")
            refuse_keys(table.address.label, [tuple(row) for row in twice.limit(EXAMPLES).collect()])
        raise DuplicateKey(
            self._bound.join.name,
            "a row of the stream met more than one row of a table",
            expected="at most one row for each key of a table",
            found=f"{self._made.get['rows']} rows for {self.arrived.number} of the stream",
        )


def _compute(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, reached: dict[str, int], few: bool
) -> dict[str, int]:
    lookups = Lookups(workspace, bound, plan, stage, few)
    stage.put("result", lookups.rows())
    counts = lookups.counts()
    reached.update(lookups.reached())
    return counts


def _arrivals(
    workspace: Workspace, bound: BoundJoin, recorded: Mapping[str, int], clocks: Mapping[str, int], *, goes_on: bool
) -> tuple[list[Arrivals], BoundJoin]:
    """
    See what came to each source, and what came to it while the others were looked at.

    Args:
        workspace: Where to look.
        bound: The join, its sources as they were found.
        recorded: The versions that are accounted for, by source.
        clocks: The greatest times so far, by source.
        goes_on: The run goes on to where it found the sources, and looks no further.

    Returns:
        What came, and the join with its sources as they were found last.
    """
    for look in range(LOOKS):
        plain = {
            place: table
            for place, table in enumerate(bound.sources)
            if _kind(workspace, table) in ("stream", "table")
            and recorded.get(table.address.label, table.version + 1) <= table.version
        }
        came = {place: _with_data(workspace, table, recorded[table.address.label]) for place, table in plain.items()}
        if not any(came.values()):
            return [], bound
        with ThreadPoolExecutor() as side_by_side:
            again = dict(zip(plain, side_by_side.map(partial(refresh, workspace.spark), plain.values()), strict=True))
        after = {place: _with_data(workspace, again[place], table.version) for place, table in plain.items()}
        if goes_on or look == LOOKS - 1 or not any(after.values()):
            break
        bound = replace(bound, sources=tuple(again.get(place, table) for place, table in enumerate(bound.sources)))
    found = []
    for place, table in plain.items():
        name = table.address.label
        later = _arrival(after[place][0]) if after[place] else None
        clock = 0 if bound.times else clocks.get(name, 0)
        commits = tuple(map(_arrival, came[place]))
        # At one time a table's change comes before a stream's row, and of two streams the left one first.
        is_last = place == 0 and bound.join.window is None
        order = 0 if bound.is_self_join else place  # two names of one stream come at once
        found.append(Arrivals(name, order, recorded[name], table.version, commits, later, clock, is_last))
    return found, bound


def _with_data(workspace: Workspace, table: Table, after: int) -> list[Commit]:
    return [commit for commit in commits_since(workspace.spark, table, after) if commit.changes_data]


def _arrival(commit: Commit) -> Arrival:
    return Arrival(commit.version, micros(commit.at), commit.added_bytes)


def _up_to(bound: BoundJoin, versions: Mapping[str, int]) -> BoundJoin:
    """Pin sources to versions; those that are not named stay as they are."""
    tables = tuple(
        replace(table, version=min(table.version, versions.get(table.address.label, table.version)))
        for table in bound.sources
    )
    if bound.is_self_join:  # under two names, too, one commit is one position
        last = min(table.version for table in tables)
        tables = tuple(replace(table, version=last) for table in tables)
    return replace(bound, sources=tables)


def _bytes(workspace: Workspace, stream: Table, plan: EpochPlan) -> int:
    """Add up the bytes of the files that came to a stream."""
    came = next((part for part in plan.sources if part.name == stream.address.label), None)
    if came is None or not came.has_changes:
        return 0
    return sum(commit.added_bytes for commit in commits_since(workspace.spark, stream, came.read_after))


def _newest_time(workspace: Workspace, bound: BoundJoin, table: Table) -> int | None:
    """Say how far the time of a source goes that is read whole; None where that is not known."""
    name = table.address.label
    column = bound.times.get(name)
    if column is not None:
        time = F.expr(as_time(quote(column), table.schema[column].dataType))
        greatest: int | None = read_rows(workspace.spark, table, table.version).agg(F.max(time)).collect()[0][0]
        return greatest
    if name in bound.logs:  # its own commits come later than what they are made of
        log = bound.logs[name]
        logged = read(workspace.spark, log.address, log.version).where(f"_cause <> '{BACKFILL_CAUSE}'")
        reached: int | None = logged.agg(F.max(F.unix_micros("_at"))).collect()[0][0]
        return reached
    if _kind(workspace, table) == "changelog":
        read_up_to = workspace.ledger.of(name).read_up_to(table.version)
        table = replace(get(workspace.spark, workspace.source(name)), version=read_up_to)
    known = [commit for commit in table.commits if commit.version <= table.version]
    newest = next((commit for commit in known if commit.changes_data), known[-1] if known else None)
    return None if newest is None else micros(newest.at)


def _kind(workspace: Workspace, table: Table) -> str:
    """Tell what an input is: a source of some kind, or another join."""
    source = workspace.file.sources.get(table.address.label)
    return "join" if source is None else source.kind
