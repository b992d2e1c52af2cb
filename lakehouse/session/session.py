"""Spark sessions: one that lakejoin starts with Delta, and lakejoin's own session beside that of a caller."""

import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.errors.conditions import first_line, last_cause
from lakehouse.errors.errors import LakejoinError
from lakehouse.session.archive import class_archive_options
from lakehouse.session.configured import MASTER, REMOTE, configured_settings, is_local, merged
from lakehouse.session.settings import (
    CLUSTER_SETTINGS,
    COSTS,
    DELTA_EXTENSION,
    EXTENSIONS,
    FIXED,
    INDISPENSABLE,
    JAVA_OPTIONS,
    LOCAL_SETTINGS,
    UNSET,
)

JARS = Path(sys.prefix) / "share" / "lakejoin" / "jars"
"""The folder into which set-up puts Delta's jars, so that a start resolves no dependencies."""

JAVA = Path(sys.prefix) / "share" / "lakejoin" / "java"
"""A link to the Java that set-up found and tested."""

_EXTERNAL_SPARK = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION")
"""Variables that show an existing Spark, which keeps its settings: over Connect, spark-submit or Databricks."""

_CLASS_PATH, _JARS, _PACKAGES = "spark.driver.extraClassPath", "spark.jars", "spark.jars.packages"

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings for queries over few rows: compiling such a query takes longer than running it."""

NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""Settings without adaptive execution, which is worth its cost for many rows only."""

WITHOUT_BROADCASTS = {"spark.sql.shuffle.partitions": "1", "spark.sql.autoBroadcastJoinThreshold": "-1"}
"""Settings for joins of a few rows on the driver: a broadcast is a job of its own, which costs more than a sort."""

_LOSSY = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


QUICKLY_COMPILED = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"]
"""
Options of a JVM that uses its first compiler only. By default it then reserves 48 MB for compiled code, too little for
Spark: the same code would be compiled again and again.
"""


