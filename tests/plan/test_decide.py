"""The plan of the next epoch as a decision table: every strategy, refusal and remedy, without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from lakehouse.errors.errors import (
    BrokenEpoch,
    CannotContinue,
    DefinitionChanged,
    FeedUnavailable,
    ForeignWriter,
    NotLoaded,
    SchemaBroken,
    SourceRecreated,
)
from lakehouse.ledger.entries import ABANDONED, BROKEN, PUBLISHING, JoinHistory
from lakehouse.publish.writes import Append, Merge, TargetVersions, Write
from lakehouse.values.recorded import Estimate, Slice
from lakehouse.values.sqltext import Address
from pipelines.plan.cost import Choice
from pipelines.plan.decide import OF_KTABLES, OF_STREAMS, plan_epoch, plan_open
from pipelines.plan.values import EpochPlan, Idle, Redefined, Refresh, Resume, Route, SourceFacts, SourceRange, Staged
from tests.cases import cases
from tests.ledgers import entry, ledger

RESULT, LOG = Address("result", path="/lake/result"), Address("result__changelog", path="/lake/result__changelog")
EXISTING, MISSING = (
    Merge(TargetVersions(RESULT, "result-id", 1), "result"),
    Merge(TargetVersions.of_new(RESULT), "result"),
)
LOGGED, NOT_LOGGED = (
    Append(TargetVersions(LOG, "log-id", 1), "changelog"),
    Append(TargetVersions.of_new(LOG), "changelog"),
)
LOADED = entry(1)
"""The load: it read left and right up to version 6."""
LOADED_WITH_LOG = replace(LOADED, writes=(Append(TargetVersions(LOG, "log-id", -1, 1), "changelog"), *LOADED.writes))

LEFT, RIGHT = (SourceFacts(name, f"{name}-id", 6) for name in ("left", "right"))
NEW = replace(LEFT, version=9, data_versions=(8, 9), changed_rows=4)


@dataclass(frozen=True)
class Found:
    """What is found before an epoch is planned: by default a loaded result, with new commits in `left`."""

    history: JoinHistory = field(default_factory=lambda: ledger(LOADED))
    sources: tuple[SourceFacts, ...] = (NEW, RIGHT)
    result: Write = EXISTING
    changelog: Write | None = None
    refresh: Refresh = "auto"
    backfill: bool = False
    definition: str = "d"
    redefined: Redefined | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=lambda: BOTH_WAYS)
    in_full: str = ""

    def plan(self) -> EpochPlan:
        return plan_epoch(
            "result",
            self.definition,
            self.refresh,
            self.history,
            self.sources,
            self.result,
            changelog=self.changelog,
            backfill=self.backfill,
            redefined=self.redefined,
            cost=Choice(self.estimates, self.in_full),
        )


BOTH_WAYS = {"incremental": Estimate(30), "reconcile": Estimate(10)}
CHEAPER = "cheaper-in-full: about 30 s from the feeds, about 10 s in full"


STRATEGIES: dict[str, tuple[Found, str, str, Route]] = {
    "no result": (Found(ledger(), result=MISSING), "load", "first-load", Staged()),
    "no result, a backfill": (
        Found(ledger(), result=MISSING, refresh="incremental", backfill=True),
        "load",
        "first-load",
        Staged(),
    ),
    "a dropped result, a backfill": (Found(result=MISSING, backfill=True), "load", "first-load", Staged()),
    "nothing new": (Found(sources=(LEFT, RIGHT)), "nothing", "no-changes", Idle()),
    "nothing new, computed in full": (Found(sources=(LEFT, RIGHT), refresh="full"), "nothing", "no-changes", Idle()),
    "new commits": (Found(), "incremental", "changes", Staged()),
    "new commits, never computed in full": (Found(refresh="incremental"), "incremental", "changes", Staged()),
    "only a watermark moved": (
        Found(sources=(replace(LEFT, epochs=(1, 2)), RIGHT)),
        "incremental",
        "changes",
        Staged(),
    ),
    "new commits, computed in full": (Found(refresh="full"), "reconcile", "refresh-full", Staged()),
    "new commits, cheaper in full": (
        Found(in_full=CHEAPER),
        "reconcile",
        CHEAPER,
        Staged(),
    ),
    "nothing new, cheaper in full": (
        Found(sources=(LEFT, RIGHT), in_full=CHEAPER),
        "nothing",
        "no-changes",
        Idle(),
    ),
    "cheaper, never computed in full": (
        Found(refresh="incremental", in_full=CHEAPER),
        "incremental",
        "changes",
        Staged(),
    ),
    "cheaper in full, which the file asks for": (
        Found(refresh="full", in_full=CHEAPER),
        "reconcile",
        "refresh-full",
        Staged(),
    ),
    "a gap in a feed": (
        Found(sources=(replace(NEW, gap="gone"), RIGHT)),
        "reconcile",
        "feed-gap: left: gone",
        Staged(),
    ),
    "a source created again, computed in full": (
        Found(sources=(replace(NEW, id="other"), RIGHT), refresh="full"),
        "reconcile",
        "source-recreated: left",
        Staged(),
    ),
    "a source restored that may be created again": (
        Found(sources=(replace(LEFT, is_restored=True, may_be_recreated=True), RIGHT)),
        "reconcile",
        "source-recreated: left",
        Staged(),
    ),
    "another column": (
        Found(sources=(replace(NEW, changed="v is wider", gap="gone"), RIGHT)),
        "reconcile",
        "columns-changed: left: v is wider",
        Staged(),
    ),
    "a backfill": (Found(backfill=True), "reconcile", "backfill", Staged()),
    "a backfill by another definition": (Found(definition="e", backfill=True), "reconcile", "backfill", Staged()),
    "a backfill of a table that nobody recorded": (Found(ledger(), backfill=True), "reconcile", "backfill", Staged()),
    "a backfill of another table": (
        Found(result=replace(EXISTING, target=TargetVersions(RESULT, "other", 0)), backfill=True),
        "reconcile",
        "backfill",
        Staged(),
    ),
    "an abandoned epoch": (Found(ledger(LOADED, entry(2, ABANDONED))), "incremental", "changes", Staged()),
}


@pytest.mark.parametrize("case", STRATEGIES)
def test_what_is_found_decides_the_strategy(case: str) -> None:
    found, strategy, reason, route = STRATEGIES[case]
    plan = found.plan()
    assert (plan.strategy, plan.route) == (strategy, route)
    assert plan.reason.startswith(reason)
    assert plan.epoch == found.history.next_epoch
    assert plan.writes == (found.result,)
    assert [part.name for part in plan.sources] == ["left", "right"]


RESET, KTABLE = "lakejoin backfill --reset --select result", "lakejoin backfill`, which reconciles the KTable"
REFUSALS: dict[str, tuple[Found, type[CannotContinue], str, str]] = {
    "no result, never computed in full": (
        Found(ledger(), result=MISSING, refresh="incremental"),
        NotLoaded,
        "first load",
        "first load",
    ),
    "a table that nobody recorded": (Found(ledger()), NotLoaded, "verify --select result", RESET),
    "a dropped result": (Found(result=MISSING), ForeignWriter, "backfill --select result", RESET),
    "a replaced result": (
        Found(result=replace(EXISTING, target=TargetVersions(RESULT, "other", 0))),
        ForeignWriter,
        "backfill --select result",
        RESET,
    ),
    "another definition": (Found(definition="e"), DefinitionChanged, "--dry-run", RESET),
    "another definition with other columns": (
        Found(definition="e", redefined=Redefined(("v is gone",), "drop it")),
        DefinitionChanged,
        "drop it",
        "drop it",
    ),
    "a source created again": (
        Found(sources=(replace(NEW, id="other"), RIGHT)),
        SourceRecreated,
        "backfill --select result",
        RESET,
    ),
    "a source restored from a copy": (
        Found(sources=(replace(NEW, is_restored=True), RIGHT)),
        SourceRecreated,
        "backfill --select result",
        RESET,
    ),
    "a gap, never computed in full": (
        Found(sources=(replace(NEW, gap="gone"), RIGHT), refresh="incremental"),
        FeedUnavailable,
        "backfill --select result",
        RESET,
    ),
    "another column, never computed in full": (
        Found(sources=(replace(NEW, changed="wider", gap="gone"), RIGHT), refresh="incremental"),
        SchemaBroken,
        "backfill --select result",
        RESET,
    ),
    "a changelog that the last epoch did not write": (Found(changelog=LOGGED), NotLoaded, "the changelog lacks", ""),
    "a dropped changelog": (
        Found(ledger(LOADED_WITH_LOG), changelog=NOT_LOGGED),
        ForeignWriter,
        "the changelog lacks",
        "",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused_names_the_commands_of_the_kind(case: str) -> None:
    found, error, of_tables, of_streams = REFUSALS[case]
    with pytest.raises(error) as refused:
        found.plan()
    assert of_tables in refused.value.hint
    refused.value.name_commands("result", OF_STREAMS)
    assert of_streams in refused.value.hint
    assert "{" not in refused.value.hint
    refused.value.name_commands("result", OF_KTABLES)
    assert refused.value.hint in refused.value.message


def test_a_ktable_is_never_selected() -> None:
    with pytest.raises(SourceRecreated) as refused:
        Found(sources=(replace(NEW, id="other"), RIGHT)).plan()
    refused.value.name_commands("raw", OF_KTABLES)
    assert KTABLE in refused.value.hint
    assert "--select" not in refused.value.hint


def test_an_exact_changelog_needs_the_feeds_whatever_they_cost() -> None:
    plan = Found(ledger(LOADED_WITH_LOG), changelog=LOGGED, in_full=CHEAPER).plan()
    assert plan.strategy == "incremental"


@pytest.mark.parametrize(("log", "backfill"), [(LOGGED, False), (LOGGED, True), (NOT_LOGGED, True)])
def test_an_epoch_writes_the_changelog_before_the_result(log: Write, backfill: bool) -> None:
    plan = Found(ledger(LOADED_WITH_LOG), changelog=log, backfill=backfill).plan()
    assert plan.writes == (log, EXISTING)
    assert (plan.changelog, plan.result) == (log.target, EXISTING.target)


def test_the_feed_is_read_from_the_first_commit_with_data() -> None:
    """Commits before it, and quiet sources, are accounted for without being read."""
    left, right = Found(sources=(NEW, replace(RIGHT, version=7))).plan().sources
    assert (left.from_version, left.read_after, left.to_version, left.changed_rows) == (6, 7, 9, 4)
    assert (right.from_version, right.read_after, right.to_version, right.has_changes) == (6, 7, 7, False)


@pytest.mark.parametrize("found", [Found(ledger(), result=MISSING), Found(backfill=True)], ids=["load", "backfill"])
def test_what_is_computed_in_full_reads_no_feed(found: Found) -> None:
    assert all(part.from_version == -1 for part in found.plan().sources)
    assert not found.plan().via_driver


@cases(
    "found, ways",
    (Found(), ["incremental", "reconcile"]),
    (Found(in_full=CHEAPER), ["incremental", "reconcile"]),
    (Found(refresh="full"), ["incremental", "reconcile"]),
    (Found(backfill=True), []),
    (Found(sources=(replace(NEW, gap="gone"), RIGHT)), []),
    (Found(sources=(replace(NEW, id="other"), RIGHT), refresh="full"), []),
    (Found(ledger(), result=MISSING), []),
    (Found(sources=(LEFT, RIGHT)), []),
    (Found(estimates={}), []),
    ids=["feeds", "in full", "always full", "backfill", "gap", "recreated", "load", "nothing", "unknown"],
)
def test_a_plan_has_both_estimates_where_it_is_known_what_changed(found: Found, ways: list[str]) -> None:
    assert sorted(found.plan().estimates) == ways


OPEN = entry(2, PUBLISHING)


@cases(
    "history, backfill, reason",
    (ledger(LOADED, OPEN), False, "open-epoch: run run2"),
    (ledger(LOADED, OPEN), True, "open-epoch: run run2"),
    (ledger(LOADED, replace(OPEN, slices=(Slice("k < 1", 3),))), False, "open-backfill: run run2"),
    (ledger(LOADED, OPEN, entry(2, BROKEN, message="2 rows")), True, "open-epoch: run run2"),
    ids=["open", "a backfill", "slices", "broken, a backfill"],
)
def test_an_open_epoch_is_finished_first(history: JoinHistory, backfill: bool, reason: str) -> None:
    plan = plan_open("result", history, backfill=backfill)
    assert (plan.epoch, plan.strategy, plan.route, plan.writes) == (2, "resume", Resume(), ())
    assert plan.reason.startswith(reason)


def test_a_broken_epoch_waits_for_a_backfill() -> None:
    with pytest.raises(BrokenEpoch, match="epoch 2 is broken: 2 rows") as refused:
        plan_open("result", ledger(LOADED, OPEN, entry(2, BROKEN, message="2 rows")))
    assert "`lakejoin backfill --select result`, which abandons the epoch" in refused.value.hint


def test_a_range_that_was_read_can_be_read_again() -> None:
    (left, _) = (SourceRange.recorded(read) for read in LOADED.sources)
    assert (left.from_version, left.read_after, left.to_version) == (5, 5, 6)
    quiet = SourceRange.nothing_after(LOADED.sources[0])
    assert (quiet.from_version, quiet.to_version, quiet.has_changes) == (6, 6, False)
