"""
Fetch Delta's jars once, so that no session has to resolve packages when it starts.

They end in `share/lakejoin/jars` of this environment; a session takes them by `spark.driver.extraClassPath`. Spark
itself resolves them, so a mirror set in its configuration is respected. What Spark ships already is left out: on that
class path an older copy would come before Spark's own.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pyspark

JARS = Path(sys.prefix, "share", "lakejoin", "jars")
DELTA = f"delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13"
OURS = ("io.delta_", "io.unitycatalog_")
SHIPPED = ("com.*:*", "org.*:*", "commons-*:*", "javax.*:*", "io.airlift:*")


def main() -> None:
    """Fetch the jars of the Delta version installed here, unless they are there."""
    delta = version("delta-spark")
    if (JARS / f"{DELTA}-{delta}.jar").exists():
        return
    print(f"set-up: fetching the jars of Delta {delta} from Maven Central or its mirror", file=sys.stderr)
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent) as scratch:
        resolved = resolve(f"io.delta:{DELTA}:{delta}", Path(scratch), SHIPPED)
        found = Path(scratch, "jars-found")
        found.mkdir()
        for jar in resolved:
            if jar.name.startswith(OURS):
                shutil.copy(jar, found / jar.name.split("_", 1)[1])
        shutil.rmtree(JARS, ignore_errors=True)
        found.rename(JARS)


def resolve(coordinates: str, scratch: Path, excluded: Sequence[str]) -> list[Path]:
    """Let spark-submit resolve packages as it starts a program that does nothing."""
    nothing = scratch / "nothing.py"
    nothing.touch()
    home = Path(pyspark.__file__).parent
    command = [home / "bin" / "spark-submit", "--master", "local[1]", "--packages", coordinates]
    command += ["--exclude-packages", ",".join(excluded), "--conf", f"spark.jars.ivy={scratch}/ivy", nothing]
    environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nset-up: Spark could not fetch {coordinates}; its output is above")
    return sorted((scratch / "ivy" / "jars").glob("*.jar"))


if __name__ == "__main__":
    main()
