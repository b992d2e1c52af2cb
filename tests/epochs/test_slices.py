"""A backfill slice by slice of the key space: one epoch, taken up where it was stopped."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import DuplicateKey, ForeignWriter, GateFailed, LakejoinError
from lakehouse.session import writing
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.cli import main
from pipelines.commands.run import run_joins
from pipelines.epochs.run.slices import BackfillOpen
from pipelines.plan.request import Backfill, WrongOptions
from pipelines.report import JoinReport
from pipelines.report.progress import Progress, SliceProgress
from tests.cases import cases
from tests.killing import is_killed
from tests.lake import JOIN, Lake, only


class Heard(Progress):
    def __init__(self) -> None:
        self.slices: list[SliceProgress] = []

    def slice(self, join: str, at: SliceProgress) -> None:
        self.slices.append(at)


@pytest.fixture(scope="module")
def _right(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("right"))
    lake.create("left", "k INT, v STRING", ", ".join(f"({k}, 'v{k}')" for k in range(8)))
    lake.create("right", "k INT, w STRING", "(2, 'x'), (6, 'y')")
    lake.pipeline(changelog=True).run(lake.spark)
    return lake


@pytest.fixture(scope="module")
def _drifted(_right: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = _right.copy(tmp_path_factory.mktemp("drifted") / "lake")
    drift(lake)
    return lake


@pytest.fixture
def right(_right: Lake, tmp_path: Path) -> Lake:
    """Give a lake with a result of eight rows and its changelog, as a load left them."""
    return _right.copy(tmp_path / "right")


@pytest.fixture
def drifted(_drifted: Lake, tmp_path: Path) -> Lake:
    """Give the same lake, with a row of the result that is missing, one that is changed and one too many."""
    return _drifted.copy(tmp_path / "drifted")


def drift(lake: Lake) -> None:
    lake.sql("DELETE FROM {result} WHERE k = 1")
    lake.sql("UPDATE {result} SET w = 'z' WHERE k = 6")
    lake.sql("INSERT INTO {result} VALUES (9, 'v9', NULL)")


RIGHT = sorted(((k, f"v{k}", {2: "x", 6: "y"}.get(k)) for k in range(8)), key=repr)


def backfill(lake: Lake, slices: int = 2, progress: Progress | None = None) -> JoinReport:
    loaded = Pipeline.load(lake.file)
    workspace = Workspace.open(lake.spark, loaded.file, loaded.folder)
    report = only(run_joins(workspace, backfill=Backfill(slices=slices), progress=progress or Heard()))
    if report.error is not None:
        raise report.error
    return report


def steps(lake: Lake) -> list[str]:
    rows = lake.ledger()
    return [row["step"] for row in rows if row["epoch"] == rows[-1]["epoch"]]


@pytest.mark.fast
def test_each_slice_is_a_commit_and_a_step_of_one_epoch(drifted: Lake) -> None:
    lake, heard, before = drifted, Heard(), drifted.version()
    report = backfill(lake, 3, heard)
    assert {name: report.counts[name] for name in ("inserted", "updated", "deleted")} == {
        "inserted": 1,
        "updated": 1,
        "deleted": 1,
    }
    assert lake.rows() == RIGHT
    assert [change for change, _ in lake.feed(before)] == ["delete", "insert", "update_postimage", "update_preimage"]
    assert steps(lake) == ["publishing", "slice", "slice", "slice", "committed"]
    assert [(at.number, at.of, at.of_rows) for at in heard.slices] == [(n, 3, 8) for n in range(3)]
    assert 0 == heard.slices[0].rows < heard.slices[1].rows < heard.slices[2].rows < 8
    assert heard.slices[0].left is None
    assert heard.slices[-1].left is not None
    assert "slice 3 of 3" in str(heard.slices[-1])
    Pipeline.load(lake.file).verify(lake.spark)
    assert only(Pipeline.load(lake.file).run(lake.spark)).outcome == "nothing"


@pytest.mark.slow
def test_of_a_right_result_no_row_is_written_and_the_ledger_moves_on(right: Lake) -> None:
    versions = right.versions()
    assert backfill(right).changed == 0
    assert steps(right)[-1] == "committed"
    assert right.versions() == {**versions, "lakejoin_ledger": versions["lakejoin_ledger"] + 4}


@pytest.mark.slow
def test_the_changelog_gets_a_row_for_each_difference_of_its_own(drifted: Lake) -> None:
    """The result had drifted, which the changelog had not."""
    lake, before = drifted, drifted.rows("result__changelog")
    lake.sql("UPDATE {left} SET v = 'n' WHERE k IN (0, 7)")
    report = backfill(lake)
    assert (report.changed, report.counts["changelog"]) == (5, 2)
    added = [row for row in lake.rows("result__changelog") if row not in before]
    assert [(row[0], row[1], row[3], row[4]) for row in added] == [
        (0, "n", "upsert", "backfill"),
        (7, "n", "upsert", "backfill"),
    ]
    Pipeline.load(lake.file).verify(lake.spark)


@pytest.mark.deep
def test_a_backfill_that_was_killed_goes_on_with_the_slices_that_are_left(drifted: Lake) -> None:
    """At the versions that it was begun with; what came since is the next run's."""
    lake = drifted
    assert is_killed(lambda: backfill(lake), "ledger: slice", "after")
    lake.sql("INSERT INTO {left} VALUES (20, 'later')")
    with pytest.raises(BackfillOpen, match="lakejoin backfill --select result") as waits:
        Pipeline.load(lake.file).run(lake.spark)
    assert (waits.value.exit_code, waits.value.retryable) == (5, True)
    with pytest.raises(BackfillOpen):
        Pipeline.load(lake.file).backfill(lake.spark, where="k = 1")
    assert only(Pipeline.load(lake.file).backfill(lake.spark, dry_run=True)).outcome == "nothing"
    heard = Heard()
    report = backfill(lake, progress=heard)
    assert [at.number for at in heard.slices] == [1]
    assert report.changed == 3
    assert lake.rows() == RIGHT
    assert only(Pipeline.load(lake.file).run(lake.spark)).strategy == "incremental"
    assert (20, "later", None) in lake.rows()
    Pipeline.load(lake.file).verify(lake.spark)


