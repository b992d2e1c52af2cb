"""
What one epoch of a join will do, as a value: `plan` prints it and `run` executes it.

Pure: the facts are gathered elsewhere, nothing here reads a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lakehouse.entries import JoinHistory, Passed, SourceVersions, TargetVersions, UsedColumn
from lakehouse.errors import (
    BrokenEpoch,
    DefinitionChanged,
    FeedUnavailable,
    ForeignWriter,
    NotLoaded,
    SchemaBroken,
    SourceRecreated,
)
from lakehouse.marks import UNKNOWN, CommitMark
from pipelines.facts import Redefined, ResultFacts, SourceFacts

FEW = 10_000
"""So many changed rows may pass through the driver."""

APPENDED = "appended"
"""The count of rows that an epoch adds to the result of a join with a stream."""

KEPT = "buffered_kept"
"""The count of rows that wait on as they were, of an epoch that writes all rows that wait anew."""

REWRITTEN_STATE = 64 * 2**20
"""Rows that wait are written anew as a whole as long as they, and what came, have at most so many bytes."""

WAITING = {"insert": "buffered_inserted", "update": "buffered_updated", "delete": "buffered_deleted"}
"""The operations on the rows that wait in a join of two streams, and what each is counted as."""

Strategy = Literal["nothing", "resume", "load", "incremental", "reconcile", "replay", "accept", "reset", "flush"]
Refresh = Literal["auto", "incremental", "full"]


@dataclass(frozen=True)
class SourceRange:
    """
    The versions of a source that an epoch accounts for.

    Args:
        name: The source.
        id: Its table id.
        from_version: Last version accounted for before, -1 at the load.
        to_version: The pinned version.
        read_after: Where reading the feed starts: commits without data at the front are not read. Equal to
            `to_version` if nothing is to be read.
        changed_rows: How many rows the commits to be read say they changed; None where one does not say.
        epochs: Of a stream that another join makes: (from, to], the epochs of that join that are accounted for.
        columns: Those of its columns that the join uses, as they are at `to_version`.
        commit: The commit that made `to_version`.
    """

    name: str
    id: str
    from_version: int
    to_version: int
    read_after: int
    changed_rows: int | None = None
    epochs: tuple[int, int] = (0, 0)
    columns: tuple[UsedColumn, ...] = ()
    commit: CommitMark = UNKNOWN

    @property
    def has_changes(self) -> bool:
        """Tell whether the feed is read at all."""
        return self.read_after < self.to_version

    @staticmethod
    def recorded(read: SourceVersions) -> "SourceRange":
        """Give what an epoch read, to read it once more."""
        epochs = (read.from_epoch, read.to_epoch)
        after, at = read.from_version, read.to_version
        return SourceRange(
            read.name, read.id, after, at, after, epochs=epochs, columns=read.columns, commit=read.commit
        )

    @staticmethod
    def nothing_after(read: SourceVersions) -> "SourceRange":
        """Give the range of an epoch that reads nothing after what one before it read."""
        at, epochs = read.to_version, (read.to_epoch, read.to_epoch)
        return SourceRange(read.name, read.id, at, at, at, epochs=epochs, columns=read.columns, commit=read.commit)


@dataclass(frozen=True)
class EpochPlan:
    """
    One epoch of one join.

    Args:
        join: The join.
        epoch: Its number.
        strategy: nothing, resume, load, incremental or reconcile; of a join with a stream also replay (what it lacks is
            appended), accept (it is taken as it is), reset (it is loaded anew in its place) and flush (what waits
            leaves).
        reason: A stable code, a colon, and words.
        sources: What is read, left before right.
        result_id: Table id of the result; empty before the load.
        base_version: The version of the result that the epoch is computed against; -1 before the load.
        changelog_id: Table id of the changelog; empty where none is kept, or before it is there.
        changelog_version: Its version; -1 where there is none.
        state_id: Table id of the rows that wait, in a join of two streams; else empty.
        state_version: Its version; -1 where there is none.
        clocks: Of a join with a stream: for each source the greatest time in its order so far, as the ledger has them.
        state_bytes: How many bytes the files of that version have.
        stream_bytes: How many bytes the files have that came to its streams.
        more: Whether its sources are further on than the epoch goes.
    """

    join: str
    epoch: int
    strategy: Strategy
    reason: str
    sources: tuple[SourceRange, ...] = ()
    result_id: str = ""
    base_version: int = -1
    changelog_id: str = ""
    changelog_version: int = -1
    state_id: str = ""
    state_version: int = -1
    state_bytes: int = 0
    clocks: Mapping[str, int] = field(default_factory=dict)
    stream_bytes: int = 0
    more: bool = False

    @property
    def few(self) -> bool:
        """Tell whether the changes of an incremental epoch seem so few that they may pass through the driver."""
        changed = [source.changed_rows for source in self.sources if source.has_changes]
        return self.strategy == "incremental" and None not in changed and sum(rows or 0 for rows in changed) <= FEW

    @property
    def rewrites_state(self) -> bool:
        """Tell whether the rows that wait are written anew as a whole, which costs less than a MERGE of a few."""
        return self.strategy != "incremental" or self.state_bytes + self.stream_bytes <= REWRITTEN_STATE


@dataclass(frozen=True)
class Computed:
    """What an epoch was computed to: its counts, and of a join with a stream the clocks after it, and its positions."""

    counts: dict[str, int]
    clocks: Mapping[str, int] = field(default_factory=dict)
    positions: tuple[Passed, ...] = ()


def plan_epoch(
    join: str,
    definition: str,
    refresh: Refresh,
    history: JoinHistory,
    sources: Sequence[SourceFacts],
    result: ResultFacts | None,
    *,
    changelog: ResultFacts | None = None,
    keeps_changelog: bool = False,
    backfill: bool = False,
    redefined: Redefined | None = None,
) -> EpochPlan:
    """
    Decide what the next epoch does.

    Args:
        join: The join's name.
        definition: Fingerprint of its definition in the pipeline file.
        refresh: What the pipeline file allows.
        history: What the ledger knows.
        sources: The sources as found, left before right.
        result: The result table, None where there is none.
        changelog: Its changelog, None where there is none.
        keeps_changelog: Whether epochs append to the changelog.
        backfill: A person asked for a reconciliation: differences to the record are what it is there to mend.
        redefined: What shows of a changed definition, where somebody has looked.

    Returns:
        The plan.

    Raises:
        CannotContinue: A subclass says why the recorded versions cannot be continued from.
    """
    waiting = history.open
    if waiting is not None:
        if history.broken is not None and not backfill:
            raise BrokenEpoch(
                join,
                f"epoch {waiting.epoch} is broken: {history.broken.message}",
                hint=f"run `lakejoin backfill --select {join}` to reconcile the result",
            )
        if waiting.slices:
            reason = (
                f"open-backfill: the slices of run {waiting.run_id} are not all written; `lakejoin backfill --select "
                f"{join}` writes them"
            )
        else:
            reason = f"open-epoch: run {waiting.run_id} did not finish it"
        return EpochPlan(join, waiting.epoch, "resume", reason)
    last = history.committed
    if result is None and (last is None or backfill):
        if refresh == "incremental" and not backfill:
            raise NotLoaded(
                join,
                "there is no result yet, and `refresh: incremental` never computes one in full",
                hint=f"run `lakejoin backfill --select {join}` for the first load",
            )
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, None, (0, s.epochs[1]), s.columns, s.commit) for s in sources
        )
        plan = EpochPlan(join, history.next_epoch, "load", "first-load: there is no result yet", ranges)
        return _with_changelog(plan, changelog if keeps_changelog else None)
    if backfill:
        assert result is not None
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, columns=s.columns, commit=s.commit) for s in sources
        )
        reason = "backfill: asked for by a person"
        plan = EpochPlan(join, history.next_epoch, "reconcile", reason, ranges, result.id, result.version)
        return _with_changelog(plan, changelog if keeps_changelog else None)
    if last is None:
        raise NotLoaded(
            join,
            "a table lies where the result belongs, and the ledger knows no epoch of it",
            hint=f"compare it by `lakejoin verify --select {join}`, adopt it by `lakejoin backfill --select {join}`",
        )
    if keeps_changelog:
        _check_changelog(join, last.changelog, changelog)
    plan = _continue(join, definition, refresh, history, sources, result, redefined)
    return _with_changelog(plan, changelog if keeps_changelog else None)


def _with_changelog(plan: EpochPlan, changelog: ResultFacts | None) -> EpochPlan:
    if changelog is None:
        return plan
    return replace(plan, changelog_id=changelog.id, changelog_version=changelog.version)


def _check_changelog(join: str, recorded: TargetVersions | None, changelog: ResultFacts | None) -> None:
    """See that the changelog has been kept up to the last epoch."""
    hint = f"run `lakejoin backfill --select {join}`: it appends what the changelog lacks"
    if recorded is None:
        raise NotLoaded(join, "the last epoch kept no changelog", hint=hint)
    check_is_still(join, "the changelog", None if changelog is None else changelog.id, recorded.id, hint)


def check_is_still(join: str, what: str, found: str | None, recorded: str, hint: str) -> None:
    """
    See that a table that epochs write is the one that the last epoch wrote.

    Args:
        join: The join.
        what: What the table is to it.
        found: The id of the table that is there; None where there is none.
        recorded: The id of the one that the last epoch wrote.
        hint: What helps.

    Raises:
        ForeignWriter: It is not.
    """
    if found != recorded:
        raise ForeignWriter(
            join,
            f"{what} was dropped" if found is None else f"{what} was replaced by another one",
            expected=f"the table with id {recorded}",
            found="no table" if found is None else f"id {found}",
            hint=hint,
        )


def backfill_hint(join: str) -> str:
    """Say what helps where the recorded versions cannot be continued from."""
    return f"run `lakejoin backfill --select {join}` to reconcile the result with the sources as they are now"


def check_definition(join: str, definition: str, recorded: str, hint: str, redefined: Redefined | None = None) -> None:
    """
    See that a join is defined as when its last epoch ran.

    Args:
        join: The join's name.
        definition: Fingerprint of its definition in the pipeline file.
        recorded: That of its last epoch.
        hint: What to do if they differ.
        redefined: What shows of the changes, where somebody has looked.

    Raises:
        DefinitionChanged: They differ.
    """
    if definition != recorded:
        raise DefinitionChanged(
            join,
            "the join is defined otherwise than when its last epoch ran",
            expected=f"the definition with fingerprint {recorded}",
            found=f"fingerprint {definition}" + ("" if redefined is None else f": {redefined}"),
            hint=redefined.way if redefined is not None and redefined.way else hint,
        )


def _continue(
    join: str,
    definition: str,
    refresh: Refresh,
    history: JoinHistory,
    sources: Sequence[SourceFacts],
    result: ResultFacts | None,
    redefined: Redefined | None,
) -> EpochPlan:
    last = history.committed
    assert last is not None
    backfill = backfill_hint(join)
    check_is_still(join, "the result table", None if result is None else result.id, last.result.id, backfill)
    assert result is not None
    rewrites = f"`lakejoin backfill --dry-run --select {join}` counts the rows that a backfill would rewrite"
    check_definition(join, definition, last.definition, f"{rewrites}; without `--dry-run` it writes them", redefined)
    recorded = {versions.name: versions for versions in last.sources}
    ranges = []
    for source in sources:
        before = recorded[source.name]
        if source.id != before.id:
            raise SourceRecreated(
                join,
                f"{source.name} was dropped and created again",
                expected=f"the table with id {before.id}",
                found=f"id {source.id}",
                hint=backfill,
            )
        start = source.data_versions[0] - 1 if source.data_versions else source.version
        if source.is_put_back:
            raise SourceRecreated(
                join,
                f"{source.name} was put back from a copy, or its log was changed",
                expected=f"under version {before.to_version} the commit that the last epoch read",
                found="another commit under that version",
                hint=backfill,
            )
        read = (source.changed_rows, source.epochs, source.columns, source.commit)
        ranges.append(SourceRange(source.name, source.id, before.to_version, source.version, start, *read))
    changed = [source for source in sources if source.changed]
    gaps = [source for source in sources if source.gap]
    if not changed and not gaps and not any(source.has_come for source in sources):
        reason = "no-changes: no commit with data since the last epoch"
        return EpochPlan(join, history.next_epoch, "nothing", reason, tuple(ranges), result.id, result.version)
    if changed and refresh == "incremental":
        name = changed[0].name
        raise SchemaBroken(
            join, f"columns of {name} that it uses have changed: rows that no commit changed may have other values",
            expected=f"the columns of {name} as at version {recorded[name].to_version}", found=changed[0].changed,
            hint=backfill,
        )  # fmt: skip
    if gaps and refresh == "incremental":
        raise FeedUnavailable(
            join, f"cannot continue from {gaps[0].name} at version {recorded[gaps[0].name].to_version}",
            found=gaps[0].gap, hint=backfill,
        )  # fmt: skip
    if changed:
        strategy: Strategy = "reconcile"
        reason = f"columns-changed: {'; '.join(f'{source.name}: {source.changed}' for source in changed)}"
    elif gaps:
        strategy = "reconcile"
        reason = f"feed-gap: {gaps[0].name}: {gaps[0].gap}"
    elif refresh == "full":
        strategy, reason = "reconcile", "refresh-full: the pipeline file asks for it"
    else:
        strategy, reason = "incremental", "changes: the feeds have what changed since the last epoch"
    return EpochPlan(join, history.next_epoch, strategy, reason, tuple(ranges), result.id, result.version)
