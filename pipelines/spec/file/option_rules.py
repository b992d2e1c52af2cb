"""
What options must be together, and names beside each other.

All of it looks at the content of a file as it was written, so that it is found beside whatever else is wrong there. The
model asks the same questions, for values that are made without a file.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

OWNERS = {"watermarks": "stream", "null_value": "stream", "ignore_changes": "stream", "tombstone": "changelog"}
"""Options that only one kind of source has."""


class Misfit(NamedTuple):
    """What does not go together, and what would be right."""

    problem: str
    hint: str = ""


class Clash(NamedTuple):
    """A name that another one takes: the part of the file that it stands in, itself, and what is wrong with it."""

    part: str
    name: str
    problem: str


def storage_misfit(options: Mapping[str, Any]) -> Misfit | None:
    """
    Tell whether storage has neither of its two forms.

    Args:
        options: Its options, by the names of the file.

    Returns:
        What is wrong, or None.
    """
    given = {name for name in ("path", "schema", "stage") if options.get(name) is not None}
    if given in ({"path"}, {"schema", "stage"}):
        return None
    return Misfit(
        "storage is either `path`, or `schema` together with `stage`",
        "{path: ./lake} for one folder, {schema: main.aviation, stage: /Volumes/...} in a catalog",
    )


def source_misfits(options: Mapping[str, Any], kind: str | None) -> Iterator[Misfit]:
    """
    Find the options of a source that exclude each other.

    Args:
        options: Its options.
        kind: What it is; None if that cannot be told.

    Yields:
        What is wrong.
    """
    if options.get("table") is not None and options.get("path") is not None:
        yield Misfit("a source has `table` or `path`, not both")
    if kind is None:
        return
    strangers = [f"`{option}`" for option, owner in OWNERS.items() if options.get(option) and kind != owner]
    if strangers:
        yield Misfit(f"{', '.join(strangers)}: not an option of a source of kind {kind}")
    if kind == "changelog" and options.get("order_by") is None:
        yield Misfit("a source of kind changelog needs `order_by`", "name the column that orders the rows of a key")


def clashes(sources: Collection[str], joins: Collection[str]) -> Iterator[Clash]:
    """
    Find names that are equal but for case; Spark cannot tell them apart.

    Args:
        sources: The names of all sources.
        joins: The names of all joins, which share their name space.

    Yields:
        Each name that an earlier one takes.
    """
    taken: dict[str, str] = {}
    for part, name in (*(("sources", name) for name in sources), *(("joins", name) for name in joins)):
        first = taken.setdefault(name.lower(), name)
        if first != name:
            yield Clash(part, name, f"`{first}` and `{name}` differ only in case")
        elif part == "joins" and first in sources:
            yield Clash(part, name, f"`{name}` names a source and a join")
