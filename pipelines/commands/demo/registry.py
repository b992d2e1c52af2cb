"""
What surrounds the flights: four Delta tables that others keep, and what those write into them.

    planes      the register of aircraft: corrected, and a plane entered late
    airlines    the names of the carriers
    airports    the names of the airports
    weather     what the three airports of New York measured, hour by hour
"""

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.commands.demo.data import read_table
from pipelines.commands.demo.lake import Lake, done

EMBRAER_190 = "ERJ 190-100 IGW"
"""The register gives each of its 80 planes 20 seats; it has about a hundred."""

UNREGISTERED = ("N507JB", "N526JB", "N527JB")
"""Airbus A320 of JetBlue that flights name and the register does not have."""

SISTER = "N506JB"
"""One of the same kind that it has."""


@dataclass(frozen=True)
class Registry:
    """
    Owner of the four tables. Like the airlines it knows nothing of lakejoin.

    Args:
        lake: Where the tables lie.
    """

    lake: Lake

    def open(self, today: date) -> dict[str, int]:
        """
        Make the tables as they are on a morning, with the change data feed on.

        Args:
            today: The weather of this day and of later ones is not known yet.

        Returns:
            The rows of each table.
        """
        tables = {name: read_table(self.lake.spark, name) for name in ("planes", "airlines", "airports")}
        tables["weather"] = self._weather(date(2013, 1, 1), today - timedelta(days=1))
        return {name: self.lake.create(name, rows) for name, rows in tables.items()}

    def observe(self, first: date, last: date) -> int:
        """Bring the weather of some days; give the number of rows, as the methods below do."""
        rows = self._weather(first, last)
        return done(self.lake.merge("weather", rows, ("origin", "time_hour")).whenNotMatchedInsertAll())

    def correct_seats(self, model: str, seats: int) -> int:
        """Correct the number of seats of all planes of a model."""
        rows = self.lake.table("planes").where(F.col("model") == model)
        return done(self.lake.merge("planes", rows, ("tailnum",)).whenMatchedUpdate(set={"seats": F.lit(seats)}))

    def register(self, *tailnums: str, like: str) -> int:
        """Enter planes of the same kind as one that is there; when they were built is not known."""
        added = F.explode(F.array(*(F.lit(tailnum) for tailnum in tailnums)))
        known = self.lake.table("planes").where(F.col("tailnum") == like)
        rows = known.withColumns({"tailnum": added, "year": F.lit(None).cast("int")})
        return done(self.lake.merge("planes", rows, ("tailnum",)).whenNotMatchedInsertAll())

    def _weather(self, first: date, last: date) -> DataFrame:
        day = F.make_date("year", "month", "day")
        return read_table(self.lake.spark, "weather").where(day.between(F.lit(first), F.lit(last)))
