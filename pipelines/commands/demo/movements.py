"""
The streams of the demo: a row for each departure and each arrival, added as it happens and never changed.

    departures    from one of the three airports of New York
    arrivals      of these flights elsewhere; who lands in New York is not in the data

Who asks what plane left wants it as it was registered then, not as it is now. And an aircraft that arrived elsewhere
and leaves New York once more has come back in between.
"""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.commands.demo.data import read_table
from pipelines.commands.demo.lake import Lake

NEW_YORK = timezone(timedelta(hours=-5))
"""Its clocks in winter, when all of the demo happens."""

FLIGHT = ("time_hour", "carrier", "flight", "tailnum")

DEPARTED_AT = "time_hour + make_dt_interval(0, 0, minute + dep_delay)"

ARRIVED_AT = """
    timestamp_seconds(unix_seconds(departed_at) + pmod(unix_seconds(make_timestamp(
        year, month, day, arr_time div 100 % 24, arr_time % 100, 0, coalesce(tzone, 'America/Puerto_Rico')
    )) - unix_seconds(departed_at), 24 * 60 * 60))
"""
"""The next time after departure at which the clock there shows `arr_time`; the airports without a zone are of Puerto
Rico and the Virgin Islands."""


@dataclass(frozen=True)
class Movements:
    """
    Owner of a table of movements. It knows nothing of lakejoin.

    Args:
        lake: Where it lies.
        table: Its name.
        rows: All its rows of the year.
        at: The column with the time at which a row is added.
    """

    lake: Lake
    table: str
    rows: DataFrame
    at: str

    def open(self, today: date) -> int:
        """Make the table with the movements before a day, with the change data feed on; give its rows."""
        return self.lake.create(self.table, self.rows.where(F.col(self.at) < clock(today, 0)))

    def move(self, day: date, after: int = 0, until: int = 24, *, which: str = "true") -> int:
        """Add the movements between two hours of a day, of all flights or of some; give their number."""
        hours = (F.col(self.at) >= clock(day, after)) & (F.col(self.at) < clock(day, until))
        return self.lake.append(self.table, self.rows.where(hours & F.expr(which)))


def departures(lake: Lake, flights: DataFrame) -> Movements:
    """Give the departures of flights as they ended."""
    rows = timed(lake.spark, flights).where("departed_at IS NOT NULL")
    rows = rows.select(*FLIGHT, "origin", "dest", "dep_time", "dep_delay", "departed_at")
    return Movements(lake, "departures", rows, "departed_at")


def arrivals(lake: Lake, flights: DataFrame) -> Movements:
    """Give the arrivals of flights as they ended; one that was diverted may have none."""
    rows = timed(lake.spark, flights).where("arrived_at IS NOT NULL")
    return Movements(lake, "arrivals", rows.select(*FLIGHT, "dest", "arrived_at"), "arrived_at")


def timed(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Add to flights as they ended `departed_at` and `arrived_at`, whatever clocks the places have."""
    zones = read_table(spark, "airports").select(F.col("faa").alias("dest"), "tzone")
    left = flights.withColumn("departed_at", F.expr(DEPARTED_AT)).join(F.broadcast(zones), on="dest", how="left")
    return left.withColumn("arrived_at", F.expr(ARRIVED_AT))


def clock(day: date, hour: int) -> Column:
    """Give the time at which the clocks of New York show an hour of a day."""
    return F.lit(datetime.combine(day, time(), NEW_YORK) + timedelta(hours=hour))
