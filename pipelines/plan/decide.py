"""Plan the next epoch of a join. This module reads no table; other modules gather the facts."""

from collections.abc import Sequence
from dataclasses import replace

from lakehouse.entries import JoinHistory
from lakehouse.errors import BrokenEpoch, FeedUnavailable, NotLoaded, SchemaBroken, SourceRecreated, reconcile_hint
from lakehouse.writes import TargetVersions, Write
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
            hint=f"run `lakejoin backfill --select {join}` to reconcile the result",
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
                hint=f"run `lakejoin backfill --select {join}` for the first load",
            )
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, None, (0, s.epochs[1]), s.columns, s.commit) for s in sources
        )
        plan = EpochPlan(join, history.next_epoch, "load", "first-load: the result does not exist yet", ranges)
        return _writing(plan, changelog, result)
    if backfill:
        ranges = tuple(
            SourceRange(s.name, s.id, -1, s.version, -1, columns=s.columns, commit=s.commit) for s in sources
        )
        reason = "backfill: requested by the user"
        plan = EpochPlan(join, history.next_epoch, "reconcile", reason, ranges)
        return _writing(plan, changelog, result)
    if last is None:
        raise NotLoaded(
            join,
            "a table exists at the address of the result, but the ledger has no epoch of it",
            hint=f"run `lakejoin verify --select {join}` to compare it with the join, or `lakejoin backfill --select "
            f"{join}` to adopt it",
        )
    if changelog is not None:
        _check_changelog(join, last.changelog, changelog.target)
    plan = _continue(join, definition, refresh, history, sources, result, redefined)
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


def _continue(
    join: str,
    definition: str,
    refresh: Refresh,
    history: JoinHistory,
    sources: Sequence[SourceFacts],
    result: Write,
    redefined: Redefined | None,
) -> EpochPlan:
    last = history.committed
    assert last is not None
    backfill = reconcile_hint(join)
    check_is_still(join, "the result table", _id_of(result.target), last.result.id, backfill)
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
        return EpochPlan(join, history.next_epoch, "nothing", reason, tuple(ranges), route=Idle())
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
    return EpochPlan(join, history.next_epoch, strategy, reason, tuple(ranges))
