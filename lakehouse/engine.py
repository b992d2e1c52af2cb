"""
The engines that read and write Delta tables: Spark for everything, delta-rs for logs and for the ledger.

A Spark query costs about half a second on a small machine, also for one row. delta-rs reads a log in milliseconds and
needs no JVM, so Spark starts only when something needs it.
"""

import importlib.util
import os
from collections.abc import Callable
from functools import cached_property
from threading import Lock

from pyspark.sql import SparkSession

from lakehouse.address import Address, local_path
from lakehouse.session import deviations, is_over_connect

READER = "LAKEJOIN_READER"
"""The environment variable that makes Spark read every log and every ledger, if its value is `spark`."""


class Engine:
    """
    The engines of one workspace.

    Args:
        start: Returns lakejoin's own Spark session; called when Spark is first needed.
        is_embedded: Whether `start` starts a Spark of its own on this machine, with the local file system as default.
    """

    def __init__(self, start: Callable[[], SparkSession], *, is_embedded: bool = False) -> None:
        self._start = start
        self._starting = Lock()
        self._session: SparkSession | None = None
        self.is_embedded = is_embedded

    @staticmethod
    def of(spark: SparkSession) -> "Engine":
        """Return the engines beside a running session."""
        return Engine(lambda: spark)

    @property
    def spark(self) -> SparkSession:
        """The Spark session of lakejoin, which starts on first use, in whichever thread."""
        with self._starting:
            if self._session is None:
                self._session = self._start()
        return self._session

    @cached_property
    def deviations(self) -> dict[str, str]:
        """The settings that the runtime does not let lakejoin fix, as `session.deviations` returns them."""
        return {} if self.is_embedded else deviations(self.spark)

    def why_spark(self, address: Address) -> str:
        """Return why Spark reads the log of a table, in a few words; empty if delta-rs may read it."""
        if self._why_spark:
            return self._why_spark
        if address.table:
            return "catalog table"
        return "" if local_path(address.path) else "not a local path"

    @cached_property
    def _why_spark(self) -> str:
        if os.environ.get(READER, "").lower() == "spark":
            return f"{READER} is spark"
        if importlib.util.find_spec("deltalake") is None:
            return "deltalake is not installed"
        return "Spark Connect" if not self.is_embedded and is_over_connect(self.spark) else ""
