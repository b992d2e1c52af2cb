"""The tour: two days of a blizzard and their consequences, as changing tables and five joins that lakejoin keeps."""

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.commands.api import Pipeline
from pipelines.commands.demo.short import prepare_folder
from pipelines.commands.demo.sources import (
    EMBRAER_190,
    FRIDAY,
    NEW_YORK,
    SATURDAY,
    SISTER,
    UNREGISTERED,
    Airline,
    Lake,
    Movements,
    Registry,
    StartSpark,
    arrivals,
    clock,
    data_folder,
    departures,
    read_flights,
)
from pipelines.commands.init import program
from pipelines.report import JoinReport

PIPELINE_FILE = "flights.yml"

QUESTION = """
    SELECT a.name, count(*) AS flights, count_if(f.status = 'cancelled') AS cancelled, avg(f.delay) AS delay
    FROM {flight_status} f JOIN {airlines} a ON f.carrier = a.carrier
    WHERE f.flight_date BETWEEN DATE '2013-02-08' AND DATE '2013-02-09'
    GROUP BY a.name HAVING flights >= 20
    ORDER BY cancelled / flights DESC, a.name
"""

SEATS = "SELECT seats, count(*) AS flights FROM {departures} WHERE _epoch > 1 GROUP BY seats ORDER BY min(_position)"

RETURNS = """
    SELECT count(DISTINCT time_hour, carrier, flight) AS arrivals,
           max(struct(arrived_at, tailnum, dest, departed_at, origin)) AS last
    FROM {returns}
    GROUP BY departed_at IS NULL ORDER BY departed_at IS NULL
"""

TURNAROUNDS = """
    SELECT count(*) AS pairs, max(struct(next_departed_at - departed_at AS gap, tailnum, dest)) AS longest
    FROM {turnarounds}
"""

FLEET_UPDATE = "fleet update: Embraer 190 seats 100, not 20"

TUESDAY, WEDNESDAY, THURSDAY = (date(2013, 2, day) for day in (12, 13, 14))
DELAYED = "carrier = 'DL' AND flight = 461"
"""A flight that arrives in the morning and is reported at night."""

Say = Callable[[str], None]


class Round(NamedTuple):
    """Writes to the sources, with the number of rows that they changed, which one run of lakejoin follows."""

    when: str
    what: str
    written: int


