"""The demo and its tour: real flights in, verified joins out; a folder that no demo created is never deleted."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors.errors import LakejoinError
from pipelines.commands.demo import run_demo, run_tour
from pipelines.commands.demo.short import MARKER, PIPELINE_FILE, prepare_folder
from pipelines.commands.demo.sources import (
    EMBRAER_190,
    KEY,
    SISTER,
    UNREGISTERED,
    clock,
    read_flights,
    read_table,
    timed,
)
from pipelines.commands.demo.tour import PIPELINE_FILE as TOUR_FILE
from pipelines.commands.demo.tour import THURSDAY, TUESDAY
from pipelines.commands.init import example
from pipelines.language import fingerprint, load

SHORT = [
    ([769, 829], "829 inserted, 769 updated, 0 deleted"),
    ([360, 783], "0 inserted, 832 updated, 0 deleted"),
    ([98, 456, 926 + 911], "0 inserted, 456 updated, 926 deleted"),
]
"""For each round of the short demo the source rows of each write, and the result rows that they alter."""

WRITTEN_AND_CHANGED = [(769 + 829, 769 + 829), (1_143, 832), (554, 456), (1716 + 929, 684 + 929), (0, 0)]
"""For each round the source rows written, counted in the flights themselves, and the result rows that they alter."""

AROUND = [(144, 1_614), (80, 2_107), (3, 96)]
"""The same for the rounds of the star: weather of two days, seats of a model, planes registered late."""

BOTH_STREAMS = ["1,805", "945", "716", "1"]
"""Of the round of two streams: the rows written, added and waiting, and those that came late."""

BACK, AWAY = 319, 637
"""Tuesday's arrivals: the aircraft that left New York again within 12 hours, and the others."""

TURNAROUNDS = 25
"""Departures up to Thursday that one of the same aircraft followed within 3 hours."""

KEYS = {"planes": ["tailnum"], "airlines": ["carrier"], "airports": ["faa"], "weather": ["origin", "time_hour"]}

FLOWN = "flight_date <= DATE '2013-02-09' AND NOT cancelled"
"""The flights that are in operations when the planes change."""


def no_spark(_: Mapping[str, str]) -> SparkSession:
    raise AssertionError("Spark was started")


@pytest.fixture(scope="module")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    rows = read_flights(spark, tmp_path_factory.mktemp("flights")).persist()
    yield rows
    rows.unpersist()


@pytest.mark.slow
def test_the_demo_shows_three_rounds_and_verifies_the_result(spark: SparkSession, tmp_path: Path) -> None:
    """Each round prints what was written, what changed in the result and why; the result is right at the end."""
    said: list[str] = []
    run_demo(lambda _: spark, tmp_path / "demo", said.append)
    printed = "\n".join(said)
    first, *rounds = printed.split("\nRound ")
    assert re.findall(r"^  flight_status  (.*);", first, re.MULTILINE) == ["7,697 inserted, 0 updated, 0 deleted"]
    found = []
    for text in rounds:
        written = [int(rows.replace(",", "")) for rows in re.findall(r"^  sources +([\d,]+) rows", text, re.MULTILINE)]
        (moved,) = re.findall(r"^  flight_status  (.*);", text, re.MULTILINE)
        assert len(re.findall(r"^  why ", text, re.MULTILINE)) == 1
        found.append((written, moved))
    assert found == SHORT
    assert "\nVerified: flight_status, the join computed from scratch has the same 7,600 rows." in printed
    assert max(len(line) for line in printed.splitlines() if str(tmp_path) not in line) <= 120


@pytest.mark.deep
def test_both_demos_keep_the_same_first_join(tmp_path: Path) -> None:
    """The short demo has a pipeline file of its own, with the first join of the tour."""
    for name in (PIPELINE_FILE, TOUR_FILE):
        (tmp_path / name).write_text(example(name))
    short, tour = load(tmp_path / PIPELINE_FILE), load(tmp_path / TOUR_FILE)
    assert list(short.joins) == ["flight_status"]
    assert fingerprint(short, "flight_status") == fingerprint(tour, "flight_status")


@pytest.mark.slow
def test_the_tour_keeps_its_joins_and_proves_them(spark: SparkSession, tmp_path: Path) -> None:
    """Each round changes the rows that it touches and no others; the last run finds nothing; the result is right."""
    said: list[str] = []
    run_tour(lambda _: spark, tmp_path / "demo", said.append, days=42)
    rounds = [line.split() for line in said if line.startswith(("Fri", "Sat", "Sun", "Mon"))]
    written_and_changed = [(int(words[-5].replace(",", "")), int(words[-4].replace(",", ""))) for words in rounds]
    assert written_and_changed == WRITTEN_AND_CHANGED + AROUND
    assert "\nThe fleet update changed 80 planes, and lakejoin updated 2,107 flights." in said
    both = [line.split() for line in said if line.startswith("Wed")]
    assert [words[-6:-2] for words in both] == [BOTH_STREAMS]
    assert [line.split()[0] for line in said if ", such as N" in line] == [str(BACK), str(AWAY)]
    thursdays = [line.split()[-6:-2] for line in said if line.startswith("Thu ")]
    assert thursdays == [["381", "1", "231", "0"], ["570", "0", "94", "0"]]
    assert f"the same {TURNAROUNDS} rows" in next(line for line in said if line.startswith("Verified: turnarounds"))
    verified = [line.split()[1] for line in said if line.startswith("Verified: ") and " 36,459 rows " in line]
    assert verified == ["flight_status,", "flights_enriched,"], said