def local_session(
    settings: Mapping[str, str] | None = None, *, is_command: bool = False, is_small: bool = False
) -> SparkSession:
    """
    Start Spark with Delta, or return the session of an existing Spark.

    Spark runs on this machine unless its own settings name another master, or a server of Spark Connect: those of
    `configured_settings`, or these here.

    Args:
        settings: Spark settings that extend or override all others.
        is_command: Whether this process ends after one command: its JVM then starts from an archive of classes.
        is_small: Whether the command reads few rows: the JVM then compiles quickly instead of well.

    Raises:
        LakejoinError: Delta Lake for Spark or a suitable Java is not installed, Spark cannot be reached, or a setting
            is one that lakejoin fixes.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if JAVA.exists():
        os.environ.setdefault("JAVA_HOME", str(JAVA))
    _refuse_fixed(settings or {})
    is_external = _has_external_spark()
    configured = merged({} if is_external else configured_settings(), settings or {})
    is_ours = not is_external and REMOTE not in configured
    values = {name: value for name, value in (settings or {}).items() if name not in (MASTER, REMOTE)}
    if is_ours:
        values |= _own_settings(configured, is_command=is_command, is_small=is_small)
        values[MASTER] = configured.get(MASTER, "local[*]")
    elif not is_external:
        values[REMOTE] = configured[REMOTE]
    builder = SparkSession.builder.appName("lakejoin")
    for name, value in values.items():
        builder = builder.config(name, value)
    if is_ours:
        builder = _with_delta(builder, configured)
    # Errors reach the caller as exceptions; pyspark would also print each on stderr, as JSON with a stack trace.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with _stdout_on_stderr():
            return builder.getOrCreate()
    except Exception as error:
        where = values.get(REMOTE) or values.get(MASTER) or os.environ.get("SPARK_REMOTE") or "local"
        if where.startswith("local") and type(error).__name__ != "PySparkRuntimeError":
            raise
        raise _not_started(where, error) from error


def _not_started(where: str, error: Exception) -> LakejoinError:
    """Return the error that Spark did not start on this machine, or on the master or server at an address."""
    if not where.startswith("local"):
        shown = where.partition(";")[0]  # the rest holds the token of Spark Connect
        return LakejoinError(
            "session",
            f"Spark could not be started on {shown}",
            expected="a running master or server, as `spark.master` or `spark.remote` names it",
            found=last_cause(error).replace(where, shown),
            hint="check the address and the logs there; without it, Spark runs on this machine",
        )
    return LakejoinError(
        "local session",
        "Spark could not be started",
        expected="Java 17 or 21 with the module jdk.incubator.vector, by JAVA_HOME or on the PATH",
        found=first_line(error),
        hint="install a JRE (Debian: `apt-get install openjdk-17-jre-headless`) or set JAVA_HOME",
    )


def _refuse_fixed(settings: Mapping[str, str]) -> None:
    if fixed := [name for name in settings if name in FIXED or name in UNSET]:
        raise LakejoinError(
            "settings of Spark",
            f"lakejoin fixes {', '.join(fixed)} in its own session, because results depend on it",
            hint="leave it out of `spark` in the pipeline file and of --conf",
        )


def _has_external_spark() -> bool:
    return any(os.environ.get(name) for name in _EXTERNAL_SPARK)


def _own_settings(configured: Mapping[str, str], *, is_command: bool, is_small: bool) -> dict[str, str]:
    """Return the settings of a Spark that lakejoin starts: its own ones, as far as a user has not given others."""
    own = LOCAL_SETTINGS if is_local(configured) else CLUSTER_SETTINGS
    values = {name: value for name, value in own.items() if name not in configured}
    if EXTENSIONS in configured and DELTA_EXTENSION not in configured[EXTENSIONS]:
        values[EXTENSIONS] = f"{DELTA_EXTENSION},{configured[EXTENSIONS]}"
    options = [(CLUSTER_SETTINGS if JAVA_OPTIONS in configured else own)[JAVA_OPTIONS]]  # one garbage collector
    # The archive is of lakejoin's own class path and options.
    if is_local(configured) and is_command and not {JAVA_OPTIONS, _CLASS_PATH, _JARS, _PACKAGES} & set(configured):
        options += class_archive_options(JARS)
    if is_local(configured) and is_small:
        options += QUICKLY_COMPILED
    values[JAVA_OPTIONS] = " ".join([*options, *filter(None, [configured.get(JAVA_OPTIONS)])])
    return values


def _with_delta(builder: SparkSession.Builder, configured: Mapping[str, str]) -> SparkSession.Builder:
    """Put Delta on the class paths of a Spark that lakejoin starts, beside what a user puts there, unless he has."""
    if any("delta-spark" in configured.get(name, "") for name in (_JARS, _PACKAGES, _CLASS_PATH)):
        return builder
    if importlib.util.find_spec("delta") is None:
        raise LakejoinError(
            "local session",
            "Delta Lake for Spark is not installed",
            hint="install lakejoin with its extra `local`, or run `pip install delta-spark==4.4.0`",
        )
    jars = sorted(map(str, JARS.glob("*.jar")))
    if not jars:
        from delta import configure_spark_with_delta_pip

        return configure_spark_with_delta_pip(builder, [*filter(None, configured.get(_PACKAGES, "").split(","))])
    if is_local(configured):
        return builder.config(_CLASS_PATH, ":".join(filter(None, [f"{JARS}/*", configured.get(_CLASS_PATH)])))
    # Spark sends these to the executors.
    return builder.config(_JARS, ",".join(filter(None, [*jars, configured.get(_JARS)])))


@contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Send stdout, which carries reports, to stderr for the JVM that the block starts: Delta prints there."""
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


def is_embedded(settings: Mapping[str, str] | None = None) -> bool:
    """Return whether `local_session` starts a Spark on this machine, whose default file system is this machine's."""
    is_external = _has_external_spark() or os.environ.get("HADOOP_CONF_DIR")
    is_ours = not is_external and SparkSession.getActiveSession() is None
    return is_ours and is_local(merged(configured_settings(), settings or {}))


