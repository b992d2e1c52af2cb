"""The whole command line, each time in a process of its own: what a scheduled job pays besides its rows."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = "import sys; from pipelines.cli import main; sys.exit(main())"


def cold(trees: Sequence[Path], repeat: int) -> dict[str, Any]:
    """
    Time `lakejoin run` over the example of `lakejoin init`: with one round of changes, and with nothing to do.

    Args:
        trees: Folders of sources of lakejoin, run in turn on lakes of their own; each has loaded before.

    Returns:
        The medians of the seconds of each tree.
    """
    with tempfile.TemporaryDirectory(prefix="cold-") as folder:
        lakes = {tree: Path(folder, str(number)) for number, tree in enumerate(trees)}
        seconds: dict[Path, dict[str, list[float]]] = {tree: {"change": [], "nothing": []} for tree in trees}
        for tree, lake in lakes.items():
            environment = {**os.environ, "PYTHONPATH": str(tree), "LAKEJOIN_CACHE": str(lake.with_suffix(".cache"))}
            run_command(environment, Path(folder), "init", str(lake))
            for _ in range(2):  # the first writes the archive of classes when it has ended
                _round(environment, lake)
                _await_archive(lake.with_suffix(".cache"))
        for _ in range(repeat):
            for tree, lake in lakes.items():
                environment = {**os.environ, "PYTHONPATH": str(tree), "LAKEJOIN_CACHE": str(lake.with_suffix(".cache"))}
                for name, took in _round(environment, lake).items():
                    seconds[tree][name].append(took)
    return {
        str(tree): {name: round(statistics.median(each), 1) for name, each in of_tree.items()}
        for tree, of_tree in seconds.items()
    }


def _round(environment: dict[str, str], lake: Path) -> dict[str, float]:
    run_python(environment, lake, "sources.py")
    return {name: run_command(environment, lake, "run") for name in ("change", "nothing")}


def _await_archive(cache: Path) -> None:
    """Wait for the JVM that writes the archive after its command has ended."""
    deadline = time.monotonic() + 60
    while any(not any(part.open("rb").read(4)) for part in cache.glob("*.jsa.*")) and time.monotonic() < deadline:
        time.sleep(1)
    time.sleep(10)


def run_command(environment: dict[str, str], folder: Path, *arguments: str) -> float:
    """Run `lakejoin` with some arguments in a folder, and return the seconds that it took, as `run_python` does."""
    return run_python(environment, folder, "-c", COMMAND, *arguments)


def run_python(environment: dict[str, str], folder: Path, *arguments: str) -> float:
    """Return the seconds until the process has ended; its JVM may go on, and keep what it prints to open."""
    with (folder / "printed.txt").open("a") as printed:
        began = time.monotonic()
        subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=environment, check=True, stdout=printed, stderr=printed
        )
    return time.monotonic() - began


if __name__ == "__main__":
    print(json.dumps({"name": "cold", **cold([Path(tree).resolve() for tree in sys.argv[1:] or ["."]], 5)}))
