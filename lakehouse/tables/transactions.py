"""The application transactions that the log of a table remembers."""

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.errors.address import Address
from lakehouse.session.engine import Engine
from lakehouse.tables.delta_log import open_log
from lakehouse.tables.table import find

_TRANSACTION = StructType([StructField("appId", StringType()), StructField("version", LongType())])
_LOG = StructType([StructField("txn", _TRANSACTION)])
_FILES = (("json", "*.json"), ("parquet", "*.checkpoint*.parquet"))
"""The files of a log with transactions, by format: commits, and checkpoints other than those in JSON."""


def last_transaction(engine: Engine, address: Address, application: str) -> int | None:
    """
    Return the newest version that an application has written to a table under its own id.

    Args:
        engine: What reads the log: delta-rs or, where it cannot, Spark.
        address: The table.
        application: The application id.

    Returns:
        The version of the transaction; None if the table does not exist, has no transaction of this application, or
        lies where the files of its log cannot be read.
    """
    log, why = open_log(engine, address)
    if log is not None:
        return log.table.transaction_version(application)
    table = find(engine, address) if why else None
    if table is None or not table.location:
        return None
    found = [_newest(engine, f"{table.location}/_delta_log/{files}", kind, application) for kind, files in _FILES]
    return max((version for version in found if version is not None), default=None)


def _newest(engine: Engine, files: str, kind: str, application: str) -> int | None:
    try:
        actions = engine.spark.read.schema(_LOG).format(kind).load(files)
        newest = actions.where(F.col("txn.appId") == application).agg(F.max("txn.version")).collect()[0][0]
    except PySparkException:  # no such file, or none that the session may read: a catalog may hide the folder
        return None
    return None if newest is None else int(newest)
