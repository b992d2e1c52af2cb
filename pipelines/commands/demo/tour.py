"""
The tour: two days of a blizzard and their consequences, as changing tables and the joins that lakejoin keeps of them.

    Airline writes ──► schedule, operations ─► Pipeline.run ─► flight_status
    Registry writes ─► planes, weather, …   ─► Pipeline.run ─► flights_enriched, over six tables
    Movements adds ──► departures           ─► Pipeline.run ─► departures_enriched, with each plane as of its departure
                       and arrivals         ─► Pipeline.run ─► returns, each arrival with the departures that followed
                       ──► departures twice ─► Pipeline.run ─► turnarounds, an aircraft's consecutive departures
                                               Pipeline.verify of all joins, and one query
"""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.commands.api import Pipeline
from pipelines.commands.demo.airline import Airline
from pipelines.commands.demo.data import data_folder, read_flights
from pipelines.commands.demo.folder import prepare_folder
from pipelines.commands.demo.lake import Lake, StartSpark
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
from pipelines.commands.shell import program
from pipelines.report import JoinReport

PIPELINE_FILE = "flights.yml"

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


def run_tour(spark_factory: StartSpark, folder: Path, say: Say, *, days: int = 365) -> None:
    """
    Show how lakejoin keeps five joins of changing tables up to date, and verify all of them at the end.

    Args:
        spark_factory: Starts Spark with settings. It is called once the tour is known to be able to run.
        folder: The folder for tables and pipeline file; recreated if an earlier demo created it.
        say: Called with each line.
        days: The days of 2013 in the timetable, at least 42: up to the blizzard, and two that go on sale during it.

    Raises:
        LakejoinError: No demo created the folder, the flights are not installed, or a result is wrong at the end.
    """
    data_folder()
    file = prepare_folder(folder, PIPELINE_FILE)
    say("lakejoin demo, the tour: the flights that left New York in 2013, as Delta tables that change.")
    say("Starting Spark and creating the first two tables ...")
    lake = Lake(spark_factory({}), folder.resolve() / "lake")
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
    quoted = shlex.quote(str(folder / PIPELINE_FILE))
    say(f"\nThe tables are in {folder / 'lake'}. To continue:")
    for command in ("status", "run", "verify"):
        say(f"  {program()} {command} -f {quoted}")


