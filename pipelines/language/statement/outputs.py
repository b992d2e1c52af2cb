"""The output columns of a statement: their names, the key that they hold, and what joins that read the result know."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.file.model import Source
from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import coalesced, index_of
from pipelines.language.statement.definition import Time
from pipelines.language.statement.pairing import misspelled_key
from pipelines.language.statement.statement import Inferred, PairingClause, Produced, Sources, Statement, added_columns
from pipelines.language.statement.windows import bounds_of, time_of

TAKEN_BY_DELTA = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def check_items(items: Sequence[exp.Expr], inferred: Inferred | None, using: Collection[str]) -> Iterator[Objection]:
    """Find items of the SELECT list without a name, invalid names, and parts of the key of a join that no item has."""
    explicit = [item for item in items if not is_star(item)]
    for item in explicit:
        if not isinstance(item, exp.Alias | exp.Column):
            yield Objection(f"SELECT: `{as_written(item)}` has no name", "name it with AS", item)
    added = added_columns(inferred.sides) if inferred else ()
    yield from bad_names(((item.alias_or_name, item) for item in explicit if item.alias_or_name), added)
    for position, name in enumerate(key_of(items, inferred, using) if inferred else ()):
        if inferred and name is None:
            yield _key_dropped(position, inferred)


def key_of(items: Sequence[exp.Expr], inferred: Inferred, using: Collection[str]) -> tuple[str | None, ...]:
    """
    Return the key of the result: for each part, the first output that holds its value for every result row.

    The parts are in the order of the members' keys; None stands for a part that the SELECT list drops. A stream has
    none. The function needs no schema: only key columns can be parts of the key, and the file declares them.
    """
    if inferred.sides[0].kind == "stream":
        return ()
    outputs = [output for item in items for output in _outputs(item, inferred, using)]
    if inferred.keys.is_many_to_many:
        members = inferred.keys.members  # the left and the right input of the pairing
        wanted = [[(index, name.lower())] for index in members for name in inferred.sides[index].key]
        named = [(output.name, [(index, name.lower()) for index, name in output.columns]) for output in outputs]
        return tuple(next((name for name, columns in named if columns == column), None) for column in wanted)
    parts = range(len(inferred.sides[inferred.keys.members[0]].key))
    return tuple(next((output.name for output in outputs if _holds(output, part, inferred)), None) for part in parts)


class _Output(NamedTuple):
    """An output, with the columns that it coalesces and the indexes of their inputs."""

    name: str
    columns: list[tuple[int | None, str]]


def _outputs(item: exp.Expr, inferred: Inferred, using: Collection[str]) -> Iterator[_Output]:
    """Yield the outputs of an item; for a star, only its key columns, in Spark's order."""
    if not is_star(item):
        columns = coalesced(item.this if isinstance(item, exp.Alias) else item)
        meant = (pair for column in columns for pair in _meant(column, inferred, using))
        yield _Output(item.alias_or_name, list(meant))
        return
    star, alias = (item.this, item.table.lower()) if isinstance(item, exp.Column) else (item, "")
    left_out = {column.name.lower() for column in star.args.get("except_") or ()}
    merged = {} if alias else {name.lower(): name for name in using}
    for name in merged.values():
        if name.lower() not in left_out:
            yield _Output(name, _merged(name, inferred))
    for index, side in enumerate(inferred.sides):
        if alias in ("", side.alias.lower()):
            for name in side.key:
                if name.lower() not in left_out and name.lower() not in merged:
                    yield _Output(name, [(index, name)])


def _meant(column: exp.Expr, inferred: Inferred, using: Collection[str]) -> list[tuple[int | None, str]]:
    """Return the columns that a column of the SELECT list refers to; a column of USING can refer to both sides."""
    if not isinstance(column, exp.Column) or len(column.parts) > 2:
        return [(None, "")]
    if not column.table and column.name.lower() in {name.lower() for name in using}:
        return _merged(column.name, inferred)
    return [(index_of(column, inferred.sides), column.name)]


def _merged(name: str, inferred: Inferred) -> list[tuple[int | None, str]]:
    """Return the columns that a column of USING refers to: that of the outer side, or of both sides of a FULL JOIN."""
    how = inferred.steps[0].how
    return [(0, name), (1, name)] if how == "full" else [(1 if how == "right" else 0, name)]


def _holds(output: _Output, part: int, inferred: Inferred) -> bool:
    """
    Return whether an output holds the value of a part of the key for every result row.

    A coalesce is not a key where one column is sufficient, because the coalesce could have another type.
    """
    keys, indexes = inferred.keys, set[int]()
    for index, name in output.columns:
        if index is None or index not in keys.members or inferred.sides[index].key[part].lower() != name.lower():
            return False
        indexes.add(index)
    if len(output.columns) > 1:
        return any(len(members) > 1 and members <= indexes for members in keys.complete)
    return frozenset(indexes) in keys.complete


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


