"""Sessions that are given: under spark-submit the master and the settings are those of its command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.session.session import JARS
from lakehouse.session.settings import LOCAL_SETTINGS
from tests.lake import Lake


def submitted(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    application = tmp_path / "job.py"
    application.write_text("from pipelines.cli import job\n\njob()\n")
    given = {name: LOCAL_SETTINGS[name] for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")}
    given |= {"spark.driver.extraClassPath": f"{JARS}/*", "spark.sql.shuffle.partitions": "1"}
    settings = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
    here = Path(sys.executable).parent
    command = [str(here / "spark-submit"), "--master", "local[1]", *settings, str(application), *arguments]
    # As with an activated environment: the script looks for pyspark with the first python3 of the path.
    activated = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=activated)


@pytest.mark.slow
@pytest.mark.skipif(not any(JARS.glob("*.jar")), reason="Delta's jars are not where set-up puts them")
def test_an_application_runs_and_fails_as_the_command_does(loaded: Lake, tmp_path: Path) -> None:
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    done = submitted(tmp_path, "run", "-f", str(loaded.file))
    assert done.returncode == 0, done.stderr
    assert "1 updated" in done.stdout
    assert (2, "n", "x") in loaded.rows()
    assert submitted(tmp_path, "run", "-f", "gone.yml").returncode == 2
