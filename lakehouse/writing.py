"""
The function that runs every write of lakejoin.

A write is a commit to a Delta table, a file of a stage, or the deletion of a stage. Because all writes pass through one
function, a test can stop a run before and after each write without a list of them.
"""

import logging
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

Observer = Callable[[Literal["before", "after"], str], None]

observers: list[Observer] = []
"""Functions that are called before and after each write with its description; empty outside tests."""


def write(what: str, action: Callable[[], T]) -> T:
    """
    Run one write.

    Args:
        what: A description of the write for the log: "ledger: publishing epoch 3 of flight_status".
        action: The function that writes. It makes at most one commit.

    Returns:
        The return value of the action.
    """
    log.debug("write %s", what)
    for observer in observers:
        observer("before", what)
    result = action()
    for observer in observers:
        observer("after", what)
    return result
