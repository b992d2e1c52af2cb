"""An S3 server for the session, and lakes on it: tables, stages and the ledger in a bucket, the pipeline file local."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from pyspark.sql import SparkSession

from lakehouse.session.session import local_session
from tests.conftest import FOR_TINY_DATA
from tests.places.bucket import BUCKET, S3Lake

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lakejoin-places")
"""Where `.ci/fetch_places.py` puts what these tests need."""


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    """Hadoop's S3 client."""
    found = sorted(CACHE.glob("hadoop-aws-*/*.jar"))
    if not found:
        pytest.skip(f"no hadoop-aws in {CACHE}: run `make test-places` where Maven Central can be reached")
    return found


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with one bucket, which takes any credentials."""
    program = CACHE / "server" / "bin" / "moto_server"
    if not program.exists():
        pytest.skip(f"no S3 server in {CACHE}: run `make test-places` where PyPI can be reached")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as told:
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=told, stderr=told)
    try:
        _wait_for(address, log)
        with urlopen(Request(f"{address}/{BUCKET}", method="PUT")):
            pass
        yield address
    finally:
        server.terminate()
        server.wait()


def _wait_for(address: str, log: Path) -> None:
    for _ in range(300):
        try:
            with urlopen(address):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"the S3 server does not answer: {log.read_text()[-2000:]}")


def s3_settings(endpoint: str, jars: list[Path]) -> dict[str, str]:
    """What a user sets for an S3 server of their own."""
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "key-of-a-test",
        "spark.hadoop.fs.s3a.secret.key": "secret-of-a-test",
    }


@pytest.fixture(scope="session")
def spark(endpoint: str, jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Give a session that has its credentials from its own settings; the environment has none."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
        session = local_session({**FOR_TINY_DATA, **s3_settings(endpoint, jars), **warehouse})
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def _nothing_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of a table or stage at a URI is written into the working folder, as if the URI were a path."""
    folder = tmp_path / "working folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield
    assert list(folder.iterdir()) == []


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> S3Lake:
    """Give a lake in a folder of its own of the bucket, with `left` and `right` of three rows each."""
    lake = S3Lake(spark, tmp_path, tmp_path.name)
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b'), (3, 'c')")
    lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y'), (4, 'z')")
    return lake