_released: WeakKeyDictionary[SparkSession, list[SparkSession]] = WeakKeyDictionary()
"""Sessions of lakejoin that nobody uses, by the session of the caller that they are beside."""


def release(spark: SparkSession, session: SparkSession) -> None:
    """
    Keep a session that nobody uses any more for the next `own_session` beside the caller's: Spark keeps it anyway, with
    the state of every table that it has read. None is kept over Spark Connect, where a session has the settings and
    the current schema that the caller's had when it began.
    """
    if not is_over_connect(session):
        _released.setdefault(spark, []).append(session)


def own_session(spark: SparkSession, timezone: str) -> SparkSession:
    """
    Return a session of our own beside the caller's, classic or Spark Connect, whose settings are neither changed nor
    trusted. Nobody else uses it until it is released: Delta reads the transaction of a write from its settings. Raise
    LakejoinError if a setting makes Spark skip files that it cannot read, or an indispensable setting is refused.
    """
    _refuse_lossy(spark)
    session = _unused_session(spark)
    _refuse_lossy(session)
    try:
        _fix_settings(session, timezone)
    except Exception:
        release(spark, session)
        raise
    return session


def _refuse_lossy(session: SparkSession) -> None:
    for name in _LOSSY:
        if (setting_of(session, name) or "").lower() == "true":
            raise LakejoinError(
                "session",
                f"{name} is on",
                expected="off, because with it Spark silently skips files of a source that it cannot read",
                hint=f"unset {name} and run again",
            )


def _fix_settings(session: SparkSession, timezone: str) -> None:
    for name in (*UNSET, *INTERPRETED):  # the caller's session may just be running a small query
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


def _unused_session(spark: SparkSession) -> SparkSession:
    with suppress(IndexError):
        return _released.get(spark, []).pop()
    session: SparkSession = spark.cloneSession() if hasattr(spark, "cloneSession") else spark.newSession()
    return session


def deviations(session: SparkSession) -> dict[str, str]:
    """
    Return the fixed settings that a runtime refuses, with their values there. They are part of the definition of a
    join, because its rows may depend on them.
    """
    values = {row["key"]: row["value"] for row in session.sql("SET").collect()}  # one call, not two for each setting
    different = {}
    for name in (name for name, value in FIXED.items() if values.get(name, "").lower() != value.lower()):
        try:
            different[name] = str(session.conf.get(name))
        except PySparkException as error:  # a setting that the runtime does not know cannot deviate
            if "NOT_AVAILABLE" in (error.getCondition() or ""):
                different[name] = "not available"
    return {name: value for name, value in different.items() if value.lower() != FIXED[name].lower()}


def setting_of(session: SparkSession, name: str) -> str | None:
    """Return a setting; None if it is not set, or if the runtime does not show it, as Databricks serverless does."""
    try:
        return session.conf.get(name, None)
    except PySparkException as error:
        if "NOT_AVAILABLE" not in (error.getCondition() or ""):
            raise
        return None


def is_over_connect(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect, whose client refuses the same frame twice in an observed plan."""
    return "connect" in type(spark).__module__


def hadoop_setting(session: SparkSession, name: str) -> str:
    """Return a setting of Hadoop as a session has it; empty if it is not set, or a runtime does not show it."""
    return setting_of(session, f"spark.hadoop.{name}") or setting_of(session, name) or ""


@contextmanager
def fairly_scheduled(spark: SparkSession) -> Iterator[None]:
    """
    Share the cores evenly between the jobs of this thread and those of others, where Spark is set to fair scheduling.

    Without a pool of its own a thread waits until all tasks of earlier jobs have begun, as jobs of the threads do that
    it starts itself. Over Spark Connect the server decides.
    """
    if is_over_connect(spark):
        yield
        return
    context = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
    try:
        yield
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]


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
    Set configuration for one statement and restore the previous values afterwards, also after an error: Delta reads the
    transaction id and the user metadata of a MERGE from the session, and would apply them to every later write.
    """
    before = {name: setting_of(session, name) for name in values}
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
