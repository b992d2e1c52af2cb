"""Epochs of tables that take a part of the new commits: each is the join at its versions, and a run takes them all."""

import pytest

from pipelines import Pipeline
from pipelines.plan import cost
from tests.killing import killed
from tests.lake import KEYED, Lake, only
from tests.recorded import Recorded

COMMITS = 7
"""The commits of each table after the first load; both tables change the same keys."""


@pytest.fixture
def backlog(recorded: Recorded) -> Lake:
    """A loaded join with seven new commits on each side, in turns."""
    return recorded(create_small, fall_behind)


def create_small(lake: Lake) -> None:
    lake.create("left", "k INT, v INT", "(1, 1), (2, 2), (3, 3)")
    lake.create("right", "k INT, w INT", "(1, 10), (4, 40)")


def fall_behind(lake: Lake) -> None:
    bounded(lake, 3).run(lake.spark)
    for number in range(COMMITS):
        change_both(lake, number)


def change_both(lake: Lake, number: int) -> None:
    lake.sql(f"INSERT INTO {{left}} VALUES ({number + 4}, {number})")
    lake.sql(f"UPDATE {{right}} SET w = w + 1, k = IF(k < 10, k + 1, 1) WHERE k > {number // 3}")


def bounded(lake: Lake, most: int) -> Pipeline:
    return lake.pipeline(max_versions=most)


def joined(lake: Lake, versions: dict[str, int]) -> list[tuple[object, ...]]:
    """Compute the join at versions of its sources."""
    left, right = (f"{lake.at(name)} VERSION AS OF {versions[name]}" for name in KEYED)
    rows = lake.sql(f"SELECT l.k, l.v, r.w FROM {left} l LEFT JOIN {right} r ON l.k = r.k")
    return sorted(map(tuple, rows), key=repr)


@pytest.mark.fast
def test_a_run_takes_the_commits_in_epochs_within_the_bounds(backlog: Lake) -> None:
    report = only(bounded(backlog, 3).run(backlog.spark))
    assert report.epoch == 4
    ends = [{source["name"]: source["to_version"] for source in row["sources"]} for row in backlog.ledger()]
    assert ends[1::2] == [{"left": 1 + n, "right": 1 + n} for n in (0, 3, 6, COMMITS)]
    for version, versions in enumerate(ends[1::2], start=1):
        assert backlog.rows(version=version) == joined(backlog, versions)
    assert only(bounded(backlog, 3).run(backlog.spark)).outcome == "nothing"
    assert only(bounded(backlog, 3).verify(backlog.spark)).outcome == "done"


@pytest.mark.slow
def test_a_run_that_is_killed_between_two_epochs_goes_on_from_there(backlog: Lake) -> None:
    with killed("ledger: publishing epoch 3 of result"):
        backlog.pipeline(max_bytes=1).run(backlog.spark)  # an epoch takes one commit of each source all the same
    assert backlog.rows() == joined(backlog, {"left": 2, "right": 2})
    assert only(bounded(backlog, 100).run(backlog.spark)).epoch == 3
    assert backlog.rows() == joined(backlog, {"left": 8, "right": 8})


@pytest.mark.slow
def test_the_exact_changelog_is_the_same_in_any_epochs(lake: Lake) -> None:
    """And a join of the result, which keeps none, may be cut anywhere: also between the commits of a run."""
    create_small(lake)
    further = {"sql": "SELECT r.k, r.w, l.v FROM result r LEFT JOIN left l ON r.k = l.k"}
    loading = lake.pipeline(further={"next": further}, changelog=True)
    loading.run(lake.spark)
    for number in range(4):
        change_both(lake, number)
        if number == 1:
            loading.run(lake.spark, select=["result"])
    found = []
    for most in (None, 1, 3):
        part = lake.copy(lake.folder.with_name(f"{lake.folder.name}-{most}"))
        bounds = {"max_versions": most} if most else {}
        part.pipeline(further={"next": {**further, **bounds}}, changelog=True, **bounds).run(part.spark)
        columns, log = "_op, k, v, w", "result__changelog"
        found.append(part.sql(f"SELECT {columns} FROM {{{log}}} ORDER BY _epoch, _position", log))
        expected = part.sql("SELECT r.k, r.w, l.v FROM {result} r LEFT JOIN {left} l ON r.k = l.k")
        assert part.rows("next") == sorted(map(tuple, expected), key=repr)
    assert found[0] == found[1] == found[2]


def test_no_epoch_ends_at_a_version_that_delta_no_longer_reads(backlog: Lake) -> None:
    backlog.sql("ALTER TABLE {right} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 0 hours')")
    assert only(bounded(backlog, 2).run(backlog.spark)).epoch == 2
    assert backlog.rows() == joined(backlog, {"left": 8, "right": 9})


def test_all_commits_at_once_are_weighed_against_an_epoch_in_full(
    backlog: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part alone would cost less from the feeds; none of them is taken if all of them cost more."""
    monkeypatch.setattr(cost, "SMALL_EPOCH", 5)
    monkeypatch.setattr(cost, "MARGIN_TO_CHANGE", 0.0)
    report = only(bounded(backlog, 1).run(backlog.spark))
    assert (report.epoch, report.strategy) == (2, "reconcile")
    assert backlog.rows() == joined(backlog, {"left": 8, "right": 8})
