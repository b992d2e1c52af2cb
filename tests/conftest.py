"""One Spark for the whole session, and lakes that live as long as a test."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from lakehouse.session import writing
from lakehouse.session.archive import CACHE
from lakehouse.session.session import local_session
from lakehouse.session.settings import LOCAL_SETTINGS
from tests.lake import Lake
from tests.log_readers import without_delta_rs
from tests.printed import PRINTED
from tests.recorded import Recorded, create_standard, first_run

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ[CACHE] = ""  # no archive of classes in the cache of who runs the tests
settings.register_profile("lakejoin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("lakejoin")


FOR_TINY_DATA = {
    # Two JVMs on two cores: what the second compiler gains it takes from the tests themselves. With the first one alone
    # a JVM reserves 48 MB for compiled code: too little for Spark, which then compiles the same code again and again.
    "spark.driver.extraJavaOptions": LOCAL_SETTINGS["spark.driver.extraJavaOptions"]
    + " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    # Delta remembers each table for an hour, with plans of some 4 MB: the tables of two thousand tests fill the memory.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    # Delta rebuilds the state of a table in a Spark job with as many tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Each table that a join keeps in memory, and each sort, takes a page of 16 MB otherwise.
    "spark.buffer.pageSize": "1m",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    # Spark writes each plan as a long text for a page that nobody opens, and checks each step of its own optimizer.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Many plans over few rows: compiling them costs more than running them. Nothing here changes a result."""

OF_HADOOP = ("fs.AbstractFileSystem.file.impl", "hadoop.tmp.dir", "io.file.buffer.size", "io.serializations")
"""Defaults of Hadoop that are needed. Spark copies, sends and reads all the others, a thousand, for each scan."""

SHORT_LIVED = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
"""The environment of a process with a JVM of its own that lives for a minute: it never gains what C2 costs."""


FURTHER_CASES = 8
"""The cases of a test that needs no tables, after its first one, that are in the ring after its own."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session({**FOR_TINY_DATA, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))})
    keep_few_defaults(session)
    yield session
    session.stop()


def keep_few_defaults(session: SparkSession) -> None:
    """Forget the settings of Hadoop that no test needs: its own defaults, but for a few."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    kept = {name: hadoop.get(name) for name in OF_HADOOP}
    hadoop.clear()
    for name, value in kept.items():
        hadoop.set(name, value)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Give an empty lake with a pipeline file that joins `left` with `right` on `k`."""
    return Lake(spark, tmp_path)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the recorded lakes, which the workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "recorded"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def recorded(spark: SparkSession, recordings: Path, tmp_path: Path) -> Recorded:
    return Recorded(spark, recordings, tmp_path)


@pytest.fixture(scope="session")
def _standard(spark: SparkSession, recordings: Path) -> Lake:
    return Recorded(spark, recordings, recordings).whole(create_standard)


@pytest.fixture(scope="session")
def _loaded(spark: SparkSession, recordings: Path) -> Lake:
    """Record the lake while no test has patched anything."""
    return Recorded(spark, recordings, recordings).whole(create_standard, first_run)


@pytest.fixture
def standard(_standard: Lake, tmp_path: Path) -> Lake:
    """Give a lake with `left` and `right` of three rows each and no result yet."""
    return _standard.copy(tmp_path / "standard")


@pytest.fixture
def loaded(_loaded: Lake, tmp_path: Path) -> Lake:
    """Give the same lake after its first run."""
    return _loaded.copy(tmp_path / "loaded")


@pytest.fixture(params=["delta-rs", "spark"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Let delta-rs, or Spark alone, read logs and ledgers, in processes that the test starts too."""
    if request.param == "spark":
        without_delta_rs(monkeypatch, tmp_path)
    return str(request.param)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Move the driver's process to Auckland: neither UTC nor the time zone of any pipeline file here."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _no_observers() -> Iterator[None]:
    yield
    writing.observers.clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Sort the tests into rings. A test that starts no Spark, neither here nor in a process of its own, is `fast`. Of the
    cases of any other test the first is in the ring of the test, and the others are slow, unless the test has the
    marker `every_case`. If it writes no files, and so no tables, the next eight cases are in the next ring.
    """
    seen = Counter[str]()
    for item in items:
        function = item.nodeid.partition("[")[0]
        if item.get_closest_marker("places"):  # a ring of its own
            continue
        if "spark" not in getattr(item, "fixturenames", ()) and not item.get_closest_marker("own_process"):
            item.add_marker("fast")
        elif item.get_closest_marker("slow"):
            continue
        elif seen[function] and not item.get_closest_marker("every_case"):
            is_cheap = "tmp_path" not in item.fixturenames and not item.get_closest_marker("own_process")
            is_in_next = seen[function] <= FURTHER_CASES and not item.get_closest_marker("deep")
            item.add_marker("deep" if is_cheap and is_in_next else "slow")
        seen[function] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    for report in reports:
        for name, value in report.user_properties:
            if name == PRINTED and report.when == "call":
                terminalreporter.write_line(str(value))
