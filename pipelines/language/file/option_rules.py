"""
Rules across options: which options require or exclude each other, and which names clash.

The rules check the content of a file as it is written, so that their errors appear together with all other errors in
the file. The models apply the same rules, for values that are created without a file.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

OWNERS = {
    **dict.fromkeys(("watermarks", "null_value", "ignore_changes"), "stream"),
    **dict.fromkeys(("tombstone", "ignore_deletes"), "changelog"),
}
"""Options that only one kind of source has."""


class Misfit(NamedTuple):
    """Options that do not fit together, and how to correct them."""

    problem: str
    hint: str = ""


class Clash(NamedTuple):
    """A name that is already taken: its part of the file, the name, and the problem."""

    part: str
    name: str
    problem: str


def storage_misfit(options: Mapping[str, Any]) -> Misfit | None:
    """Check that storage, with options named as in the file, has one of its two forms; return the problem, or None."""
    given = {name for name in ("path", "schema", "stage") if options.get(name) is not None}
    if given in ({"path"}, {"schema", "stage"}):
        return None
    return Misfit(
        "storage needs either `path`, or `schema` together with `stage`",
        "write {path: ./lake} for one folder, or {schema: main.aviation, stage: /Volumes/...} for a catalog",
    )


def source_misfits(options: Mapping[str, Any], kind: str | None) -> Iterator[Misfit]:
    """Find the options of a source that exclude each other; its kind is None if it is unknown."""
    if options.get("table") is not None and options.get("path") is not None:
        yield Misfit("a source has `table` or `path`, not both")
    if kind is None:
        return
    foreign = [f"`{option}`" for option, owner in OWNERS.items() if options.get(option) and kind != owner]
    if kind != "table" and options.get("on_recreated_source") == "reconcile":
        foreign.append("`on_recreated_source`")
    if kind not in ("table", "global_table") and options.get("nullable_key") is not None:
        foreign.append("`nullable_key`")
    if foreign:
        yield Misfit(f"{', '.join(foreign)}: not an option of a source of kind {kind}")
    if kind == "changelog" and options.get("order_by") is None:
        yield Misfit("a source of kind changelog needs `order_by`", "name the column that orders the rows of a key")


def clashes(sources: Collection[str], joins: Collection[str]) -> Iterator[Clash]:
    """Find names that differ only in case, which Spark cannot distinguish, and joins with the name of a source."""
    taken: dict[str, str] = {}
    for part, name in (*(("sources", name) for name in sources), *(("joins", name) for name in joins)):
        first = taken.setdefault(name.lower(), name)
        if first != name:
            yield Clash(part, name, f"`{first}` and `{name}` differ only in case")
        elif part == "joins" and first in sources:
            yield Clash(part, name, f"`{name}` names a source and a join")
