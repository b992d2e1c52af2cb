"""The settings that a user keeps for Spark outside lakejoin, where Spark itself looks for them when it starts."""

import argparse
import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

_SETTING = re.compile(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+|$)(.*)")

MASTER, REMOTE = "spark.master", "spark.remote"


def configured_settings() -> dict[str, str]:
    """
    Return the settings of `spark-defaults.conf` and of the variable PYSPARK_SUBMIT_ARGS, of which the latter win.

    Spark reads both itself; lakejoin has to know which of its own settings they replace. The file lies in the folder
    SPARK_CONF_DIR, else in `conf` of SPARK_HOME, else of the package pyspark.
    """
    return _of_file() | _of_arguments()


def is_local(settings: Mapping[str, str]) -> bool:
    """Return whether settings make Spark run on this machine, with its file system as default."""
    is_elsewhere = REMOTE in settings or "spark.hadoop.fs.defaultFS" in settings
    return not is_elsewhere and settings.get(MASTER, "local").partition("[")[0] == "local"


def _of_file() -> dict[str, str]:
    package = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *((package and package.submodule_search_locations) or ())]
    folders = [os.environ.get("SPARK_CONF_DIR"), *(f"{home}/conf" for home in homes if home)]
    folder = next((folder for folder in folders if folder), None)
    if folder is None:
        return {}
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found = (_SETTING.fullmatch(line) for line in lines)
    return {match[1]: match[2].strip() for match in found if match}


def _of_arguments() -> dict[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master")
    parser.add_argument("--remote")
    parser.add_argument("--conf", "-c", action="append", default=[])
    found, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    pairs = (item.partition("=") for item in found.conf)
    settings = {name: value for name, equals, value in pairs if equals}
    named = {MASTER: found.master, REMOTE: found.remote}
    return settings | {name: value for name, value in named.items() if value}
