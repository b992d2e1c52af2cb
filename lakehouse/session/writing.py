"""
The function that runs every write of lakejoin: a commit to a Delta table, a file of a stage, or its deletion.

So a test can stop a run before and after each write without a list of them, and each commit to a table on local storage
holds a lock of the operating system: Delta's log store for local files looks for a commit and then renames its own over
it, so that two processes could overwrite each other's.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from filelock import FileLock, Timeout

from lakehouse.values.locations import local_path

T = TypeVar("T")

LOCK_SECONDS = 30
"""Seconds. A writer that waits longer for the lock of a table says so, and goes on waiting."""

log = logging.getLogger(__name__)

Observer = Callable[[Literal["before", "after"], str], None]

observers: list[Observer] = []
"""Functions that are called before and after each write with its description; empty outside tests."""


def write(what: str, action: Callable[[], T], location: str = "") -> T:
    """
    Run one write and return what it returns.

    Args:
        what: A description of the write for the log: "ledger: publishing epoch 3 of flight_status".
        action: The function that writes, with at most one commit.
        location: The folder of the table to which it commits, as a path or a URI; empty if it commits to none.
    """
    log.debug("write %s", what)
    for observer in observers:
        observer("before", what)
    with _alone(location):
        result = action()
    for observer in observers:
        observer("after", what)
    return result


@contextmanager
def _alone(location: str) -> Iterator[None]:
    """Keep other processes of this machine from committing to a table, if the table is on local storage."""
    folder = local_path(location)
    if folder is None or not Path(folder).parent.is_dir():
        yield
        return
    lock = FileLock(lock_file(folder), thread_local=False)
    while True:
        try:
            lock.acquire(timeout=LOCK_SECONDS)
            break
        except Timeout:
            log.warning("still waiting for another process that writes to %s", folder)
        except NotImplementedError:  # some mounted file systems have no locks
            log.debug("%s is on a file system without locks", folder)
            break
    try:
        yield
    finally:
        lock.release()


def lock_file(folder: str) -> Path:
    """Return the file that is locked for a table: beside its folder, which may not exist yet."""
    real = Path(folder).resolve()
    return real.with_name(f".{real.name}.lock")
