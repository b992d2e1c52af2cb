"""
The streams of the demo: one row for each departure and each arrival, appended when it happens and never changed.

    departures    from one of the three airports of New York
    arrivals      of these flights at their destinations; the data has no arrivals in New York

A departure is joined with its plane as it was registered at that time, not as it is registered now. An aircraft that
arrives elsewhere and later departs from New York has returned in between.
"""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.commands.demo.data import read_table
from pipelines.commands.demo.lake import Lake

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
    """
    The owner of a table of movements. It does not use lakejoin.

    Args:
        rows: All rows of the year.
        at: The column with the time at which a row is appended.
    """

    lake: Lake
    table: str
    rows: DataFrame
    at: str

    def open(self, today: date) -> int:
        """Create the table with all movements before a day, with the change data feed enabled; return its row count."""
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
