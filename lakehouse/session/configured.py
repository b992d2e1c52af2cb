"""The settings that a user keeps for Spark outside lakejoin, where Spark itself looks for them when it starts."""

import argparse
import importlib.util
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

_SETTING = re.compile(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+|$)(.*)")

_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n\s*")
"""The end of a line that goes on, as in any file of Java properties."""

MASTER, REMOTE = "spark.master", "spark.remote"


def configured_settings() -> dict[str, str]:
    """
    Return the settings of `spark-defaults.conf` and of the variable PYSPARK_SUBMIT_ARGS, of which the latter win.

    Spark reads both itself; lakejoin has to know which of its own settings they replace. The file lies in the folder
    SPARK_CONF_DIR, else in `conf` of SPARK_HOME, else of the package pyspark.
    """
    return merged(_of_file(), _of_arguments())


def merged(*layers: Mapping[str, str]) -> dict[str, str]:
    """Return settings of which later ones win; a master and a server of Spark Connect replace each other."""
    settings: dict[str, str] = {}
    for layer in layers:
        if MASTER in layer or REMOTE in layer:
            settings = {name: value for name, value in settings.items() if name not in (MASTER, REMOTE)}
        settings |= layer
    return settings


def is_local(settings: Mapping[str, str]) -> bool:
    """Return whether settings make Spark run on this machine, with its file system as default."""
    is_elsewhere = REMOTE in settings or not settings.get("spark.hadoop.fs.defaultFS", "file:").startswith("file:")
    return not is_elsewhere and settings.get(MASTER, "local").partition("[")[0] == "local"


def _of_file() -> dict[str, str]:
    package = importlib.util.find_spec("pyspark")
    homes = [os.environ.get("SPARK_HOME"), *((package and package.submodule_search_locations) or ())]
    folders = [os.environ.get("SPARK_CONF_DIR"), *(f"{home}/conf" for home in homes if home)]
    folder = next((folder for folder in folders if folder), None)
    if folder is None:
        return {}
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    lines = _CONTINUED.sub(r"\1", text).splitlines()
    found = (_SETTING.fullmatch(line) for line in lines)
    return {match[1]: match[2].strip() for match in found if match}


def _of_arguments() -> dict[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--master")
    parser.add_argument("--remote")
    parser.add_argument("--conf", "-c", action="append", default=[])
    try:
        found, _ = parser.parse_known_args(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    except (ValueError, argparse.ArgumentError):  # Spark says what is wrong with them
        return {}
    pairs = (item.partition("=") for item in found.conf)
    settings = {name: value for name, equals, value in pairs if equals}
    named = {MASTER: found.master, REMOTE: found.remote}
    return settings | {name: value for name, value in named.items() if value}
