"""
The tables around the flights: four Delta tables that other teams own, and the changes that they write.

    planes      the register of aircraft, with corrections and late entries
    airlines    the names of the carriers
    airports    the names of the airports
    weather     hourly measurements at the three airports of New York
"""

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.commands.demo.data import read_table
from pipelines.commands.demo.lake import Lake, done

EMBRAER_190 = "ERJ 190-100 IGW"
"""The model of 80 planes. The register says that it has 20 seats; in fact it has about 100."""

UNREGISTERED = ("N507JB", "N526JB", "N527JB")
"""Airbus A320s of JetBlue that flights name and that the register lacks."""

SISTER = "N506JB"
"""A registered plane of the same model."""


@dataclass(frozen=True)
class Registry:
    """The owner of the four tables. Like the airlines, it does not use lakejoin."""

    lake: Lake

    def open(self, today: date) -> dict[str, int]:
        """
        Create the tables as of the morning of a day, with the change data feed enabled; return the number of rows of
        each.

        The weather of this day and of later days is not known yet.
        """
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
        known = self.lake.table("planes").where(F.col("tailnum") == like)
        rows = known.withColumns({"tailnum": added, "year": F.lit(None).cast("int")})
        return done(self.lake.merge("planes", rows, ("tailnum",)).whenNotMatchedInsertAll())

    def _weather(self, first: date, last: date) -> DataFrame:
        day = F.make_date("year", "month", "day")
        return read_table(self.lake.spark, "weather").where(day.between(F.lit(first), F.lit(last)))
