"""The command line as a scheduled job calls it: each time in a new process, with a new JVM."""

import os
import time
from pathlib import Path

import pytest

from lakehouse.session.archive import CACHE
from tests.benchmarks.cold import run_command, run_python
from tests.pages import ROOT


@pytest.mark.slow
def test_the_second_command_with_news_starts_from_the_archive_of_the_first(tmp_path: Path) -> None:
    cache, lake = tmp_path / "cache of classes", tmp_path / "shop"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), CACHE: str(cache)}
    run_command(environment, tmp_path, "init", str(lake))
    run_python(environment, lake, "sources.py")
    run_command(environment, lake, "run")
    deadline = time.monotonic() + 120
    while not any(part.read_bytes()[:4].strip(b"\0") for part in cache.glob("*.jsa.*")):
        assert time.monotonic() < deadline, "no archive is written"
        time.sleep(1)
    run_python(environment, lake, "sources.py")
    run_command(environment, lake, "run")
    (archive,) = cache.iterdir()
    assert archive.suffix == ".jsa"
    printed = (lake / "printed.txt").read_text()
    assert "orders_paid: epoch 2 (incremental)" in printed
    assert "[cds" not in printed
