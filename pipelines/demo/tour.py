"""
The demo: two days of a blizzard, told by two changing tables and the join that lakejoin keeps of them.

    Airline writes ─► schedule, operations ─► Pipeline.run ─► flight_status ─► Pipeline.verify, one question
"""

import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lakehouse.errors import LakejoinError
from pipelines.api import Pipeline
from pipelines.demo.airline import Airline, data_folder, read_flights
from pipelines.examples import example
from pipelines.shell import program

PIPELINE_FILE = "flights.yml"
MARKER = ".lakejoin-demo"
"""The file that says that a folder is the demo's own and may be deleted."""

FRIDAY, SATURDAY = date(2013, 2, 8), date(2013, 2, 9)
"""The blizzard that closed the airports of New York."""

QUESTION = """
    SELECT a.name, count(*) AS flights, count_if(f.status = 'cancelled') AS cancelled, avg(f.delay) AS delay
    FROM {flight_status} f JOIN {airlines} a ON f.carrier = a.carrier
    WHERE f.flight_date BETWEEN DATE '2013-02-08' AND DATE '2013-02-09'
    GROUP BY a.name HAVING flights >= 20
    ORDER BY cancelled / flights DESC, a.name
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """Some writes of the airline, after which lakejoin runs once."""

    when: str
    what: str
    writes: tuple[Callable[[], int], ...]


def run_demo(spark_factory: Callable[[], SparkSession], folder: Path, say: Say, *, days: int = 365) -> None:
    """
    Keep a join of two changing tables up to date before the reader's eyes, and prove it right at the end.

    Args:
        spark_factory: Starts Spark, once it is known that the demo can run.
        folder: Where tables and pipeline file are put; made anew if an earlier demo made it.
        say: Called with each line.
        days: Days of 2013 in the timetable, at least 42: up to the blizzard and two to be put on sale meanwhile.

    Raises:
        LakejoinError: The folder is not the demo's, the flights are not installed, or the result is wrong at the end.
    """
    data_folder()
    file = prepare_folder(folder)
    say("lakejoin demo: the flights that left New York in 2013, as two Delta tables that change while you watch.")
    say("Starting Spark takes a few seconds, writing the tables some more ...")
    spark = spark_factory()
    flights = read_flights(spark, folder).persist()
    try:
        airline = Airline(spark, folder.resolve() / "lake", flights)
        on_sale = date(2013, 1, 1) + timedelta(days=days - 3)
        _show_sources(airline.open(FRIDAY, on_sale), on_sale, say)
        pipeline = Pipeline.load(file)
        _show_rounds(spark, pipeline, _rounds(airline, on_sale), say)
    finally:
        flights.unpersist()
    report = pipeline.verify(spark)[0]
    took = sum(report.seconds.values())
    say(f"Verified: the join computed from scratch has the same {report.counts['expected']:,} rows ({took:.1f} s).")
    _show_answer(spark, airline.lake, say)
    given = shlex.quote(str(folder / PIPELINE_FILE))
    say(f"\nThe tables are in {folder / 'lake'}. Look at the pipeline file, change a table, and go on with")
    for command in ("status", "run", "verify"):
        say(f"  {program()} {command} -f {given}")


def prepare_folder(folder: Path) -> Path:
    """
    Make the demo's folder anew, with the pipeline file in it.

    Returns:
        The pipeline file.

    Raises:
        LakejoinError: Something lies there that no demo made; it is left alone.
    """
    if folder.is_symlink() or folder.exists():
        if folder.is_symlink() or not (folder / MARKER).is_file():
            raise LakejoinError(
                "demo",
                f"{folder} is there already, and no demo made it",
                hint="move it away, or give the demo another folder",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("Made by `lakejoin demo`, which deletes this folder when it runs again.\n")
    file = folder / PIPELINE_FILE
    file.write_text(example(PIPELINE_FILE), encoding="utf-8")
    return file


def _rounds(airline: Airline, on_sale: date) -> list[Round]:
    """Tell the blizzard; Saturday is one run for many writes, most of them to the same rows."""
    tomorrow = on_sale + timedelta(days=1)
    return [
        Round(
            "Fri 8 Feb 05:00",
            f"aircraft assigned, {tomorrow:%d %b} on sale",
            (lambda: airline.assign_aircraft(FRIDAY), lambda: airline.put_on_sale(tomorrow)),
        ),
        Round(
            "Fri 8 Feb 13:00",
            "first departures, then snow: cancellations",
            (lambda: airline.depart(FRIDAY, until=13), lambda: airline.cancel(FRIDAY)),
        ),
        Round(
            "Fri 8 Feb 24:00",
            "late departures, all arrivals",
            (lambda: airline.depart(FRIDAY, after=13), lambda: airline.land(FRIDAY)),
        ),
        Round(
            "Sat 9 Feb 24:00",
            f"a whole day at once, {tomorrow + timedelta(days=1):%d %b} on sale",
            (
                lambda: airline.assign_aircraft(SATURDAY),
                lambda: airline.cancel(SATURDAY),
                lambda: airline.depart(SATURDAY),
                lambda: airline.land(SATURDAY),
                lambda: airline.put_on_sale(tomorrow + timedelta(days=1)),
            ),
        ),
        Round("Sat 9 Feb 24:00", "once more, with nothing new", ()),
    ]


def _show_sources(rows: dict[str, int], on_sale: date, say: Say) -> None:
    say(f"  schedule    {rows['schedule']:>8,} rows  flights planned, 1 Jan to {on_sale:%d %b}")
    say(f"  operations  {rows['operations']:>8,} rows  flights operated, 1 Jan to 07 Feb")


def _show_rounds(spark: SparkSession, pipeline: Pipeline, rounds: list[Round], say: Say) -> None:
    sql = pipeline.file.joins["flight_status"].sql
    say("\nThe join, as the pipeline file has it:\n" + "".join(f"\n  {line}" for line in sql.rstrip().splitlines()))
    start = time.monotonic()
    held = pipeline.run(spark)[0].changed
    say(f"\nFirst run: flight_status is loaded, {held:,} rows ({time.monotonic() - start:.1f} s).")
    say("\nA blizzard comes. The airlines write into both tables, and after each round lakejoin runs:\n")
    line = "{:<15}  {:<44} {:>11}  {:>11}  {:>8}  {:>6}"
    say(line.format("", "", "source rows", "result rows", "share of", ""))
    say(line.format("when", "what", "written", "changed", "result", "time"))
    for part in rounds:
        written = sum(write() for write in part.writes)
        start = time.monotonic()
        report = pipeline.run(spark)[0]
        seconds = f"{time.monotonic() - start:.1f} s"
        held += report.counts.get("inserted", 0) - report.counts.get("deleted", 0)
        share = f"{report.changed / held:.2%}"
        say(line.format(part.when, part.what, f"{written:,}", f"{report.changed:,}", share, seconds))
    say("")


def _show_answer(spark: SparkSession, lake: Path, say: Say) -> None:
    """Ask the result one question, as any reader of a Delta table would."""
    status: DataFrame = spark.read.format("delta").load(str(lake / "flight_status"))
    airlines = spark.read.csv(str(data_folder() / "airlines.csv"), header=True)
    say("\nAsked of flight_status: how did the airlines come through the two days? (20 flights and more)\n")
    say(f"{'':<28} {'flights':>8} {'cancelled':>10} {'mean delay of the others':>26}")
    for row in spark.sql(QUESTION, flight_status=status, airlines=airlines).collect():
        delay = "-" if row["delay"] is None else f"{round(row['delay'])} min"
        say(f"{row['name']:<28} {row['flights']:>8} {row['cancelled'] / row['flights']:>10.0%} {delay:>26}")
