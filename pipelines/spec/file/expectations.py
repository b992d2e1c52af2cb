"""Check the expectations of a join without Great Expectations: find unknown names and arguments."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from expectations.catalogue import argument_faults, names
from pipelines.spec.names import nearest
from pipelines.spec.sql.sql_guard import faults_of_sql


class Misfit(NamedTuple):
    """An error in an expectation: the keys below `expectations` that lead to it, the problem and a hint."""

    path: tuple[str, ...]
    problem: str
    hint: str = ""


def expectation_misfits(items: object) -> Iterator[Misfit]:
    """
    Find errors in the expectations of a join.

    Items that do not have the form of an option are skipped: the model of the file reports them.

    Args:
        items: The value of `expectations` in the file.

    Yields:
        Each error.
    """
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or not all(isinstance(arguments, dict) for arguments in item.values()):
            continue  # the model of the file reports a wrong form
        if len(item) != 1:
            yield Misfit((str(place),), "must be one expectation", "begin each with a dash: `- expect_...: {...}`")
        for name, arguments in item.items():
            yield from _misfits((str(place), name), name, arguments)


def _misfits(path: tuple[str, ...], name: str, arguments: Mapping[str, Any]) -> Iterator[Misfit]:
    if name not in names():
        hint = nearest(name, names()) or "greatexpectations.io/expectations lists them"
        yield Misfit(path, "no such expectation for a table", hint)
        return
    for fault in argument_faults(name, arguments):
        hint = nearest(fault.argument, fault.known) or (f"arguments: {', '.join(fault.known)}" if fault.known else "")
        yield Misfit((*path, fault.argument), fault.problem, hint)
    for argument, problem in faults_of_sql(arguments):
        yield Misfit((*path, argument), problem)
