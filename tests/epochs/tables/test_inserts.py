"""A change set of inserts alone is appended: as a MERGE of it would be, once, whole, and never after its epoch."""

import pytest

from tests.killing import killed, observed
from tests.lake import Lake, only
from tests.recorded import Recorded

INSERT = "INSERT INTO {left} VALUES (2, 'b'), (3, 'c')"
ROWS = [(1, "a", "x"), (2, "b", None), (3, "c", None)]


@pytest.fixture
def loaded(recorded: Recorded) -> Lake:
    return recorded(insert)


def insert(lake: Lake) -> None:
    lake.create("left", "k INT, v STRING", "(1, 'a')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    lake.pipeline().run(lake.spark)
    lake.sql(INSERT)


def newest(lake: Lake) -> tuple[str, dict[str, str]]:
    (row,) = lake.spark.sql(f"DESCRIBE HISTORY {lake.at('result')} LIMIT 1").collect()
    return row["operation"], row["operationMetrics"]


def test_inserts_are_one_append_in_one_file_and_updates_are_merged(loaded: Lake) -> None:
    report = only(loaded.pipeline().run(loaded.spark))
    assert (report.counts["inserted"], report.counts["updated"], report.counts["deleted"]) == (2, 0, 0)
    operation, metrics = newest(loaded)
    assert (operation, metrics["numOutputRows"], metrics["numFiles"]) == ("WRITE", "2", "1")
    assert loaded.rows() == ROWS
    loaded.sql("INSERT INTO {left} VALUES (4, 'd')")
    loaded.sql("UPDATE {left} SET v = 'z' WHERE k = 1")
    loaded.pipeline().run(loaded.spark)
    assert newest(loaded)[0] == "MERGE"


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("write", "moment"),
    [
        ("ledger: publishing", "after"),
        pytest.param("load result", "after", marks=pytest.mark.deep),
        pytest.param("ledger: committed", "after", marks=pytest.mark.deep),
    ],
)
def test_inserts_of_a_killed_run_are_there_once(loaded: Lake, write: str, moment: str) -> None:
    with killed(write, moment):
        loaded.pipeline().run(loaded.spark)
    loaded.pipeline().run(loaded.spark)
    assert loaded.rows() == ROWS
    assert only(loaded.pipeline().verify(loaded.spark)).outcome == "done"


def test_a_run_that_wakes_up_late_appends_nothing(loaded: Lake) -> None:
    """Another run finishes its epoch just before it appends."""
    before, others = loaded.version(), []

    def meanwhile(when: str, what: str) -> None:
        if (when, what) == ("before", "load result") and not others:
            others.append("begun")
            others.extend(report.outcome for report in loaded.pipeline().run(loaded.spark))

    with observed(meanwhile):
        loaded.pipeline().run(loaded.spark)
    assert others == ["begun", "done"]
    assert loaded.rows() == ROWS
    assert loaded.version() == before + 1
