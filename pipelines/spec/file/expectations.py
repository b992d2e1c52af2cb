"""The expectations of a join, looked at without Great Expectations: names and arguments that there are not."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from expectations.catalogue import argument_faults, names
from pipelines.spec.names import nearest
from pipelines.spec.sql.sql_guard import faults_of_sql


class Misfit(NamedTuple):
    """What is wrong with an expectation: the keys below `expectations` that lead to it, and in words."""

    path: tuple[str, ...]
    problem: str
    hint: str = ""


def expectation_misfits(items: object) -> Iterator[Misfit]:
    """
    Say what is wrong with the expectations of a join, as far as it is not wrong for any option.

    Args:
        items: What the file says.
    """
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or not all(isinstance(arguments, dict) for arguments in item.values()):
            continue  # it has not the form of an option, which is a fault of its own
        if len(item) != 1:
            yield Misfit((str(place),), "must be one expectation", "begin each with a dash: `- expect_...: {...}`")
        for name, arguments in item.items():
            yield from _misfits((str(place), name), name, arguments)


def _misfits(path: tuple[str, ...], name: str, arguments: Mapping[str, Any]) -> Iterator[Misfit]:
    if name not in names():
        hint = nearest(name, names()) or "greatexpectations.io/expectations lists them"
        yield Misfit(path, "there is no such expectation for a table", hint)
        return
    for fault in argument_faults(name, arguments):
        hint = nearest(fault.argument, fault.known) or (f"there are {', '.join(fault.known)}" if fault.known else "")
        yield Misfit((*path, fault.argument), fault.problem, hint)
    for argument, problem in faults_of_sql(arguments):
        yield Misfit((*path, argument), problem)