def run_tour(spark_factory: StartSpark, folder: Path, say: Say, *, days: int = 365) -> None:
    """
    Show how lakejoin keeps five joins of changing tables up to date, and verify all of them, as `run_demo` does.

    `days` of 2013 are in the timetable, at least 42: up to the blizzard, and two that go on sale during it.
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
        self._show_rounds("flight_status", size, _blizzard(airline, on_sale))

    def show_aftermath(self, registry: Registry) -> None:
        self.say("\nFour more tables describe planes, airlines, airports and weather:")
        rows = registry.open(FRIDAY)
        self.say(f"  planes      {rows['planes']:>8,} rows  the register of aircraft")
        self.say(f"  airlines    {rows['airlines']:>8,} rows  names")
        self.say(f"  airports    {rows['airports']:>8,} rows  names")
        self.say(f"  weather     {rows['weather']:>8,} rows  hourly at the three airports, 1 Jan to 07 Feb")
        title = "The second join is a star over all six tables; it uses airports twice:"
        size = self._show_load("flights_enriched", title)
        self.say("\nMany flights refer to each row of these tables. They change, and lakejoin runs after each round:\n")
        changed = self._show_rounds("flights_enriched", size, _aftermath(registry))
        planes, altered = changed[FLEET_UPDATE]
        self.say(f"\nThe fleet update changed {planes:,} planes, and lakejoin updated {altered:,} flights.")

    def show_stream(self, departures: Movements, registry: Registry) -> None:
        rows = departures.open(TUESDAY)
        self.say(f"\n  departures  {rows:>8,} rows  a stream: rows are only appended, 1 Jan to 11 Feb")
        title = "The third join is of a stream with tables; it uses each plane as of the departure:"
        size = self._show_load("departures_enriched", title)
        self.say("\nTuesday's departures are appended; at noon the seats of a model change again. One run reads all:\n")
        self._show_rounds("departures_enriched", size, _tuesday(departures, registry))
        model = self.lake.table("departures_enriched").where(F.col("model") == EMBRAER_190)
        seats = self.lake.spark.sql(SEATS, departures=model)
        before, after = (f"{row['flights']} with {row['seats']} seats" for row in seats.collect())
        self.say(f"\nTuesday's departures with an {EMBRAER_190}: before noon {before}, after noon {after}.")

    def show_two_streams(self, departures: Movements, arrivals: Movements) -> None:
        rows = arrivals.open(WEDNESDAY)
        self.say(f"\n  arrivals    {rows:>8,} rows  a second stream: at the destinations, 1 Jan to 12 Feb")
        title = "The fourth join is of two streams: aircraft that arrive elsewhere and depart from New York again:"
        self._show_load("returns", title)
        self.say("\nAn arrival is buffered until no more departures can match it. Unmatched ones get nulls:\n")
        self._show_buffering("returns", _wednesday(departures, arrivals))
        at = F.col("arrived_at")
        tuesdays = self.lake.table("returns").where((at >= clock(TUESDAY, 0)) & (at < clock(TUESDAY, 24)))
        back, away = self.lake.spark.sql(RETURNS, returns=tuesdays).collect()
        self.say(f"\nOf Tuesday's {back['arrivals'] + away['arrivals']:,} arrivals (times are those of New York):")
        self.say(f"  {back['arrivals']:>4,} departed from New York within 12 hours, such as {_last_seen(back)}")
        self.say(f"  {away['arrivals']:>4,} did not, such as {_last_seen(away)}")

    def show_self_join(self, departures: Movements) -> None:
        title = "The fifth join is of a stream with itself: aircraft that depart twice within 3 hours:"
        self._show_load("turnarounds", title)
        self.say("\nEach departure is read once and buffered once, for both sides of the join:\n")
        self._show_buffering("turnarounds", _thursday(departures))
        at = F.col("departed_at")
        twice = self.lake.table("turnarounds").where((at >= clock(THURSDAY, 0)) & (at < clock(THURSDAY, 24)))
        (row,) = self.lake.spark.sql(TURNAROUNDS, turnarounds=twice).collect()
        gap, tailnum, dest = row["longest"]
        self.say(
            f"\nThursday's departures with another one of the same aircraft within 3 hours: {row['pairs']:,}. "
            f"{tailnum} departed for {dest}, and again after {gap.seconds // 60} minutes."
        )

    def show_proof(self) -> None:
        """Verify each join: recompute joins of tables from scratch, and replay the epochs of joins of streams."""
        self.say("")
        for join in self.pipeline.file.joins:
            report = self.pipeline.verify(self.lake.spark, [join])[0]
            proof = "its replayed epochs have" if "epochs" in report.counts else "the join computed from scratch has"
            seconds = f"{sum(report.seconds.values()):.1f} s"
            self.say(f"Verified: {join}, {proof} the same {report.counts['expected']:,} rows ({seconds}).")

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
        report, seconds = self._run(join)
        self.say(f"\nFirst run: lakejoin loads {report.changed:,} rows into {join} ({seconds}).")
        return report.changed

    def _show_rounds(self, join: str, size: int, rounds: Iterator[Round]) -> dict[str, tuple[int, int]]:
        """Run the rounds, and return for each description the source rows written and the result rows changed."""
        line = "{:<16}  {:<43} {:>11}  {:>11}  {:>8}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "share of", ""))
        self.say(line.format("when", "what", "written", "changed", "result", "time"))
        changed = {}
        for part in rounds:
            report, seconds = self._run(join)
            added = report.counts.get("inserted", 0) + report.counts.get("appended", 0)
            size += added - report.counts.get("deleted", 0)
            share = f"{report.changed / size:.2%}"
            self.say(line.format(part.when, part.what, f"{part.written:,}", f"{report.changed:,}", share, seconds))
            changed[part.what] = (part.written, report.changed)
        return changed

    def _show_buffering(self, join: str, rounds: Iterator[Round]) -> None:
        line = "{:<16}  {:<37} {:>11}  {:>11}  {:>8}  {:>4}  {:>6}"
        self.say(line.format("", "", "source rows", "result rows", "rows", "", ""))
        self.say(line.format("when", "what", "written", "added", "buffered", "late", "time"))
        for part in rounds:
            report, seconds = self._run(join)
            counts = (part.written, *(report.counts[name] for name in ("appended", "buffered", "late")))
            self.say(line.format(part.when, part.what, *(f"{count:,}" for count in counts), seconds))

    def _run(self, join: str) -> tuple[JoinReport, str]:
        """Run lakejoin; return the report and its seconds."""
        start = time.monotonic()
        report = self.pipeline.run(self.lake.spark, [join])[0]
        return report, f"{time.monotonic() - start:.1f} s"


def _last_seen(arrivals: Row) -> str:
    """Format the last aircraft with its arrival and its departure from New York, in New York time."""
    arrived_at, tailnum, dest, departed_at, origin = arrivals["last"]
    arrival = f"{tailnum}: {dest} {arrived_at.astimezone(NEW_YORK):%a %H:%M}"
    return arrival if departed_at is None else f"{arrival}, {origin} {departed_at.astimezone(NEW_YORK):%a %H:%M}"


def _blizzard(airline: Airline, on_sale: date) -> Iterator[Round]:
    """
    Write the rounds of the blizzard. Saturday is one run for many writes, most of them to the same rows.

    As in all functions below, a round is written when the iterator reaches it.
    """
    first, second = on_sale + timedelta(days=1), on_sale + timedelta(days=2)
    written = airline.assign_aircraft(FRIDAY) + airline.put_on_sale(first)
    yield Round("Fri 8 Feb 05:00", f"aircraft assigned, {first:%d %b} on sale", written)
    written = airline.depart(FRIDAY, until=13) + airline.cancel(FRIDAY)
    yield Round("Fri 8 Feb 13:00", "first departures, then snow: cancellations", written)
    written = airline.depart(FRIDAY, after=13) + airline.land(FRIDAY)
    yield Round("Fri 8 Feb 24:00", "late departures, all arrivals", written)
    written = airline.assign_aircraft(SATURDAY) + airline.cancel(SATURDAY) + airline.depart(SATURDAY)
    written += airline.land(SATURDAY) + airline.put_on_sale(second)
    yield Round("Sat 9 Feb 24:00", f"a whole day at once, {second:%d %b} on sale", written)
    yield Round("Sat 9 Feb 24:00", "no changes", 0)


def _aftermath(registry: Registry) -> Iterator[Round]:
    """Write the rounds after the flights are over; many flights refer to each row that is written."""
    yield Round("Sun 10 Feb 09:00", "the weather of both days is added", registry.observe(FRIDAY, SATURDAY))
    yield Round("Mon 11 Feb 09:00", FLEET_UPDATE, registry.correct_seats(EMBRAER_190, 100))
    missing = f"{len(UNREGISTERED)} missing planes are registered"
    yield Round("Mon 11 Feb 09:30", missing, registry.register(*UNREGISTERED, like=SISTER))


def _tuesday(departures: Movements, registry: Registry) -> Iterator[Round]:
    """Write a day of departures; the seats of a model are corrected again at noon."""
    written = departures.move(TUESDAY, 0, 12) + registry.correct_seats(EMBRAER_190, 98)
    written += departures.move(TUESDAY, 12, 24)
    yield Round("Tue 12 Feb 24:00", "a day of departures; at noon: 98 seats", written)


def _wednesday(departures: Movements, arrivals: Movements) -> Iterator[Round]:
    """Write a day of two streams; one arrival is reported hours late."""
    written = arrivals.move(WEDNESDAY, which=f"NOT ({DELAYED})") + departures.move(WEDNESDAY)
    written += arrivals.move(WEDNESDAY, which=DELAYED)
    yield Round("Wed 13 Feb 24:00", "a day of both, one arrival hours late", written)


def _thursday(departures: Movements) -> Iterator[Round]:
    """Write two rounds of a day of one stream; departures before noon are buffered for those after it."""
    yield Round("Thu 14 Feb 12:00", "departures before noon", departures.move(THURSDAY, until=12))
    yield Round("Thu 14 Feb 24:00", "departures after noon", departures.move(THURSDAY, after=12))
