"""Plan the next epoch of a join from facts, and name the commands that each kind of join has against errors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lakehouse.errors.errors import (
    OF_TABLES,
    TAKING_SUCH_ROWS,
    BrokenEpoch,
    Commands,
    DefinitionChanged,
    FeedUnavailable,
    ForeignWriter,
    LakejoinError,
    NotLoaded,
    Remedy,
    SchemaBroken,
    SourceRecreated,
)
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.publish.writes import RESULT_PART, OverwriteInPlace, TargetVersions, Write
from lakehouse.values.recorded import SourceVersions
from pipelines.plan.cost import CHEAPER_IN_FULL, Choice
from pipelines.plan.values import (
    EpochPlan,
    Idle,
    Redefined,
    Refresh,
    Resume,
    SourceFacts,
    SourceRange,
    Staged,
    Strategy,
)

NO_CHANGES = "no-changes: no commit with data since the last epoch"
"""The reason of an epoch with nothing to do."""

RECONCILE_KTABLE = (
    "run `lakejoin backfill`, which reconciles the KTable of this source with the current source, "
    "and the joins that read it"
)

CHANGES, REFRESH_FULL, NEW_COLUMNS = "changes", "refresh-full", "new-columns"
"""
The codes of the reasons of an epoch from the feeds, of one in full because the file asks for it, and of one in full
because the result gets new columns of its sources.
"""

NOT_EXACT = "; overwrites the result, so that the change feed of this epoch is not exact"
"""The end of the reason of an epoch that overwrites its result."""

OTHER_COLUMNS = (
    "; overwrites the result, because columns change: its feed shows all rows, and no reader reads across it"
)
"""The end of the reason of an epoch that overwrites its result because columns go or get other types."""

UNKNOWN_COST = Choice()

_MEND = f"{TAKING_SUCH_ROWS}, then run `lakejoin backfill --accept{{select}}`, which keeps the rows of the result"

OF_STREAMS: Commands = {
    **OF_TABLES,
    "reconcile": "run `lakejoin backfill --reset{select}` to recreate the result from the sources as they are now",
    "take over": "run `lakejoin backfill{select}` to append missing rows, `--accept` to accept the result as it is, or "
    "`--reset` to recreate it",
    "adopt": "run `lakejoin backfill --reset{select}` to adopt and recreate it",
    "abandon": "run `lakejoin backfill{select}`, which abandons the epoch and appends the rows that the result lacks",
    "mend": _MEND,
    "mend past row": _MEND,
    "redefine": "run `lakejoin backfill --reset{select}` to recreate the result by the new definition, or `--accept` "
    "to keep its rows and to go on by the new definition",
}
"""The commands for a join with a stream: nothing reconciles it with its current sources, but a reset recreates it."""

OF_KTABLES: Commands = {
    **dict.fromkeys(OF_TABLES, RECONCILE_KTABLE),
    "run": "run `lakejoin run`",
    "mend": "correct the row in its source, or let the `tombstone` condition take such rows, by `try_cast` or NULLIF; "
    "then run `lakejoin backfill`",
}
"""The commands for the KTable of a changelog source, which cannot be selected."""


@contextmanager
def naming_commands(join: str, commands: Commands) -> Iterator[None]:
    """Name the commands of a kind of join in the hints of errors."""
    try:
        yield
    except LakejoinError as error:
        error.name_commands(join, commands)
        raise


def check_is_still(join: str, what: str, found: str | None, recorded: str, hint: str | Remedy) -> None:
    """Raise `ForeignWriter` if a target table, `what` in messages, is not the one that the last epoch recorded."""
    if found != recorded:
        raise ForeignWriter(
            join,
            f"{what} was dropped" if found is None else f"{what} was replaced by another one",
            expected=f"the table with id {recorded}",
            found="no table" if found is None else f"id {found}",
            hint=hint,
        )


def check_definition(
    join: str, definition: str, recorded: str, hint: str | Remedy, redefined: Redefined | None = None
) -> None:
    """
    Raise `DefinitionChanged` if the fingerprint of a definition is not the one that the last epoch recorded.

    The changes of the definition are `redefined`; None if they were not examined.
    """
    if definition != recorded:
        raise DefinitionChanged(
            join,
            "the definition of the join has changed since its last epoch",
            expected=f"the definition with fingerprint {recorded}",
            found=f"fingerprint {definition}" + ("" if redefined is None else f": {redefined}"),
            hint=hint if redefined is None or redefined.remedy is None else redefined.remedy,
        )


def plan_open(join: str, history: JoinHistory, *, backfill: bool = False) -> EpochPlan:
    """Plan to finish the open epoch; raise `BrokenEpoch` if it is broken and no backfill is to abandon it."""
    open_entry = history.open
    assert open_entry is not None
    if history.broken is not None and not backfill:
        raise BrokenEpoch(
            join, f"epoch {open_entry.epoch} is broken: {history.broken.message}", hint=Remedy("{abandon}", join)
        )
    if open_entry.slices:
        reason = (
            f"open-backfill: run {open_entry.run_id} has not written all of its slices; `lakejoin backfill "
            f"--select {join}` writes the rest"
        )
    else:
        reason = f"open-epoch: run {open_entry.run_id} did not finish it"
    return EpochPlan(join=join, epoch=open_entry.epoch, strategy="resume", reason=reason, route=Resume())


def plan_epoch(
    join: str,
    definition: str,
    refresh: Refresh,
    history: JoinHistory,
    sources: Sequence[SourceFacts],
    result: Write,
    *,
    changelog: Write | None = None,
    backfill: bool = False,
    redefined: Redefined | None = None,
    new_columns: str = "",
    cost: Choice = UNKNOWN_COST,
) -> EpochPlan:
    """
    Plan the next epoch; none is open.

    Args:
        definition: The fingerprint of its definition in the pipeline file.
        sources: The sources as found, left before right.
        result: How epochs change the result, whose target is new if it does not exist.
        changelog: How epochs change its changelog; None if the join keeps none.
        backfill: Whether the user requested a reconciliation. It overrides the checks against the last epoch.
        redefined: The changes of the definition; None if they were not examined.
        new_columns: The columns of sources that the result gets because `*` stands for them; empty for none.
        cost: What the ways to compute it are estimated to take; `refresh: auto` may take the cheaper.

    Raises:
        CannotContinue: The epoch cannot continue from the recorded versions; the subclass names the reason.
    """
    last = history.committed
    if result.target.is_new and (last is None or backfill):
        if refresh == "incremental" and not backfill:
            raise NotLoaded(
                join,
                "the result does not exist yet, and `refresh: incremental` never computes it in full",
                hint=Remedy("{load}", join),
            )
        reason = "first-load: the result does not exist yet"
        return _writing(_plan(join, history, "load", reason, map(_whole, sources)), changelog, result)
    if backfill:
        reason = "backfill: requested by the user"
        return _writing(_plan(join, history, "reconcile", reason, map(_whole, sources)), changelog, result)
    if last is None:
        raise NotLoaded(
            join,
            "a table exists at the address of the result, but the ledger has no epoch of it",
            hint=Remedy("{adopt}", join),
        )
    if changelog is not None:
        _check_changelog(join, last.changelog, changelog.target)
    check_is_still(join, "the result table", _id_of(result.target), last.result.id, Remedy("{reconcile}", join))
    check_definition(join, definition, last.definition, Remedy("{redefine}", join), redefined)
    in_full = cost.in_full if changelog is None and refresh == "auto" else ""
    plan = replace(_plan_next(join, refresh, history, last, sources, in_full, new_columns), checksum=last.checksum)
    return _writing(_with_estimates(plan, cost), changelog, result)


def overwriting(plan: EpochPlan, why: str = NOT_EXACT) -> EpochPlan:
    """Return a plan in full that overwrites its result instead of merging what differs: its feed is not exact."""
    reason = f"{plan.reason}{why}"
    writes = (OverwriteInPlace(plan.result, RESULT_PART),)
    return replace(plan, strategy="overwrite", reason=reason, writes=writes)


def _with_estimates(plan: EpochPlan, cost: Choice) -> EpochPlan:
    """Add the estimates to a plan if they are about what it does: other epochs in full do not know what changed."""
    code = plan.reason.partition(":")[0]
    return replace(plan, estimates=cost.estimates) if code in (CHANGES, CHEAPER_IN_FULL, REFRESH_FULL) else plan


def _writing(plan: EpochPlan, *writes: Write | None) -> EpochPlan:
    """Add writes to a plan, the result last."""
    return replace(plan, writes=tuple(write for write in writes if write is not None))


def _id_of(target: TargetVersions) -> str | None:
    return None if target.is_new else target.id


def _check_changelog(join: str, recorded: TargetVersions | None, changelog: TargetVersions) -> None:
    hint = f"run `lakejoin backfill --select {join}` to append the rows that the changelog lacks"
    if recorded is None:
        raise NotLoaded(join, "the last epoch wrote no changelog", hint=hint)
    check_is_still(join, "the changelog", _id_of(changelog), recorded.id, hint)


def _plan(
    join: str, history: JoinHistory, strategy: Strategy, reason: str, sources: Iterable[SourceRange]
) -> EpochPlan:
    route = Idle() if strategy == "nothing" else Staged()
    return EpochPlan(
        join=join, epoch=history.next_epoch, strategy=strategy, reason=reason, sources=tuple(sources), route=route
    )


def _plan_next(
    join: str,
    refresh: Refresh,
    history: JoinHistory,
    last: Entry,
    sources: Sequence[SourceFacts],
    in_full: str,
    new_columns: str,
) -> EpochPlan:
    recorded = {versions.name: versions for versions in last.sources}
    recreated = [*_recreated(join, refresh, recorded, sources)]
    ranges = tuple(
        _whole(source) if source.name in recreated else _range_after(recorded[source.name], source)
        for source in sources
    )
    if recreated:
        reason = f"source-recreated: {', '.join(recreated)} was created again, or restored from a copy"
        return _plan(join, history, "reconcile", reason, ranges)
    if new_columns:
        return _plan(join, history, "reconcile", f"{NEW_COLUMNS}: {new_columns}", map(_whole, sources))
    if not any(source.changed or source.gap or source.has_news for source in sources):
        return _plan(join, history, "nothing", NO_CHANGES, ranges)
    if refresh == "incremental":
        _check_feeds(join, recorded, sources)
    return _plan(join, history, *_strategy(refresh, sources, in_full), ranges)


def _recreated(
    join: str, refresh: Refresh, recorded: Mapping[str, SourceVersions], sources: Sequence[SourceFacts]
) -> Iterator[str]:
    """
    Find the sources that are other tables than the last epoch read, and with which the result may be reconciled.

    Raise `SourceRecreated` for one that neither `refresh: full` nor its option allows.
    """
    for source in sources:
        before = recorded[source.name]
        if source.id == before.id and not source.is_restored:
            continue
        if refresh == "full" or (refresh == "auto" and source.may_be_recreated):
            yield source.name
            continue
        always = "; `on_recreated_source: reconcile` of the source does so by itself" if refresh == "auto" else ""
        is_restored = source.id == before.id
        what = "was restored from a copy, or its log was changed" if is_restored else "was dropped and created again"
        same = f"version {before.to_version} is the commit that the last epoch read"
        raise SourceRecreated(
            join,
            f"{source.name} {what}",
            expected=same if is_restored else f"the table with id {before.id}",
            found="another commit with that version" if is_restored else f"id {source.id}",
            hint=Remedy(f"{{reconcile}}{always}", join),
        )


def _whole(source: SourceFacts) -> SourceRange:
    return SourceRange(
        name=source.name,
        id=source.id,
        from_version=-1,
        to_version=source.version,
        read_after=-1,
        epochs=(0, source.epochs[1]),
        columns=source.columns,
        commit=source.commit,
    )


def _range_after(before: SourceVersions, source: SourceFacts) -> SourceRange:
    read_after = source.data_versions[0] - 1 if source.data_versions else source.version
    whole, rows = _whole(source), source.changed_rows
    return replace(
        whole, from_version=before.to_version, read_after=read_after, changed_rows=rows, epochs=source.epochs
    )


def _check_feeds(join: str, recorded: Mapping[str, SourceVersions], sources: Sequence[SourceFacts]) -> None:
    """Check that the feeds hold all changes, for a join that is never computed in full without a request."""
    for source in sources:
        if source.changed:
            raise SchemaBroken(
                join,
                f"columns of {source.name} that the join uses have changed: unchanged rows may have other values",
                expected=f"the columns of {source.name} as of version {recorded[source.name].to_version}",
                found=source.changed,
                hint=Remedy("{reconcile}", join),
            )
    for source in sources:
        if source.gap:
            raise FeedUnavailable(
                join,
                f"cannot continue from {source.name} at version {recorded[source.name].to_version}",
                found=source.gap,
                hint=Remedy("{reconcile}", join),
            )


def _strategy(refresh: Refresh, sources: Sequence[SourceFacts], in_full: str) -> tuple[Strategy, str]:
    changed = [f"{source.name}: {source.changed}" for source in sources if source.changed]
    if changed:
        return "reconcile", f"columns-changed: {'; '.join(changed)}"
    gaps = [f"{source.name}: {source.gap}" for source in sources if source.gap]
    if gaps:
        return "reconcile", f"feed-gap: {gaps[0]}"
    if refresh == "full":
        return "reconcile", f"{REFRESH_FULL}: the pipeline file asks for it"
    if in_full:
        return "reconcile", in_full
    return "incremental", f"{CHANGES}: the feeds hold all changes since the last epoch"
