"""
The engines that read and write Delta tables: Spark sessions for everything, delta-rs for logs and for the ledger.

A Spark query costs about half a second on a small machine, also for one row. delta-rs reads a log in milliseconds and
needs no JVM, so Spark starts only when something needs it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any
from weakref import finalize

from packaging.specifiers import SpecifierSet
from pyspark.sql import SparkSession

from lakehouse.session.files import Files
from lakehouse.session.session import deviations, hadoop_setting, is_over_connect, own_session, release
from lakehouse.values.sqltext import Address

log = logging.getLogger(__name__)

DELTA_RS_VERSIONS = SpecifierSet(">=1.6.6,<1.7")
"""The versions of the package `deltalake` that read logs as Spark does; pyproject.toml names the same range."""


class _OnDemand:
    """A session that starts on first use, in whichever thread."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start, self._starting = start, Lock()
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        with self._starting:
            if self._session is None:
                self._session = self._start()
        return self._session

    def setting(self, name: str) -> str:
        """Return a setting of Hadoop, as the session has it."""
        return hadoop_setting(self.session, name)


class Engine:
    """
    The engines of one workspace. `start` returns lakejoin's own Spark session when Spark is first needed; an embedded
    Spark is one that it starts on this machine, with the local file system as default.
    """

    def __init__(self, start: Callable[[], SparkSession], *, is_embedded: bool = False) -> None:
        self._on_demand, self._lending = _OnDemand(start), Lock()
        self._others: list[Engine] = []
        self._running: list[Engine] = []
        self.is_embedded = is_embedded

    @staticmethod
    def of(session: SparkSession) -> "Engine":
        """Return the engines beside a running session."""
        return Engine(lambda: session)

    @staticmethod
    def beside(spark: SparkSession, timezone: str) -> "Engine":
        """Return engines with a session of their own beside the caller's, which is released with them."""
        session = own_session(spark, timezone)
        engine = Engine.of(session)
        finalize(engine, release, spark, session)
        return engine

    @property
    def spark(self) -> SparkSession:
        """The Spark session of lakejoin, which starts on first use, in whichever thread."""
        return self._on_demand.session

    @contextmanager
    def another(self, timezone: str) -> Iterator["Engine"]:
        """
        Provide engines with a session beside this one for a thread; later threads get the same sessions again.

        Settings and transactions belong to a session: writers in one session would take each other's.
        """
        with self._lending:
            engine = self._others.pop() if self._others else None
        if engine is None:
            session = own_session(self.spark, timezone)
            engine = Engine(lambda: session, is_embedded=self.is_embedded)
        self._running.append(engine)
        try:
            yield engine
        finally:
            self._running.remove(engine)
            self._others.append(engine)

    def interrupt_others(self) -> None:
        """Cancel what the sessions of other threads are running."""
        for engine in [*self._running]:
            engine.spark.interruptAll()

    @cached_property
    def deviations(self) -> dict[str, str]:
        """The settings that the runtime does not let lakejoin fix, as `session.deviations` returns them."""
        return {} if self.is_embedded else deviations(self.spark)

    @cached_property
    def files(self) -> Files:
        """The files of lakejoin's own; those of an object store need the settings of the session."""
        return Files(self._on_demand.setting)  # which does not keep the engine from being released

    def why_spark(self, address: Address) -> str:
        """Return why Spark reads the log of a table, in a few words; empty if delta-rs may read it."""
        if self._why_spark:
            return self._why_spark
        if address.table:
            return "catalog table"
        return "" if self.files.has_logs(address.path) else "neither on this machine nor on S3"

    @cached_property
    def _why_spark(self) -> str:
        try:
            installed = version("deltalake")
        except PackageNotFoundError:
            return "deltalake is not installed"
        if installed not in DELTA_RS_VERSIONS:
            message = "deltalake %s is installed, and lakejoin needs %s: Spark reads logs and the ledger, more slowly"
            log.warning(message, installed, DELTA_RS_VERSIONS)
            return f"deltalake {installed} is not {DELTA_RS_VERSIONS}"
        return "Spark Connect" if not self.is_embedded and is_over_connect(self.spark) else ""


class RunningTasks:
    """The tasks of the jobs that Spark is running; over Spark Connect only those of this session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._is_remote = spark, is_over_connect(spark)
        self._stages: tuple[Any, ...] = ()
        if self._is_remote:
            spark.registerProgressHandler(self._handle)

    def now(self) -> tuple[int, int]:
        """Return the number of finished tasks and of all tasks, of the stages that are running."""
        if self._is_remote:
            running = [(stage.num_completed_tasks, stage.num_tasks) for stage in self._stages if not stage.done]
        else:
            tracker = self._spark.sparkContext.statusTracker()
            stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
            running = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        return sum(done for done, _ in running), sum(total for _, total in running)

    def stop(self) -> None:
        """Stop following the jobs of a session over Spark Connect."""
        if self._is_remote:
            self._spark.removeProgressHandler(self._handle)

    def _handle(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        self._stages = () if done else tuple(stages or ())
