"""Spark sessions: a local session with Delta for embedded use, and lakejoin's own session beside the caller's."""

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.errors.errors import LakejoinError
from lakehouse.session.fixed_settings import FIXED, INDISPENSABLE, UNSET

JARS = Path(sys.prefix) / "share" / "lakejoin" / "jars"
"""The folder into which set-up puts Delta's jars, so that a start resolves no dependencies."""

JAVA = Path(sys.prefix) / "share" / "lakejoin" / "java"
"""A link to the Java that set-up found and tested."""

QUIET = Path(__file__).with_name("log4j2.properties")

EXTERNAL_SPARK = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")
"""Variables that show an existing Spark, which keeps its settings: over Connect, spark-submit or Databricks."""

LOCAL_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={QUIET}" -XX:+UseParallelGC',
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.databricks.delta.snapshotPartitions": "2",
    # The number of tasks in which VACUUM lists files; the default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(os.cpu_count() or 2),
    # An epoch runs about 160 generated classes; with the default of 100 entries the next epoch finds none of them.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.locality.wait": "0s",
    # The UI is off, and the retained plans of a thousand queries would fill the driver's memory.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
}

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for queries over few rows: compiling such a query takes longer than running it."""


NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""Settings without adaptive execution, which is worth its cost for many rows only."""

WITHOUT_BROADCASTS = {"spark.sql.shuffle.partitions": "1", "spark.sql.autoBroadcastJoinThreshold": "-1"}
"""
Settings for joins of a few rows that the driver holds: a broadcast is a Spark job of its own, and each job costs more
than sorting the rows. A broadcast that a query asks for remains one.
"""

COSTS = {
    "spark.sql.codegen.hugeMethodLimit": str(limits.METHOD_BYTES),
    # The gate samples the rows that a change of a source affects before they are shuffled, not after.
    "spark.sql.optimizer.windowGroupLimitThreshold": str(limits.LEFT_OUT_ROWS),
}
"""Settings of lakejoin's session that change only what a query costs."""

LOSSY_SETTINGS = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


def local_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """
    Start Spark with Delta on this machine, or return the session of an existing Spark unchanged.

    Args:
        settings: Spark settings that extend or override the local ones, such as `spark.driver.memory`.

    Raises:
        LakejoinError: Delta Lake for Spark is not installed, or no suitable Java was found.
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
                "local session",
                "Delta Lake for Spark is not installed",
                hint="install lakejoin with its extra `local`, or run `pip install delta-spark==4.4.0`",
            )
        builder = builder.master("local[*]")
        for name, value in {**LOCAL_SETTINGS, **(settings or {})}.items():
            builder = builder.config(name, value)
        if any(JARS.glob("*.jar")):
            builder = builder.config("spark.driver.extraClassPath", f"{JARS}/*")
        else:
            from delta import configure_spark_with_delta_pip

            builder = configure_spark_with_delta_pip(builder)
    # Errors reach the caller as exceptions; pyspark would also print each on stderr, as JSON with a stack trace.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with _stdout_on_stderr():
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


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """
    Send stdout, which carries reports, to stderr for a process that the block starts and that keeps its files: Delta
    prints on the stdout of the JVM what VACUUM has deleted.
    """
    try:
        own = os.dup(1)
    except OSError:  # this process has no stdout
        yield
        return
    try:
        sys.stdout.flush()
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def is_embedded() -> bool:
    """Return whether `local_session` starts a Spark of its own, whose default file system is this machine's."""
    is_external = any(os.environ.get(name) for name in (*EXTERNAL_SPARK, "HADOOP_CONF_DIR"))
    return not is_external and SparkSession.getActiveSession() is None


_released: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
"""Sessions of lakejoin that nobody uses, by the session of the caller that they are beside."""


def release(spark: SparkSession, session: SparkSession) -> None:
    """
    Keep a session that nobody uses any more for the next `own_session` beside the caller's.

    Spark keeps a session, with the state of every table that it has read, for as long as its context runs. Over Spark
    Connect a session has the settings and the current schema that the caller's had when it began, so none is kept.
    """
    if not is_over_connect(session):
        _released.setdefault(spark, []).append(session)


def own_session(spark: SparkSession, timezone: str) -> SparkSession:
    """
    Return a session of our own beside the caller's, classic or Spark Connect, whose settings are neither changed nor
    trusted.

    Nobody else uses it until it is released: Delta reads the transaction of a write from the settings of the session.

    Raises:
        LakejoinError: A setting makes Spark skip files that it cannot read, or an indispensable setting is refused.
    """
    session = _unused_session(spark)
    for name in LOSSY_SETTINGS:
        for holder in (spark, session):
            if str(holder.conf.get(name, "false")).lower() == "true":
                raise LakejoinError(
                    "session",
                    f"{name} is on",
                    expected="off, because with it Spark silently skips files of a source that it cannot read",
                    hint=f"unset {name} and run again",
                )
    for name in UNSET:
        with suppress(PySparkException):
            session.conf.unset(name)
    for name, value in {**FIXED, **COSTS}.items():
        with suppress(PySparkException):  # `deviations` reports a fixed setting that this runtime refuses
            session.conf.set(name, value)
    session.conf.set("spark.sql.session.timeZone", timezone)
    different = deviations(session)
    for name in INDISPENSABLE:
        if name in different:
            raise LakejoinError(
                "session",
                f"{name} cannot be set",
                expected=f"{FIXED[name]}, because otherwise values change when they are written into a statement",
                found=different[name],
                hint=f"allow sessions to set {name}, or set it to {FIXED[name]} for the application",
            )
    return session


def _unused_session(spark: SparkSession) -> SparkSession:
    with suppress(IndexError):
        return _released.get(spark, []).pop()
    clone = getattr(spark, "cloneSession", None)
    session: SparkSession = clone() if clone else spark.newSession()
    return session


def deviations(session: SparkSession) -> dict[str, str]:
    """
    Return the fixed settings that a runtime refuses and whose values differ, with these values. They are part of the
    definition of a join, because its rows may depend on them.
    """
    values = {row["key"]: row["value"] for row in session.sql("SET").collect()}  # one call, not two for each setting
    found = {}
    for name in (name for name, value in FIXED.items() if values.get(name, "").lower() != value.lower()):
        with suppress(PySparkException):  # a setting that the runtime does not know cannot deviate
            found[name] = str(session.conf.get(name))
    return {name: value for name, value in found.items() if value.lower() != FIXED[name].lower()}


def is_over_connect(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect, whose client refuses the same frame twice in an observed plan."""
    return "connect" in type(spark).__module__


def persisted(frame: DataFrame) -> DataFrame:
    """Persist a frame for later reads, if the platform allows it; Databricks serverless refuses it."""
    with _unless_refused():
        frame.persist()
    return frame


def unpersist(frame: DataFrame) -> None:
    """Release a persisted frame."""
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
    """Return the settings for queries over few rows, which are looked up in files of so many bytes."""
    return {**NOT_ADAPTIVE, **(INTERPRETED if size <= limits.INTERPRETED_BYTES else {})}


@contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """
    Set configuration for one statement and restore the previous values afterwards, also after an error.

    Delta reads the transaction id and the user metadata of a MERGE from the session. If they stayed set, they would
    apply to every later write of the session.
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