@dataclass(frozen=True)
class _Tour:
    pipeline: Pipeline
    lake: Lake
    say: Say

    def show_blizzard(self, airline: Airline, on_sale: date) -> None:
        rows = airline.open(FRIDAY, on_sale)
        self.say(f"  schedule    {rows['schedule']:>8,} rows  flights planned, 1 Jan to {on_sale:%d %b}")
        self.say(f"  operations  {rows['operations']:>8,} rows  flights operated, 1 Jan to 07 Feb")
        size = self._show_load("flight_status", "The first join, from the pipeline file:")
        self.say("\nA blizzard comes. The airlines write to both tables, and lakejoin runs after each round:\n")
        self._show_rounds("flight_status", size, blizzard(airline, on_sale))

    def show_aftermath(self, registry: Registry) -> None:
        self.say("\nFour more tables describe planes, airlines, airports and weather:")
        rows = registry.open(FRIDAY)
        self.say(f"  planes      {rows['planes']:>8,} rows  the register of aircraft")
        self.say(f"  airlines    {rows['airlines']:>8,} rows  names")
        self.say(f"  airports    {rows['airports']:>8,} rows  names")
        self.say(f"  weather     {rows['weather']:>8,} rows  hourly at the three airports, 1 Jan to 07 Feb")
        size = self._show_load(
            "flights_enriched", "The second join is a star over all six tables; it uses airports twice:"
        )
        self.say("\nMany flights refer to each row of these tables. They change, and lakejoin runs after each round:\n")
        changed = self._show_rounds("flights_enriched", size, aftermath(registry))
        planes, altered = changed[FLEET_UPDATE]
        self.say(f"\nThe fleet update changed {planes:,} planes, and lakejoin updated {altered:,} flights.")

    def show_stream(self, departures: Movements, registry: Registry) -> None:
        rows = departures.open(TUESDAY)
        self.say(f"\n  departures  {rows:>8,} rows  a stream: rows are only appended, 1 Jan to 11 Feb")
        size = self._show_load(
            "departures_enriched", "The third join is of a stream with tables; it uses each plane as of the departure:"
        )
        self.say("\nTuesday's departures are appended; at noon the seats of a model change again. One run reads all:\n")
        self._show_rounds("departures_enriched", size, tuesday(departures, registry))
        model = self.lake.table("departures_enriched").where(F.col("model") == EMBRAER_190)
        seats = self.lake.spark.sql(SEATS, departures=model)
        before, after = (f"{row['flights']} with {row['seats']} seats" for row in seats.collect())
        self.say(f"\nTuesday's departures with an {EMBRAER_190}: before noon {before}, after noon {after}.")

    def show_two_streams(self, departures: Movements, arrivals: Movements) -> None:
        rows = arrivals.open(WEDNESDAY)
        self.say(f"\n  arrivals    {rows:>8,} rows  a second stream: at the destinations, 1 Jan to 12 Feb")
        self._show_load(
            "returns",
            "The fourth join is of two streams: aircraft that arrive elsewhere and depart from New York again:",
        )
        self.say("\nAn arrival is buffered until no more departures can match it. Unmatched ones get nulls:\n")
        self._show_buffering("returns", wednesday(departures, arrivals))
        at = F.col("arrived_at")
        tuesdays = self.lake.table("returns").where((at >= clock(TUESDAY, 0)) & (at < clock(TUESDAY, 24)))
        back, away = self.lake.spark.sql(RETURNS, returns=tuesdays).collect()
        self.say(f"\nOf Tuesday's {back['arrivals'] + away['arrivals']:,} arrivals (times are those of New York):")
        self.say(f"  {back['arrivals']:>4,} departed from New York within 12 hours, such as {_last_seen(back)}")
        self.say(f"  {away['arrivals']:>4,} did not, such as {_last_seen(away)}")

    def show_self_join(self, departures: Movements) -> None:
        self._show_load(
            "turnarounds", "The fifth join is of a stream with itself: aircraft that depart twice within 3 hours:"
        )
        self.say("\nEach departure is read once and buffered once, for both sides of the join:\n")
        self._show_buffering("turnarounds", thursday(departures))
        at = F.col("departed_at")
        twice = self.lake.table("turnarounds").where((at >= clock(THURSDAY, 0)) & (at < clock(THURSDAY, 24)))
        (found,) = self.lake.spark.sql(TURNAROUNDS, turnarounds=twice).collect()
        apart, tailnum, dest = found["longest"]
        self.say(
            f"\nThursday's departures with another one of the same aircraft within 3 hours: {found['found']:,}. "
            f"{tailnum} departed for {dest}, and again after {apart.seconds // 60} minutes."
        )

    def show_proof(self) -> None:
        """Verify each join: recompute joins of tables from scratch, and replay the epochs of joins of streams."""
        self.say("")
        for join in self.pipeline.file.joins:
            report = self.pipeline.verify(self.lake.spark, [join])[0]
            replayed = "epochs" in report.counts
            recomputed = "its replayed epochs have" if replayed else "the join computed from scratch has"
            same = f"{recomputed} the same {report.counts['expected']:,} rows"
            self.say(f"Verified: {join}, {same} ({sum(report.seconds.values()):.1f} s).")

    def show_answer(self) -> None:
        status, airlines = self.lake.table("flight_status"), self.lake.table("airlines")
        self.say("\nA query of flight_status: the two days of the blizzard by airline (with at least 20 flights)\n")
        self.say(f"{'':<28} {'flights':>8} {'cancelled':>10} {'mean delay of other flights':>28}")
        for row in self.lake.spark.sql(QUESTION, flight_status=status, airlines=airlines).collect():
            delay = "-" if row["delay"] is None else f"{round(row['delay'])} min"
            self.say(f"{row['name']:<28} {row['flights']:>8} {row['cancelled'] / row['flights']:>10.0%} {delay:>28}")

    def _show_load(self, join: str, title: str) -> int:
        sql = self.pipeline.file.joins[join].sql
        self.say(f"\n{title}\n" + "".join(f"\n  {line}" for line in sql.rstrip().splitlines()))
        start = time.monotonic()
        size = self.pipeline.run(self.lake.spark, [join])[0].changed
        self.say(f"\nFirst run: lakejoin loads {size:,} rows into {join} ({time.monotonic() - start:.1f} s).")
        return size

    def _show_rounds(self, join: str, size: int, rounds: list[Round]) -> dict[str, tuple[int, int]]:
        """Run the rounds, and return for each description the source rows written and the result rows changed."""
        line = "{:<16}  {:<43} {:>11}  {:>11}  {:>8}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "share of", ""))
        self.say(line.format("when", "what", "written", "changed", "result", "time"))
        changed = {}
        for part in rounds:
            written, report, seconds = self._run_round(join, part)
            added = report.counts.get("inserted", 0) + report.counts.get("appended", 0)
            size += added - report.counts.get("deleted", 0)
            share = f"{report.changed / size:.2%}"
            self.say(line.format(part.when, part.what, f"{written:,}", f"{report.changed:,}", share, seconds))
            changed[part.what] = (written, report.changed)
        return changed

    def _show_buffering(self, join: str, rounds: list[Round]) -> None:
        line = "{:<16}  {:<37} {:>11}  {:>11}  {:>8}  {:>4}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "rows", "", ""))
        self.say(line.format("when", "what", "written", "added", "buffered", "late", "time"))
        for part in rounds:
            written, report, seconds = self._run_round(join, part)
            counts = (written, *(report.counts[name] for name in ("appended", "buffered", "late")))
            self.say(line.format(part.when, part.what, *(f"{count:,}" for count in counts), seconds))

    def _run_round(self, join: str, part: Round) -> tuple[int, JoinReport, str]:
        """Write the changes of a round and run lakejoin; return the rows written, the report and its seconds."""
        written = sum(write() for write in part.writes)
        start = time.monotonic()
        report = self.pipeline.run(self.lake.spark, [join])[0]
        return written, report, f"{time.monotonic() - start:.1f} s"


def _last_seen(found: Row) -> str:
    """Format the last aircraft with its arrival and its departure from New York, in New York time."""
    arrived_at, tailnum, dest, departed_at, origin = found["last"]
    arrival = f"{tailnum}: {dest} {arrived_at.astimezone(NEW_YORK):%a %H:%M}"
    return arrival if departed_at is None else f"{arrival}, {origin} {departed_at.astimezone(NEW_YORK):%a %H:%M}"
