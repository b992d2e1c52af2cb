"""
A run beside another run, beside OPTIMIZE, beside a writer of its source and beside a foreign writer of its result.
Whoever comes in between comes at a write of the run, by the hook of `lakehouse.session.writing`: nothing here waits for
a time.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import pytest

from lakehouse.errors.errors import AnotherRun, CannotContinue, ForeignWriter
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_joins
from pipelines.report.progress import Progress
from tests.killing import killed, observed, recorded_writes
from tests.lake import Lake, only
from tests.test_crash import (
    before_an_epoch,
    before_an_epoch_of_two_streams,
    before_an_epoch_with_a_changelog,
    before_the_load,
    outcome,
    pipeline_of,
)

KINDS = {
    "tables": before_an_epoch,
    "changelog": before_an_epoch_with_a_changelog,
    "two streams": before_an_epoch_of_two_streams,
}
PUBLISHING = "ledger: publishing"
SECONDS = 120
"""So long one of two runs waits for the other before the test fails."""


@dataclass(frozen=True)
class Ready:
    lake: Lake
    writes: tuple[str, ...]
    expected: dict[str, Any]

    @property
    def publishing(self) -> int:
        """The place of the write that decides who publishes; what comes before it has computed the epoch."""
        return next(place for place, what in enumerate(self.writes) if what.startswith(PUBLISHING))

    @property
    def to_result(self) -> int:
        to_tables = [place for place, what in enumerate(self.writes) if not what.startswith("ledger: ")]
        return max(place for place in to_tables if self.writes[place].endswith(" result"))


def made_ready(lake: Lake, folder: Path) -> Ready:
    straight = lake.copy(folder)
    with recorded_writes() as writes:
        pipeline_of(straight).run(straight.spark)
    return Ready(lake, tuple(writes), outcome(straight))


def some_more(lake: Lake) -> None:
    for name in ("left", "right"):
        lake.sql(f"INSERT INTO {{{name}}} VALUES (13, '{name}')")


def all_ways(lake: Lake) -> None:
    some_more(lake)
    lake.sql("UPDATE {right} SET w = 'again' WHERE k = 3")
    lake.sql("DELETE FROM {left} WHERE k = 1")


@pytest.fixture(scope="module", params=["changelog", "tables", "two streams"])
def ready(
    request: pytest.FixtureRequest, _standard: Lake, _loaded: Lake, tmp_path_factory: pytest.TempPathFactory
) -> Ready:
    """Give a lake after two epochs, so that its tables have several files, with changes for a third one."""
    folder = tmp_path_factory.mktemp("ready")
    lake = KINDS[request.param](_standard.copy(folder / "standard"), _loaded.copy(folder / "loaded"))
    pipeline_of(lake).run(lake.spark)
    (some_more if request.param == "two streams" else all_ways)(lake)
    return made_ready(lake, folder / "straight")


@contextmanager
def before(place: int, come_in: Callable[[], object]) -> Iterator[None]:
    """Let somebody come in before the write with a place, counted from 0, of what runs here."""
    seen = -1

    def observe(when: str, what: str) -> None:
        nonlocal seen
        seen += when == "before"
        if when == "before" and seen == place:
            come_in()

    with observed(observe):
        yield
    assert seen >= place, "nobody came in"


@contextmanager
def both_before(what: str) -> Iterator[None]:
    """Let neither of two threads begin a write until both are there; later writes of that name wait for nobody."""
    barrier, there = Barrier(2), set[int]()

    def observe(when: str, name: str) -> None:
        if when == "before" and name == what and get_ident() not in there:
            there.add(get_ident())
            barrier.wait(SECONDS)

    with observed(observe):
        yield
    assert len(there) == 2


def said(lake: Lake) -> str:
    """Run the pipeline of a lake, and give what it says: done, resumed, nothing, or its exit code."""
    try:
        report = only(pipeline_of(lake).run(lake.spark))
    except AnotherRun as error:
        return f"exit code {error.exit_code}"
    return "resumed" if report.strategy == "resume" else report.outcome


def at_once(lake: Lake) -> list[str]:
    """Run the pipeline of a lake twice at the same time, and give what both say, sorted."""
    with ThreadPoolExecutor(2) as both:
        return sorted(both.map(said, [lake, lake]))


def leftovers(lake: Lake) -> list[Path]:
    return [path for path in (lake.folder / "lake" / "lakejoin_stage").rglob("*") if path.is_file()]


def without_versions(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "versions"}


def interrupted(ready: Ready, lake: Lake, place: int) -> list[str]:
    """Let a second run begin before a write of the first, and give what the first and the second say."""
    second: list[str] = []
    with before(place, lambda: second.append(said(lake))):
        first = said(lake)
    return [first, *second]


@pytest.mark.parametrize("everywhere", [False, True], ids=["around publishing", "at every write"])
@pytest.mark.usefixtures("reader")
@pytest.mark.slow
def test_a_second_run_that_begins_between_two_steps_leaves_each_row_written_once(ready, tmp_path, everywhere):
    """Whoever comes first does the work, or both do a part of it; the other one says so, and nothing is left behind."""
    places = range(len(ready.writes)) if everywhere else (ready.publishing, ready.to_result)
    for place in places:
        lake = ready.lake.copy(tmp_path / str(place))
        told = interrupted(ready, lake, place)
        where = f"second run before {ready.writes[place]}: {told}"
        assert told in EITHER_WAY, where
        assert outcome(lake) == ready.expected, where
        assert not leftovers(lake), where


EITHER_WAY = (
    ["exit code 5", "done"],  # the second one did all of it
    ["exit code 5", "resumed"],  # the second one finished what the first had begun to publish
    ["done", "resumed"],  # so it did, and the first one found that its own writes were there
    ["done", "nothing"],  # the first one was through
)


@pytest.mark.usefixtures("reader")
@pytest.mark.slow
def test_of_two_runs_that_publish_at_once_one_does_and_the_other_says_so(ready: Ready, tmp_path: Path) -> None:
    lake = ready.lake.copy(tmp_path / "lake")
    with both_before(ready.writes[ready.publishing]):
        told = at_once(lake)
    assert told in (["done", "exit code 5"], ["exit code 5", "resumed"]), told
    assert outcome(lake) == ready.expected
    assert not leftovers(lake)


@pytest.mark.slow
def test_two_runs_that_finish_one_open_epoch_at_once_write_each_row_once(ready: Ready, tmp_path: Path) -> None:
    lake, first_write = ready.lake.copy(tmp_path / "lake"), ready.writes[ready.publishing + 1]
    with killed(first_write):
        pipeline_of(lake).run(lake.spark)
    with both_before(first_write):
        told = at_once(lake)
    assert "resumed" in told
    assert set(told) <= {"resumed", "exit code 5"}, told
    assert outcome(lake) == ready.expected
    assert not leftovers(lake)


@pytest.mark.slow
@pytest.mark.usefixtures("reader")
def test_of_two_first_loads_at_once_one_loads_and_the_other_says_so(standard: Lake, tmp_path: Path) -> None:
    load = made_ready(before_the_load(standard, standard), tmp_path / "straight")
    with both_before(load.writes[load.publishing]):
        told = at_once(standard)
    assert told == ["done", "exit code 5"]
    assert outcome(standard) == load.expected


@pytest.mark.slow
def test_a_second_run_between_two_steps_of_a_first_load_loads_nothing_twice(standard: Lake, tmp_path: Path) -> None:
    load = made_ready(before_the_load(standard, standard), tmp_path / "straight")
    for place, what in enumerate(load.writes):
        lake = standard.copy(tmp_path / str(place))
        told = interrupted(load, lake, place)
        assert told in EITHER_WAY, f"second run before {what}: {told}"
        assert outcome(lake) == load.expected, f"second run before {what}: {told}"


def optimized(lake: Lake) -> set[str]:
    """Make the files of every table few, and name those of which files were rewritten."""
    before = lake.versions()
    for name in before:
        lake.sql(f"OPTIMIZE {{{name}}}", name)
    after = lake.versions()
    return {name for name in before if after[name] > before[name]}


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["publishing", "to_result"])
def test_optimize_of_every_table_after_an_epoch_is_computed_disturbs_nothing(ready, tmp_path, moment):
    """Files of sources, result, changelog, state and ledger are rewritten before MERGE; the epoch goes through."""
    lake, rewritten = ready.lake.copy(tmp_path / "lake"), set[str]()
    with before(getattr(ready, moment), lambda: rewritten.update(optimized(lake))):
        assert said(lake) == "done"
    assert {"left", "right", "result"} <= rewritten
    assert without_versions(outcome(lake)) == without_versions(ready.expected)


def come_once_more(lake: Lake) -> None:
    for name in ("left", "right"):
        lake.sql(f"INSERT INTO {{{name}}} VALUES (14, 'late')")


class AtBegin(Progress):
    """Somebody comes in once an epoch is planned, before anything of it is computed."""

    def __init__(self, come_in: Callable[[], object]) -> None:
        self._come_in = come_in

    def started(self, join: str, epoch: int, strategy: str, reason: str) -> None:
        self._come_in()


@pytest.mark.slow
def test_what_a_writer_of_a_source_commits_after_the_pin_is_taken_by_the_next_epoch(ready, tmp_path):
    lake = ready.lake.copy(tmp_path / "lake")
    pipeline = pipeline_of(lake)
    workspace = Workspace.open(lake.spark, pipeline.file, pipeline.folder)
    assert only(run_joins(workspace, progress=AtBegin(lambda: come_once_more(lake)))).outcome == "done"
    found = outcome(lake)
    for name in ("left", "right"):  # the rows that came later are there
        found["rows"][name] = [row for row in found["rows"][name] if row[0] != 14]
    assert without_versions(found) == without_versions(ready.expected)
    assert found["versions"] == ready.expected["versions"] | {
        name: ready.expected["versions"][name] + 1 for name in ("left", "right")
    }
    assert not [row for row in lake.rows() if row[0] == 14]
    assert said(lake) == "done"
    assert [row for row in lake.rows() if row[0] == 14]


@pytest.mark.slow
def test_a_foreign_write_to_the_result_before_publishing_leaves_all_tables_as_they_are(ready, tmp_path):
    """Exit code 4, and neither result nor changelog nor state has a row of the epoch, until a backfill mends it."""
    lake = ready.lake.copy(tmp_path / "lake")
    versions = lake.versions()
    refused_after_a_foreign_delete(lake, ready.publishing)
    after = lake.versions()
    assert {name for name in after if after[name] != versions[name]} == {"result", "lakejoin_ledger"}
    assert after["result"] == versions["result"] + 1, "the foreign commit alone"
    assert lake.rows() == []
    mended(ready, lake)


@pytest.mark.slow
def test_a_foreign_write_between_the_last_check_and_the_write_to_the_result_is_seen_after_it(ready, tmp_path):
    """Nobody can keep it out, but the epoch stays open and no run goes on, until a backfill mends the result."""
    lake = ready.lake.copy(tmp_path / "lake")
    refused_after_a_foreign_delete(lake, ready.to_result)
    version = lake.version()
    with pytest.raises(ForeignWriter):
        pipeline_of(lake).run(lake.spark)
    assert lake.version() == version
    if not lake.is_there("result__state"):
        return mended(ready, lake)
    # The rows of two streams are in the result, although their epoch is abandoned: that is for the user to decide.
    with pytest.raises(CannotContinue, match="rows that no epoch made"):
        pipeline_of(lake).backfill(lake.spark)
    pipeline_of(lake).backfill(lake.spark, remedy="reset")
    assert said(lake) == "nothing"


def refused_after_a_foreign_delete(lake: Lake, place: int) -> None:
    """Let somebody empty the result before a write of a run, which sees it."""
    with before(place, lambda: lake.sql("DELETE FROM {result}")), pytest.raises(ForeignWriter) as refused:
        pipeline_of(lake).run(lake.spark)
    assert refused.value.exit_code == 4


def mended(ready: Ready, lake: Lake) -> None:
    """Backfill, and see that the result is the join again."""
    pipeline_of(lake).backfill(lake.spark)
    pipeline_of(lake).run(lake.spark)
    assert sorted((row[:3] for row in lake.rows()), key=repr) == sorted(
        (row[:3] for row in ready.expected["rows"]["result"]), key=repr
    )