@pytest.mark.deep
def test_the_data_are_all_flights_of_the_year(flights: DataFrame) -> None:
    """Each flight is there once, under its key, and those without a departure are the cancelled ones."""
    found = flights.selectExpr(
        "count(*) AS flights",
        f"count(DISTINCT {', '.join(KEY)}) AS keys",
        "count_if(cancelled) AS cancelled",
        "count_if(cancelled != (dep_time IS NULL)) AS contradictions",
    ).collect()[0]
    assert tuple(found) == (336_776, 336_776, 8_255, 0)


@pytest.mark.deep
def test_the_tables_around_the_flights_have_unique_keys_without_nulls(spark: SparkSession) -> None:
    """A count of distinct keys leaves out those that hold a null."""
    found = {}
    for name, key in KEYS.items():
        counted = read_table(spark, name).selectExpr("count(*)", f"count(DISTINCT {', '.join(key)})")
        found[name] = tuple(counted.collect()[0])
    rows = {"planes": 3_322, "airlines": 16, "airports": 1_458, "weather": 26_115}
    assert found == {name: (count, count) for name, count in rows.items()}


@pytest.mark.deep
def test_many_flights_name_a_plane_that_is_missing_and_some_name_none(spark: SparkSession, flights: DataFrame) -> None:
    """The star keeps both, with nulls for the plane; weather is kept by the same hours as the timetable."""
    named = flights.where("tailnum IS NOT NULL")
    missing = named.join(read_table(spark, "planes"), on="tailnum", how="left_anti")
    hours = flights.join(read_table(spark, "weather"), on=["origin", "time_hour"], how="left_anti")
    assert (missing.count(), flights.where("tailnum IS NULL").count(), hours.count()) == (50_094, 2_512, 1_556)


@pytest.mark.deep
def test_what_the_changes_around_the_flights_alter_is_in_the_flights_themselves(spark, flights):
    """Counted with nothing of lakejoin: the rows that each change writes, and the flights that refer to one of them."""
    two_days = read_table(spark, "weather").where("month = 2 AND day IN (8, 9)").select(*KEYS["weather"])
    planes = read_table(spark, "planes")
    model = planes.where(planes["model"] == EMBRAER_190).select("tailnum", "seats")
    flown = flights.where(FLOWN)
    altered = [
        (two_days.count(), flights.join(two_days, on=KEYS["weather"], how="left_semi").count()),
        (model.where("seats != 100").count(), flown.join(model, on="tailnum", how="left_semi").count()),
        (len(UNREGISTERED), flown.where(flown["tailnum"].isin(*UNREGISTERED)).count()),
    ]
    assert altered == AROUND
    assert planes.where(planes["tailnum"].isin(*UNREGISTERED, SISTER)).count() == 1


@pytest.mark.deep
def test_flights_arrive_after_the_time_in_the_air_and_some_on_the_ground(spark, flights):
    """Six do not: in the file the evening after summer time ended lies an hour late."""
    ground = F.expr("timestampdiff(MINUTE, departed_at, arrived_at) - air_time")
    found = timed(spark, flights).agg(F.count_if(ground <= 0), F.max(ground), F.count(ground), F.count("arrived_at"))
    assert tuple(found.collect()[0]) == (6, 235, 327_346, 328_063)


@pytest.mark.deep
def test_who_came_back_is_in_the_flights_themselves(spark: SparkSession, flights: DataFrame) -> None:
    """Counted by a plain join of Tuesday's arrivals with the departures of two days."""
    moved = timed(spark, flights.where("flight_date BETWEEN DATE'2013-02-11' AND DATE'2013-02-13'"))
    left, at = moved.select("tailnum", F.col("departed_at").alias("left_at")), F.col("arrived_at")
    came = moved.where((at >= clock(TUESDAY, 0)) & (at < clock(TUESDAY, 24)))
    again = F.expr("left_at BETWEEN arrived_at AND arrived_at + INTERVAL 12 HOURS")
    back = F.max(F.coalesce(again, F.lit(False))).alias("back")
    each = came.join(left, on="tailnum", how="left").groupBy(*KEY).agg(back)
    assert tuple(each.agg(F.count_if("back"), F.count_if(~F.col("back"))).collect()[0]) == (BACK, AWAY)


@pytest.mark.deep
def test_who_left_twice_is_in_the_flights_themselves(spark: SparkSession, flights: DataFrame) -> None:
    """Counted by a plain join of the departures with themselves."""
    moved = timed(spark, flights).where(F.col("departed_at") < clock(THURSDAY, 24)).select("tailnum", "departed_at")
    again = (
        "a.tailnum = b.tailnum AND a.departed_at < b.departed_at AND b.departed_at <= a.departed_at + INTERVAL 3 HOURS"
    )
    assert moved.alias("a").join(moved.alias("b"), on=F.expr(again)).count() == TURNAROUNDS


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    """The refusal comes before Spark is started."""
    (tmp_path / "precious").write_text("mine")
    for run in (run_demo, run_tour):
        with pytest.raises(LakejoinError, match="no demo created it"):
            run(no_spark, tmp_path, lambda _: None)
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_link_to_a_folder_is_left_alone(tmp_path: Path) -> None:
    """Deleting through a link would delete what lies elsewhere."""
    prepare_folder(tmp_path / "demo", PIPELINE_FILE)
    (tmp_path / "link").symlink_to(tmp_path / "demo")
    with pytest.raises(LakejoinError, match="no demo created it"):
        prepare_folder(tmp_path / "link", PIPELINE_FILE)


def test_the_folder_of_an_earlier_demo_is_made_anew(tmp_path: Path) -> None:
    """Only the marker and the pipeline file are in it then."""
    folder = tmp_path / "demo"
    prepare_folder(folder, TOUR_FILE)
    (folder / "lake").mkdir()
    prepare_folder(folder, PIPELINE_FILE)
    assert sorted(path.name for path in folder.iterdir()) == sorted([MARKER, PIPELINE_FILE])
