"""
Find what is new in the inputs of a join with a stream; from this `find_cut` chooses where the next epoch ends.

A stream that another join makes counts as pinned where the streams behind it were pinned: their rows that are not yet
in its epochs come before all later rows. These rows carry the time of their cause: the times of the commits that wrote
them do not matter, and a watermark may have moved without a new row, so the join records its positions.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pyspark.sql.types import DateType, StructType

from lakehouse.errors.errors import CannotContinue
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import Table, find, refresh
from lakehouse.values.recorded import SourceVersions, micros
from pipelines.binding.bound import BoundJoin
from pipelines.binding.run_versions import LOOKS, arrival, with_data
from pipelines.binding.workspace import Workspace
from pipelines.language import is_stream
from pipelines.language.names import ALWAYS
from pipelines.language.sql.syntax import DAY
from pipelines.plan.cut import NewCommit, NewCommits


@dataclass(frozen=True)
class Upstream:
    """The joins that make the streams which another join reads, with the ledger's history of each by name."""

    workspace: Workspace
    join: str
    histories: Mapping[str, JoinHistory]

    @staticmethod
    def of(workspace: Workspace, bound: BoundJoin) -> "Upstream":
        """Return the joins whose results a join reads as streams."""
        return Upstream(workspace, bound.join.name, bound.made)

    def epochs(self, bound: BoundJoin) -> dict[str, int]:
        """Return the last epoch of each upstream join that the pinned version of its result holds; 0 if none."""
        at = {table.address.label: table.version for table in bound.sources}
        found = {name: history.at_result(at[name]) for name, history in self.histories.items()}
        return {name: 0 if entry is None else entry.epoch for name, entry in found.items()}

    def version(self, name: str, epoch: int) -> int:
        """Return the version of an upstream result that holds its epochs up to a number, and none after it."""
        last = self.histories[name].last_committed(lambda entry: entry.epoch <= epoch)
        assert last is not None
        assert last.result.version is not None
        return last.result.version

    def new_epochs(self, name: str, after: int, until: int) -> tuple[NewCommit, ...]:
        """
        Return the epochs (after, until] of an upstream join that passed a position or added rows, as versions.

        Raises:
            CannotContinue: The upstream result was recreated.
        """
        history = self.histories[name]
        restarts = [entry for entry in history.between(after, until) if entry.strategy in ("load", "reset")]
        if restarts:
            raise CannotContinue(
                self.join,
                f"{name}, which this join reads, was recreated",
                expected=f"an epoch that continues from epoch {after} of {name}",
                found=f"a {restarts[-1].strategy} in epoch {restarts[-1].epoch}",
                hint=f"run `lakejoin backfill --reset --select {self.join}` to recreate this result, too",
            )
        entries = [entry for entry in history.between(after, until) if entry.positions or entry.writes[-1].rows]
        return tuple(map(_epoch, entries))

    def later(self, name: str, epoch: int) -> NewCommit | None:
        """Return the first change in the streams behind an upstream join that is later than an epoch; None if none."""
        time = self._first_after(self.histories[name], epoch)
        return None if time is None else NewCommit(epoch + 1, time)

    def _first_after(self, history: JoinHistory, epoch: int) -> int | None:
        newest = history.committed
        assert newest is not None
        more = [entry for entry in history.between(epoch, newest.epoch) if entry.positions]
        if more:
            return more[0].positions[0].time
        last = history.last_committed(lambda entry: entry.epoch <= epoch)
        assert last is not None
        times = [self._first_of(part) for part in last.sources]
        return min((time for time in times if time is not None), default=None)

    def _first_of(self, part: SourceVersions) -> int | None:
        """Return the time of the first new commit of a source of an upstream join; tables do not count."""
        if not is_stream(self.workspace.file, part.name):
            return None
        if part.name in self.workspace.file.joins:
            return self._first_after(self.workspace.ledger.of(part.name), part.to_epoch)
        table = find(self.workspace.engine, self.workspace.source(part.name))
        if table is None or table.id != part.id:
            return None
        new = with_data(self.workspace, table, part.to_version)
        return micros(new[0].at) if new else None


def new_commits(
    workspace: Workspace,
    bound: BoundJoin,
    upstream: Upstream,
    recorded: Mapping[str, SourceVersions],
    clocks: Mapping[str, int],
    *,
    goes_on: bool,
) -> tuple[list[NewCommits], BoundJoin]:
    """
    Return what is new in each source, and what came to it while the others were read.

    Args:
        recorded: The versions that are already accounted for.
        clocks: The greatest times so far.
        goes_on: Whether the run continues to versions that it found before; the sources are then read once.

    Returns:
        The new commits, and the join with its sources as they were found last. The versions of a stream that another
        join makes are the numbers of its epochs.
    """
    epochs = upstream.epochs(bound)
    made = {name: upstream.new_epochs(name, recorded[name].to_epoch, epoch) for name, epoch in epochs.items()}
    for attempt in range(LOOKS):
        commits = _Commits.of(workspace, bound, recorded)
        if not any(commits.new.values()) and not any(made.values()):
            return [], bound
        after, again = commits.look_again(workspace)
        if goes_on or attempt == LOOKS - 1 or not any(after.values()):
            break
        bound = replace(bound, sources=tuple(again.get(index, table) for index, table in enumerate(bound.sources)))
    found = []
    for index, table in enumerate(bound.sources):
        name = table.address.label
        clock = None if bound.times else clocks.get(name)
        # At equal times a table's change precedes a stream's row, and the left stream precedes the right one.
        is_last = index == 0 and bound.join.window is None
        order = 0 if bound.is_self_join else index  # both names of one stream share a position
        source = partial(NewCommits, name=name, place=order, clock=clock, is_last=is_last)
        if name in epochs:
            start, newest, later = recorded[name].to_epoch, epochs[name], upstream.later(name, epochs[name])
            found.append(source(recorded=start, newest=newest, commits=made[name], later=later))
        elif index in commits.tables:
            new, later = tuple(map(arrival, commits.new[index])), arrival(after[index][0]) if after[index] else None
            found.append(source(recorded=commits.since[index], newest=table.version, commits=new, later=later))
    return found, bound


