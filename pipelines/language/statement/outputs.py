"""The output columns of a statement: their names, the key that they hold, and what joins that read the result know."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.file.model import Source
from pipelines.language.sql.dialect import as_item, as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.vocabulary import AGGREGATES
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
    if inferred is not None:
        yield from (_key_dropped(missing, inferred) for missing in missing_keys(items, inferred, using))


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


class MissingKey(NamedTuple):
    """A part of the key that a SELECT list lacks, and the item that adds it."""

    part: int
    item: exp.Expr


def missing_keys(items: Sequence[exp.Expr], inferred: Inferred, using: Collection[str]) -> Iterator[MissingKey]:
    """Yield the parts of the key that the SELECT list lacks, each with an item whose name is not taken."""
    taken = {output.name.lower() for item in items for output in _outputs(item, inferred, using)}
    columns = _key_columns(inferred)
    shared = [name.lower() for _, name in columns]
    for part, output in enumerate(key_of(items, inferred, using)):
        if output is not None:
            continue
        index, name = columns[part]
        column = _column_of_key(part, inferred)
        is_coalesced = not isinstance(column, exp.Column)
        own = f"{name}_key" if is_coalesced else f"{inferred.sides[index].alias}_{name}"
        while own.lower() in taken:
            own = f"{own}_key"
        is_free = name.lower() not in taken and shared.count(name.lower()) == 1
        alias = name if is_free and is_coalesced else None if is_free else own
        taken.add(alias.lower() if alias else name.lower())
        yield MissingKey(part, exp.Alias(this=column, alias=_name(alias)) if alias else column)


def _key_columns(inferred: Inferred) -> list[tuple[int, str]]:
    """Return the column that gives each part of the key its name, with its input."""
    members = inferred.keys.members
    indexes = members if inferred.keys.is_many_to_many else members[:1]
    return [(index, name) for index in indexes for name in inferred.sides[index].key]


def _column_of_key(part: int, inferred: Inferred) -> exp.Expr:
    """Return a part of the key: a column, or the coalesced columns of the inputs that hold it together."""
    if inferred.keys.is_many_to_many:
        held = [_key_columns(inferred)[part]]
    else:
        held = [(index, inferred.sides[index].key[part]) for index in inferred.keys.holders]
    columns = [exp.Column(this=_name(name), table=_name(inferred.sides[index].alias)) for index, name in held]
    return columns[0] if len(columns) == 1 else exp.Anonymous(this="coalesce", expressions=columns)


def _name(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=False)  # `as_item` and `render` quote it where needed


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
        if alias in ("", side.alias.lower()) and side.matches is None:
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


def is_grouped(select: exp.Select) -> bool:
    """Return whether a row of a SELECT stands for several joined rows, so that no columns are its key."""
    clauses = any(select.args.get(clause) for clause in ("distinct", "group", "having"))
    calls = (call for item in select.expressions for call in item.find_all(exp.Anonymous))
    return clauses or any(call.name.lower() in AGGREGATES for call in calls)


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


TO_THE_FILE = "`lakejoin check --add-keys` does"


def _key_dropped(missing: MissingKey, inferred: Inferred) -> Objection:
    item, pairing = as_item(missing.item), inferred.keys.pairing
    if pairing is not None:
        return _key_of_pair_dropped(missing.part, item, inferred, pairing)
    column = missing.item.this if isinstance(missing.item.this, exp.Column) else missing.item
    added = "it" if column is missing.item else f"`{item}`"
    hint = f"add {added} to the SELECT list ({TO_THE_FILE}), or set `key_columns: append`"
    return Objection(f"SELECT: the result has no key without `{as_item(column)}`", hint, "SELECT")


def _key_of_pair_dropped(part: int, item: str, inferred: Inferred, pairing: PairingClause) -> Objection:
    """Create the objection that the SELECT list lacks a key column of a pairing; a coalesced column does not count."""
    index, name = _key_columns(inferred)[part]
    side = inferred.sides[index]
    problem = f"SELECT: many rows match one row, so the result has no key without `{side.alias}.{name}`"
    wrong = misspelled_key(pairing, inferred.sides)
    if wrong is not None:
        return Objection(problem, wrong[1], wrong[0])
    ends = ((pairing.over, one.left) if index != pairing.right else (index, one.right) for one in pairing.equalities)
    columns = [end.name for over, end in ends if over == index and isinstance(end, exp.Column)]
    unique = f"; or, if no two rows of {side.source} are equal in {', '.join(columns)}, declare that as its `key:`"
    is_key = not columns or {column.lower() for column in columns} >= {one.lower() for one in side.key}
    hint = f"add `{item}` as a column of its own ({TO_THE_FILE}), or set `key_columns: append`"
    return Objection(problem, hint + ("" if is_key or _has_range(pairing, inferred) else unique), "SELECT")


def _has_range(pairing: PairingClause, inferred: Inferred) -> bool:
    """Return whether further conditions select among rows of equal values, as those of a validity do."""
    ranges = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
    return any(part.find(*ranges) for part in inferred.steps[pairing.right - 1].further)


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
