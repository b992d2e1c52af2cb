"""Joins side by side: each in a thread and a session of its own, after those that it reads."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from lakehouse.session.session import fairly_scheduled
from pipelines.binding.workspace import Workspace
from pipelines.plan.request import WrongOptions

T = TypeVar("T")

MOST_BY_DEFAULT = 4
"""The most threads if neither the command nor the pipeline file says how many."""


def number_of_threads(workspace: Workspace, chosen: int | None, names: Collection[str]) -> int:
    """Return how many joins run at the same time: as chosen, else by the file, else by the cores of this machine."""
    if chosen is not None and chosen < 1:
        raise WrongOptions("threads", f"{chosen} is no number of threads", expected="1 or more", hint="leave it out")
    number = chosen or workspace.file.threads or min(os.cpu_count() or 1, MOST_BY_DEFAULT)
    return min(number, len(names)) or 1


INTERRUPT_SECONDS = 0.5
"""How long to wait, after an exception, before the calls that run are interrupted again."""


@contextmanager
def own_workspace(workspace: Workspace, threads: int) -> Iterator[Workspace]:
    """Provide the workspace for one join: of several threads each has a session of its own."""
    if threads == 1:
        yield workspace
        return
    with workspace.beside() as own, fairly_scheduled(own.spark):
        yield own


def side_by_side(
    names: Sequence[str],
    threads: int,
    call: Callable[[str], T],
    *,
    inputs: Callable[[str], Collection[str]] = lambda name: (),
    ended: Callable[[str, T], None] = lambda name, result: None,
    interrupt: Callable[[], None] = lambda: None,
) -> list[T]:
    """
    Call a function for each name, in so many threads, and return what it returned in the order of the names.

    Args:
        inputs: The names whose calls have to end before that for a name begins; they come before it.
        ended: Called as each call ends, in the caller's thread.
        interrupt: Called now and then after an exception, until the calls that run have ended.

    An exception, of a call or KeyboardInterrupt, is raised when the calls that run have ended; no other call begins.
    """
    results: dict[str, T] = {}
    if threads == 1:
        for name in names:
            results[name] = call(name)
            ended(name, results[name])
        return [*results.values()]
    waiting, running = [*names], dict[Future[T], str]()
    with ThreadPoolExecutor(threads, thread_name_prefix="join") as executor:
        try:
            while waiting or running:
                blocked = {*waiting, *running.values()}
                free = [name for name in waiting if blocked.isdisjoint(inputs(name))]
                for name in free[: threads - len(running)]:
                    waiting.remove(name)
                    running[executor.submit(call, name)] = name
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    name = running.pop(future)
                    results[name] = future.result()
                    ended(name, results[name])
        except BaseException:
            while wait(running, timeout=INTERRUPT_SECONDS).not_done:
                interrupt()
            raise
    return [results[name] for name in names]
