"""
The stream of the demo: a row for each departure, added as it happens and never changed.

Who asks what plane left wants it as it was registered then, not as it is now.
"""

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.demo.lake import Lake

COLUMNS = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_time", "dep_delay")


@dataclass(frozen=True)
class Departures:
    """
    Owner of the table of departures. It knows nothing of lakejoin.

    Args:
        lake: Where it lies.
        flights: All flights as they ended.
    """

    lake: Lake
    flights: DataFrame

    def open(self, today: date) -> int:
        """Make the table with the departures before a day, with the change data feed on; give its rows."""
        flown = (F.col("flight_date") < F.lit(today)) & F.col("dep_time").isNotNull()
        return self.lake.create("departures", self.flights.where(flown).select(*COLUMNS))

    def depart(self, day: date, after: int, until: int) -> int:
        """Add the departures of a day between two hours of its timetable; give their number."""
        hours = (F.col("hour") >= after) & (F.col("hour") < until) & F.col("dep_time").isNotNull()
        rows = self.flights.where((F.col("flight_date") == F.lit(day)) & hours).select(*COLUMNS)
        return self.lake.append("departures", rows)
