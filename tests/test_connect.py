"""Over Spark Connect all is as it is in a session of one's own."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from lakehouse.session.session import JARS, JAVA
from lakehouse.session.settings import LOCAL_SETTINGS
from tests.conftest import FOR_TINY_DATA, SHORT_LIVED

HERE = Path(__file__).parent.parent


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with closing(socket.socket()) as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    given = {**LOCAL_SETTINGS, **FOR_TINY_DATA, "spark.connect.grpc.binding.port": str(port)}
    given |= {"spark.connect.progress.reportInterval": "100ms"}
    given |= {"spark.driver.extraClassPath": f"{JARS}/*", "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    settings = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", name, *settings, "spark-internal"]
    environment = {**os.environ, **SHORT_LIVED, "SPARK_HOME": str(home)}
    if JAVA.exists():
        environment["JAVA_HOME"] = str(JAVA)
    log = tmp_path / "server.log"
    with log.open("w") as told, subprocess.Popen(command, stdout=told, stderr=told, env=environment) as process:
        try:
            end = time.monotonic() + 120
            while not _answers(port):
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < end, log.read_text()[-2000:]
                time.sleep(0.5)
            yield f"sc://localhost:{port}"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("localhost", port)) == 0


@pytest.mark.deep
@pytest.mark.own_process
@pytest.mark.skipif(not any(JARS.glob("*.jar")), reason="Delta's jars are not where set-up puts them")
def test_a_pipeline_of_each_kind_runs_over_connect(server: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_REMOTE": server}
    folder = tmp_path / "lake"
    folder.mkdir()
    child = [sys.executable, "-m", "tests.connect_child", str(folder)]
    done = subprocess.run(child, env=environment, cwd=HERE, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "two_streams: verified" in done.stdout
