"""Tables, a ledger and a kind of join in memory: for the order in which a run does things, without Spark."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from expectations.validation import Verdict
from lakehouse.errors.errors import AnotherRun
from lakehouse.ledger.entries import CLOSING, PUBLISHING, Entry, JoinHistory
from lakehouse.publish.stage import Stage
from lakehouse.publish.writes import Append, AppendInPlace, Merge, Overwrite, Part, TargetVersions, Write
from lakehouse.session.files import Files
from lakehouse.session.writing import write as observed
from lakehouse.values.recorded import UNKNOWN
from lakehouse.values.sqltext import Address
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.kind import Kind, Prefetched
from pipelines.epochs.publish import publish
from pipelines.epochs.run import driver, recovery
from pipelines.plan.decide import plan_open
from pipelines.plan.request import Request
from pipelines.plan.values import Computed, EpochPlan, Idle, Route, Staged

NAME = "result"


class FakeSpark:
    def __init__(self) -> None:
        self.conf = self
        self.values: dict[str, str] = {}

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)


class FakeLedger:
    """A ledger that keeps its rows in a list, and one *publishing* and one closing row for each epoch."""

    id = "ledger"

    def __init__(self) -> None:
        self.rows: list[Entry] = []
        self._clock = itertools.count()

    def append(self, entry: Entry) -> Entry:
        observed(f"ledger: {entry.step}", lambda: self._append(entry))
        if entry not in self.rows:
            raise AnotherRun(entry.join, f"epoch {entry.epoch} belongs to another run")
        return entry

    def _append(self, entry: Entry) -> None:
        alike = CLOSING if entry.step in CLOSING else (entry.step,)
        taken = any(row.epoch == entry.epoch and row.step in alike for row in self.rows)
        if not (taken and entry.step in (PUBLISHING, *CLOSING)):
            self.rows.append(entry)

    def of(self, join: str) -> JoinHistory:
        assert join == NAME
        return JoinHistory(tuple(self.rows))

    def steps(self) -> list[tuple[int, str]]:
        return [(row.epoch, row.step) for row in self.rows]


@dataclass
class FakeTables:
    """What was committed to each table: the run, and what it wrote."""

    commits: dict[str, list[tuple[str, Write]]] = field(default_factory=dict)

    def commit(self, write: Write, run_id: str, stage: str) -> int:
        made = self.commits.setdefault(write.target.address.label, [])
        if run_id not in [run for run, _ in made]:
            is_staged = Path(stage, write.part).exists()
            assert is_staged != isinstance(write, AppendInPlace), f"{write.part} is staged: {is_staged}"
            made.append((run_id, write))
        return len(made)

    def version(self, label: str) -> int:
        return len(self.commits.get(label, []))

    def has(self, label: str, run_id: str) -> bool:
        return any(run == run_id for run, _ in self.commits.get(label, []))


class FakeWorkspace:
    def __init__(self, folder: Path) -> None:
        self.spark, self.ledger, self.tables, self.engine = FakeSpark(), FakeLedger(), FakeTables(), None
        self.feeds = SimpleNamespace(repairs=0)
        self.file = SimpleNamespace(joins={}, storage=SimpleNamespace(path="lake", schema_name=None))
        self.stages = str(folder / "stages")

    def stage(self, join: str, epoch: int, run_id: str) -> Stage:
        return Stage.of(f"{self.stages}/{self.ledger.id}", Files(), join, epoch, run_id)

    def stage_at(self, path: str) -> Stage:
        return Stage(path, Files())

    def table(self, name: str) -> Address:
        return Address(name, path=f"/lake/{name}")

    def staged(self) -> list[Path]:
        return sorted(Path(self.stages).glob("ledger/result/*"))


PARTS: Mapping[str, Sequence[tuple[type[Write], Part]]] = {
    "tables": [(Merge, "result")],
    "tables with a changelog": [(Append, "changelog"), (Merge, "result")],
    "look-ups": [(Append, "result")],
    "two streams": [(Merge, "state"), (Append, "result")],
    "a reset": [(Overwrite, "state"), (Overwrite, "result")],
}
"""What epochs of each kind write."""


@dataclass(frozen=True)
class FakeKind(Kind[Any]):
    """
    A kind of join whose epochs are what a test says.

    Args:
        writes: What an epoch writes.
        news: How many epochs the sources have news for.
        verdict: What the gate finds.
        route: The route of the next epoch.
        around: The reason for the epoch that replaces one that cannot be computed; empty if nothing replaces it.
        asked: The requests that were made.
        failing: The errors that computing raises, first to last; None for none.
    """

    workspace: Any
    name: str = NAME
    writes: Sequence[tuple[type[Write], Part]] = ((Merge, "result"),)
    news: int = 1
    verdict: Verdict = field(default_factory=Verdict)
    route: Route = field(default_factory=Staged)
    around: str = ""
    asked: list[Request] = field(default_factory=list)
    failing: list[Exception | None] = field(default_factory=list)

    def prepare(self, request: Request) -> Prepared[Any]:
        self.asked.append(request)
        history = self.workspace.ledger.of(self.name)
        if history.open is not None:
            return Prepared(plan_open(self.name, history, backfill=request.is_whole), history, None)
        done = sum(entry.step == "committed" for entry in history.recent)
        plan = EpochPlan(
            join=self.name,
            epoch=history.next_epoch,
            strategy="incremental",
            reason="changes: news",
            writes=self._planned(),
        )
        if done >= self.news and not request.flush and request.backfill is None:
            plan = replace(plan, strategy="nothing", reason="no-changes: none", route=Idle())
        else:
            plan = replace(plan, route=self.route, more=done + 1 < self.news)
        return Prepared(plan, history, self._bound())

    def _planned(self) -> tuple[Write, ...]:
        labels = {part: self.name if part == "result" else f"{self.name}__{part}" for _, part in self.writes}
        return tuple(
            kind(
                TargetVersions(self.workspace.table(labels[part]), "id", self.workspace.tables.version(labels[part])),
                part,
            )
            for kind, part in self.writes
        )

    def _bound(self) -> Any:
        return SimpleNamespace(sources=(), definition="d", statement="", join=SimpleNamespace(left_out=()))

    def prepare_around(self, epoch: Epoch[Any], request: Request, error: Exception) -> Prepared[Any]:
        if not self.around:
            raise error
        plan = replace(epoch.plan, strategy="reconcile", reason=self.around)
        return Prepared(plan, self.workspace.ledger.of(self.name), epoch.bound)

    def create_targets(self, epoch: Epoch[Any]) -> Epoch[Any]:
        return epoch

    def compute(self, epoch: Epoch[Any], stage: Stage) -> Computed:
        for part in (part for kind, part in self.writes if kind is not AppendInPlace):
            observed(f"stage {part}", lambda part=part: Path(stage.path, part).mkdir(parents=True))  # type: ignore[misc]
        failure = self.failing.pop(0) if self.failing else None
        if failure is not None:
            raise failure
        counted = (
            replace(write, inserted=1) if isinstance(write, Merge) else replace(write, rows=1)
            for write in epoch.plan.writes
        )
        return Computed({"inserted": 1}, tuple(counted))

    def gate(self, epoch: Epoch[Any], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        return self.verdict


@contextmanager
def faked(workspace: FakeWorkspace) -> Iterator[None]:
    """Let epochs be published to the tables of a workspace in memory."""

    def commit(_: Any, entry: Entry, write: Write, stage: Stage) -> int:
        return observed(f"table {write.part}", lambda: workspace.tables.commit(write, entry.run_id, entry.stage))

    def has_written(_: Any, entry: Entry) -> bool:
        return any(workspace.tables.has(target.address.label, entry.run_id) for target in entry.targets)

    def restore(_: Any, entry: Entry, target: TargetVersions) -> None:
        kept = workspace.tables.commits.get(target.address.label, [])[: target.base_version]
        observed("restore", lambda: workspace.tables.commits.update({target.address.label: kept}))

    def fence_off(_: Any, entry: Entry) -> bool:
        return observed("fence", lambda: not has_written(_, entry))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "fence_off", fence_off)
        patch.setattr(publish, "_write", commit)
        patch.setattr(publish, "_check_result", lambda *_: None)
        patch.setattr(publish, "identity_at", lambda *_: UNKNOWN)
        patch.setattr(driver, "last_transaction", lambda *_: None)
        patch.setattr(recovery, "_has_written", has_written)
        patch.setattr(recovery, "restore_table", restore)
        patch.setattr(recovery, "find", lambda *_: True)
        yield
