"""What the columns of a result may be called, and which of them must be there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from pipelines.spec.columns import coalesced, place_of
from pipelines.spec.dialect import as_written
from pipelines.spec.kind import Inferred
from pipelines.spec.objection import Objection
from pipelines.spec.statement import Keys

TAKEN_BY_DELTA = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def check_items(items: Sequence[exp.Expr], found: Inferred | None) -> Iterator[Objection]:
    """
    Look at the SELECT list as far as that goes without the columns of the tables.

    Args:
        items: Its items.
        found: What keys the result, None if that is not known.

    Yields:
        Items without a name, names that cannot be used, and parts of the key that no item can be.
    """
    explicit = [item for item in items if not is_star(item)]
    for item in explicit:
        if not isinstance(item, exp.Alias | exp.Column):
            yield Objection(f"SELECT: `{as_written(item)}` has no name", "give it one with AS", item)
    yield from bad_names((item.alias_or_name, item) for item in explicit if item.alias_or_name)
    if len(explicit) < len(items) or found is None:
        return
    for position in range(len(found.sides[found.keys.members[0]].key)):
        if not any(_may_hold(item, position, found) for item in items):
            names = {place: found.sides[place].key[position] for place in found.keys.members}
            yield key_dropped(found.keys, {place: (found.sides[place].alias, name) for place, name in names.items()})


def _may_hold(item: exp.Expr, position: int, found: Inferred) -> bool:
    """Tell whether an item is a part of the key, or could be: the input of a column without an alias is not known."""
    columns = coalesced(item.this if isinstance(item, exp.Alias) else item)
    places = [place_of(column, found.sides) for column in columns]
    if None in places:
        return True
    held = {
        place
        for column, place in zip(columns, places, strict=True)
        if place in found.keys.members and column.name.lower() == found.sides[place or 0].key[position].lower()
    }
    return len(held) == len(set(places)) and is_key(frozenset(held), found.keys, together=len(columns) > 1)


def is_key(places: frozenset[int], keys: Keys, *, together: bool) -> bool:
    """
    Tell whether key columns hold the key whichever rows meet.

    Args:
        places: The members that the columns are of.
        keys: What keys the result.
        together: Whether it is a coalesce of them, and not one column alone.

    Returns:
        The answer; a coalesce where one column would do is no key, for it could be of another type.
    """
    return any(len(held) > 1 and held <= places for held in keys.complete) if together else places in keys.complete


def is_star(item: exp.Expr) -> bool:
    """Tell whether an item is `*` or `alias.*`."""
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


def bad_names(outputs: Iterable[tuple[str, exp.Expr]]) -> Iterator[Objection]:
    """
    Find names that cannot be columns of a result.

    Args:
        outputs: Each name with the item that it comes from.

    Yields:
        Names that are taken by another output, case aside, or by Delta's change feeds.
    """
    taken: set[str] = set()
    for name, item in outputs:
        if name.lower() in taken:
            yield Objection(f"SELECT: two outputs are called `{name}`", "give one an alias, or leave it out", item)
        if name.lower() in TAKEN_BY_DELTA:
            problem = f"SELECT: `{name}` is a column of Delta's change feeds"
            yield Objection(problem, "give it another name with AS", item)
        taken.add(name.lower())


def key_dropped(keys: Keys, columns: Mapping[int, tuple[str, str]]) -> Objection:
    """
    Say that the SELECT list leaves out a part of the key.

    Args:
        keys: What keys the result.
        columns: For each input that has the key, its alias and what it calls the part.

    Returns:
        The objection, with the item that is needed.
    """
    written = [".".join(columns[place]) for place in keys.holders]
    name = columns[keys.members[0]][1]
    needed = written[0] if len(written) == 1 else f"coalesce({', '.join(written)}) AS {name}"
    return Objection(f"SELECT: the result has no key without `{needed}`", "add it to the SELECT list", "SELECT")
