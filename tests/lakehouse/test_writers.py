"""Several processes that write at once: each commit holds the lock of its table, and no row of a ledger is lost."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from lakehouse.ledger.ledger import NAME, Ledger
from lakehouse.session import writing
from lakehouse.session.engine import Engine
from lakehouse.session.session import own_session
from lakehouse.values.sqltext import Address
from tests.lake import Lake
from tests.ledgers import entry
from tests.log_readers import without_delta_rs

APPENDING = """
import sys, threading
from lakehouse.values.sqltext import Address
from lakehouse.session.engine import Engine
from lakehouse.ledger.ledger import NAME, Ledger
from dataclasses import replace
from tests.ledgers import entry

def never():
    raise SystemExit("Spark was started")

folder, join = sys.argv[1:]
kept = Ledger(Engine(never, is_embedded=True), Address(NAME, f"{folder}/{NAME}"))
print("ready", flush=True)
sys.stdin.readline()
told_to_end = threading.Thread(target=sys.stdin.readline, daemon=True)
told_to_end.start()
epoch = 0
while told_to_end.is_alive():
    epoch += 1
    for step in ("publishing", "committed"):
        kept.append(replace(entry(epoch, step), join=join))
print(epoch)
"""


@contextmanager
def appending(lake: Lake, join: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that appends to the ledger without Spark, from one line of its input until the next."""
    command = [sys.executable, "-c", APPENDING, str(Path(lake.path(NAME)).parent), join]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def appended(process: subprocess.Popen[str]) -> int:
    output, _ = process.communicate("end\n")
    assert process.returncode == 0
    return int(output)


@pytest.mark.parametrize("seconds", [3.0, 30.0])
@pytest.mark.parametrize("here", ["spark", "delta-rs"])
@pytest.mark.deep
def test_processes_that_append_to_one_ledger_lose_nothing(lake, monkeypatch, here, seconds):
    """One of them without Spark, one with the reader that is given; both compact the ledger now and then."""
    spark = own_session(lake.spark, "UTC")
    kept = Ledger(Engine.of(spark), Address(NAME, lake.path(NAME)))
    with monkeypatch.context() as patch:
        if here == "spark":
            without_delta_rs(patch, lake.folder)
        kept.append(entry(1))  # an engine decides once who reads and writes
    with appending(lake, "other") as process:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
        until, epoch = time.monotonic() + seconds, 1
        while time.monotonic() < until or epoch < 4:
            epoch += 1
            kept.append(entry(epoch))
        others = appended(process)
    rows = lake.sql(f"SELECT join_name, epoch, step FROM {{{NAME}}}", NAME)
    assert sorted(tuple(row) for row in rows if row["join_name"] == "other") == sorted(
        ("other", number, step) for number in range(1, others + 1) for step in ("publishing", "committed")
    )
    assert sorted(row["epoch"] for row in rows if row["join_name"] == "result") == list(range(1, epoch + 1))
    assert others > 1


def test_a_commit_waits_for_the_lock_of_its_table_and_says_so(lake, monkeypatch, caplog):
    lake.create("t", "k INT")
    monkeypatch.setattr("lakehouse.session.writing.LOCK_SECONDS", 0.1)
    held = FileLock(writing.lock_file(lake.path("t")), thread_local=False)
    held.acquire()
    sleep, slept = time.sleep, []

    def released(seconds: float) -> None:
        slept.append(seconds)
        if "still waiting" in caplog.text:
            held.release(force=True)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", released)
    version = writing.write("insert", lambda: lake.sql("INSERT INTO {t} VALUES (1)", "t"), f"file:{lake.path('t')}")
    assert version is not None
    assert slept
    assert lake.rows("t") == [(1,)]


def test_all_names_of_a_folder_have_one_lock(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert writing.lock_file(f"{tmp_path}/link/t") == tmp_path / "lake" / ".t.lock"
    assert writing.lock_file(f"{tmp_path}/link/../lake/t/") == tmp_path / "lake" / ".t.lock"
