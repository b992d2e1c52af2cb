"""Plan the next epoch of a join. This module reads no table; other modules gather the facts."""

from collections.abc import Sequence
from dataclasses import replace

from lakehouse.entries import JoinHistory, TargetVersions
from lakehouse.errors import BrokenEpoch, FeedUnavailable, NotLoaded, SchemaBroken, SourceRecreated, reconcile_hint
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.facts import Redefined, ResultFacts, SourceFacts
from pipelines.plan.values import EpochPlan, Refresh, SourceRange, Strategy


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
    Plan the next epoch.

    Args:
        join: The name of the join.
        definition: The fingerprint of its definition in the pipeline file.
        refresh: The `refresh` option of the pipeline file.
        history: The epochs of the join in the ledger.
        sources: The sources as found, left before right.
        result: The result table; None if it does not exist.
        changelog: The changelog of the result; None if it does not exist.
        keeps_changelog: Whether epochs append to the changelog.
        backfill: Whether the user requested a reconciliation. It overrides the checks against the last epoch.
        redefined: The known changes of the definition; None if they were not examined.

    Returns:
        The plan.

    Raises:
        CannotContinue: The epoch cannot continue from the recorded versions; the subclass names the reason.
    """
    open_entry = history.open
    if open_entry is not None:
        if history.broken is not None and not backfill:
            raise BrokenEpoch(
                join,
                f"epoch {open_entry.epoch} is broken: {history.broken.message}",
                hint=f"run `lakejoin backfill --select {join}` to reconcile the result",
            )
        if open_entry.slices:
            reason = (
                f"open-backfill: run {open_entry.run_id} has not written all of its slices; `lakejoin backfill "
                f"--select {join}` writes the rest"
            )
        else:
            reason = f"open-epoch: run {open_entry.run_id} did not finish it"
        return EpochPlan(join, open_entry.epoch, "resume", reason)
    last = history.committed
    if result is None and (last is None or backfill):
        if refresh == "incremental" and not backfill:
            raise NotLoaded(
                join,
                "the result does not exist yet, and `refresh: incremental` never computes it in full",
                hint=f"run `lakejoin backfill --select {join}` for the first load",
            )
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, None, (0, s.epochs[1]), s.columns, s.commit) for s in sources
        )
        plan = EpochPlan(join, history.next_epoch, "load", "first-load: the result does not exist yet", ranges)
        return _with_changelog(plan, changelog if keeps_changelog else None)
    if backfill:
        assert result is not None
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, columns=s.columns, commit=s.commit) for s in sources
        )
        reason = "backfill: requested by the user"
        plan = EpochPlan(join, history.next_epoch, "reconcile", reason, ranges, result.id, result.version)
        return _with_changelog(plan, changelog if keeps_changelog else None)
    if last is None:
        raise NotLoaded(
            join,
            "a table exists at the address of the result, but the ledger has no epoch of it",
            hint=f"run `lakejoin verify --select {join}` to compare it with the join, or `lakejoin backfill --select "
            f"{join}` to adopt it",
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
    """Check that the last epoch wrote a changelog, and that it is the existing one."""
    hint = f"run `lakejoin backfill --select {join}` to append the rows that the changelog lacks"
    if recorded is None:
        raise NotLoaded(join, "the last epoch wrote no changelog", hint=hint)
    check_is_still(join, "the changelog", None if changelog is None else changelog.id, recorded.id, hint)


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
    backfill = reconcile_hint(join)
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
        if source.is_restored:
            raise SourceRecreated(
                join,
                f"{source.name} was restored from a copy, or its log was changed",
                expected=f"version {before.to_version} is the commit that the last epoch read",
                found="another commit with that version",
                hint=backfill,
            )
        read = (source.changed_rows, source.epochs, source.columns, source.commit)
        ranges.append(SourceRange(source.name, source.id, before.to_version, source.version, start, *read))
    changed = [source for source in sources if source.changed]
    gaps = [source for source in sources if source.gap]
    if not changed and not gaps and not any(source.has_news for source in sources):
        reason = "no-changes: no commit with data since the last epoch"
        return EpochPlan(join, history.next_epoch, "nothing", reason, tuple(ranges), result.id, result.version)
    if changed and refresh == "incremental":
        name = changed[0].name
        raise SchemaBroken(
            join, f"columns of {name} that the join uses have changed: rows without a change may have other values",
            expected=f"the columns of {name} as of version {recorded[name].to_version}", found=changed[0].changed,
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
        strategy, reason = "incremental", "changes: the feeds hold all changes since the last epoch"
    return EpochPlan(join, history.next_epoch, strategy, reason, tuple(ranges), result.id, result.version)
