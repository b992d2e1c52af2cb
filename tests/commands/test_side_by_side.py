"""Joins side by side: in threads and sessions of their own, with the same results, feeds and ledger as one by one."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse.session import writing
from lakehouse.tables.table import Table
from pipelines.binding import workspace as workspaces
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import run_joins
from pipelines.commands.side_by_side import own_workspace, side_by_side
from pipelines.commands.verify import verify_joins
from pipelines.language import load
from pipelines.report import JoinReport
from tests.killing import Killed, is_killed
from tests.lake import Lake

NUMBERS = range(3)
TOP = "SELECT a.k, a.v, b.w FROM j0 a LEFT JOIN j1 b ON a.k = b.k"


def test_calls_wait_for_those_that_they_need_and_results_keep_the_order() -> None:
    running, most, ended = set[str](), [0], list[str]()

    def call(name: str) -> str:
        running.add(name)
        most[0] = max(most[0], len(running))
        time.sleep(0.05 if name == "a" else 0.2)
        running.discard(name)
        assert name != "d" or {"a", "b"} <= {*ended}
        return name.upper()

    inputs = {"d": ("a", "b", "elsewhere")}
    found = side_by_side(
        ["b", "a", "c", "d"],
        3,
        call,
        inputs=lambda name: inputs.get(name, ()),
        ended=lambda name, _: ended.append(name),
    )
    assert (found, most, ended[0], ended[-1]) == (["B", "A", "C", "D"], [3], "a", "d")


def test_an_error_is_raised_when_the_calls_that_run_have_ended() -> None:
    ended = []

    def call(name: str) -> None:
        if name == "a":
            raise KeyboardInterrupt
        time.sleep(0.3)
        ended.append(name)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(["a", "b", "c"], 2, call)
    assert ended == ["b"]


def statements() -> dict[str, str]:
    return {f"j{n}": f"SELECT l.k, l.v, r.w FROM left{n % 2} l LEFT JOIN right{n} r ON l.k = r.k" for n in NUMBERS}


@pytest.fixture(scope="module")
def _loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("threads"))
    for n in NUMBERS:
        lake.create(f"left{n}", "k INT, v STRING", "(1, 'a'), (2, 'b')")
        lake.create(f"right{n}", "k INT, w STRING", f"(1, 'x{n}')")
    pipeline(lake, 4).run(spark)
    return lake


@pytest.fixture
def loaded(_loaded: Lake, tmp_path: Path) -> Iterator[Lake]:
    return _loaded.copy(tmp_path / "lake")


def pipeline(lake: Lake, threads: int) -> Any:
    first, *others = statements().items()
    sources = {f"{side}{n}": "k" for n in NUMBERS for side in ("left", "right")}
    further = {**dict(others), "top": TOP}
    return lake.pipeline(first[1], sources, first[0], further=further, beside={"threads": threads})


def change(lake: Lake, of: str = "'c'") -> None:
    for n in NUMBERS:
        lake.sql(f"INSERT INTO {{left{n}}} VALUES (3, {of})", f"left{n}")
        lake.sql(f"UPDATE {{right{n}}} SET w = concat(w, {of})", f"right{n}")


def run(lake: Lake, threads: int | None = None) -> list[JoinReport]:
    return run_joins(Workspace.open(lake.spark, load(lake.file), lake.folder), threads=threads)


NAMES = [*statements(), "top"]


def contents(lake: Lake, after: dict[str, int]) -> list[Any]:
    """Give the rows and the feeds of the results, and the rows of the ledger without what differs from run to run."""
    rows = [
        (row["join_name"], row["epoch"], row["step"], row["strategy"], row["counts"], row["sources"][0]["to_version"])
        for row in lake.ledger()
    ]
    return [[lake.rows(n) for n in NAMES], [lake.feed(after[n], n) for n in NAMES], sorted(rows, key=repr)]


@pytest.mark.slow
def test_results_feeds_and_ledger_are_those_of_joins_one_by_one(
    loaded: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = loaded, loaded.copy(tmp_path / "other")
    after, names = lake.versions(), set[str]()
    read = Counter[str]()
    reading = workspaces.read_changes

    def counted(spark: SparkSession, table: Table, *rest: Any) -> DataFrame:
        read[table.address.label] += 1
        return reading(spark, table, *rest)

    monkeypatch.setattr(workspaces, "read_changes", counted)
    observe = lambda _when, _what: names.add(threading.current_thread().name)  # noqa: E731
    for each, threads in ((lake, 4), (other, 1)):
        pipeline(each, threads)
        change(each)
        writing.observers.append(observe)
        read.clear()
        try:
            reports = run(each)
        finally:
            writing.observers.remove(observe)
        assert [report.join for report in reports] == NAMES
        assert read["left0"] == 1, "two joins read it, in threads each in a session of its own"
        assert {report.outcome for report in reports} == {"done"}, [report.error for report in reports]
    assert contents(lake, after) == contents(other, after)
    assert len({name for name in names if name.startswith("join")}) > 1
    verified = verify_joins(Workspace.open(lake.spark, load(lake.file), lake.folder), threads=4)
    assert [(report.join, report.counts["missing"] + report.counts["surplus"]) for report in verified] == [
        (name, 0) for name in NAMES
    ]


@pytest.mark.deep
def test_an_exception_interrupts_what_other_sessions_run(loaded: Lake) -> None:
    """A job that would take hours ends, and with it the call; nothing else of the application is interrupted."""
    workspace = Workspace.open(loaded.spark, pipeline(loaded, 2).file, loaded.folder)
    began = threading.Event()

    def call(name: str) -> None:
        with own_workspace(workspace, 2) as own:
            if name == "long":
                began.set()
                own.spark.range(10**15).selectExpr("sum(id * 7 % 13)").collect()
            began.wait()
            time.sleep(1)
            raise KeyboardInterrupt

    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(["long", "short"], 2, call, interrupt=workspace.engine.interrupt_others)
    assert time.monotonic() - since < 60


@pytest.mark.deep
def test_a_failing_join_leaves_the_others_whole(loaded: Lake) -> None:
    lake = loaded
    pipeline(lake, 4)
    change(lake)
    lake.sql("DELETE FROM {j1}", "j1")
    reports = {report.join: report.outcome for report in run(lake)}
    assert reports == {"j0": "done", "j1": "failed", "j2": "done", "top": "skipped"}
    assert lake.runs()[-1]["reason"] == "j1: it failed; top: it was skipped"


@pytest.mark.deep
def test_a_join_that_is_killed_among_others_is_finished_by_the_next_run(loaded: Lake) -> None:
    lake = loaded
    pipeline(lake, 4)
    change(lake)
    assert is_killed(lambda: run(lake), "ledger: committed epoch 2 of j2")
    before = lake.versions()
    reports = run(lake, threads=2)
    assert {report.outcome for report in reports} <= {"done", "nothing"}
    assert lake.version("j2") == before["j2"], "its rows were written before the kill"
    steps = [(row["join_name"], row["epoch"]) for row in lake.ledger() if row["step"] == "committed"]
    assert sorted(steps) == sorted((name, epoch) for name in NAMES for epoch in (1, 2))
    assert lake.runs()[-1]["step"] == "complete"
    assert {report.outcome for report in verify_joins(Workspace.open(lake.spark, load(lake.file), lake.folder))} == {
        "done"
    }


MANY = range(8)


@pytest.fixture(scope="module")
def many(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Eight loaded joins that do not read each other; each test changes the rows with a key of its own."""
    lake = Lake(spark, tmp_path_factory.mktemp("many"))
    for side in ("left", "right"):
        for n in MANY:
            lake.create(f"{side}{n}", "k BIGINT, v BIGINT")
            lake.sql(f"INSERT INTO {{{side}{n}}} SELECT id, id FROM range(100)", f"{side}{n}")
    first, *others = ((f"j{n}", f"SELECT l.k, l.v, r.v AS w FROM left{n} l JOIN right{n} r ON l.k = r.k") for n in MANY)
    sources = {f"{side}{n}": "k" for side in ("left", "right") for n in MANY}
    lake.pipeline(first[1], sources, first[0], further=dict(others))
    run(lake, 4)
    return lake


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_eight_joins_killed_at_random_beside_a_second_runner_move_each_change_once(many: Lake, seed: int) -> None:
    lake, random, after = many, Random(seed), many.versions()
    for n in MANY:
        lake.sql(f"UPDATE {{left{n}}} SET v = v + 1 WHERE k = {seed}", f"left{n}")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(run, lake, 2)
        is_killed(lambda: run(lake, random.randint(2, 4)), number=random.randint(1, 80))
        with suppress(Killed):  # the write of that number may have been one of the second runner
            second.result()
    run(lake, 4)
    assert {report.outcome for report in run(lake, 4)} == {"nothing"}
    for n in MANY:
        updates = [row for change, row in lake.feed(after[f"j{n}"], f"j{n}") if change == "update_postimage"]
        assert updates == [(seed, seed + 1, seed)], f"j{n}"
    committed = Counter((row["join_name"], row["epoch"]) for row in lake.ledger() if row["step"] == "committed")
    assert set(committed.values()) == {1}
