"""What is written, and runs that are killed at a write: by the hook of `lakehouse.session.writing`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from lakehouse.session import writing


class Killed(BaseException):
    """What stops a run at a write: nothing may catch it."""


@contextmanager
def observed(observe: Callable[[str, str], None]) -> Iterator[None]:
    """Call a function before and after each write."""
    writing.observers.append(observe)
    try:
        yield
    finally:
        writing.observers.remove(observe)


@contextmanager
def recorded_writes(moment: str = "before") -> Iterator[list[str]]:
    """Note the writes in their order."""
    done: list[str] = []
    with observed(lambda when, what: done.append(what) if when == moment else None):
        yield done


def is_killed(action: Callable[[], object], write: str = "", moment: str = "before", number: int = 1) -> bool:
    """Kill an action at a write, counted of those whose description begins so; tell whether it came to that one."""
    reached = count(1)

    def kill(when: str, what: str) -> None:
        if when == moment and f"{what} ".startswith(write and f"{write} ") and next(reached) == number:
            raise Killed(what)

    try:
        with observed(kill):
            action()
    except Killed:
        return True
    return False


@contextmanager
def killed(write: str, moment: str = "before") -> Iterator[None]:
    """Kill what runs here at the first write whose description begins so; what it then cleans up is let be."""
    reached = count(1)

    def kill(when: str, what: str) -> None:
        if when == moment and f"{what} ".startswith(f"{write} ") and next(reached) == 1:
            raise Killed(what)

    with pytest.raises(Killed), observed(kill):
        yield
