"""A run as a whole: every join of it reads its sources at one cut, whatever is written meanwhile."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError, SourceRecreated
from pipelines.binding.workspace import Workspace
from pipelines.commands.query import answer
from pipelines.commands.run import run_joins
from pipelines.commands.runs import UnknownRun, runs_of
from pipelines.commands.whole_run import unfinished
from pipelines.language import load
from pipelines.report import JoinReport
from pipelines.report.progress import Progress
from tests.cases import cases
from tests.killing import is_killed
from tests.lake import Lake

ABOVE = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
BESIDE = "SELECT r.k, r.w, l.v FROM right r LEFT JOIN left l ON r.k = l.k"
TOP = "SELECT a.k, a.v, b.w FROM result a LEFT JOIN beside b ON a.k = b.k"
FURTHER = {"beside": BESIDE, "top": TOP}
NAMES = ("result", "beside", "top")


class Between(Progress):
    """Calls a function when a join has ended."""

    def __init__(self, join: str, call: Callable[[], object]) -> None:
        self._join, self._call = join, call

    def finished(self, join: str, outcome: str) -> None:
        if join == self._join:
            self._call()


@pytest.fixture(scope="module")
def _loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("runs"))
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    diamond(lake).run(spark)
    return lake


@pytest.fixture
def loaded(_loaded: Lake, tmp_path: Path) -> Iterator[Lake]:
    lake = _loaded.copy(tmp_path / "lake")
    diamond(lake)
    return lake


def diamond(lake: Lake) -> Any:
    return lake.pipeline(ABOVE, further=FURTHER)


def workspace_of(lake: Lake) -> Workspace:
    return Workspace.open(lake.spark, load(lake.file), lake.folder)


def run(lake: Lake, progress: Progress | None = None) -> dict[str, JoinReport]:
    return {report.join: report for report in run_joins(workspace_of(lake), progress=progress or Progress())}


def recorded(lake: Lake) -> list[tuple[str, dict[str, int], dict[str, int | None]]]:
    """Give step, cut and result versions of each row about a run."""
    return [
        (
            row["step"],
            {source["name"]: source["to_version"] for source in row["sources"]},
            {target["name"]: target["version"] for target in row["targets"]},
        )
        for row in lake.runs()
    ]


def is_right(lake: Lake, cut: dict[str, int], versions: dict[str, int | None]) -> bool:
    """Return whether the results at these versions are the joins of the sources at the cut."""

    def rows(sql: str) -> list[Any]:
        for name, version in cut.items():
            sql = sql.replace(f" {name} ", f" (SELECT * FROM {lake.at(name)} VERSION AS OF {version}) ")
        return sorted(map(tuple, lake.spark.sql(sql).collect()), key=repr)

    def top(name: str) -> str:
        return f"({FURTHER.get(name, ABOVE)})"

    statements = {
        "result": ABOVE,
        "beside": BESIDE,
        "top": TOP.replace(" result ", f" {top('result')} ").replace(" beside ", f" {top('beside')} "),
    }
    return all(lake.rows(name, versions[name]) == rows(statements[name]) for name in NAMES)


def test_commits_that_arrive_between_two_joins_belong_to_the_next_run(loaded: Lake) -> None:
    """The first join read a row of the left table that the second one did not have to know, and the third had both."""
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    cut = {"left": lake.version("left"), "right": lake.version("right")}

    def late() -> None:
        lake.sql("UPDATE {left} SET v = 'late' WHERE k = 1")
        lake.sql("INSERT INTO {right} VALUES (3, 'late')")

    reports = run(lake, Between("result", late))
    assert [(report.outcome, report.changed) for report in reports.values()] == [("done", 1), ("done", 0), ("done", 1)]
    assert (3, "c", None) in lake.rows("top")
    (begun, _, _), (step, at, versions) = recorded(lake)[-2:]
    assert (begun, step, at) == ("begun", "complete", cut)
    assert is_right(lake, cut, versions)
    assert {name: report.result_version for name, report in reports.items()} == versions
    run(lake)
    step, at, versions = recorded(lake)[-1]
    assert (step, at) == ("complete", {name: lake.version(name) for name in ("left", "right")})
    assert is_right(lake, at, versions)
    pipeline = diamond(lake)
    first, last = (row["run_id"] for row in lake.runs()[-3::2])
    for run_id, row in ((first, (1, "a", "x")), (last[:12], (1, "late", "x")), ("last complete", (1, "late", "x"))):
        assert pipeline.read(lake.spark, "top", run_id).where("k = 1").collect() == [row]
        query = (
            "SELECT t.v = l.v AND b.w = r.w FROM top t, beside b, left l, right r "
            "WHERE t.k = 1 AND b.k = 1 AND l.k = 1 AND r.k = 1"
        )
        answered = answer(workspace_of(lake), query, 10, run_id)
        assert (set(answered.rows), answered.run_id[:12]) == ({(True,)}, (first if run_id == first else last)[:12])
    assert pipeline.read(lake.spark, "left").where("k = 1").collect() == [(1, "late")]
    assert pipeline.read(lake.spark, "left", first).where("k = 1").collect() == [(1, "a")]
    before = lake.versions()
    assert {report.outcome for report in run(lake).values()} == {"nothing"}
    assert lake.versions() == before, "a run with nothing to do writes no row"


@pytest.mark.slow
@cases("write", "ledger: publishing epoch 2 of beside", "ledger: publishing epoch 2 of top", "ledger: complete")
def test_a_killed_run_is_finished_at_its_own_cut(loaded: Lake, write: str) -> None:
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    lake.sql("INSERT INTO {right} VALUES (3, 'z')")
    cut = {"left": lake.version("left"), "right": lake.version("right")}
    assert is_killed(lambda: run(lake), write)
    lake.sql("UPDATE {left} SET v = 'later' WHERE k = 3")
    reports = run(lake)
    (begun, of_killed), (ended, of_next) = lake.runs()[-4::2], lake.runs()[-3::2]
    assert [row["step"] for row in (begun, of_killed, ended, of_next)] == ["begun", "begun", "complete", "complete"]
    assert begun["run_id"] == ended["run_id"]
    _, at, versions = recorded(lake)[-3]
    assert at == cut
    assert is_right(lake, cut, versions), "the results that the killed run was to publish"
    _, at, versions = recorded(lake)[-1]
    assert at == {**cut, "left": cut["left"] + 1}
    assert is_right(lake, at, versions)
    assert reports["top"].result_version == versions["top"]
    assert lake.rows("top")[-1] == (3, "later", "z")


@pytest.mark.slow
def test_a_run_that_another_one_overtakes_says_that_it_is_not_complete(loaded: Lake) -> None:
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")

    def overtaken() -> None:
        lake.sql("INSERT INTO {left} VALUES (4, 'd')")
        run_joins(workspace_of(lake), ["beside", "top", "result"])

    before = len(lake.runs())
    lake.sql("DELETE FROM {right}")
    reports = run(lake, Between("result", overtaken))
    assert {report.outcome for report in reports.values()} <= {"done", "nothing"}
    steps = [row["step"] for row in lake.runs()[before:]]
    assert steps == ["begun", "complete", "begun", "complete", "complete"]
    for step, at, versions in recorded(lake)[before:]:
        assert step == "begun" or is_right(lake, at, versions)


@pytest.mark.slow
def test_a_pinned_version_that_delta_no_longer_reads_gives_way_to_the_newest(loaded: Lake) -> None:
    """A newest version may be older than the retention of its files; a commit then puts it out of reach."""
    lake = loaded
    lake.sql("ALTER TABLE {right} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 1 second')")
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    time.sleep(1.5)
    run(lake, Between("result", lambda: lake.sql("INSERT INTO {right} VALUES (2, 'y')")))
    row = lake.runs()[-1]
    assert row["step"] == "incomplete"
    assert row["reason"].startswith("beside: it is not at the cut")
    run(lake)
    assert lake.runs()[-1]["step"] == "complete"
    assert (2, "b", "y") in lake.rows("top")


def test_a_join_that_fails_leaves_the_run_incomplete_and_others_at_its_cut(loaded: Lake) -> None:
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    lake.sql("DELETE FROM {beside}", "beside")
    reports = run(lake)
    assert [report.outcome for report in reports.values()] == ["done", "failed", "skipped"]
    step, at, versions = recorded(lake)[-1]
    assert (step, at["left"], versions["beside"], versions["top"]) == ("incomplete", lake.version("left"), None, None)
    assert lake.runs()[-1]["reason"] == "beside: it failed; top: it was skipped"
    assert versions["result"] == lake.version("result")


@cases(
    "wanted, name, problem",
    ("nobody", "top", "no run has the id `nobody`"),
    ("", "topp", "the pipeline file has no such table"),
    ("last complete", "apart", "no recent run of apart is complete"),
)
def test_a_run_or_a_table_that_is_unknown_is_said_to_be(loaded: Lake, wanted: str, name: str, problem: str) -> None:
    pipeline = loaded.pipeline(ABOVE, further={**FURTHER, "apart": BESIDE})
    with pytest.raises(LakejoinError) as raised:
        pipeline.read(loaded.spark, name, wanted)
    assert raised.value.problem == problem


@pytest.mark.deep
def test_a_run_does_not_lend_its_versions_to_another_table(loaded: Lake) -> None:
    lake, pipeline = loaded, diamond(loaded)
    lake.sql("CREATE OR REPLACE TABLE {top} USING delta AS SELECT 7 AS k", "top")
    with pytest.raises(UnknownRun, match="it is another table than in the run"):
        pipeline.read(lake.spark, "top", "last complete")


def test_the_runs_are_listed_each_once_and_the_newest_first(loaded: Lake) -> None:
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    assert is_killed(lambda: run(lake), "ledger: publishing epoch 2 of top")
    killed, first = runs_of(workspace_of(lake), 10)
    assert (killed.step, first.step, killed.results) == ("begun", "complete", dict.fromkeys(NAMES))
    assert killed.cut == {"left": lake.version("left"), "right": lake.version("right")}


@pytest.mark.deep
def test_a_selection_whose_inputs_are_behind_is_not_complete(loaded: Lake) -> None:
    """The result of a join that is read but not selected has to be at the cut, too."""
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    workspace = workspace_of(lake)
    run_joins(workspace, ["beside", "top"])
    row = lake.runs()[-1]
    assert (row["step"], row["reason"].partition(";")[0]) == (
        "incomplete",
        "result: it is not selected, and not at the cut",
    )
    run_joins(workspace, ["result"])
    run_joins(workspace, ["top"])
    step, cut, versions = recorded(lake)[-1]
    assert (step, cut) == ("complete", {name: lake.version(name) for name in ("left", "right")})
    assert versions == {"top": lake.version("top")}


@pytest.mark.deep
def test_a_killed_run_is_found_behind_runs_of_other_joins_but_not_of_its_own(loaded: Lake) -> None:
    lake = loaded
    loaded.pipeline(ABOVE, further={**FURTHER, "apart": BESIDE})
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    killed = lambda: run_joins(workspace_of(lake), NAMES)  # noqa: E731
    assert is_killed(killed, "ledger: publishing epoch 2 of top")
    run_joins(workspace_of(lake), ["apart"])
    assert unfinished(workspace_of(lake).ledger.runs(100), NAMES) is not None
    assert unfinished(workspace_of(lake).ledger.runs(100), NAMES[:2]) is None, "not all of its joins are selected"
    run_joins(workspace_of(lake), ["result"])
    assert unfinished(workspace_of(lake).ledger.runs(100), NAMES) is None, "a later run has moved a join"


def test_a_source_that_is_created_again_during_a_run_is_not_read_as_the_old_one(loaded: Lake) -> None:
    lake = loaded
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")

    def again() -> None:
        shutil.rmtree(lake.path("right"))
        lake.create("right", "k INT, w STRING", "(1, 'other')")

    reports = run(lake, Between("result", again))
    assert isinstance(reports["beside"].error, SourceRecreated)
    assert lake.runs()[-1]["step"] == "incomplete"


@pytest.mark.deep
def test_the_row_of_a_first_run_creates_the_ledger_as_any_other_does(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING", "(1, 'a')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    diamond(lake).run(lake.spark)
    properties = dict(lake.spark.sql(f"DESCRIBE DETAIL {lake.at('lakejoin_ledger')}").collect()[0]["properties"])
    assert properties["delta.autoOptimize.autoCompact"] == "true"
    assert [row["step"] for row in lake.runs()] == ["begun", "complete"]
