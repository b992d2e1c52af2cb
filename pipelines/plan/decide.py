"""Plan the next epoch of a join. This module reads no table; other modules gather the facts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakehouse.errors.errors import BrokenEpoch, FeedUnavailable, NotLoaded, SchemaBroken, SourceRecreated
from lakehouse.errors.remedies import Remedy
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.writes import TargetVersions, Write
from lakehouse.values.recorded import SourceVersions
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.facts import Redefined, SourceFacts
from pipelines.plan.values import EpochPlan, Idle, Refresh, Resume, SourceRange, Strategy


def plan_open(join: str, history: JoinHistory, *, backfill: bool = False) -> EpochPlan:
    """
    Plan to finish the open epoch.

    Args:
        join: The name of the join.
        history: The epochs of the join in the ledger; one is open.
        backfill: Whether the user requested a reconciliation, which abandons a broken epoch.

    Raises:
        BrokenEpoch: The epoch is broken.
    """
    open_entry = history.open
    assert open_entry is not None
    if history.broken is not None and not backfill:
        raise BrokenEpoch(
            join,
            f"epoch {open_entry.epoch} is broken: {history.broken.message}",
            hint=Remedy("{abandon}", join),
        )
    if open_entry.slices:
        reason = (
            f"open-backfill: run {open_entry.run_id} has not written all of its slices; `lakejoin backfill "
            f"--select {join}` writes the rest"
        )
    else:
        reason = f"open-epoch: run {open_entry.run_id} did not finish it"
    return EpochPlan(join, open_entry.epoch, "resume", reason, route=Resume())


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
) -> EpochPlan:
    """
    Plan the next epoch; none is open.

    Args:
        join: The name of the join.
        definition: The fingerprint of its definition in the pipeline file.
        refresh: The `refresh` option of the pipeline file.
        history: The epochs of the join in the ledger.
        sources: The sources as found, left before right.
        result: How epochs change the result, whose target is new if it does not exist.
        changelog: How epochs change its changelog; None if the join keeps none.
        backfill: Whether the user requested a reconciliation. It overrides the checks against the last epoch.
        redefined: The known changes of the definition; None if they were not examined.

    Returns:
        The plan.

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
        return _writing(_plan_load(join, history, sources), changelog, result)
    if backfill:
        return _writing(_plan_backfill(join, history, sources), changelog, result)
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
    recorded = {versions.name: versions for versions in last.sources}
    plan = replace(_plan_next(join, refresh, history, recorded, sources), checksum=last.checksum)
    return _writing(plan, changelog, result)


def _writing(plan: EpochPlan, *writes: Write | None) -> EpochPlan:
    """Add writes to a plan, the result last."""
    return replace(plan, writes=tuple(write for write in writes if write is not None))


def _id_of(target: TargetVersions) -> str | None:
    return None if target.is_new else target.id


def _check_changelog(join: str, recorded: TargetVersions | None, changelog: TargetVersions) -> None:
    """Check that the last epoch wrote a changelog, and that it is the existing one."""
    hint = f"run `lakejoin backfill --select {join}` to append the rows that the changelog lacks"
    if recorded is None:
        raise NotLoaded(join, "the last epoch wrote no changelog", hint=hint)
    check_is_still(join, "the changelog", _id_of(changelog), recorded.id, hint)


def _plan_load(join: str, history: JoinHistory, sources: Sequence[SourceFacts]) -> EpochPlan:
    """Plan to compute a result that does not exist, from the whole sources."""
    ranges = tuple(map(_whole, sources))
    return EpochPlan(join, history.next_epoch, "load", "first-load: the result does not exist yet", ranges)


def _plan_backfill(join: str, history: JoinHistory, sources: Sequence[SourceFacts]) -> EpochPlan:
    """Plan to reconcile an existing result with the whole sources."""
    ranges = tuple(SourceRange(s.name, s.id, -1, s.version, -1, columns=s.columns, commit=s.commit) for s in sources)
    return EpochPlan(join, history.next_epoch, "reconcile", "backfill: requested by the user", ranges)


def _plan_next(
    join: str,
    refresh: Refresh,
    history: JoinHistory,
    recorded: Mapping[str, SourceVersions],
    sources: Sequence[SourceFacts],
) -> EpochPlan:
    """Plan to continue from the versions of the last epoch."""
    recreated = [*_recreated(join, refresh, recorded, sources)]
    ranges = tuple(
        _whole(source) if source.name in recreated else _range_after(recorded[source.name], source)
        for source in sources
    )
    if recreated:
        reason = f"source-recreated: {', '.join(recreated)} was created again, or restored from a copy"
        return EpochPlan(join, history.next_epoch, "reconcile", reason, ranges)
    if not any(source.changed or source.gap or source.has_news for source in sources):
        reason = "no-changes: no commit with data since the last epoch"
        return EpochPlan(join, history.next_epoch, "nothing", reason, ranges, route=Idle())
    if refresh == "incremental":
        _check_feeds(join, recorded, sources)
    strategy, reason = _strategy(refresh, sources)
    return EpochPlan(join, history.next_epoch, strategy, reason, ranges)


def _recreated(
    join: str, refresh: Refresh, recorded: Mapping[str, SourceVersions], sources: Sequence[SourceFacts]
) -> Iterator[str]:
    """
    Find the sources that are other tables than the last epoch read, and with which the result may be reconciled.

    Raises:
        SourceRecreated: It may not: neither `refresh: full` nor the option of the source allows it.
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
    """Return the range of a whole source at its newest version."""
    epochs = (0, source.epochs[1])
    return SourceRange(source.name, source.id, -1, source.version, -1, None, epochs, source.columns, source.commit)


def _range_after(before: SourceVersions, source: SourceFacts) -> SourceRange:
    """Return the versions of a source that follow those of the last epoch."""
    start = source.data_versions[0] - 1 if source.data_versions else source.version
    read = (source.changed_rows, source.epochs, source.columns, source.commit)
    return SourceRange(source.name, source.id, before.to_version, source.version, start, *read)


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


def _strategy(refresh: Refresh, sources: Sequence[SourceFacts]) -> tuple[Strategy, str]:
    """Return how to continue, and why."""
    changed = [f"{source.name}: {source.changed}" for source in sources if source.changed]
    if changed:
        return "reconcile", f"columns-changed: {'; '.join(changed)}"
    gaps = [f"{source.name}: {source.gap}" for source in sources if source.gap]
    if gaps:
        return "reconcile", f"feed-gap: {gaps[0]}"
    if refresh == "full":
        return "reconcile", "refresh-full: the pipeline file asks for it"
    return "incremental", "changes: the feeds hold all changes since the last epoch"
