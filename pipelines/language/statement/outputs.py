"""The output columns of a statement: their allowed names, and the key columns that the result requires."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.added_columns import added_columns
from pipelines.language.statement.columns import coalesced, place_of
from pipelines.language.statement.pairing import misspelled_key
from pipelines.language.statement.statement import Inferred, PairingClause

TAKEN_BY_DELTA = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def check_items(items: Sequence[exp.Expr], found: Inferred | None, using: Collection[str]) -> Iterator[Objection]:
    """
    Find items of the SELECT list without a name, invalid names, and parts of the key that no item contains.

    The inferred join is None if it is unknown.
    """
    explicit = [item for item in items if not is_star(item)]
    for item in explicit:
        if not isinstance(item, exp.Alias | exp.Column):
            yield Objection(f"SELECT: `{as_written(item)}` has no name", "name it with AS", item)
    added = added_columns(found.sides) if found else ()
    yield from bad_names(((item.alias_or_name, item) for item in explicit if item.alias_or_name), added)
    for position, name in enumerate(key_of(items, found, using) if found else ()):
        if found and name is None:
            yield _key_dropped(position, found)


def key_of(items: Sequence[exp.Expr], found: Inferred, using: Collection[str]) -> tuple[str | None, ...]:
    """
    Return the key of the result: for each part, the first output that holds its value for every result row.

    The parts are in the order of the members' keys; None stands for a part that the SELECT list drops. A stream has
    none. The function needs no schema: only key columns can be parts of the key, and the file declares them.
    """
    if found.sides[0].kind == "stream":
        return ()
    outputs = [output for item in items for output in _outputs(item, found, using)]
    if found.keys.is_many_to_many:
        wanted = [[column] for column in _key_of_pair(found)]
        named = [(output.name, [(place, name.lower()) for place, name in output.columns]) for output in outputs]
        return tuple(next((name for name, columns in named if columns == column), None) for column in wanted)
    parts = range(len(found.sides[found.keys.members[0]].key))
    return tuple(next((output.name for output in outputs if _holds(output, part, found)), None) for part in parts)


class _Output(NamedTuple):
    """An output, with the columns that it coalesces and the places of their inputs."""

    name: str
    columns: list[tuple[int | None, str]]


def _outputs(item: exp.Expr, found: Inferred, using: Collection[str]) -> Iterator[_Output]:
    """Yield the outputs of an item; for a star, only its key columns, in Spark's order."""
    if not is_star(item):
        columns = coalesced(item.this if isinstance(item, exp.Alias) else item)
        meant = (pair for column in columns for pair in _meant(column, found, using))
        yield _Output(item.alias_or_name, list(meant))
        return
    star, alias = (item.this, item.table.lower()) if isinstance(item, exp.Column) else (item, "")
    left_out = {column.name.lower() for column in star.args.get("except_") or ()}
    merged = {} if alias else {name.lower(): name for name in using}
    for name in merged.values():
        if name.lower() not in left_out:
            yield _Output(name, _merged(name, found))
    for place, side in enumerate(found.sides):
        if alias in ("", side.alias.lower()):
            for name in side.key:
                if name.lower() not in left_out and name.lower() not in merged:
                    yield _Output(name, [(place, name)])


def _meant(column: exp.Expr, found: Inferred, using: Collection[str]) -> list[tuple[int | None, str]]:
    """Return the columns that a column of the SELECT list refers to; a column of USING can refer to both sides."""
    if not isinstance(column, exp.Column) or len(column.parts) > 2:
        return [(None, "")]
    if not column.table and column.name.lower() in {name.lower() for name in using}:
        return _merged(column.name, found)
    return [(place_of(column, found.sides), column.name)]


def _merged(name: str, found: Inferred) -> list[tuple[int | None, str]]:
    """Return the columns that a column of USING refers to: that of the outer side, or of both sides of a FULL JOIN."""
    how = found.steps[0].how
    return [(0, name), (1, name)] if how == "full" else [(1 if how == "right" else 0, name)]


def _holds(output: _Output, part: int, found: Inferred) -> bool:
    """
    Return whether an output holds the value of a part of the key for every result row.

    A coalesce is not a key where one column is sufficient, because the coalesce could have another type.
    """
    keys, places = found.keys, set[int]()
    for place, name in output.columns:
        if place is None or place not in keys.members or found.sides[place].key[part].lower() != name.lower():
            return False
        places.add(place)
    if len(output.columns) > 1:
        return any(len(held) > 1 and held <= places for held in keys.complete)
    return frozenset(places) in keys.complete


def is_star(item: exp.Expr) -> bool:
    """Return whether an item is `*` or `alias.*`."""
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


def bad_names(outputs: Iterable[tuple[str, exp.Expr]], added: Collection[str]) -> Iterator[Objection]:
    """Find names, each with its item, that another output has, ignoring case, or that lakejoin or Delta's feeds use."""
    taken: set[str] = set()
    for name, item in outputs:
        if name.lower() in taken:
            yield Objection(f"SELECT: two outputs are called `{name}`", "give one an alias, or leave it out", item)
        if name.lower() in TAKEN_BY_DELTA:
            problem = f"SELECT: `{name}` is a column of Delta's change feeds"
            yield Objection(problem, "give it another name with AS", item)
        if name.lower() in added:
            problem = f"SELECT: `{name}` is a column that lakejoin adds to the result of a join with a stream"
            yield Objection(problem, "give it another name with AS", item)
        taken.add(name.lower())


def _key_of_pair(found: Inferred) -> list[tuple[int | None, str]]:
    """Return the key columns of a pairing, in lower case, each with the place of its input."""
    places = (found.keys.paired.left, found.keys.paired.right)
    return [(place, name.lower()) for place in places for name in found.sides[place].key]


def _key_of_pair_dropped(part: int, found: Inferred, pairing: PairingClause) -> Objection:
    """Create the objection that the SELECT list lacks a key column of a pairing; a coalesced column does not count."""
    keys = [(place, name) for place in found.keys.members for name in found.sides[place].key]
    place, name = keys[part]
    side = found.sides[place]
    problem = f"SELECT: many rows match one row, so the result has no key without `{side.alias}.{name}`"
    wrong = misspelled_key(pairing, found.sides)
    if wrong is not None:
        return Objection(problem, wrong[1], wrong[0])
    is_shared = [other.lower() for _, other in keys].count(name.lower()) > 1
    item = f"{side.alias}.{name}" + (f" AS {side.alias}_{name}" if is_shared else "")
    ends = ((pairing.over, one.left) if place != pairing.right else (place, one.right) for one in pairing.equalities)
    columns = [end.name for over, end in ends if over == place and isinstance(end, exp.Column)]
    unique = f"; or, if no two rows of {side.source} are equal in {', '.join(columns)}, declare that as its `key:`"
    is_key = not columns or {column.lower() for column in columns} >= {one.lower() for one in side.key}
    return Objection(problem, f"add `{item}` as a column of its own{'' if is_key else unique}", "SELECT")


def _key_dropped(part: int, found: Inferred) -> Objection:
    if found.keys.is_many_to_many:
        return _key_of_pair_dropped(part, found, found.keys.paired)
    written = [f"{found.sides[place].alias}.{found.sides[place].key[part]}" for place in found.keys.holders]
    name = found.sides[found.keys.members[0]].key[part]
    needed = written[0] if len(written) == 1 else f"coalesce({', '.join(written)}) AS {name}"
    return Objection(f"SELECT: the result has no key without `{needed}`", "add it to the SELECT list", "SELECT")