@pytest.mark.slow
def test_a_part_of_a_result_goes_slice_by_slice_as_well(drifted: Lake) -> None:
    """Rows that do not meet the condition stay as they are; where it was stopped it goes on, about the same rows."""
    lake = drifted
    lake.sql("UPDATE {result} SET w = 'z' WHERE k IN (0, 4)")
    with pytest.raises(ForeignWriter):
        Pipeline.load(lake.file).backfill(lake.spark, where="k < 5", slices=3)
    part, join = "k IN (0, 1, 4, 9) OR v = 'v6'", Pipeline.load(lake.file)
    assert is_killed(lambda: join.backfill(lake.spark, where=part, slices=3), "ledger: slice", "after", 2)
    heard = Heard()
    assert backfill(lake, progress=heard).changed == 5
    assert [at.number for at in heard.slices] == [2]
    assert lake.rows() == RIGHT
    assert lake.ledger()[-1]["reason"] == f"backfill-where: requested by the user: {part}, in 3 slices"


@cases(
    "moment, what",
    pytest.param("after", "merge into", marks=pytest.mark.slow),
    pytest.param("before", "", marks=pytest.mark.slow),
    pytest.param("after", "", marks=pytest.mark.slow),
)
def test_killed_at_a_write_it_ends_in_the_same_tables(drifted: Lake, tmp_path: Path, moment: str, what: str) -> None:
    drifted.sql("UPDATE {left} SET v = 'n' WHERE k IN (0, 7)")
    whole = drifted.copy(tmp_path / "whole")
    backfill(whole)
    epoch, number = whole.ledger()[-1]["epoch"], 0
    while True:
        lake = drifted.copy(tmp_path / str(number))
        if (what and number) or not is_killed(partial(backfill, lake), what, moment, number + 1):
            break
        number += 1
        backfill(lake)  # after the last write the epoch has ended: this is another one, which changes nothing
        assert outcome(lake, epoch) == outcome(whole, epoch), f"killed {moment} write {number}"
    assert number >= (1 if what else 14)


