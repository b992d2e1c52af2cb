"""
Fetch what `make test-places` needs beside this environment: an S3 server (moto, from PyPI) and Hadoop's S3 client with
the parts of Amazon's SDK that it uses (from Maven Central or its mirror).

They end in `lakejoin-places` of the user's cache, once for each version. Where they cannot be fetched, these tests are
skipped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

import pyspark
from fetch_jars import resolve

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lakejoin-places")
SDK = "2.29.52"
"""The version of Amazon's SDK that hadoop-aws 3.4.2 was built with; as a whole (`bundle`) it has 600 MB."""
PARTS = ("s3", "s3-transfer-manager", "sts")
UNUSED = ("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:*", "commons-*:*", "org.apache.httpcomponents:*")


def hadoop() -> str:
    """Return the version of Hadoop that Spark ships."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def main() -> None:
    """Fetch what is not there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    fetch_jars(CACHE / f"hadoop-aws-{hadoop()}")
    fetch_server(CACHE / "server")


def fetch_jars(jars: Path) -> None:
    """Let Spark resolve the S3 client without what Spark itself ships, and without the parts that it does not use."""
    if jars.exists():
        return
    print("set-up: fetching hadoop-aws from Maven Central or its mirror", file=sys.stderr)
    packages = [f"org.apache.hadoop:hadoop-aws:{hadoop()}", *(f"software.amazon.awssdk:{part}:{SDK}" for part in PARTS)]
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        found = Path(scratch, "jars-found")
        found.mkdir()
        for jar in resolve(",".join(packages), Path(scratch), UNUSED):
            shutil.copy(jar, found)
        found.rename(jars)


def fetch_server(environment: Path) -> None:
    """Install the S3 server into an environment of its own."""
    if (environment / "bin" / "moto_server").exists():
        return
    print("set-up: installing an S3 server from PyPI", file=sys.stderr)
    venv.create(environment, with_pip=True, clear=True)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    install = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *groups["places"]], check=True)


if __name__ == "__main__":
    main()
