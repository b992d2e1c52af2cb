"""Spark sessions: a local one with Delta for embedded use, and our own beside the caller's."""

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.errors import LakejoinError
from lakehouse.fixed_settings import FIXED, INDISPENSABLE, UNSET

JARS = Path(sys.prefix) / "share" / "lakejoin" / "jars"
"""Where set-up puts Delta's jars, so that a start resolves nothing."""

JAVA = Path(sys.prefix) / "share" / "lakejoin" / "java"
"""The Java that set-up found and tried, a link."""

QUIET = Path(__file__).with_name("log4j2.properties")

EXTERNAL_SPARK = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")
"""Set where Spark is there already: over Connect, under spark-submit, on Databricks. Its settings are not ours."""

LOCAL_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={QUIET}" -XX:+UseParallelGC',
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.databricks.delta.snapshotPartitions": "2",
    # VACUUM lists files in so many tasks, otherwise in 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(os.cpu_count() or 2),
    # An epoch runs some 160 generated classes; of the 100 that are kept otherwise the next one finds none again.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.locality.wait": "0s",
    # Nobody looks at what ran; kept, the plans of a thousand queries fill the driver's memory.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
}

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For queries over few rows: to compile one takes longer than to run it."""


NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""Plans that Spark changes while they run pay for themselves with many rows only."""

LOSSY_SETTINGS = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """
    Start Spark with Delta on this machine, or return the session that is given or runs already, as it is.

    Args:
        settings: Spark settings that come on top of ours, such as `spark.driver.memory`.

    Raises:
        LakejoinError: pyspark is not installed, or no suitable Java was found.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if JAVA.exists():
        os.environ.setdefault("JAVA_HOME", str(JAVA))
    builder = SparkSession.builder.appName("lakejoin")
    if not any(os.environ.get(name) for name in EXTERNAL_SPARK):
        if importlib.util.find_spec("delta") is None:
            raise LakejoinError(
                "local session", "Delta Lake for Spark is not installed", hint="run `pip install 'lakejoin[local]'`"
            )
        builder = builder.master("local[*]")
        for name, value in {**LOCAL_SETTINGS, **(settings or {})}.items():
            builder = builder.config(name, value)
        if any(JARS.glob("*.jar")):
            builder = builder.config("spark.driver.extraClassPath", f"{JARS}/*")
        else:
            from delta import configure_spark_with_delta_pip

            builder = configure_spark_with_delta_pip(builder)
    # Errors reach the caller as exceptions; pyspark would print each on stderr as well, as JSON with a stack trace.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if type(error).__name__ != "PySparkRuntimeError":
            raise
        raise LakejoinError(
            "local session",
            "Spark could not be started",
            expected="Java 17 or 21 with the module jdk.incubator.vector, by JAVA_HOME or on the PATH",
            found=str(error).splitlines()[0],
            hint="install a JRE (Debian: `apt-get install openjdk-17-jre-headless`) or set JAVA_HOME",
        ) from error


def own_session(spark: SparkSession, timezone: str) -> SparkSession:
    """
    Make a session of our own beside the caller's, so that the caller's settings are neither touched nor trusted.

    Args:
        spark: The caller's session, classic or Spark Connect.
        timezone: The session time zone that the pipeline file fixes.

    Raises:
        LakejoinError: A setting is on that makes Spark skip files it cannot read, or one is refused without which a
            value can become another one.
    """
    clone = getattr(spark, "cloneSession", None)
    session: SparkSession = clone() if clone else spark.newSession()
    for name in LOSSY_SETTINGS:
        for holder in (spark, session):
            if str(holder.conf.get(name, "false")).lower() == "true":
                raise LakejoinError(
                    "session",
                    f"{name} is on",
                    expected="off, for with it a source's missing file is lost data that nobody hears of",
                    hint=f"unset {name} and run again",
                )
    for name in UNSET:
        with suppress(PySparkException):
            session.conf.unset(name)
    for name, value in FIXED.items():
        with suppress(PySparkException):  # a setting that this runtime refuses is one of its `deviations`
            session.conf.set(name, value)
    session.conf.set("spark.sql.session.timeZone", timezone)
    different = deviations(session)
    for name in INDISPENSABLE:
        if name in different:
            raise LakejoinError(
                "session",
                f"{name} cannot be set",
                expected=f"{FIXED[name]}, otherwise values change on their way into a statement",
                found=different[name],
                hint=f"allow sessions to set {name}, or set it to {FIXED[name]} for the application",
            )
    return session


def deviations(session: SparkSession) -> dict[str, str]:
    """
    Return the settings that a runtime has not let us fix and that are not as they should be, with their values.

    They are part of what defines a join: under other values its rows may be others.

    Args:
        session: A session that `own_session` made.
    """
    values = session.conf.getAll
    found = {}
    for name in (name for name, value in FIXED.items() if values.get(name, "").lower() != value.lower()):
        with suppress(PySparkException):  # a runtime that does not know the setting has nothing that deviates
            found[name] = str(session.conf.get(name))
    return {name: value for name, value in found.items() if value.lower() != FIXED[name].lower()}


def is_over_connect(spark: SparkSession) -> bool:
    """Tell whether a session is one of Spark Connect; its client takes no frame twice into a plan that is observed."""
    return "connect" in type(spark).__module__


def persisted(frame: DataFrame) -> DataFrame:
    """Keep what a frame is computed to for later reads, where that can be had: Databricks serverless refuses it."""
    with _unless_refused():
        frame.persist()
    return frame


def unpersist(frame: DataFrame) -> None:
    """Keep a frame no longer."""
    with _unless_refused():
        frame.unpersist()


@contextmanager
def _unless_refused() -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        if "NOT_SUPPORTED" not in (error.getCondition() or ""):
            raise


def small_query_settings(size: int) -> dict[str, str]:
    """
    Give the settings for queries over few rows.

    Args:
        size: The bytes of the files in which they are looked up.
    """
    return {**NOT_ADAPTIVE, **(INTERPRETED if size <= limits.INTERPRETED_BYTES else {})}


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """
    Set configuration for one statement and put back what was there, whatever happens.

    Delta reads transaction ids and user metadata of MERGE from the session; left behind they would apply to each later
    write of it.
    """
    before = {name: session.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
