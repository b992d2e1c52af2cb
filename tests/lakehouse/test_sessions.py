"""The sessions of lakejoin beside the caller's: one for each workspace in use, and then for the next one."""

import gc
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError
from lakehouse.session import session as sessions
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from tests.lake import Lake

LOSSY = "spark.sql.files.ignoreMissingFiles"
SESSION = "org.apache.spark.sql.classic.SparkSession"


def live_objects(spark: SparkSession, name: str) -> int:
    """Count the objects of a class on the heap of the JVM that are still referenced."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java: Any = gateway.jvm.java

    def array(kind: Any, *values: Any) -> Any:
        made = gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    of_class = java.lang.Class.forName
    beans, name_of = of_class("javax.management.MBeanServer"), of_class("javax.management.ObjectName")
    texts = of_class("[Ljava.lang.String;")
    parameters = name_of, of_class("java.lang.String"), of_class("[Ljava.lang.Object;"), texts
    given = (
        gateway.jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand"),
        "gcClassHistogram",
        array(java.lang.Object, array(java.lang.String)),
        array(java.lang.String, texts.getName()),
    )
    invoke = beans.getMethod("invoke", array(java.lang.Class, *parameters))  # the class of the server is not public
    server = java.lang.management.ManagementFactory.getPlatformMBeanServer()
    histogram = str(invoke.invoke(server, array(java.lang.Object, *given)))
    counts = (line.split() for line in histogram.splitlines())
    return next((int(words[1]) for words in counts if len(words) > 3 and words[3] == name), 0)


def opened(pipeline: Pipeline, spark: SparkSession) -> Workspace:
    return Workspace.open(spark, pipeline.file, pipeline.folder)


def test_many_commands_of_one_process_leave_one_session(loaded: Lake) -> None:
    spark, pipeline = loaded.spark, loaded.pipeline()
    pipeline.run(spark)
    gc.collect()  # sessions of tests before this one
    before = live_objects(spark, SESSION)
    assert before
    for _ in range(8):
        pipeline.run(spark)
    gc.collect()
    # The JVM learns later which sessions Python has let go of, so there may be fewer.
    assert live_objects(spark, SESSION) <= before


def test_two_workspaces_in_use_have_a_session_each(standard: Lake) -> None:
    spark, pipeline = standard.spark, standard.pipeline()
    one, other = opened(pipeline, spark), opened(pipeline, spark)
    assert len({one.spark, other.spark, spark}) == 3
    released = one.spark
    released.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    del one
    again = opened(pipeline, spark)
    assert again.spark is released
    assert again.spark.conf.get("spark.sql.session.timeZone") == "UTC"


class Conf(dict[str, str]):
    """The settings of a session that refuses unknown time zones."""

    def set(self, name: str, value: str) -> None:
        if value == "nowhere":
            raise ValueError(value)
        self[name] = value

    def unset(self, name: str) -> None:
        self.pop(name, None)


class Session:
    """A session as far as `own_session` uses it."""

    def __init__(self) -> None:
        self.conf = Conf()

    def cloneSession(self) -> "Session":  # noqa: N802
        return Session()

    def sql(self, _: str) -> Any:
        return self

    def collect(self) -> list[dict[str, str]]:
        return [{"key": name, "value": value} for name, value in self.conf.items()]


def test_a_session_that_fails_a_check_is_used_again() -> None:
    """Unless the session itself loses rows."""
    caller: Any = Session()
    session = sessions.own_session(caller, "UTC")
    sessions.release(caller, session)
    caller.conf[LOSSY] = "true"
    with pytest.raises(LakejoinError, match=LOSSY):
        sessions.own_session(caller, "UTC")
    del caller.conf[LOSSY]
    with pytest.raises(ValueError, match="nowhere"):
        sessions.own_session(caller, "nowhere")
    assert sessions.own_session(caller, "UTC") is session
    sessions.release(caller, session)
    cast(Any, session).conf[LOSSY] = "true"
    with pytest.raises(LakejoinError, match=LOSSY):
        sessions.own_session(caller, "UTC")
    assert sessions.own_session(caller, "UTC") is not session
