"""
A pipeline watched over many epochs, a change of a source before each: what stays in the process.

    python -m tests.commands.watching [--epochs N]

Prints a JSON line after each hundred epochs: the resident MiB of Python and of the JVM, those in use of its heap, the
number of cached frames, temp views and settings; the ratio of the resident ones to those after the first hundred, and
whether frames, views and settings are the same as then.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

from lakehouse.session.session import local_session
from pipelines.binding.workspace import Workspace
from pipelines.commands.run import watch_joins
from tests.commands.test_watch import kept
from tests.lake import Lake

EACH = 100


def watched(lake: Lake, epochs: int) -> Iterator[dict[str, Any]]:
    workspace, stop = Workspace.open(lake.spark, lake.pipeline().file, lake.folder), Event()
    first: dict[str, Any] = {}
    for number, (report,) in enumerate(watch_joins(workspace, 0.001, stop=stop)):
        assert report.outcome == "done", report.text()
        if number and number % EACH == 0:
            state = _state(workspace)
            found = state.pop("kept")
            first = first or {**state, "kept": found}
            ratio = (state["python"] + state["jvm"]) / (first["python"] + first["jvm"])
            yield {"epochs": number, **state, "ratio": round(ratio, 3), "same": found == first["kept"]}
        if number == epochs:
            stop.set()
        lake.sql(f"UPDATE {{left}} SET v = 'n{number}' WHERE k = 2")


def _state(workspace: Workspace) -> dict[str, Any]:
    gateway = workspace.spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.jvm.java.lang
    java.System.gc()
    runtime, found = java.Runtime.getRuntime(), kept(workspace.spark)
    return {
        "python": _resident("self"),
        "jvm": _resident(java.ProcessHandle.current().pid()),
        "heap": (runtime.totalMemory() - runtime.freeMemory()) >> 20,
        "cached": found[0],
        "views": sum(isinstance(one, str) for one in found),
        "settings": sum(isinstance(one, tuple) for one in found),
        "kept": found,
    }


def _resident(process: int | str) -> int:
    """Give how many MiB of memory a process has."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.commands.watching", description=__doc__)
    parser.add_argument("--epochs", type=int, default=500)
    epochs = parser.parse_args().epochs
    with tempfile.TemporaryDirectory(prefix="watching-") as folder:
        lake = Lake(local_session(), Path(folder))
        lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b'), (3, 'c')")
        lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y')")
        for state in watched(lake, epochs):
            print(json.dumps(state), flush=True)
        lake.spark.stop()


if __name__ == "__main__":
    main()