def outcome(lake: Lake, epoch: int) -> list[object]:
    """Say what two equal lakes have in common: all but run ids, times and steps that were taken twice."""
    taken = [row for row in lake.ledger() if row["epoch"] == epoch]
    last = taken[-1]
    names = sorted({row["step"] for row in taken})
    return [lake.rows(), lake.feed(0), changelog(lake), names, last["counts"], last["sources"]]


def changelog(lake: Lake) -> list[tuple[object, ...]]:
    return [row[:-1] for row in lake.rows("result__changelog")]


@pytest.mark.slow
def test_what_it_was_begun_with_is_gone_and_it_begins_anew(drifted: Lake) -> None:
    lake = drifted
    assert is_killed(lambda: backfill(lake), "ledger: slice", "after")
    lake.pipeline(JOIN.replace("LEFT JOIN", "JOIN"), changelog=True)
    report = backfill(lake)
    assert lake.rows() == [(2, "v2", "x"), (6, "v6", "y")]
    assert report.strategy == "reconcile"
    assert [row["step"] for row in lake.ledger()][-5:].count("abandoned") == 1


@pytest.mark.slow
def test_a_result_that_was_dropped_within_its_backfill_is_loaded_anew(drifted: Lake) -> None:
    """Neither `run` nor `backfill` could go on before."""
    assert is_killed(lambda: backfill(drifted), "merge")
    shutil.rmtree(drifted.path("result"))
    with pytest.raises(BackfillOpen):
        drifted.pipeline(JOIN, changelog=True).run(drifted.spark)
    assert backfill(drifted).strategy == "load"
    only(drifted.pipeline(JOIN, changelog=True).verify(drifted.spark))


@pytest.mark.slow
def test_somebody_else_writes_meanwhile_and_the_next_backfill_begins_anew(drifted: Lake) -> None:
    lake = drifted

    def foreign(when: str, which: str) -> None:
        if "ledger: slice" in which and when == "after":
            writing.observers.clear()
            lake.sql("UPDATE {result} SET v = 'theirs' WHERE k = 0")

    writing.observers.append(foreign)
    with pytest.raises(ForeignWriter):
        backfill(lake)
    backfill(lake)
    assert lake.rows() == RIGHT


@pytest.mark.slow
def test_a_slice_that_does_not_pass_its_gate_ends_the_backfill(drifted: Lake) -> None:
    lake = drifted
    lake.pipeline(changelog=True, expectations=[{"expect_column_values_to_not_be_null": {"column": "w"}}])
    with pytest.raises(GateFailed, match="slice 1 of 2"):
        backfill(lake)
    assert steps(lake) == ["publishing", "abandoned"]
    lake.pipeline(changelog=True)
    backfill(lake)
    assert lake.rows() == RIGHT


@pytest.mark.slow
def test_duplicates_are_refused_before_it_begins(drifted: Lake) -> None:
    lake, ledger = drifted, len(drifted.ledger())
    lake.sql("INSERT INTO {right} VALUES (6, 'twice')")
    with pytest.raises(DuplicateKey):
        backfill(lake)
    assert len(lake.ledger()) == ledger


@pytest.mark.slow
def test_the_command_goes_slice_by_slice_and_says_so(drifted: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = drifted
    assert main(["backfill", "--slices", "2", "-f", str(lake.file)]) == 0
    told = capsys.readouterr()
    assert "result: slice 2 of 2, " in told.err
    assert "1 inserted, 1 updated, 1 deleted" in told.out
    assert lake.ledger()[-1]["reason"] == "backfill: requested by the user, in 2 slices"
    assert lake.rows() == RIGHT


@cases(
    "options, why",
    ({"slices": 2, "remedy": "reset"}, "joins of tables"),
    ({"slices": 2, "dry_run": True}, "that writes"),
    ({"slices": 1_001}, "from 1 to 1,000"),
    ({"where": " "}, "is empty"),
    ({"where": "k = 1", "remedy": "reset"}, "for joins of tables"),
    ({"dry_run": True, "remedy": "accept"}, "cannot be combined with --accept"),
)
def test_options_that_do_not_go_together_are_refused(loaded: Lake, options: dict[str, object], why: str) -> None:
    with pytest.raises(WrongOptions, match=why) as refused:
        loaded.pipeline().backfill(loaded.spark, **options)  # type: ignore[arg-type]
    assert refused.value.exit_code == 2
    assert isinstance(refused.value, LakejoinError)
