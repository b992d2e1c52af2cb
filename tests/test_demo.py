"""The demo: real flights in, a verified join out; and nobody's folder deleted."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors import LakejoinError
from pipelines.demo import run_demo
from pipelines.demo.airline import KEY, read_flights
from pipelines.demo.tour import MARKER, PIPELINE_FILE, prepare_folder

WRITTEN_AND_CHANGED = [
    (769 + 829, 769 + 829),
    (1_143, 832),
    (554, 456),
    (1716 + 929, 684 + 929),
    (0, 0),
]
"""For each round the source rows written, counted in the flights themselves, and the result rows that they alter."""


def no_spark() -> SparkSession:
    raise AssertionError("Spark was started")


@pytest.mark.slow
def test_the_demo_keeps_the_join_and_proves_it(spark: SparkSession, tmp_path: Path) -> None:
    """Each round changes the rows that it touches and no others; the last run finds nothing; the result is right."""
    said: list[str] = []
    run_demo(lambda: spark, tmp_path / "demo", said.append, days=42)
    rounds = [line.split() for line in said if line.startswith(("Fri", "Sat"))]
    written_and_changed = [(int(words[-5].replace(",", "")), int(words[-4].replace(",", ""))) for words in rounds]
    assert written_and_changed == WRITTEN_AND_CHANGED
    assert [line for line in said if line.startswith("Verified: ") and " 36,459 rows " in line], said


def test_the_data_are_all_flights_of_the_year(spark: SparkSession, tmp_path: Path) -> None:
    """Each flight is there once, under its key, and those without a departure are the cancelled ones."""
    flights = read_flights(spark, tmp_path)
    found = flights.selectExpr(
        "count(*) AS flights",
        f"count(DISTINCT {', '.join(KEY)}) AS keys",
        "count_if(cancelled) AS cancelled",
        "count_if(cancelled != (dep_time IS NULL)) AS contradictions",
    ).collect()[0]
    assert tuple(found) == (336_776, 336_776, 8_255, 0)


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    """The refusal comes before Spark is started."""
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(LakejoinError, match="no demo made it"):
        run_demo(no_spark, tmp_path, lambda _: None)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_link_to_a_folder_is_left_alone(tmp_path: Path) -> None:
    """Deleting through a link would delete what lies elsewhere."""
    prepare_folder(tmp_path / "demo")
    (tmp_path / "link").symlink_to(tmp_path / "demo")
    with pytest.raises(LakejoinError, match="no demo made it"):
        prepare_folder(tmp_path / "link")


def test_the_folder_of_an_earlier_demo_is_made_anew(tmp_path: Path) -> None:
    """Only the marker and the pipeline file are in it then."""
    folder = tmp_path / "demo"
    prepare_folder(folder)
    (folder / "lake").mkdir()
    prepare_folder(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([MARKER, PIPELINE_FILE])