@dataclass(frozen=True)
class _Commits:
    """
    The new commits with data of the sources that no other join makes, by the index of the source.

    Args:
        since: The versions that are already accounted for.
        new: The commits after these versions, up to the version of the table.
    """

    tables: Mapping[int, Table]
    since: Mapping[int, int]
    new: Mapping[int, list[Commit]]

    @staticmethod
    def of(workspace: Workspace, bound: BoundJoin, recorded: Mapping[str, SourceVersions]) -> "_Commits":
        tables = {
            index: table
            for index, table in enumerate(bound.sources)
            if source_kind(workspace, table) in ("stream", "table")
            and table.address.label in recorded
            and recorded[table.address.label].to_version <= table.version
        }
        since = {index: recorded[table.address.label].to_version for index, table in tables.items()}
        new = {index: with_data(workspace, table, since[index]) for index, table in tables.items()}
        return _Commits(tables, since, new)

    def look_again(self, workspace: Workspace) -> tuple[dict[int, list[Commit]], dict[int, Table]]:
        """Return the commits that came to each source while the others were read, and the sources as they are now."""
        with ThreadPoolExecutor() as executor:
            found = executor.map(partial(refresh, workspace.engine), self.tables.values())
            again = dict(zip(self.tables, found, strict=True))
        after = {index: with_data(workspace, again[index], table.version) for index, table in self.tables.items()}
        return after, again


def up_to(bound: BoundJoin, versions: Mapping[str, int]) -> BoundJoin:
    """Pin sources to the given versions at most; sources that are not named stay as they are."""
    tables = tuple(
        replace(table, version=min(table.version, versions.get(table.address.label, table.version)))
        for table in bound.sources
    )
    if bound.is_self_join:  # one commit is one position, also under two names
        last = min(table.version for table in tables)
        tables = tuple(replace(table, version=last) for table in tables)
    return replace(bound, sources=tables)


def last_position(workspace: Workspace, entry: Entry) -> int | None:
    """Return the time of the last position that a join with a stream had passed after an epoch; None if unknown."""
    file, names = workspace.file, [part.name for part in entry.sources]
    return max((entry.clocks[name] for name in names if is_stream(file, name) and name in entry.clocks), default=None)


def source_kind(workspace: Workspace, table: Table) -> str:
    """Return the source kind of an input, or `join` for another join."""
    source = workspace.file.sources.get(table.address.label)
    return "join" if source is None else source.kind


def _epoch(entry: Entry) -> NewCommit:
    times = [position.time for position in entry.positions] or [0]
    return NewCommit(entry.epoch, times[0], until=times[-1])


class UpstreamPosition(NamedTuple):
    """
    A position of a stream that another join makes.

    Args:
        time: In microseconds since 1970, at least the time of the position before it.
        version: The version of the result that holds its rows; if it has none, the last version before it.
        watermarks: The watermarks that moved at it, by column in lower case.
    """

    time: int
    version: int
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class UpstreamProgress:
    """
    The recorded progress of the epochs of another join that are read.

    Args:
        positions: The positions that the epochs passed, in order.
        floors: Versions of the result, ascending, each with the least time that its rows count at.
        watermarks: The watermarks after all of these epochs, by column in lower case.
    """

    positions: tuple[UpstreamPosition, ...]
    floors: tuple[tuple[int, int], ...]
    watermarks: Mapping[str, int]

    def time_sql(self, position: str) -> str:
        """Return the SQL of a row's time, from the column with the time of its cause and `_commit_version`."""
        cases = " ".join(f"WHEN _commit_version <= {version} THEN {time}L" for version, time in self.floors)
        return f"greatest({position}, CASE {cases} END)" if cases else position


def upstream_progress(
    history: JoinHistory, epochs: tuple[int, int], schema: StructType, timezone: str, clock: int | None
) -> UpstreamProgress:
    """
    Return the progress that a join recorded of the stream that it makes, for the epochs (after, until] that are read.

    `schema` has the columns of its result; `clock` is the greatest time of its earlier positions, None for a first
    load, which reads its rows as they are.
    """
    (after, until), earlier = epochs, {}
    if timezone != "UTC":  # days begin at another time where dates are compared with dates alone
        earlier = {field.name.lower(): DAY for field in schema if isinstance(field.dataType, DateType)}

    def lowered(watermarks: Mapping[str, int]) -> dict[str, int]:
        return {name.lower(): watermark - earlier.get(name.lower(), 0) for name, watermark in watermarks.items()}

    positions: list[UpstreamPosition] = []
    floors: dict[int, int] = {}
    time = ALWAYS if clock is None else clock
    for entry in history.between(after, until) if clock is not None else ():
        version = entry.result.version
        assert version is not None
        floors.setdefault(version, time)
        for position in entry.positions:
            time = max(time, position.time)
            positions.append(UpstreamPosition(time, version, lowered(position.watermarks)))
    return UpstreamProgress(tuple(positions), tuple(sorted(floors.items())), lowered(history.watermarks_at(until)))
