"""
The demo: two days of a blizzard and what came of them, told by changing tables and the joins that lakejoin keeps.

    Airline writes ──► schedule, operations ─► Pipeline.run ─► flight_status
    Registry writes ─► planes, weather, …   ─► Pipeline.run ─► flights_enriched, over all six tables
    Movements adds ──► departures           ─► Pipeline.run ─► departures_enriched, each with its plane as it was then
                       and arrivals         ─► Pipeline.run ─► returns, each arrival with the departures that followed
                       ──► departures twice ─► Pipeline.run ─► turnarounds, an aircraft's consecutive departures
                                               Pipeline.verify of all, one question
"""

import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors import LakejoinError
from pipelines.commands.api import Pipeline
from pipelines.commands.demo.airline import Airline
from pipelines.commands.demo.data import data_folder, read_flights
from pipelines.commands.demo.lake import Lake
from pipelines.commands.demo.movements import NEW_YORK, Movements, arrivals, clock, departures
from pipelines.commands.demo.registry import EMBRAER_190, Registry
from pipelines.commands.demo.rounds import (
    FLEET_UPDATE,
    FRIDAY,
    THURSDAY,
    TUESDAY,
    WEDNESDAY,
    Round,
    aftermath,
    blizzard,
    thursday,
    tuesday,
    wednesday,
)
from pipelines.commands.examples import example
from pipelines.commands.shell import program
from pipelines.report import JoinReport

PIPELINE_FILE = "flights.yml"
MARKER = ".lakejoin-demo"
"""The file that says that a folder is the demo's own and may be deleted."""

QUESTION = """
    SELECT a.name, count(*) AS flights, count_if(f.status = 'cancelled') AS cancelled, avg(f.delay) AS delay
    FROM {flight_status} f JOIN {airlines} a ON f.carrier = a.carrier
    WHERE f.flight_date BETWEEN DATE '2013-02-08' AND DATE '2013-02-09'
    GROUP BY a.name HAVING flights >= 20
    ORDER BY cancelled / flights DESC, a.name
"""

SEATS = """
    SELECT seats, count(*) AS flights FROM {departures}
    WHERE _epoch > 1
    GROUP BY seats ORDER BY min(_position)
"""

RETURNS = """
    SELECT count(DISTINCT time_hour, carrier, flight) AS arrivals,
           max(struct(arrived_at, tailnum, dest, departed_at, origin)) AS last
    FROM {returns}
    GROUP BY departed_at IS NULL ORDER BY departed_at IS NULL
"""

TURNAROUNDS = """
    SELECT count(*) AS found, max(struct(next_departed_at - departed_at AS apart, tailnum, dest)) AS longest
    FROM {turnarounds}
"""

Say = Callable[[str], None]


def run_demo(spark_factory: Callable[[], SparkSession], folder: Path, say: Say, *, days: int = 365) -> None:
    """
    Keep five joins of changing tables up to date before the reader's eyes, and prove them right at the end.

    Args:
        spark_factory: Starts Spark, once it is known that the demo can run.
        folder: Where tables and pipeline file are put; made anew if an earlier demo made it.
        say: Called with each line.
        days: Days of 2013 in the timetable, at least 42: up to the blizzard and two to be put on sale meanwhile.

    Raises:
        LakejoinError: The folder is not the demo's, the flights are not installed, or a result is wrong at the end.
    """
    data_folder()
    file = prepare_folder(folder)
    say("lakejoin demo: the flights that left New York in 2013, as Delta tables that change while you watch.")
    say("Starting Spark takes a few seconds, writing the first two tables some more ...")
    lake = Lake(spark_factory(), folder.resolve() / "lake")
    flights = read_flights(lake.spark, folder).persist()
    tour, registry = _Tour(Pipeline.load(file), lake, say), Registry(lake)
    try:
        tour.show_blizzard(Airline(lake, flights), date(2013, 1, 1) + timedelta(days=days - 3))
        tour.show_aftermath(registry)
        left = departures(lake, flights)
        tour.show_stream(left, registry)
        tour.show_two_streams(left, arrivals(lake, flights))
        tour.show_self_join(left)
    finally:
        flights.unpersist()
    tour.show_proof()
    tour.show_answer()
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


