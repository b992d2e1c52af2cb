"""
Runs in processes of their own, killed between the data files of a table and its commit, and right after the commit.
When that is, the folder of the table tells: no hook in the code that is killed. The next run ends in the right result,
and the change feeds show each row once.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines import Pipeline
from tests.cases import cases
from tests.conftest import SHORT_LIVED
from tests.exact import held, plain
from tests.lake import JOIN, KEYED, Lake

STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}
STREAMS = {name: {"key": "k", "kind": "stream", "watermarks": {"k": 100}} for name in ("left", "right")}
INNER = JOIN.replace("LEFT JOIN", "JOIN")


@dataclass(frozen=True)
class Killing:
    sources: dict[str, object]
    sql: str
    changes: tuple[str, ...]
    own: tuple[str, ...] = ()

    def pipeline(self, lake: Lake) -> Pipeline:
        return lake.pipeline(self.sql, self.sources)


ADDED = "INSERT INTO {left} VALUES (4, 'd'), (9, 'n')"
KINDS = {
    "tables": Killing(
        dict(KEYED), JOIN, (ADDED, "UPDATE {right} SET w = 'X' WHERE k = 2", "DELETE FROM {left} WHERE k = 1")
    ),
    "stream": Killing(STREAM, JOIN, (ADDED,), ("_epoch", "_position")),
    "streams": Killing(
        STREAMS,
        INNER,
        (ADDED, "INSERT INTO {right} VALUES (9, 'm')"),
        ("_epoch", "_position", "_left_row", "_right_row"),
    ),
}


def files(lake: Lake, table: str) -> set[str]:
    """Name the data files of a table, those of no commit among them."""
    return {path.name for path in Path(lake.path(table)).rglob("*.parquet") if "_delta_log" not in path.parts}


def killed_when(lake: Lake, happened: Callable[[], bool]) -> None:
    """Run the pipeline in a process of its own, and kill it with all that it started as soon as something happened."""
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "run", "-f", str(lake.file)]
    process = subprocess.Popen(
        command,
        env={**os.environ, **SHORT_LIVED},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not happened() and process.poll() is None:
            time.sleep(0.001)
        assert process.poll() is None, f"the run ended before anything happened: {process.communicate()[0][-2000:]}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@cases(
    "kind, table, moment",
    ("tables", "result", "files"),
    *(
        (kind, table, moment)
        for kind, table in (("stream", "result"), ("streams", "result__state"), ("streams", "result"))
        for moment in ("files", "commit")
    ),
    ("tables", "result", "commit"),
    ("tables", "lakejoin_ledger", "commit"),
)
def test_killed_at_a_commit_the_next_run_ends_in_the_right_result(standard, kind, table, moment):
    lake, killing = standard, KINDS[kind]
    killing.pipeline(lake).run(lake.spark)
    for change in killing.changes:
        lake.sql(change)
    version, before, start = lake.version(table), files(lake, table), lake.version()
    killed_when(lake, lambda: lake.version(table) > version if moment == "commit" else not files(lake, table) <= before)
    if moment == "files":
        assert lake.version(table) == version, "the commit was quicker than the kill"
    killing.pipeline(lake).run(lake.spark)
    assert held(lake, without=killing.own) == plain(lake, killing.sql)
    images = [tuple(row) for kind, row in lake.feed(start) if kind in ("insert", "update_postimage")]
    assert len(images) == len(set(images)) > 0
    assert killing.pipeline(lake).run(lake.spark)[0].outcome == "nothing"
