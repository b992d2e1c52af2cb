"""Settings that users keep where Spark looks for them: which Spark lakejoin starts, and with which settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError
from lakehouse.session import session as sessions
from lakehouse.session.configured import configured_settings, is_local, merged
from lakehouse.session.settings import DELTA_EXTENSION, EXTENSIONS, JAVA_OPTIONS
from tests.cases import cases

PLACES = (
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
    "PYSPARK_GATEWAY_PORT",
    "HADOOP_CONF_DIR",
    "DATABRICKS_RUNTIME_VERSION",
)

DEFAULTS = """
# spark.master  yarn
spark.master            spark://head:7077
spark.driver.memory=6g
spark.sql.extensions : com.example.Extension
spark.executor.extraJavaOptions  -Dkey=value -XX:+UseG1GC
spark.eventLog.enabled
unknown.setting  1
"""


class Builder:
    """A builder of sessions that only remembers its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> "Builder":  # noqa: N802
        return self

    def config(self, name: str, value: str) -> "Builder":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> dict[str, str]:  # noqa: N802
        return self.settings


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


@pytest.fixture
def jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "delta-spark.jar").touch()
    monkeypatch.setattr(sessions, "JARS", folder)
    return folder


def started(monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], **how: bool) -> dict[str, str]:
    """Return the settings with which a session would start."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    found: Any = sessions.local_session(settings, **how)
    return dict(found)


def test_the_defaults_of_spark_are_read_as_spark_reads_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert configured_settings() == {}
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    assert configured_settings() == {
        "spark.master": "spark://head:7077",
        "spark.driver.memory": "6g",
        "spark.sql.extensions": "com.example.Extension",
        "spark.executor.extraJavaOptions": "-Dkey=value -XX:+UseG1GC",
        "spark.eventLog.enabled": "",
    }
    submitted = "--master yarn --conf spark.driver.memory=7g -c 'spark.app.name=a b' --jars a.jar pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submitted)
    assert (
        configured_settings().items()
        >= {"spark.master": "yarn", "spark.driver.memory": "7g", "spark.app.name": "a b"}.items()
    )
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "spark-defaults.conf").write_text("spark.remote sc://head")
    assert configured_settings()["spark.remote"] == "sc://head"


def test_lines_of_the_defaults_go_on_as_in_any_file_of_properties(tmp_path: Path) -> None:
    text = "spark.driver.extraJavaOptions -Da=1 \\\n   -Db=2\nspark.a c:\\\\\nspark.b 1\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    found = {"spark.driver.extraJavaOptions": "-Da=1 -Db=2", "spark.a": "c:\\\\", "spark.b": "1"}
    assert configured_settings() == found


@pytest.mark.parametrize("arguments", ["--conf", "--conf 'spark.a=1", ""])
def test_arguments_that_spark_refuses_are_left_to_it(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert configured_settings() == {}


def test_a_master_and_a_server_replace_each_other() -> None:
    master, server = {"spark.master": "yarn", "spark.a": "1"}, {"spark.remote": "sc://head"}
    assert merged(master, server) == {"spark.a": "1", "spark.remote": "sc://head"}
    assert merged(server, master) == master
    assert merged(server, {"spark.a": "1"}) == {"spark.a": "1", "spark.remote": "sc://head"}


@cases(
    "settings, local",
    ({}, True),
    ({"spark.master": "local[4]"}, True),
    ({"spark.master": "local-cluster[2,1,1024]"}, False),
    ({"spark.master": "spark://head:7077"}, False),
    ({"spark.remote": "sc://head"}, False),
    ({"spark.hadoop.fs.defaultFS": "hdfs://head"}, False),
    ({"spark.hadoop.fs.defaultFS": "file:///"}, True),
)
def test_where_spark_runs(monkeypatch, settings, local):
    assert is_local(settings) == local
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert sessions.is_embedded(settings) == local


def test_without_settings_spark_starts_on_this_machine(monkeypatch: pytest.MonkeyPatch, jars: Path) -> None:
    found = started(monkeypatch, {})
    assert found["spark.master"] == "local[*]"
    assert (found["spark.driver.memory"], found["spark.driver.extraClassPath"]) == ("2g", f"{jars}/*")


def test_what_a_user_sets_replaces_what_lakejoin_would(monkeypatch: pytest.MonkeyPatch, jars: Path) -> None:
    configured = {
        "spark.master": "local[1]",
        "spark.driver.memory": "8g",
        EXTENSIONS: "com.example.Extension",
        JAVA_OPTIONS: "-Dmine=1",
        "spark.driver.extraClassPath": "/mine/*",
    }
    found = started(monkeypatch, configured, is_command=True)
    assert (found["spark.master"], found["spark.driver.memory"]) == ("local[1]", "8g")
    assert found[EXTENSIONS] == f"{DELTA_EXTENSION},com.example.Extension"
    assert found["spark.driver.extraClassPath"] == f"{jars}/*:/mine/*"
    assert found[JAVA_OPTIONS].endswith(" -Dmine=1")
    assert "-XX:+Use" not in found[JAVA_OPTIONS]  # with a second garbage collector no JVM starts
    assert "jsa" not in found[JAVA_OPTIONS]  # the archive is of another class path


def test_a_cluster_of_the_defaults_gets_delta_and_no_settings_for_one_machine(monkeypatch, jars, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://head:7077\nspark.executor.memory 3g")
    found = started(monkeypatch, {"spark.jars": "mine.jar"}, is_command=True, is_small=True)
    assert found["spark.master"] == "spark://head:7077"
    assert found["spark.jars"] == f"{jars}/delta-spark.jar,mine.jar"
    assert found[EXTENSIONS] == DELTA_EXTENSION
    assert "TieredStopAtLevel" not in found[JAVA_OPTIONS]
    # Spark itself reads the file; lakejoin passes nothing of it on but the master.
    assert not {"spark.executor.memory", "spark.driver.memory", "spark.sql.shuffle.partitions"} & set(found)


def test_a_user_who_brings_delta_keeps_it(monkeypatch: pytest.MonkeyPatch, jars: Path) -> None:
    found = started(monkeypatch, {"spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0"})
    assert "spark.driver.extraClassPath" not in found


@pytest.mark.parametrize("where", ["settings", "defaults", "environment"])
def test_a_server_of_spark_connect_gets_no_settings_of_a_master(monkeypatch, tmp_path, where):
    settings = {"spark.sql.shuffle.partitions": "4"}
    if where == "settings":
        settings["spark.remote"] = "sc://head"
    elif where == "defaults":
        (tmp_path / "spark-defaults.conf").write_text("spark.remote sc://head")
    else:
        monkeypatch.setenv("SPARK_REMOTE", "sc://head")
    found = started(monkeypatch, settings)
    remote = {} if where == "environment" else {"spark.remote": "sc://head"}
    assert found == {"spark.sql.shuffle.partitions": "4", **remote}


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"])
def test_a_spark_that_is_given_keeps_its_master(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert started(monkeypatch, {"spark.master": "yarn", "spark.remote": "sc://a", "spark.sql.a": "1"}) == {
        "spark.sql.a": "1"
    }


def test_no_token_of_a_server_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    server = "sc://head:443/;use_ssl=true;token=secret"

    def refuse(builder: Builder) -> dict[str, str]:
        raise RuntimeError(f"no answer from {server}")

    monkeypatch.setattr(Builder, "getOrCreate", refuse)
    with pytest.raises(LakejoinError, match="could not be started on sc://head:443/") as refused:
        started(monkeypatch, {"spark.remote": server})
    assert "secret" not in refused.value.message


def test_a_setting_on_which_results_depend_cannot_be_given() -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LakejoinError, match=r"fixes spark\.sql\.ansi\.enabled"):
        started(patch, {"spark.sql.ansi.enabled": "false"})


def test_a_master_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, jars: Path) -> None:
    def refuse(builder: Builder) -> dict[str, str]:
        raise RuntimeError("An error occurred\n: java.lang.IllegalStateException: All masters are unresponsive\n\tat x")

    monkeypatch.setattr(Builder, "getOrCreate", refuse)
    with pytest.raises(LakejoinError, match="could not be started on spark://head:7077") as refused:
        started(monkeypatch, {"spark.master": "spark://head:7077"})
    assert "All masters are unresponsive" in refused.value.message
    with pytest.raises(RuntimeError):
        started(monkeypatch, {})


class NotAvailable(PySparkException):
    """What such a runtime raises."""

    def getCondition(self) -> str:  # noqa: N802
        return "CONFIG_NOT_AVAILABLE"


class Hidden:
    """A session whose runtime does not show its settings, as Databricks serverless does."""

    class conf:  # noqa: N801
        @staticmethod
        def get(name: str, default: str | None = None) -> str:
            raise NotAvailable("not available")

    def sql(self, statement: str) -> "Hidden":
        return self

    def collect(self) -> list[dict[str, str]]:
        return []


def test_a_setting_that_a_runtime_hides_deviates() -> None:
    hidden: Any = Hidden()
    assert sessions.setting_of(hidden, "spark.sql.shuffle.partitions") is None
    assert sessions.deviations(hidden)["spark.sql.ansi.enabled"] == "not available"
