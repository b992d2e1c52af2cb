"""The order in which a run does things, its refusals and its recovery, over tables and a ledger in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from expectations.validation import Verdict
from lakehouse.errors.errors import AnotherRun, BrokenEpoch, CannotContinue, FeedUnavailable, GateFailed, Remedy
from lakehouse.ledger.entries import BROKEN, PUBLISHING
from lakehouse.publish.writes import AppendInPlace
from lakehouse.values.recorded import Slice
from pipelines.epochs.publish import open_epoch
from pipelines.epochs.run import driver
from pipelines.epochs.run.driver import NEXT, run_join
from pipelines.epochs.run.slices import BackfillOpen
from pipelines.plan.decide import OF_STREAMS
from pipelines.plan.request import Backfill, Request
from pipelines.plan.values import InPlace, Sliced
from pipelines.report import JoinReport
from tests.cases import cases
from tests.epochs.fakes import NAME, PARTS, FakeKind, FakeWorkspace, faked
from tests.killing import is_killed, killed, recorded_writes

WHOLE = Request(Backfill())


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[FakeWorkspace]:
    made = FakeWorkspace(tmp_path)
    with faked(made):
        yield made


def run(kind: FakeKind, request: Request = NEXT) -> JoinReport:
    return run_join(kind, request)


def is_killed_at(number: int, kind: FakeKind) -> bool:
    """Kill a run before a write by an even number, after it by an odd one."""
    return is_killed(lambda: run(kind), "", ("before", "after")[number % 2], number // 2 + 1)


@pytest.mark.parametrize("kind", PARTS)
def test_an_epoch_is_staged_then_begun_then_written_then_closed(workspace: FakeWorkspace, kind: str) -> None:
    """The result last, whatever the kind writes beside it."""
    with recorded_writes("after") as done:
        report = run(FakeKind(workspace, writes=PARTS[kind]))
    parts = [part for _, part in PARTS[kind]]
    assert done == [
        *(f"stage {part}" for part in parts),
        "ledger: publishing",
        *(f"table {part}" for part in parts),
        "ledger: committed",
        "delete stage",
    ]
    assert parts[-1] == "result"
    assert (report.outcome, report.epoch, report.counts) == ("done", 1, {"inserted": 1})
    assert workspace.staged() == []
    committed = workspace.ledger.rows[-1]
    assert [target.version for target in committed.targets] == [1] * len(parts)


@pytest.mark.parametrize("kind", PARTS)
def test_killed_at_any_write_the_next_run_ends_where_it_would_have(tmp_path: Path, kind: str) -> None:
    number = 0
    while True:
        workspace = FakeWorkspace(tmp_path / str(number))
        with faked(workspace):
            if not is_killed_at(number, FakeKind(workspace, writes=PARTS[kind])):
                break
            run(FakeKind(workspace, writes=PARTS[kind]))
        committed = [step for step in workspace.ledger.steps() if step[1] == "committed"]
        assert committed == [(1, "committed")], number
        for _, part in PARTS[kind]:
            label = NAME if part == "result" else f"{NAME}__{part}"
            assert len(workspace.tables.commits[label]) == 1, (number, part)
        number += 1
    assert number == 2 * (2 * len(PARTS[kind]) + 3), "each write is one, before and after it"


def test_an_epoch_in_place_is_abandoned_unless_its_rows_are_written(tmp_path: Path) -> None:
    """No stage holds them: an open epoch without rows is fenced off, and the next one computes them."""
    found = []
    for number in range(100):
        workspace = FakeWorkspace(tmp_path / str(number))
        kind = FakeKind(workspace, writes=[(AppendInPlace, "result")])
        with faked(workspace):
            if not is_killed_at(number, kind):
                break
            run(kind)
        assert len(workspace.tables.commits[NAME]) == 1, number
        found.append([step for _, step in workspace.ledger.steps()])
    done, again = ["publishing", "committed"], ["publishing", "abandoned", "publishing", "committed"]
    assert found == [done, again, again, done, done, done, done, done]


def test_what_does_not_pass_its_gate_is_kept_in_its_stage_and_uses_up_no_number(workspace: FakeWorkspace) -> None:
    with pytest.raises(GateFailed, match="two rows") as refused:
        run(FakeKind(workspace, verdict=Verdict(("two rows for a key",))))
    (stage,) = workspace.staged()
    assert f"inspect the stage in {stage}" in refused.value.hint
    assert workspace.tables.commits == {}
    run(FakeKind(workspace))
    assert workspace.ledger.steps() == [(1, "rejected"), (1, "publishing"), (1, "committed")]


def test_the_hint_of_a_gate_has_the_commands_of_the_kind(workspace, monkeypatch):
    monkeypatch.setattr(FakeKind, "commands", OF_STREAMS)
    with pytest.raises(GateFailed) as refused:
        run(FakeKind(workspace, verdict=Verdict(("two rows for a key",))))
    assert "lakejoin backfill --reset --select result" in refused.value.hint
    assert refused.value.hint in str(refused.value)


def test_an_epoch_that_cannot_be_computed_leaves_nothing(workspace: FakeWorkspace) -> None:
    error = FeedUnavailable("left", "its feed has a gap", hint=Remedy("{reconcile}", NAME))
    with pytest.raises(FeedUnavailable, match="has a gap"):
        run(FakeKind(workspace, failing=[error]))
    assert (workspace.staged(), workspace.ledger.rows, workspace.tables.commits) == ([], [], {})


def test_a_kind_may_replace_an_epoch_that_cannot_be_computed(workspace: FakeWorkspace) -> None:
    error = FeedUnavailable("left", "its feed has a gap")
    report = run(FakeKind(workspace, failing=[error], around="feed-gap: left"))
    assert (report.strategy, report.reason, report.epoch) == ("reconcile", "feed-gap: left", 1)
    assert workspace.ledger.steps() == [(1, "publishing"), (1, "committed")]


def test_the_epoch_that_replaces_another_is_not_replaced_again(workspace: FakeWorkspace) -> None:
    errors: list[Exception | None] = [CannotContinue(NAME, "first"), CannotContinue(NAME, "second")]
    with pytest.raises(CannotContinue, match="second"):
        run(FakeKind(workspace, failing=errors, around="again"))


def test_a_run_goes_on_up_to_what_it_found_when_it_began(workspace: FakeWorkspace) -> None:
    kind = FakeKind(workspace, news=3)
    report = run(kind)
    assert [step for step in workspace.ledger.steps() if step[1] == "committed"] == [
        (n, "committed") for n in (1, 2, 3)
    ]
    assert report.epoch == 3
    assert "3 epochs, starting at epoch 1" in report.details[-1]
    assert [request.goal for request in kind.asked] == [None, {}, {}], "the further epochs have a goal"


def test_nothing_to_do_writes_nothing(workspace: FakeWorkspace) -> None:
    with recorded_writes("after") as done:
        report = run(FakeKind(workspace, news=0))
    assert (report.outcome, report.reason, done) == ("nothing", "no-changes: none", [])


def left_open(workspace: FakeWorkspace, parts: Any = PARTS["tables"]) -> None:
    with killed("ledger: publishing", "after"):
        run(FakeKind(workspace, writes=parts))


def test_a_run_finishes_the_open_epoch_and_goes_on(workspace: FakeWorkspace) -> None:
    left_open(workspace)
    report = run(FakeKind(workspace, news=2))
    assert (report.strategy, report.epoch) == ("incremental", 2)
    assert workspace.ledger.steps()[-3:] == [(1, "committed"), (2, "publishing"), (2, "committed")]


def test_a_stage_that_is_gone_before_anything_was_written_is_planned_anew(workspace: FakeWorkspace) -> None:
    left_open(workspace)
    (stage,) = workspace.staged()
    stage.rename(stage.with_name("away"))
    run(FakeKind(workspace))
    assert [step for _, step in workspace.ledger.steps()] == ["publishing", "abandoned", "publishing", "committed"]


def test_a_stage_that_is_gone_half_way_waits_for_a_backfill(workspace: FakeWorkspace) -> None:
    left_open(workspace, PARTS["two streams"])
    (entry,) = workspace.ledger.rows
    workspace.tables.commit(entry.writes[0], entry.run_id, entry.stage)
    (stage,) = workspace.staged()
    stage.rename(stage.with_name("away"))
    with pytest.raises(CannotContinue, match="part of the epoch is written") as refused:
        run(FakeKind(workspace))
    assert refused.value.hint.startswith("restore the folder, or run `lakejoin backfill --select result`")
    run(FakeKind(workspace), WHOLE)
    assert [step for _, step in workspace.ledger.steps()] == ["publishing", "abandoned", "publishing", "committed"]


def test_a_backfill_gives_up_a_broken_epoch_and_restores_the_buffered_rows(workspace: FakeWorkspace) -> None:
    left_open(workspace, PARTS["two streams"])
    (entry,) = workspace.ledger.rows
    workspace.tables.commit(entry.writes[0], entry.run_id, entry.stage)
    workspace.ledger.append(replace(entry, step=BROKEN, message="2 rows"))
    with pytest.raises(BrokenEpoch, match="2 rows"):
        run(FakeKind(workspace))
    with recorded_writes("after") as done:
        run(FakeKind(workspace, writes=PARTS["two streams"]), WHOLE)
    assert done[:3] == ["restore", "ledger: abandoned", "delete stage"]
    assert len(workspace.tables.commits["result__state"]) == 1


@pytest.mark.parametrize("request_", [NEXT, Request(Backfill(where="k = 1"))], ids=["run", "a part"])
def test_an_open_backfill_in_slices_waits_for_one_of_the_whole(workspace: FakeWorkspace, request_: Request) -> None:
    left_open(workspace)
    workspace.ledger.rows[0] = replace(workspace.ledger.rows[0], slices=(Slice("k < 1", 1),))
    with pytest.raises(BackfillOpen, match="has begun and is not finished"):
        run(FakeKind(workspace), request_)
    assert [step for _, step in workspace.ledger.steps()] == [PUBLISHING]


def test_an_open_backfill_of_another_kind_is_abandoned_by_a_backfill(workspace: FakeWorkspace) -> None:
    """Such as a join of tables whose first source has become a stream meanwhile."""
    left_open(workspace)
    workspace.ledger.rows[0] = replace(workspace.ledger.rows[0], slices=(Slice("k < 1", 1),))
    run(FakeKind(workspace), WHOLE)
    assert [step for _, step in workspace.ledger.steps()] == [PUBLISHING, "abandoned", PUBLISHING, "committed"]
    assert "the join was of another kind when epoch 1 began" in workspace.ledger.rows[1].message


@pytest.mark.parametrize("request_", [NEXT, WHOLE], ids=["run", "backfill"])
def test_an_interrupted_load_of_another_kind_is_dropped_and_done_anew(workspace, monkeypatch, request_):
    left_open(workspace)
    (entry,) = workspace.ledger.rows
    new = tuple(replace(write, target=replace(write.target, base_version=-1)) for write in entry.writes)
    workspace.ledger.rows[0] = replace(entry, writes=new)
    dropped = []
    monkeypatch.setattr(open_epoch, "_drop", lambda _, entry: dropped.append(entry.result.address.label))
    run(FakeKind(workspace), request_)
    assert dropped == [NAME]
    assert [step for _, step in workspace.ledger.steps()] == [PUBLISHING, "abandoned", PUBLISHING, "committed"]


def test_of_two_runs_one_publishes_and_the_other_leaves_no_stage(workspace, monkeypatch):
    kind = FakeKind(workspace)
    prepared = kind.prepare(NEXT)
    run(FakeKind(workspace))
    monkeypatch.setattr(FakeKind, "prepare", lambda *_: prepared)
    with pytest.raises(AnotherRun):
        run(kind)
    assert workspace.staged() == []
    assert workspace.ledger.steps() == [(1, "publishing"), (1, "committed")]


def test_whoever_meets_another_run_again_and_again_is_told_so(workspace: FakeWorkspace) -> None:
    """Its own epoch was not run: a backfill that reports nothing would be taken for one that was done."""
    left_open(workspace)
    (entry,) = workspace.ledger.rows

    @dataclass(frozen=True)
    class Beside(FakeKind):
        def prepare(self, request: Request) -> Any:
            if workspace.ledger.of(NAME).open is None:
                workspace.ledger.append(replace(entry, epoch=2, run_id="another"))
            return super().prepare(request)

    for request in (NEXT, WHOLE, Request(flush=True)):
        with pytest.raises(AnotherRun, match="another run began epoch") as late:
            run(Beside(workspace), request)
        assert late.value.exit_code == 5
        workspace.ledger.rows[:] = [entry]
        workspace.tables.commits.clear()
        Path(entry.stage, "result").mkdir(parents=True)


@cases("route, called", (InPlace(), "load"), (Sliced(3), "backfill_in_slices"), ids=["in place", "sliced"])
def test_the_route_of_the_plan_decides(workspace, monkeypatch, route, called):
    run(FakeKind(workspace))
    entry, calls = workspace.ledger.rows[-1], []
    for owner, name in ((FakeKind, "load"), (driver, "backfill_in_slices")):
        monkeypatch.setattr(owner, name, lambda *args, name=name: calls.append((name, args)) or entry)
    report = run(FakeKind(workspace, news=2, route=route))
    ((name, args),) = calls
    assert name == called
    assert 3 in args or called == "load"
    assert report.outcome == "done"
