"""Plan the next epoch of a join. This module reads no table; other modules gather the facts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lakehouse.errors.errors import BrokenEpoch, FeedUnavailable, NotLoaded, SchemaBroken, SourceRecreated
from lakehouse.errors.remedies import Remedy
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.writes import TargetVersions, Write
from lakehouse.values.recorded import SourceVersions
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.facts import Redefined, SourceFacts
from pipelines.plan.values import EpochPlan, Idle, Refresh, Resume, SourceRange, Staged, Strategy


def plan_open(join: str, history: JoinHistory, *, backfill: bool = False) -> EpochPlan:
    """
    Plan to finish the open epoch; raise `BrokenEpoch` if it is broken and no backfill, which abandons it, is requested.
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
) -> EpochPlan:
    """
    Plan the next epoch; none is open.

    Args:
        definition: The fingerprint of its definition in the pipeline file.
        sources: The sources as found, left before right.
        result: How epochs change the result, whose target is new if it does not exist.
        changelog: How epochs change its changelog; None if the join keeps none.
        backfill: Whether the user requested a reconciliation. It overrides the checks against the last epoch.
        redefined: The known changes of the definition; None if they were not examined.

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
    recorded = {versions.name: versions for versions in last.sources}
    plan = replace(_plan_next(join, refresh, history, recorded, sources), checksum=last.checksum)
    return _writing(plan, changelog, result)


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
    recorded: Mapping[str, SourceVersions],
    sources: Sequence[SourceFacts],
) -> EpochPlan:
    recreated = [*_recreated(join, refresh, recorded, sources)]
    ranges = tuple(
        _whole(source) if source.name in recreated else _range_after(recorded[source.name], source)
        for source in sources
    )
    if recreated:
        reason = f"source-recreated: {', '.join(recreated)} was created again, or restored from a copy"
        return _plan(join, history, "reconcile", reason, ranges)
    if not any(source.changed or source.gap or source.has_news for source in sources):
        return _plan(join, history, "nothing", "no-changes: no commit with data since the last epoch", ranges)
    if refresh == "incremental":
        _check_feeds(join, recorded, sources)
    return _plan(join, history, *_strategy(refresh, sources), ranges)


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
    return SourceRange(
        name=source.name,
        id=source.id,
        from_version=before.to_version,
        to_version=source.version,
        read_after=source.data_versions[0] - 1 if source.data_versions else source.version,
        changed_rows=source.changed_rows,
        epochs=source.epochs,
        columns=source.columns,
        commit=source.commit,
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


def _strategy(refresh: Refresh, sources: Sequence[SourceFacts]) -> tuple[Strategy, str]:
    changed = [f"{source.name}: {source.changed}" for source in sources if source.changed]
    if changed:
        return "reconcile", f"columns-changed: {'; '.join(changed)}"
    gaps = [f"{source.name}: {source.gap}" for source in sources if source.gap]
    if gaps:
        return "reconcile", f"feed-gap: {gaps[0]}"
    if refresh == "full":
        return "reconcile", "refresh-full: the pipeline file asks for it"
    return "incremental", "changes: the feeds hold all changes since the last epoch"