@dataclass(frozen=True)
class _Tour:
    """What the reader is shown, in this order."""

    pipeline: Pipeline
    lake: Lake
    say: Say

    def show_blizzard(self, airline: Airline, on_sale: date) -> None:
        """Let one join follow the two tables of the airlines."""
        rows = airline.open(FRIDAY, on_sale)
        self.say(f"  schedule    {rows['schedule']:>8,} rows  flights planned, 1 Jan to {on_sale:%d %b}")
        self.say(f"  operations  {rows['operations']:>8,} rows  flights operated, 1 Jan to 07 Feb")
        held = self._show_load("flight_status", "The join, as the pipeline file has it:")
        self.say("\nA blizzard comes. The airlines write into both tables, and after each round lakejoin runs:\n")
        self._show_rounds("flight_status", held, blizzard(airline, on_sale))

    def show_aftermath(self, registry: Registry) -> None:
        """Let a star follow the tables around the flights."""
        self.say("\nFour more tables hold what surrounds the flights:")
        rows = registry.open(FRIDAY)
        self.say(f"  planes      {rows['planes']:>8,} rows  the register of aircraft")
        self.say(f"  airlines    {rows['airlines']:>8,} rows  names")
        self.say(f"  airports    {rows['airports']:>8,} rows  names")
        self.say(f"  weather     {rows['weather']:>8,} rows  hours at the three airports, 1 Jan to 07 Feb")
        held = self._show_load("flights_enriched", "The second join is a star over all six, airports twice:")
        self.say("\nA row of those tables is part of many flights. They change, and again lakejoin runs:\n")
        changed = self._show_rounds("flights_enriched", held, aftermath(registry))
        planes, altered = changed[FLEET_UPDATE]
        self.say(f"\nThe fleet update changed {planes:,} planes, and that altered {altered:,} flights.")

    def show_stream(self, departures: Movements, registry: Registry) -> None:
        """Let a stream look up what the tables held at the time of each row."""
        rows = departures.open(TUESDAY)
        self.say(f"\n  departures  {rows:>8,} rows  a stream: rows are only added, 1 Jan to 11 Feb")
        held = self._show_load(
            "departures_enriched", "The third join is of a stream: it meets each plane as it was then:"
        )
        self.say(
            "\nTuesday's departures come, and meanwhile a model's seats are corrected once more; one run for all:\n"
        )
        self._show_rounds("departures_enriched", held, tuesday(departures, registry))
        model = self.lake.table("departures_enriched").where(F.col("model") == EMBRAER_190)
        seats = self.lake.spark.sql(SEATS, departures=model)
        before, after = (f"{row['flights']} with {row['seats']} seats" for row in seats.collect())
        self.say(f"\nOf Tuesday's departures with an {EMBRAER_190} there are {before}, and after noon {after}.")

    def show_two_streams(self, departures: Movements, arrivals: Movements) -> None:
        """Let two streams meet within bounds of time."""
        rows = arrivals.open(WEDNESDAY)
        self.say(f"\n  arrivals    {rows:>8,} rows  a second stream: where they went, 1 Jan to 12 Feb")
        self._show_load("returns", "The fourth join is of two streams: who leaves New York again has come back:")
        self.say("\nAn arrival waits until no departure can meet it any more; one that met none is added with nulls:\n")
        self._show_waiting("returns", wednesday(departures, arrivals))
        at = F.col("arrived_at")
        tuesdays = self.lake.table("returns").where((at >= clock(TUESDAY, 0)) & (at < clock(TUESDAY, 24)))
        back, away = self.lake.spark.sql(RETURNS, returns=tuesdays).collect()
        self.say(f"\nOf Tuesday's {back['arrivals'] + away['arrivals']:,} arrivals, at the times of New York:")
        self.say(f"  {back['arrivals']:>4,} left there again within 12 hours, such as {_seen(back)}")
        self.say(f"  {away['arrivals']:>4,} did not come back to do so, such as {_seen(away)}")

    def show_self_join(self, departures: Movements) -> None:
        """Let a stream meet itself."""
        self._show_load("turnarounds", "The fifth join is of a stream with itself: who leaves twice within 3 hours?")
        self.say("\nEach departure is read once and waits once, as the earlier of two and as the later one:\n")
        self._show_waiting("turnarounds", thursday(departures))
        at = F.col("departed_at")
        twice = self.lake.table("turnarounds").where((at >= clock(THURSDAY, 0)) & (at < clock(THURSDAY, 24)))
        (found,) = self.lake.spark.sql(TURNAROUNDS, turnarounds=twice).collect()
        apart, tailnum, dest = found["longest"]
        self.say(
            f"\nThursday's departures that one of the same aircraft followed: {found['found']:,}. "
            f"{tailnum} left for {dest}, and again after {apart.seconds // 60} minutes."
        )

    def show_proof(self) -> None:
        """Compute the joins from scratch, and the epochs of the stream once more, and compare."""
        self.say("")
        for join in self.pipeline.file.joins:
            report = self.pipeline.verify(self.lake.spark, [join])[0]
            again = "its epochs, replayed, have" if "epochs" in report.counts else "the join computed from scratch has"
            same = f"{again} the same {report.counts['expected']:,} rows"
            self.say(f"Verified: {join}, {same} ({sum(report.seconds.values()):.1f} s).")

    def show_answer(self) -> None:
        """Ask a result one question, as any reader of a Delta table would."""
        status, airlines = self.lake.table("flight_status"), self.lake.table("airlines")
        self.say("\nAsked of flight_status: how did the airlines come through the two days? (20 flights and more)\n")
        self.say(f"{'':<28} {'flights':>8} {'cancelled':>10} {'mean delay of the others':>26}")
        for row in self.lake.spark.sql(QUESTION, flight_status=status, airlines=airlines).collect():
            delay = "-" if row["delay"] is None else f"{round(row['delay'])} min"
            self.say(f"{row['name']:<28} {row['flights']:>8} {row['cancelled'] / row['flights']:>10.0%} {delay:>26}")

    def _show_load(self, join: str, title: str) -> int:
        sql = self.pipeline.file.joins[join].sql
        self.say(f"\n{title}\n" + "".join(f"\n  {line}" for line in sql.rstrip().splitlines()))
        start = time.monotonic()
        held = self.pipeline.run(self.lake.spark, [join])[0].changed
        self.say(f"\nFirst run: {join} is loaded, {held:,} rows ({time.monotonic() - start:.1f} s).")
        return held

    def _show_rounds(self, join: str, held: int, rounds: list[Round]) -> dict[str, tuple[int, int]]:
        """Give for each round what it was, the source rows written and the result rows changed."""
        line = "{:<16}  {:<43} {:>11}  {:>11}  {:>8}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "share of", ""))
        self.say(line.format("when", "what", "written", "changed", "result", "time"))
        changed = {}
        for part in rounds:
            written, report, seconds = self._run_round(join, part)
            added = report.counts.get("inserted", 0) + report.counts.get("appended", 0)
            held += added - report.counts.get("deleted", 0)
            share = f"{report.changed / held:.2%}"
            self.say(line.format(part.when, part.what, f"{written:,}", f"{report.changed:,}", share, seconds))
            changed[part.what] = (written, report.changed)
        return changed

    def _show_waiting(self, join: str, rounds: list[Round]) -> None:
        line = "{:<16}  {:<37} {:>11}  {:>11}  {:>8}  {:>4}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "rows that", "", ""))
        self.say(line.format("when", "what", "written", "added", "wait", "late", "time"))
        for part in rounds:
            written, report, seconds = self._run_round(join, part)
            counts = (written, *(report.counts[name] for name in ("appended", "buffered", "late")))
            self.say(line.format(part.when, part.what, *(f"{count:,}" for count in counts), seconds))

    def _run_round(self, join: str, part: Round) -> tuple[int, JoinReport, str]:
        """Let the writes of a round happen and lakejoin run; give the rows written, the report and the time it took."""
        written = sum(write() for write in part.writes)
        start = time.monotonic()
        report = self.pipeline.run(self.lake.spark, [join])[0]
        return written, report, f"{time.monotonic() - start:.1f} s"


def _seen(found: Row) -> str:
    """Tell of the last aircraft when it arrived and when it left New York, by the clocks there."""
    arrived_at, tailnum, dest, departed_at, origin = found["last"]
    told = f"{tailnum}: {dest} {arrived_at.astimezone(NEW_YORK):%a %H:%M}"
    return told if departed_at is None else f"{told}, {origin} {departed_at.astimezone(NEW_YORK):%a %H:%M}"