def _key_of_pair_dropped(part: int, inferred: Inferred, pairing: PairingClause) -> Objection:
    """Create the objection that the SELECT list lacks a key column of a pairing; a coalesced column does not count."""
    keys = [(index, name) for index in inferred.keys.members for name in inferred.sides[index].key]
    index, name = keys[part]
    side = inferred.sides[index]
    problem = f"SELECT: many rows match one row, so the result has no key without `{side.alias}.{name}`"
    wrong = misspelled_key(pairing, inferred.sides)
    if wrong is not None:
        return Objection(problem, wrong[1], wrong[0])
    is_shared = [other.lower() for _, other in keys].count(name.lower()) > 1
    item = f"{side.alias}.{name}" + (f" AS {side.alias}_{name}" if is_shared else "")
    ends = ((pairing.over, one.left) if index != pairing.right else (index, one.right) for one in pairing.equalities)
    columns = [end.name for over, end in ends if over == index and isinstance(end, exp.Column)]
    unique = f"; or, if no two rows of {side.source} are equal in {', '.join(columns)}, declare that as its `key:`"
    is_key = not columns or {column.lower() for column in columns} >= {one.lower() for one in side.key}
    return Objection(problem, f"add `{item}` as a column of its own{'' if is_key else unique}", "SELECT")


def _key_dropped(part: int, inferred: Inferred) -> Objection:
    if inferred.keys.is_many_to_many:
        return _key_of_pair_dropped(part, inferred, inferred.keys.paired)
    written = [f"{inferred.sides[index].alias}.{inferred.sides[index].key[part]}" for index in inferred.keys.holders]
    name = inferred.sides[inferred.keys.members[0]].key[part]
    needed = written[0] if len(written) == 1 else f"coalesce({', '.join(written)}) AS {name}"
    return Objection(f"SELECT: the result has no key without `{needed}`", "add it to the SELECT list", "SELECT")


class Carried(NamedTuple):
    """A result column, and the watermarked input column that it copies."""

    output: str
    time: Time


def timed_inputs(statement: Statement, sources: Sources) -> dict[str, Source | None]:
    """Return the inputs whose rows have a time: all except global tables; None stands for another join."""
    inputs = (side for side in statement.sides if side.kind != "global_table")
    return {side.source: sources.get(side.source) for side in inputs}


def is_ordered_by_column(statement: Statement, sources: Sources) -> bool:
    """Return whether `order_by` of every input except global tables orders the rows of a join with a stream."""
    inputs = timed_inputs(statement, sources).values()
    return all(source is not None and source.order_by is not None for source in inputs)


def produced(statement: Statement, sources: Sources) -> Produced:
    """Return the properties of a join's result for the joins that read it; an invalid source is None."""
    if not statement.reads_stream:
        return Produced(statement.key, may_be_absent=statement.may_be_absent)
    is_ordered = is_ordered_by_column(statement, sources)
    times = tuple(column.output for column in carried(statement))
    return Produced((), is_stream=True, times=times, added=added_columns(statement.sides), is_ordered=is_ordered)


def carried(statement: Statement) -> tuple[Carried, ...]:
    """
    Find the columns of a result that keep a watermark: plain watermarked columns of a stream, limited by a bound.

    A stream that looks up tables passes all its watermarks on. In a join of two streams, a time that no bound limits
    has no watermark in the result (the Hazelcast design), because buffered rows may be emitted with any value of it.
    """
    limited = {bound.greater for bound in bounds_of(statement)} if statement.is_windowed else None
    times = (column for item in statement.select for column in _times_of(item, statement))
    return tuple(column for column in times if limited is None or column.time in limited)


def _times_of(item: exp.Expr, statement: Statement) -> Iterator[Carried]:
    using = {name.lower() for name in statement.using}
    if not is_star(item):
        column = item.this if isinstance(item, exp.Alias) else item
        if isinstance(column, exp.Column) and (column.table or column.name.lower() not in using):
            time = time_of(column, statement.sides)
            yield from [Carried(item.alias_or_name, time)] if time else []
        return
    star, alias = (item.this, item.table.lower()) if isinstance(item, exp.Column) else (item, "")
    left_out = {column.name.lower() for column in star.args.get("except_") or ()}
    merged = set() if alias else using
    for index, side in enumerate(statement.sides):
        for name, _ in side.times if alias in ("", side.alias.lower()) else ():
            if name.lower() not in left_out | merged:
                yield Carried(name, Time(index, name))
