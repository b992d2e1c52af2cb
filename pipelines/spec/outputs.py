"""What the columns of a result may be called, and which of them must be there."""

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from pipelines.spec.definition import How
from pipelines.spec.dialect import as_written
from pipelines.spec.inputs import Inputs
from pipelines.spec.objection import Objection

TAKEN_BY_DELTA = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def check_items(items: Sequence[exp.Expr], inputs: Inputs, right_key: Sequence[str]) -> Iterator[Objection]:
    """
    Look at the SELECT list as far as that goes without the columns of the tables.

    Args:
        items: Its items.
        inputs: The two sides.
        right_key: The right key in the order of the left.

    Yields:
        Items without a name, names that cannot be used, and parts of the key that no item mentions.
    """
    explicit = [item for item in items if not is_star(item)]
    for item in explicit:
        if not isinstance(item, exp.Alias | exp.Column):
            yield Objection(f"SELECT: `{as_written(item)}` has no name", "give it one with AS", item)
    yield from bad_names((item.alias_or_name, item) for item in explicit if item.alias_or_name)
    if len(explicit) < len(items) or not right_key:
        return
    columns = [column for item in items for column in item.find_all(exp.Column)]
    mentioned = {part.name.lower() for column in columns for part in column.parts}
    for mine, theirs in zip(inputs.left.key, right_key, strict=True):
        if not {mine.lower(), theirs.lower()} & mentioned:
            left, right = f"{inputs.left.alias}.{mine}", f"{inputs.right.alias}.{theirs}"
            yield key_dropped(inputs.how, left, right, mine)


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


def key_dropped(how: How, left: str, right: str, name: str) -> Objection:
    """
    Say that the SELECT list leaves out a part of the key.

    Args:
        how: The type of join.
        left: The left key column with its alias.
        right: The right one.
        name: What the result would call it.

    Returns:
        The objection, with the item that is needed.
    """
    needed = {"right": right, "full": f"coalesce({left}, {right}) AS {name}"}.get(how, left)
    return Objection(f"SELECT: the result has no key without `{needed}`", "add it to the SELECT list", "SELECT")
