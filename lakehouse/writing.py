"""
The one function through which every write of the product goes.

A write is a commit to a Delta table, a file of a stage, or the deletion of a stage. Because there is one such place, a
test can stop a run before and after each write there is, without a list of them.
"""

import logging
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

Observer = Callable[[Literal["before", "after"], str], None]

observers: list[Observer] = []
"""Called before and after each write with its description; empty outside tests."""


def write(what: str, action: Callable[[], T]) -> T:
    """
    Carry out one write.

    Args:
        what: The write in words, for the log: "ledger: publishing epoch 3 of flight_status".
        action: What writes. It makes at most one commit.

    Returns:
        What the action returns.
    """
    log.debug("write %s", what)
    for observer in observers:
        observer("before", what)
    result = action()
    for observer in observers:
        observer("after", what)
    return result
